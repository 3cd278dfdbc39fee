// A loop as one Scan. What a step computes is built like anything else, over stand-ins for its
// states and slices; what of that follows from them becomes the Scan's body, the rest is computed
// once, outside.
//
//   ScanBuilder scan(&b, length);
//   const Value h = scan.State(first), x = scan.Slice(xs);   // xs: [length, ...]
//   const Value next = b.Tanh(b.Add(b.MatMul(h, w), x));
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
  // The builder outlives this. With `reverse` slices and elements go from the last to the first.
  ScanBuilder(OpBuilder* b, Expr length, bool reverse = false);

  // The step's number from 0 on, an int64 scalar.
  const Value& step() const { return step_; }
  Value State(const Value& first);
  Value Slice(const Value& scanned);
  // `next` as many as states, each of its state's type and of a shape provably equal to its; once.
  // A failure is the builder's.
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
  std::vector<Value> state_ins_, slice_ins_;  // their stand-ins
  std::vector<Value> outputs_;                // next states, elements
  std::vector<NodeId> operands_;              // of the Scan, once finished
  SubGraph body_;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_SCAN_H_
