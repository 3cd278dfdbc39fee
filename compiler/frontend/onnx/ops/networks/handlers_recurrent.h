// Helpers that the handlers of recurrences share. Private to handlers_recurrent*.cc.
//
// A recurrence is a Scan over its length, or, for length 1, its one step without a Scan. Steps
// beyond a row's own length leave its state unchanged and give zeros. Values that do not depend on
// the state are computed for all steps at once, before the Scan.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_RECURRENT_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_RECURRENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// A function that RNN, GRU and LSTM name in `activations`.
struct Activation {
  Value (*apply)(OpBuilder& b, const Value& x, double alpha, double beta) = nullptr;
  double alpha = 0, beta = 0;

  Value operator()(OpBuilder& b, const Value& x) const { return apply(b, x, alpha, beta); }
};
// Returns `count` activations, from the node's attributes or else `names`. INVALID_ARGUMENT: an
// unknown one, a wrong number, or a function whose required alpha or beta is not given.
absl::StatusOr<std::vector<Activation>> ActivationsOf(const HandlerContext& c, size_t count,
                                                      absl::Span<const std::string_view> names);

// The steps of a recurrence.
class Sequence {
 public:
  Sequence() = default;
  explicit Sequence(Expr length) : length_(std::move(length)) {}
  // Sets the lengths of the batch's rows, which may be shorter: i64 or i32 [batch].
  void SetLengths(OpBuilder& b, const Value& lengths);

  const Expr& length() const { return length_; }
  // Reports whether rows have their own lengths, which are known only at run time.
  bool by_row() const { return lengths_.has_value(); }
  // Returns x [length, batch, ...] with zeros at the steps beyond the longest row.
  Value Used(OpBuilder& b, const Value& x) const;
  // Returns `value` for rows whose length includes the step, else `otherwise`; both are [batch,
  // ...].
  Value Within(OpBuilder& b, const Value& step, const Value& value, const Value& otherwise) const;

  // Computes a step from its slices of `scanned` [length, ...] and its states; returns the next
  // states, then elements.
  using Step = absl::FunctionRef<std::vector<Value>(
      const Value& step, const std::vector<Value>& slices, const std::vector<Value>& states)>;
  struct Ran {
    std::vector<Value> last;     // by state
    std::vector<Value> stacked;  // [length, ...] by element
  };
  // With `reverse`, runs from the last slice to the first; element i still belongs to slice i.
  Ran Run(OpBuilder& b, const std::vector<Value>& scanned, const std::vector<Value>& states,
          bool reverse, Step step) const;
  // Returns x [length, batch, K] with each row's steps in reverse order; steps beyond the row's
  // length stay in place.
  Value Reversed(OpBuilder& b, const Value& x) const;

 private:
  Expr length_;
  std::optional<Value> lengths_;  // i64 [batch], in [0, length]
};

absl::Status Rnn(HandlerContext& c);
absl::Status Gru(HandlerContext& c);
absl::Status Lstm(HandlerContext& c);
absl::Status DynamicQuantizeLstm(HandlerContext& c);
absl::Status LinearAttention(HandlerContext& c);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_RECURRENT_H_
