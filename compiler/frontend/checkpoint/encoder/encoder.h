// Builds the graph of an encoder from its spec. Parameters stay as their file stores them, and the
// graph decodes them; it computes in f32.
//
//   MatchTensors(spec, tensors, &refusals);
//   absl::StatusOr<CheckpointGraph> graph = BuildEncoder(spec, tensors, {.context = 128}, limits);
//
// ids i32[B, T], lengths i32[B] -> embeddings f32[B, width]. A row's first `lengths` ids are its
// tokens; the others are padding, of any ids of the vocabulary, and change nothing. A row without
// tokens makes zeros. Lengths outside [0, T] are indices outside their table, as ids outside the
// vocabulary are.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_ENCODER_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_ENCODER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/encoder/spec.h"
#include "compiler/frontend/checkpoint/files/graph_writer.h"
#include "compiler/frontend/checkpoint/files/match.h"
#include "compiler/frontend/refusal.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::checkpoint::encoder {

// The dim along which calls may be joined.
inline constexpr std::string_view kBatchDim = "B";

// Ends of the ranges of an encoder's dims.
struct Limits {
  int64_t inputs = 64;  // of a call (dim B)
  int64_t context = 0;  // tokens of an input (dim T); 0: as many as the checkpoint says
};

// Returns how many tokens an input may have.
int64_t ContextOf(const Spec& spec, const Limits& limits);

// Refuses tensors that are missing, have another shape than the spec says, or that no part of the
// encoder reads. `tensors` are by their canonical names.
void MatchTensors(const Spec& spec, const Tensors& tensors, std::vector<ImportRefusal>* refusals);

// Returns the tensors by their canonical names; refuses those that are there under two names.
Tensors CanonicalTensors(const Spec& spec, const Tensors& tensors,
                         std::vector<ImportRefusal>* refusals);

// INVALID_ARGUMENT: limits that are not positive, or beyond the checkpoint's. REQUIRES:
// MatchTensors refused nothing.
absl::StatusOr<CheckpointGraph> BuildEncoder(const Spec& spec, const Tensors& tensors,
                                             const Limits& limits, const GraphLimits& graph_limits);

}  // namespace athanor::checkpoint::encoder

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_ENCODER_H_
