// Says what an encoder computes, whatever file it comes from: sizes, activation, positions,
// pooling. It is read from a checkpoint's keys.
//
//   std::optional<Spec> spec = SpecOf(CheckpointFormat::kHf, keys, files, {}, &refusals);
//
// A key is used, or inert at stated values, or refused by name.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_SPEC_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compiler/frontend/checkpoint/encoder/families.h"
#include "compiler/frontend/checkpoint/encoder/pooling.h"
#include "compiler/frontend/checkpoint/files/checkpoint_files.h"
#include "compiler/frontend/checkpoint/files/keys.h"
#include "compiler/frontend/refusal.h"

namespace athanor::checkpoint::encoder {

// Names the function between the two products of the feed-forward part.
enum class Activation : uint8_t { kGelu, kGeluTanh, kRelu, kSilu, kTanh };

struct Spec {
  const FamilyRow* family = nullptr;  // of the table, which lives as long as the program
  CheckpointFormat format = CheckpointFormat::kHf;
  int64_t layers = 0;
  int64_t width = 0;   // of a token's row, and of an embedding
  int64_t hidden = 0;  // inside the feed-forward part
  int64_t heads = 0;
  int64_t vocabulary = 0;
  int64_t types = 0;  // rows of the table of token types, of which the first is used; 0: no table
  int64_t positions = 0;  // rows of the table of positions
  // The row of the first position. With `padding` it is one more, and a token that is padding has
  // the row of that number and is not counted.
  int64_t first_position = 0;
  std::optional<int64_t> padding;
  double epsilon = 0;  // of norms
  Activation activation = Activation::kGelu;
  Pooling pooling;

  int64_t head() const { return width / heads; }
};

// Returns how many tokens an input may have.
int64_t MostTokens(const Spec& spec);

// Returns nullopt if anything is refused: each reason is appended to `refusals`. `files` are those
// beside config.json that say how embeddings are made. `ignore_keys` are taken for inert. Of a GGUF
// file the tensors tell `types`, and `vocabulary` if it has no such key.
std::optional<Spec> SpecOf(CheckpointFormat format, const Keys& keys,
                           absl::Span<const CheckpointFile> files,
                           absl::Span<const std::string> ignore_keys,
                           std::vector<ImportRefusal>* refusals);

}  // namespace athanor::checkpoint::encoder

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_SPEC_H_
