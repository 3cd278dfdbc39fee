// Helpers that If, Loop and Scan share: conditions, selection between branches, stacking of steps.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_CONTROL_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_CONTROL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// Loops of a known count up to this are unrolled: each step may then have its own shapes, and a
// loop would gain little. Longer loops, and those whose count depends on dims, become Scans, unless
// the body must know the step's number or a carried value at import; then they are unrolled too.
inline constexpr int64_t kMaxUnrolledSteps = 4;
// Largest number of steps of a Scan, which needs memory only for what it stacks.
inline constexpr int64_t kMaxLoopSteps = int64_t{1} << 20;
// Largest number of steps of an unrolled loop whose count depends on dims; steps beyond the count
// are masked.
inline constexpr int64_t kMaxMaskedSteps = 256;
// Largest number of steps of a loop that ends by a condition known only at run time.
inline constexpr int64_t kMaxConditionalSteps = 4096;

// Returns the one element of a known condition; nullopt if it is known only at run time.
absl::StatusOr<std::optional<bool>> KnownCondition(const Value& condition);
// Returns the prefix of the names of a step's nodes.
std::string StepLabel(int64_t step);
// Reports whether two values have the same type and provably the same shape.
bool Alike(const Bounds& bounds, const Value& a, const Value& b);
// Returns a condition of one element as a scalar.
Value AsScalar(OpBuilder& b, const Value& condition);
// Returns `x` if the scalar `condition` is true, else `y`. UNIMPLEMENTED names `what` if their
// types or shapes are not provably equal.
absl::StatusOr<Value> Either(OpBuilder& b, const Value& condition, const Value& x, const Value& y,
                             std::string_view what);
// Stacks the first `size` of elements of equal shape on a new axis, in reverse order if `reversed`.
// `model` has an element's type and shape.
absl::StatusOr<Value> Stack(OpBuilder& b, absl::Span<const Value> elements, const Value& model,
                            const Expr& size, int axis, bool reversed, std::string_view what);

absl::Status Scan8(HandlerContext& c);
absl::Status Scan9(HandlerContext& c);

// Converts a Loop over bags of ids that sums (or averages, or takes the maximum of) the rows of
// each bag into EmbeddingBag. Returns false if the node is no such loop. The bags must follow one
// another from the first id to the last; that is known only at run time, so other bags are an error
// of the request.
absl::StatusOr<bool> LoopOverBags(HandlerContext& c);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_CONTROL_H_
