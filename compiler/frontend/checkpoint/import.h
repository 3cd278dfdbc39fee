// Imports a checkpoint of a language model as a graph, or returns every reason why it is refused.
//
//   std::vector<CheckpointFile> files = {{"config.json", bytes}, {"model.safetensors", bytes}};
//   std::vector<ImportRefusal> refusals;
//   absl::StatusOr<ImportedDecoder> decoder =
//       ImportCheckpoint(CheckpointFormat::kHf, files, options, &refusals);
//
// Weights stay where they are: a parameter is a range of a file, and the graph decodes it.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/checkpoint/decoder.h"
#include "compiler/frontend/checkpoint/families.h"
#include "compiler/frontend/checkpoint/generation.h"
#include "compiler/frontend/checkpoint/stored.h"
#include "compiler/frontend/refusal.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::checkpoint {

struct CheckpointFile {
  std::string path;        // relative to the checkpoint's folder
  std::string_view bytes;  // all of them, mapped
};

struct ImportDecoderOptions {
  DecoderForm form = DecoderForm::kWhole;
  DecoderLimits limits;
  std::vector<std::string> ignore_keys;  // keys of the config that are taken for inert
  GraphLimits graph;
  int64_t max_head_bytes = 64 << 20;  // of the head of a GGUF or safetensors file
};

struct ImportedDecoder {
  Graph graph;
  std::vector<FileTensor> parameters;  // of graph.ParameterIds(), in order; none is copied
  std::string family;                  // "llama"
  int64_t layers = 0;
  int64_t vocabulary = 0;  // columns of the logits
  int64_t context = 0;     // positions of a sequence
  GenerationDefaults generation;
  std::vector<std::string> notes;  // what a user should know, say "1.2 GB of Q4_1 become f32"
};

// Refuses by key, tensor or file what is not understood exactly; all refusals at once, and the
// status is ToStatus of them: RESOURCE_EXHAUSTED for a head beyond a limit. Of a "hf" checkpoint it
// reads config.json, generation_config.json, model.safetensors.index.json and *.safetensors but
// `consolidated*`, which repeat the others; weights in other forms (.bin) are refused by name;
// other files, and those in folders, are not read. A "gguf" checkpoint is one file.
absl::StatusOr<ImportedDecoder> ImportCheckpoint(CheckpointFormat format,
                                                 absl::Span<const CheckpointFile> files,
                                                 const ImportDecoderOptions& options,
                                                 std::vector<ImportRefusal>* refusals);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_H_
