// What a user can say of dims at upload so that sizes that a model needs equal are: convolutions
// and poolings round down, so a network that goes down and up again meets its own sizes for
// multiples only.
//
//   MultiplesHints hints(&graph.dims);
//   // "; they are equal for multiples of 32: give dims={\"height\": \"32*h\", \"h\": (1, 16)}"
//   std::string hint = hints.Of({{2 * FloorDiv(h, 32), FloorDiv(h, 16)}});
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_MULTIPLES_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_MULTIPLES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::onnx {

using SizePair = std::pair<Expr, Expr>;

// For the messages of one import about pairs that are not provably equal. A hint is found by trying
// factors, so many for all messages together at most, however many nodes a file has refused:
// further hints are empty, but for those of pairs that were asked of before. So are those of pairs
// that are long. Not thread-safe.
class MultiplesHints {
 public:
  static constexpr int64_t kMostTries = 1024;  // a hint takes 70 per dim at most

  // `dims` outlive it.
  explicit MultiplesHints(const std::vector<Dim>* dims) : dims_(dims) {}

  // The least factors of the pairs' dims for which all of them are equal, with the bounds that are
  // left. Empty where there are no such factors, or none are needed.
  std::string Of(absl::Span<const SizePair> pairs);
  // Axis by axis from the last, where neither is 1.
  std::string Of(const Shape& a, const Shape& b);
  // Of an `a` that is not provably a multiple of `b`.
  std::string OfDivisible(const Expr& a, const Expr& b);

  int64_t tries() const { return tries_; }

 private:
  std::string Find(absl::Span<const SizePair> pairs);

  const std::vector<Dim>* const dims_;
  int64_t tries_ = 0;
  std::map<std::string, std::string> found_;  // by the pairs
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_MULTIPLES_H_
