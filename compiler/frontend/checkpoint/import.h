// Imports a checkpoint of a language model as a graph, or returns every reason why it is refused.
//
//   std::vector<CheckpointFile> files = {{"config.json", bytes}, {"model.safetensors", bytes}};
//   std::vector<ImportRefusal> refusals;
//   absl::StatusOr<ImportedCheckpoint> imported =
//       ImportCheckpoint(CheckpointFormat::kHf, files, options, &refusals);
//
// Weights stay where they are: a parameter is a range of a file, and the graph decodes it.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/checkpoint/decoder/decoder.h"
#include "compiler/frontend/checkpoint/decoder/families.h"
#include "compiler/frontend/checkpoint/decoder/generation.h"
#include "compiler/frontend/checkpoint/files/checkpoint_files.h"
#include "compiler/frontend/checkpoint/files/stored.h"
#include "compiler/frontend/refusal.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::checkpoint {

struct ImportOptions {
  DecoderForm form = DecoderForm::kWhole;
  // Bound an encoder's inputs of a call (`sequences`) and the tokens of one (`context`).
  DecoderLimits limits;
  std::vector<std::string> ignore_keys;  // keys of the config that are taken for inert
  GraphLimits graph;
  int64_t max_head_bytes = 64 << 20;  // of the head of a GGUF or safetensors file
};

struct ImportedCheckpoint {
  Graph graph;
  std::vector<FileTensor> parameters;  // of graph.ParameterIds(), in order; none is copied
  std::string family;                  // "llama"
  int64_t layers = 0;
  int64_t vocabulary = 0;
  int64_t context = 0;             // positions of a sequence, or tokens of an encoder's input
  int64_t width = 0;               // of an encoder's embeddings; 0: a decoder, which generates
  std::string batch_dim;           // of an encoder: along it calls may be joined
  GenerationDefaults generation;   // of a decoder
  std::vector<std::string> notes;  // what a user should know, say "1.2 GB of Q4_1 become f32"
};

// Refuses by key, tensor or file what is not understood exactly; all refusals at once, and the
// status is ToStatus of them: RESOURCE_EXHAUSTED for a head beyond a limit. It reads the files of
// ReadParts, and those of an encoder's pooling.
absl::StatusOr<ImportedCheckpoint> ImportCheckpoint(CheckpointFormat format,
                                                    absl::Span<const CheckpointFile> files,
                                                    const ImportOptions& options,
                                                    std::vector<ImportRefusal>* refusals);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_H_
