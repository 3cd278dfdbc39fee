// Folders in which libraries of a CUDA toolkit may lie: a toolkit's, and those of Python packages.
//
//   for (const std::string& folder : CudaFolders("", "ATHANOR_NVRTC")) dlopen(folder + "/lib...");
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_CUDA_FOLDERS_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_CUDA_FOLDERS_H_

#include <string>
#include <vector>

namespace athanor {

// Returns the files and folders that a shell's pattern names.
std::vector<std::string> FilesLike(const std::string& pattern);

// Returns `folder` alone, if it is not empty; else the folder in the environment variable
// `variable`, if there is one; else all usual ones: first "", by which the system's loader is asked
// for a bare name, then toolkits, then Python packages, those of the python3 in PATH among them.
std::vector<std::string> CudaFolders(const std::string& folder, const char* variable);

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_CUDA_FOLDERS_H_
