// What If, Loop and Scan share: conditions, values that two ways lead to, results of steps as one.
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

// Loops of a known count up to this are unrolled: each step may then have shapes of its own, and a
// loop has little to gain. Longer ones, and those whose count depends on dims, are Scans, unless
// something in the body needs to know the step's number or what is carried; then they are unrolled.
inline constexpr int64_t kMaxUnrolledSteps = 4;
// Steps of a Scan, which takes no memory for them but what it stacks.
inline constexpr int64_t kMaxLoopSteps = int64_t{1} << 20;
// Unrolled loops whose count depends on dims have this many steps at most, masked beyond the count.
inline constexpr int64_t kMaxMaskedSteps = 256;
// Loops that a condition ends, which only data tells.
inline constexpr int64_t kMaxConditionalSteps = 4096;

// The one element of a condition that is known; nullopt: only data tells it.
absl::StatusOr<std::optional<bool>> KnownCondition(const Value& condition);
// What a step's nodes are named by.
std::string StepLabel(int64_t step);
// Whether two values are of one type and, provably, shape.
bool Alike(const Bounds& bounds, const Value& a, const Value& b);
// A condition of one element as a scalar.
Value AsScalar(OpBuilder& b, const Value& condition);
// `a` where the scalar `condition` is true, else `b`. UNIMPLEMENTED names `what` where their types
// or shapes are not provably equal.
absl::StatusOr<Value> Either(OpBuilder& b, const Value& condition, const Value& x, const Value& y,
                             std::string_view what);
// Elements of equal shape as one value with a new axis, the first `size` of them; the last comes
// first if `reversed`. `model` has an element's type and shape.
absl::StatusOr<Value> Stack(OpBuilder& b, absl::Span<const Value> elements, const Value& model,
                            const Expr& size, int axis, bool reversed, std::string_view what);

absl::Status Scan8(HandlerContext& c);
absl::Status Scan9(HandlerContext& c);

// A Loop over bags of ids, which sums (or averages, or takes the largest of) the rows of each, as
// EmbeddingBag; false where the node is none. Where the bags are not one after the other from the
// first id to the last, which only a request tells, that is an error of the request.
absl::StatusOr<bool> LoopOverBags(HandlerContext& c);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_CONTROL_H_
