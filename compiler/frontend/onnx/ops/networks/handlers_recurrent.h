// What the handlers of recurrences share. Private to handlers_recurrent*.cc.
//
// A recurrence is a Scan over its length, or its one step in place. Steps beyond a row's own length
// leave its state as it is and give zeros. What does not depend on the state is computed for all
// steps at once, before.
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

// One of the functions that RNN, GRU and LSTM name in `activations`.
struct Activation {
  Value (*apply)(OpBuilder& b, const Value& x, double alpha, double beta) = nullptr;
  double alpha = 0, beta = 0;

  Value operator()(OpBuilder& b, const Value& x) const { return apply(b, x, alpha, beta); }
};
// `count` of them, by the node's attributes or else `names`. INVALID_ARGUMENT for an unknown one, a
// wrong number, or a function whose alpha or beta must be given and is not.
absl::StatusOr<std::vector<Activation>> ActivationsOf(const HandlerContext& c, size_t count,
                                                      absl::Span<const std::string_view> names);

// Steps along which a state runs.
class Sequence {
 public:
  Sequence() = default;
  explicit Sequence(Expr length) : length_(std::move(length)) {}
  // Rows of a batch that are shorter: i64 or i32 [batch].
  void SetLengths(OpBuilder& b, const Value& lengths);

  const Expr& length() const { return length_; }
  // Rows have lengths of their own, which only data tells.
  bool by_row() const { return lengths_.has_value(); }
  // x [length, batch, ...] with zeros at the steps that no row has.
  Value Used(OpBuilder& b, const Value& x) const;
  // Where the step is within a row's length, `value`, else `otherwise`; both are [batch, ...].
  Value Within(OpBuilder& b, const Value& step, const Value& value, const Value& otherwise) const;

  // What a step makes of its slices of `scanned` [length, ...] and its states: the next states,
  // then elements.
  using Step = absl::FunctionRef<std::vector<Value>(
      const Value& step, const std::vector<Value>& slices, const std::vector<Value>& states)>;
  struct Ran {
    std::vector<Value> last;     // by state
    std::vector<Value> stacked;  // [length, ...] by element
  };
  // With `reverse` from the last slice to the first, elements at their slices' places.
  Ran Run(OpBuilder& b, const std::vector<Value>& scanned, const std::vector<Value>& states,
          bool reverse, Step step) const;
  // x [length, batch, K] with each row's steps in reverse, the rest where it was.
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
