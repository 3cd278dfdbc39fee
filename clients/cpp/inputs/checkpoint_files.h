// The files of a language model's checkpoint that are uploaded.
//
//   std::vector<CheckpointFile> files = CheckpointFiles("folder").value();  // format "hf"
//   files[0].path;  files[0].file->bytes();   // as UploadRequest takes them
#ifndef ATHANOR_CLIENTS_CPP_INPUTS_CHECKPOINT_FILES_H_
#define ATHANOR_CLIENTS_CPP_INPUTS_CHECKPOINT_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/cpp/inputs/mapped_file.h"

namespace athanor::client {

struct CheckpointFile {
  std::string path;  // in the checkpoint's folder
  std::unique_ptr<MappedFile> file;
};

// Opens the files of a folder with a config.json, or a GGUF file. INVALID_ARGUMENT: no weights, or
// a file that a link leads out of the folder to; NOT_FOUND: a missing file.
absl::StatusOr<std::vector<CheckpointFile>> CheckpointFiles(const std::string& path);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_INPUTS_CHECKPOINT_FILES_H_
