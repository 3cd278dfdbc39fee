// Suggests bounds of dims that make sizes equal which a model needs equal. Convolutions and
// poolings round sizes down, so a network that downsamples and upsamples again gets its original
// sizes back only for multiples of some factor. The user can state such multiples at upload.
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

// Hints for the messages of one import about pairs of sizes that are not provably equal. A hint is
// found by trying factors. The number of tries is bounded for all messages together, however many
// nodes a file has refused: then further hints are empty, except for pairs asked about before.
// Hints for long pairs are empty too. Not thread-safe.
class MultiplesHints {
 public:
  static constexpr int64_t kMostTries = 1024;  // one hint takes at most 70 per dim

  // Borrows `dims`, which must outlive it.
  explicit MultiplesHints(const std::vector<Dim>* dims) : dims_(dims) {}

  // Returns the least factors of the pairs' dims for which all pairs are equal, with the resulting
  // bounds. Empty if there are no such factors or none are needed.
  std::string Of(absl::Span<const SizePair> pairs);
  // Compares axis by axis from the last, skipping axes of size 1.
  std::string Of(const Shape& a, const Shape& b);
  // Returns the hint for an `a` that is not provably a multiple of `b`.
  std::string OfDivisible(const Expr& a, const Expr& b);

  int64_t tries() const { return tries_; }

 private:
  std::string Find(absl::Span<const SizePair> pairs);

  const std::vector<Dim>* const dims_;
  int64_t tries_ = 0;
  std::map<std::string, std::string> found_;  // hint by pairs
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_MULTIPLES_H_
