// The functions of evaluate_at_rows.cc for Scan: any element may depend on all elements of all
// operands.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/sample/evaluate_at_internal.h"

namespace athanor {
namespace {

// Returns the number of elements that one step computes.
absl::StatusOr<int64_t> ElementsOf(const Graph& body, const Expr::Env& dims) {
  int64_t elements = 0;
  for (const Node& node : body.nodes) {
    absl::StatusOr<std::vector<int64_t>> shape = ConcreteShape(node.type.shape, dims);
    if (!shape.ok()) return shape.status();
    if (__builtin_add_overflow(elements, Product(*shape), &elements)) return INT64_MAX;
  }
  return elements;
}

}  // namespace

absl::Status Cutter::DependScan(NodeId n) {
  const Node& node = graph_.node(n);
  const ScanView scan = ViewScan(node);
  const int64_t length = scan.length.Evaluate(dims_).value_or(INT64_MAX);
  const absl::StatusOr<int64_t> elements = ElementsOf(scan.body, dims_);
  if (!elements.ok()) return elements.status();
  if (absl::Status s = Spend(n, length, *elements); !s.ok()) return s;
  std::vector<Handle> operands;
  for (NodeId i : node.inputs) {
    const absl::Span<const int64_t> shape = ShapeOf(i);
    if (absl::Status s = Spend(n, Product(shape)); !s.ok()) return s;
    operands.push_back(Pull(i, {shape.begin(), shape.end()}, UpTo(Product(shape))));
  }
  recipes_[n] = [this, n, operands = std::move(operands)]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> in;
    for (Handle operand : operands) {
      absl::StatusOr<NodeId> node = Get(operand);
      if (!node.ok()) return node;
      in.push_back(*node);
    }
    std::map<std::string, Expr, std::less<>> sizes;
    for (const auto& [name, value] : dims_) sizes[name] = value;
    Attrs attrs = graph_.node(n).attrs;
    EditExprs(&attrs, [&](Expr& e) {
      if (!e.constant()) e = e.Substitute(sizes);
    });
    absl::StatusOr<NodeId> whole = builder_.Add(Op::kScan, std::move(in), std::move(attrs));
    const absl::Span<const int64_t> shape = ShapeOf(n);
    return Add(Op::kGather,
               {Flatten(std::move(whole), {shape.begin(), shape.end()}),
                IndexLiteral({Count(wanted_[n])}, wanted_[n])},
               {{"axis", int64_t{0}}});
  };
  return absl::OkStatus();
}

}  // namespace athanor
