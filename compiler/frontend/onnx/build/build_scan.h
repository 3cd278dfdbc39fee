// Builds a loop as one Scan. A step is built like any other code, over stand-ins for its states and
// slices. Nodes that depend on stand-ins become the Scan's body; the others are computed once,
// outside.
//
//   ScanBuilder scan(&b, length);
//   const Value h = scan.State(first), x = scan.Slice(xs);   // xs: [length, ...]
//   const Value next = Unary(b, Op::kTanh, Add(b, MatMul(b, h, w), x));
//   scan.Finish({next}, {next});
//   scan.Last(0);      // the state after the last step, `first` where there is none
//   scan.Stacked(0);   // [length, ...]
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_SCAN_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_SCAN_H_

#include <vector>

#include "compiler/frontend/onnx/build/build.h"

namespace athanor::onnx {

class ScanBuilder {
 public:
  // Borrows the builder, which must outlive this. With `reverse`, slices and elements go from the
  // last to the first.
  ScanBuilder(OpBuilder* b, Expr length, bool reverse = false);

  // Returns the step's number, counted from 0, as an int64 scalar.
  const Value& step() const { return step_; }
  Value State(const Value& first);
  Value Slice(const Value& scanned);
  // Call once. `next` has one value per state, of the state's type and of a provably equal shape. A
  // failure becomes the builder's.
  void Finish(std::vector<Value> next, std::vector<Value> elements);
  Value Last(size_t state);
  Value Stacked(size_t element);

 private:
  Value StandIn(const Value& like, Shape shape);
  Value Result(size_t output, const Value& like);

  OpBuilder& b_;
  const Expr length_;
  const bool reverse_;
  Value step_;
  std::vector<Value> firsts_, scanned_;       // operands
  std::vector<Value> state_ins_, slice_ins_;  // stand-ins of states and slices
  std::vector<Value> outputs_;                // next states, then elements
  std::vector<NodeId> operands_;              // operands of the Scan, once finished
  SubGraph body_;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_SCAN_H_
