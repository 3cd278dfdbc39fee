// Finds NVRTC for tests, in the Python environment that deploy/setup makes.
#ifndef ATHANOR_COMPILER_CODEGEN_CUDA_NVRTC_TESTING_H_
#define ATHANOR_COMPILER_CODEGEN_CUDA_NVRTC_TESTING_H_

#include <glob.h>

#include <filesystem>
#include <string>

#include "compiler/codegen/cuda/nvrtc.h"

namespace athanor {

// Returns NVRTC's folder in the source tree's .venv. `data` is any source file among the test's
// data: a link to the tree. FAILED_PRECONDITION says what is missing.
inline absl::StatusOr<std::string> TestNvrtcFolder(const std::string& data) {
  std::error_code error;
  std::filesystem::path root = std::filesystem::canonical(data, error);
  while (!error && root.has_relative_path() && !std::filesystem::exists(root / "WORKSPACE")) {
    root = root.parent_path();
  }
  glob_t found = {};
  const std::string pattern = root / ".venv/lib/python3*/site-packages/nvidia/cu13/lib";
  if (error || glob(pattern.c_str(), 0, nullptr, &found) != 0) {
    return absl::FailedPreconditionError("no NVRTC in .venv: run deploy/setup");
  }
  const std::string folder = found.gl_pathv[0];
  globfree(&found);
  return folder;
}

inline absl::StatusOr<const Nvrtc*> TestNvrtc(const std::string& data) {
  const absl::StatusOr<std::string> folder = TestNvrtcFolder(data);
  if (!folder.ok()) return folder.status();
  return Nvrtc::Load(*folder);
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_CUDA_NVRTC_TESTING_H_
