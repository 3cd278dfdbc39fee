// Says how an encoder's rows become an embedding: as sentence-transformers' files of a folder, or a
// key of a GGUF file, have it.
//
//   std::optional<Pooling> pooling = ReadPooling({{"modules.json", bytes}, ...}, {}, &refusals);
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_POOLING_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_POOLING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "compiler/frontend/checkpoint/files/checkpoint_files.h"
#include "compiler/frontend/checkpoint/files/key_reader.h"
#include "compiler/frontend/refusal.h"

namespace athanor::checkpoint::encoder {

// Rows are those of the tokens.
enum class PoolingKind : uint8_t {
  kMean,
  kFirst,  // files say "cls"
  kLast,
  kMax,
};

struct Pooling {
  PoolingKind kind = PoolingKind::kMean;
  bool normalised = false;         // to the length 1
  int64_t width = 0;               // that a file states; 0: none does
  int64_t most_tokens = 0;         // of an input, those that the tokenizer adds counted; 0: any
  std::vector<std::string> notes;  // what a user should know
};

// Reads modules.json and the files that it names, sentence_*_config.json (or else
// tokenizer_config.json's model_max_length) and config_sentence_transformers.json. Without
// modules.json it is the mean, as sentence-transformers has it. nullopt: something is refused, by
// file and key; `ignore_keys` are taken for inert.
std::optional<Pooling> ReadPooling(absl::Span<const CheckpointFile> files,
                                   absl::Span<const std::string> ignore_keys,
                                   std::vector<ImportRefusal>* refusals);

// Reads GGUF's `key`, its pooling_type. Without it, it is the mean.
Pooling ReadGgufPooling(std::string_view key, KeyReader* read);

}  // namespace athanor::checkpoint::encoder

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_POOLING_H_
