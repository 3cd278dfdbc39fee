// Cases of limits_test about graphs.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "server/limits_testing.h"

namespace athanor {
namespace {

void GraphBytes() {
  const auto bytes = static_cast<int64_t>(ReluModel().graph.ByteSizeLong());
  ExpectBound({.max_graph_bytes = bytes}, ReluModel(), ChainModel({1, 2, 3}), kExhausted,
              {absl::StrCat("at most ", bytes), "--max_graph_bytes"});
}

void TensorBytes() {
  ExpectBound({.max_tensor_bytes = 64}, Weights(16), Weights(17), kInvalid,
              {"68 bytes", "the limit is 64", "--max_tensor_bytes"});
}

void Nodes() {
  ExpectBound({.max_nodes = 3}, Weights(1), ChainModel({1}), kInvalid,
              {"nodes; the limit is 3", "--max_nodes"});
}

// Makes y = relu(x) of x f32 with `sizes`, under `name`.
TestModel ReluOf(std::vector<Dim> dims, Shape sizes, const std::string& name = "clamp") {
  Graph graph;
  graph.dims = std::move(dims);
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, std::move(sizes)}).value();
  builder.Output("y", builder.Add(Op::kRelu, {x}, {}, name).value());
  return ModelOf(graph, {});
}

void Rank() {
  ExpectBound({.max_rank = 2}, ReluOf({}, {2, 3}), ReluOf({}, {2, 3, 4}), kInvalid,
              {"3 entries", "the limit is 2", "--max_rank"});
}

void Dims() {
  const Dim b{"b", 1, 8}, s{"s", 1, 8};
  ExpectBound({.max_dims = 1}, ReluOf({b}, {Expr::Symbol("b")}),
              ReluOf({b, s}, {Expr::Symbol("b"), Expr::Symbol("s")}), kInvalid,
              {"2 dims; the limit is 1", "--max_dims"});
}

void NameBytes() {
  ExpectBound({.max_name_bytes = 5}, ReluOf({}, {2}, "clamp"), ReluOf({}, {2}, "clamps"), kInvalid,
              {"\"clamps\"", "6 bytes long; the limit is 5", "--max_name_bytes"});
}

// Makes y = x + literal, with `elements` elements.
TestModel AddLiteral(int64_t elements) {
  Graph graph;
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {elements}}).value();
  const NodeId literal = builder.Constant(Tensor::Zeros(DType::kF32, {elements})).value();
  builder.Output("y", builder.Add(Op::kAdd, {x, literal}, {}, "sum").value());
  return ModelOf(graph, {});
}

void AttrBytes() {
  ExpectBound({.max_attr_bytes = 16}, AddLiteral(4), AddLiteral(5), kInvalid,
              {"literal has 20 bytes; the limit is 16", "--max_attr_bytes"});
}

// Makes y = relu(z) of z f32 [size]; a second input determines b.
TestModel ReluOfSize(const Expr& size) {
  Graph graph;
  graph.dims = {{"b", 1, 8}};
  GraphBuilder builder(&graph);
  builder.Input("x", {DType::kF32, {Expr::Symbol("b")}}).value();
  const NodeId z = builder.Input("z", {DType::kF32, {size}}).value();
  builder.Output("y", builder.Add(Op::kRelu, {z}, {}, "clamp").value());
  return ModelOf(graph, {});
}

void ExprSize() {
  const Expr b = Expr::Symbol("b");
  ExpectBound({.max_expr_size = 8}, ReluOfSize(b * b + b + 1),
              ReluOfSize(b * b * b * b + b * b + b), kInvalid,
              {"\"z\"", "shape[0]", "more than 8 terms and factors", "--max_expr_size"});
}

void Nesting() {
  const Expr b = Expr::Symbol("b"), once = MinOf(b, 4);
  ExpectBound({.max_nesting = 1}, ReluOfSize(once), ReluOfSize(MaxOf(FloorDiv(once, 2), 1)),
              kInvalid, {"\"z\"", "shape[0]", "deeper than 1 levels", "--max_nesting"});
}

}  // namespace

const LimitCases& GraphLimitCases() {
  static const auto& cases = *new LimitCases{
      {"max_graph_bytes", GraphBytes},
      {"max_tensor_bytes", TensorBytes},
      {"max_nodes", Nodes},
      {"max_rank", Rank},
      {"max_dims", Dims},
      {"max_name_bytes", NameBytes},
      {"max_attr_bytes", AttrBytes},
      {"max_expr_size", ExprSize},
      {"max_nesting", Nesting},
  };
  return cases;
}

}  // namespace athanor
