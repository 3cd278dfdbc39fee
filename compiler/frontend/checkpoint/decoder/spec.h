// Says what a decoder computes, whatever file it comes from: sizes, rope, windows. It is read from
// a checkpoint's keys.
//
//   std::vector<ImportRefusal> refusals;
//   std::optional<DecoderSpec> spec = SpecOf(CheckpointFormat::kHf, keys, {}, &refusals);
//
// A key is used, or inert at stated values, or refused by name.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_SPEC_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/frontend/checkpoint/decoder/families.h"
#include "compiler/frontend/checkpoint/files/keys.h"
#include "compiler/frontend/refusal.h"

namespace athanor::checkpoint {

struct DecoderSpec {
  const FamilyRow* family = nullptr;  // of the table, which lives as long as the program
  CheckpointFormat format = CheckpointFormat::kHf;
  int64_t layers = 0;
  int64_t width = 0;                        // of a token's row between layers
  int64_t hidden = 0;                       // inside the feed-forward part, or an expert
  int64_t experts = 0, experts_of_row = 0;  // 0: a single feed-forward part
  bool sums_to_one = false;                 // weights of a row's experts are divided by their sum
  int64_t heads = 0, kv_heads = 0;
  int64_t head = 0;  // size of a head
  int64_t vocabulary = 0;
  int64_t positions = 0;  // of a sequence
  double epsilon = 0;     // of norms
  bool tied = false;      // the embedding's rows make the logits
  double scale = 0;       // of attention's scores; 0: 1 / sqrt(head)
  // Bounds c: a score or logit x becomes c * tanh(x / c); 0: none.
  double score_cap = 0, logit_cap = 0;
  // A rope turns elements i and i + head/2 by position * inverse[i].
  std::vector<float> inverse;
  // The rope of layers with a window; empty: the same.
  std::vector<float> local_inverse;
  // The number of keys that a row of each layer sees, its own the last; 0: all up to its own.
  std::vector<int64_t> windows;
};

// Returns nullopt if anything is refused: each reason is appended to `refusals`. `ignore_keys` are
// taken for inert. Of a GGUF file `vocabulary` is 0 if it has no such key, and `tied` stays false:
// its tensors tell.
std::optional<DecoderSpec> SpecOf(CheckpointFormat format, const Keys& keys,
                                  absl::Span<const std::string> ignore_keys,
                                  std::vector<ImportRefusal>* refusals);

// Divides the inverse frequencies by GGUF's `rope_freqs.weight`, which stands for llama3's scaling.
// INVALID_ARGUMENT: not one factor for each pair, or one that is not finite and positive.
absl::Status ScaleRope(absl::Span<const float> factors, DecoderSpec* spec);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_SPEC_H_
