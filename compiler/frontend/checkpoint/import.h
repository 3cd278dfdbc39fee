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
#include "compiler/frontend/checkpoint/stored.h"
#include "compiler/frontend/refusal.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::checkpoint {

enum class CheckpointFormat : uint8_t {
  kHf,    // config.json, *.safetensors, perhaps generation_config.json and tokenizer files
  kGguf,  // one file
};

struct CheckpointFile {
  std::string path;        // relative to the checkpoint's folder
  std::string_view bytes;  // all of them, mapped
};

// Ends of the ranges of a decoder's dims.
struct DecoderLimits {
  int64_t tokens = 512;    // rows of a step (dim T)
  int64_t sequences = 64;  // sequences of a step (dim S)
  int64_t context = 0;     // positions of a sequence; 0: as many as the checkpoint says
  int64_t block = 16;      // positions of a block of the cache
};

// Which form of the graph is built. Both give the same numbers.
enum class DecoderForm : uint8_t {
  kWhole,  // ids, position i32[T], wanted i32[R] -> logits f32[R, V]; one sequence from its start
  kPaged,  // and sequence i32[T], table i32[S, B]; keys and values are states
};

struct ImportDecoderOptions {
  DecoderForm form = DecoderForm::kWhole;
  DecoderLimits limits;
  std::vector<std::string> ignore_keys;  // keys of the config that are taken for inert
  GraphLimits graph;
};

// How a checkpoint's sequences begin and end, and what its authors sample with.
struct GenerationDefaults {
  std::vector<int32_t> end_tokens;  // any of them ends a sequence
  double temperature = 1;           // 0: the most likely token
  int64_t top_k = 0;                // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
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
// status is ToStatus of them.
absl::StatusOr<ImportedDecoder> ImportCheckpoint(CheckpointFormat format,
                                                 absl::Span<const CheckpointFile> files,
                                                 const ImportDecoderOptions& options,
                                                 std::vector<ImportRefusal>* refusals);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_H_
