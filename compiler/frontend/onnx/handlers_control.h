// What If, Loop and Scan share: conditions, values that two ways lead to, results of steps as one.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_HANDLERS_CONTROL_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_HANDLERS_CONTROL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

// Loops whose count depends on dims become this many steps at most, masked beyond the count.
inline constexpr int64_t kMaxMaskedSteps = 256;
// Loops that a condition ends, which only data tells.
inline constexpr int64_t kMaxConditionalSteps = 4096;

// The one element of a condition that is known; nullopt: only data tells it.
absl::StatusOr<std::optional<bool>> KnownCondition(const Value& condition);
// What a step's nodes are named by.
std::string StepLabel(int64_t step);
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

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_HANDLERS_CONTROL_H_
