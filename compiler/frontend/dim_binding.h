// Solves the model's dims from the shapes of a request's inputs. The order in which dims are solved
// is determined once per model; a request costs a few comparisons.
//
//   // inputs: "ids" [b, s], "mask" [b, s]
//   DimBinding binding = DimBinding::Create(graph).value();
//   std::vector<int64_t> dims;
//   binding.Bind({{2, 128}, {2, 128}}, &dims);   // dims == {2, 128}
//   binding.Bind({{2, 128}, {3, 128}}, &dims);   // input "mask": axis 0 is 3; it must be b
//
// Immutable after Create, so thread-safe.
#ifndef ATHANOR_COMPILER_FRONTEND_DIM_BINDING_H_
#define ATHANOR_COMPILER_FRONTEND_DIM_BINDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

class DimBinding {
 public:
  // Returns INVALID_ARGUMENT naming a dim that nodes use but no input's shape determines. A dim
  // that is not used at all, or that only states have, is bound to its min: whoever runs a graph
  // with states knows how large they are.
  static absl::StatusOr<DimBinding> Create(const Graph& graph);

  // `shapes` are those of the inputs, in the order of graph.InputIds(). On success every axis has
  // the size that its expression has under `dims` (in the order of graph.dims), and every dim is in
  // bounds.
  absl::Status Bind(absl::Span<const absl::Span<const int64_t>> shapes,
                    std::vector<int64_t>* dims) const;

 private:
  // Check of one axis of one input.
  struct Axis {
    Expr size;
    std::optional<int64_t> constant;  // value of `size`, if constant
    int dim = -1;                     // the dim, if `size` is just a dim
  };
  // Equation dims[dim] = (shape[input][axis] - base) / stride.
  struct Solution {
    int dim;
    int input;
    int axis;
    Expr base;
    Expr stride;
  };
  struct Input {
    std::string name;
    std::vector<Axis> axes;
  };

  int DimIndex(const std::string& name) const;
  bool SolveNext(bool simple, const Bounds& bounds, std::vector<bool>* solved);
  absl::Status CheckRanks(absl::Span<const absl::Span<const int64_t>> shapes) const;
  absl::Status Solve(const Solution& solution, int64_t size, std::vector<int64_t>* dims) const;
  absl::Status CheckAxis(size_t input, size_t axis, int64_t size, absl::Span<const int64_t> dims,
                         const Expr::Env& env) const;
  Expr::Env EnvOf(absl::Span<const int64_t> dims) const;
  std::string ShapeText(const Input& input) const;

  std::vector<Dim> dims_;
  std::vector<Input> inputs_;
  std::vector<Solution> solutions_;
  bool compound_ = false;  // some axis is neither a constant nor just a dim
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_DIM_BINDING_H_
