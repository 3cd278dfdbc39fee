// Reads a checkpoint's files: their keys, and where their tensors lie.
//
//   std::vector<CheckpointFile> files = {{"config.json", bytes}, {"model.safetensors", bytes}};
//   std::vector<ImportRefusal> refusals;
//   CheckpointParts parts = ReadParts(CheckpointFormat::kHf, files, max_head_bytes, &refusals);
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_CHECKPOINT_FILES_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_CHECKPOINT_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "compiler/frontend/checkpoint/files/format.h"
#include "compiler/frontend/checkpoint/files/keys.h"
#include "compiler/frontend/checkpoint/files/match.h"
#include "compiler/frontend/refusal.h"

namespace athanor::checkpoint {

struct CheckpointFile {
  std::string path;        // relative to the checkpoint's folder
  std::string_view bytes;  // all of them, mapped
};

struct CheckpointParts {
  std::optional<Keys> keys;        // of config.json or the GGUF file; nullopt: it was refused
  Keys generation;                 // of generation_config.json
  std::optional<Tensors> tensors;  // nullopt: a file of weights was refused
};

// Refuses files by name. Of a "hf" checkpoint it reads config.json, generation_config.json,
// model.safetensors.index.json and *.safetensors but `consolidated*`, which repeat the others;
// weights in other forms (.bin) are refused by name; other files, and those in folders, are not
// read. A "gguf" checkpoint is one file.
CheckpointParts ReadParts(CheckpointFormat format, absl::Span<const CheckpointFile> files,
                          int64_t max_head_bytes, std::vector<ImportRefusal>* refusals);

// Returns nullptr if there is none.
const CheckpointFile* FindFile(absl::Span<const CheckpointFile> files, std::string_view path);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_CHECKPOINT_FILES_H_
