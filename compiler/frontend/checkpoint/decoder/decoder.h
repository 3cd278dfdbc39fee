// Builds the graph of a decoder from its spec. Parameters stay as their file stores them, and the
// graph decodes them; it computes in f32.
//
//   MatchTensors(spec, tensors, &refusals);
//   absl::StatusOr<CheckpointGraph> decoder =
//       BuildDecoder(spec, tensors, limits, DecoderForm::kPaged);
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_DECODER_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_DECODER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/decoder/spec.h"
#include "compiler/frontend/checkpoint/files/graph_writer.h"
#include "compiler/frontend/checkpoint/files/match.h"
#include "compiler/frontend/refusal.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::checkpoint {

// Ends of the ranges of a decoder's dims.
struct DecoderLimits {
  int64_t tokens = 512;    // rows of a step (dim T)
  int64_t sequences = 64;  // sequences of a step (dim S)
  int64_t context = 0;     // positions of a sequence; 0: as many as the checkpoint says
  int64_t block = 16;      // positions of a block of keys and values
};

// The two forms of the graph; both give the same numbers. In both, rows are tokens, and those that
// `wanted` lists have logits.
enum class DecoderForm : uint8_t {
  // ids, position i32[T], wanted i32[R] -> logits f32[R, V]. `position` counts 0, 1, 2, ... and a
  // row sees those before it; rows beyond the sequence's end are computed and hurt nobody.
  kWhole,
  // ids, sequence, position i32[T], table i32[S, B], wanted i32[R] -> logits f32[R, V]. Rows are
  // of any sequences, in any pieces. Each layer has states "keys.<layer>" and "values.<layer>",
  // f32[N * block, heads, head]: position p of sequence s lies in slot
  // table[s, p / block] * block + p % block, which the row of that position writes. N bounds the
  // numbers in tables. It has room for one block and those of all sequences, times the number of
  // states, so that tables may name block b by b times that number; a bound of tensors' bytes makes
  // it less.
  kPaged,
};

// Returns how many positions a sequence may have.
int64_t ContextOf(const DecoderSpec& spec, const DecoderLimits& limits);
// Returns how many blocks that many positions take.
int64_t BlocksOf(int64_t positions, int64_t block);

// Refuses tensors that are missing, have another shape than the spec says, or that no part of the
// decoder reads.
void MatchTensors(const DecoderSpec& spec, const Tensors& tensors,
                  std::vector<ImportRefusal>* refusals);

// INVALID_ARGUMENT: limits that are not positive, or beyond the checkpoint's. REQUIRES:
// MatchTensors refused nothing.
absl::StatusOr<CheckpointGraph> BuildDecoder(const DecoderSpec& spec, const Tensors& tensors,
                                             const DecoderLimits& limits, DecoderForm form,
                                             const GraphLimits& graph_limits = {});

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_DECODER_DECODER_H_
