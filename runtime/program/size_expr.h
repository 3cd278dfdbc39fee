// The sizes of a plan, compiled once: SizeExprs over the plan's dims become one flat program that
// is evaluated without allocation.
//
//   SizeTable sizes({{"b", 1, 64}, {"s", 1, 512}});
//   int bytes = sizes.Add(plan.buffers(0).bytes()).value();
//   sizes.EvaluateOne(bytes, {4, 128});
//
// Adding an expression excludes overflow, by interval arithmetic over all sizes that the dims'
// ranges allow, for every intermediate result in the order in which it is computed. Evaluation then
// checks nothing.
#ifndef ATHANOR_RUNTIME_PROGRAM_SIZE_EXPR_H_
#define ATHANOR_RUNTIME_PROGRAM_SIZE_EXPR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/graph.pb.h"

namespace athanor {

// A dim's bounds in one plan.
struct SizeDim {
  std::string name;
  int64_t min = 0;
  int64_t max = 0;
};

// Smallest and largest value an expression may take, not necessarily reached.
struct SizeRange {
  int64_t min = 0;
  int64_t max = 0;
};

// Filled by one thread, then read by any number.
class SizeTable {
 public:
  SizeTable() = default;
  // REQUIRES: min <= max for each dim.
  explicit SizeTable(std::vector<SizeDim> dims) : dims_(std::move(dims)) {}

  // Returns the expression's id; equal expressions share one. INVALID_ARGUMENT says what is wrong:
  // an unknown dim, an overflow, a divisor that is never positive, a factor without a kind, nesting
  // beyond kMaxNesting.
  absl::StatusOr<int> Add(const v1::SizeExpr& expr);

  const std::vector<SizeDim>& dims() const { return dims_; }
  int size() const { return static_cast<int>(entries_.size()); }
  SizeRange range(int id) const { return entries_[id].range; }
  bool constant(int id) const { return entries_[id].constant; }

  // Writes the value of expression i to values[i]. Division by a size of zero gives zero: it only
  // happens if a dim is 0, when there is nothing to compute. REQUIRES: dims within their ranges, in
  // order; values.size() == size().
  void Evaluate(absl::Span<const int64_t> dims, absl::Span<int64_t> values) const;
  int64_t EvaluateOne(int id, absl::Span<const int64_t> dims) const;

  static constexpr int kMaxNesting = 16;  // of floor_div, min and max

 private:
  enum class Code : uint8_t { kConst, kDim, kAdd, kMul, kFloorDiv, kMin, kMax };
  struct Instruction {
    Code code;
    int64_t operand;  // kConst: the value; kDim: its position
  };
  struct Entry {
    int begin, end;  // instructions; they leave the value on the stack
    SizeRange range;
    bool constant;
  };
  class Compiler;

  int64_t Execute(const Entry& entry, const int64_t* dims) const;

  std::vector<SizeDim> dims_;
  std::vector<Instruction> code_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, int> ids_;  // by serialized expression
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_PROGRAM_SIZE_EXPR_H_
