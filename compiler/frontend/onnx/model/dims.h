// Dims of an ONNX graph: turns dim_params and the user's statements into dims with bounds, and
// checks the shapes that the file states for other values.
//
//   DimTable dims = DimTable::Create(graph, given, limits).value();
//   dims.ShapeOf(input) == {b, past + seq, 64}
//   dims.WrongClaim("output \"y\"", info.type(), inferred, bounds)   // "": nothing is wrong
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_DIMS_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_DIMS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

// A user's statement about one dim: bounds, or (`equals`) an expression over other dims, or a
// number.
struct DimGiven {
  std::string name;  // as in the file
  std::optional<int64_t> min, max;
  std::string equals;
};

class DimTable {
 public:
  // `inputs` are the graph's inputs that have no initialiser. INVALID_ARGUMENT names all dims
  // without an upper bound at once, with the inputs and axes that use them; a given dim that no
  // input has; or an `equals` that does not parse, is circular, or leaves a dim that no input
  // determines.
  static absl::StatusOr<DimTable> Create(absl::Span<const ::onnx::ValueInfoProto* const> inputs,
                                         absl::Span<const DimGiven> given,
                                         const GraphLimits& limits);

  const std::vector<Dim>& dims() const { return dims_; }
  // Returns an input's shape. REQUIRES: the input was given to Create.
  const Shape& ShapeOf(std::string_view input) const;
  // Returns a sentence with `what`, both shapes and the axis whose size provably differs, or both
  // ranks; empty if nothing provably differs. Names that no input has and expressions that do not
  // parse are ignored.
  std::string WrongClaim(std::string_view what, const ::onnx::TypeProto& claim,
                         const Shape& inferred, const Bounds& bounds) const;

 private:
  std::optional<Expr> Parse(std::string_view text) const;

  std::vector<Dim> dims_;
  std::map<std::string, Expr, std::less<>> by_text_;  // dim_param to expression
  std::map<std::string, Shape, std::less<>> shapes_;  // by input
};

// Parses "2*s0 + 1", "(frames - 1)//2 + 1", "floor(s1/8)" as an expression over symbols; nullopt if
// the text is none, such as "batch size".
std::optional<Expr> ParseDimParam(std::string_view text);
// Returns a symbol's name for a text that is no expression: "batch size" gives "batch_size".
std::string SymbolFor(std::string_view text);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_DIMS_H_
