// Helpers for tests and benchmarks of rows: graphs in e-graphs, and layers of models that the rows
// target.
//
//   const Graph layer = EncoderLayer();
//   Terms t(layer);
//   egraph::Report report = t.Run(RewritingRows());
#ifndef ATHANOR_COMPILER_RULES_TERMS_TESTING_H_
#define ATHANOR_COMPILER_RULES_TERMS_TESTING_H_

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "compiler/egraph/runner.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/rules/terms/views.h"

namespace athanor {

// Returns all rows that are e-graph rules.
inline std::vector<RuleRow> RewritingRows() {
  std::vector<RuleRow> rows;
  for (const RuleRow& row : RuleRows()) {
    if (row.rewrites != nullptr) rows.push_back(row);
  }
  return rows;
}

// A graph in its own e-graph. Borrows the graph.
class Terms {
 public:
  explicit Terms(const Graph& graph)
      : graph_(graph), facts_(&language_, graph.dims), terms_(&language_.operators(), &facts_) {
    for (const Node& node : graph.nodes) {
      std::vector<egraph::ClassId> children;
      for (const NodeId i : node.inputs) children.push_back(classes_[i]);
      classes_.push_back(terms_.Add(ToOpId(node.op), language_.Intern(node), children).value());
    }
    terms_.Rebuild();
  }

  egraph::Report Run(const std::vector<RuleRow>& rows, egraph::Limits limits = {}) {
    std::vector<egraph::RuleSpec> specs;
    for (const RuleRow& row : rows) {
      for (egraph::RuleSpec& spec : row.rewrites(language_, facts_)) {
        if (spec.name.empty()) spec.name = std::string(row.name);
        specs.push_back(std::move(spec));
      }
    }
    const std::vector<egraph::Rule> rules =
        egraph::MakeRules(language_.operators(), std::move(specs)).value();
    return egraph::Runner(&terms_, rules, {.limits = limits}).Run();
  }

  const Graph& graph() const { return graph_; }
  const egraph::EGraph& terms() const { return terms_; }
  const FactsAnalysis& facts() const { return facts_; }
  const TermLanguage& language() const { return language_; }
  egraph::ClassId class_of(NodeId n) const { return terms_.Find(classes_[n]); }
  // Returns the nodes of one op in a class.
  std::vector<egraph::NodeId> NodesOf(egraph::ClassId id, Op op) const {
    const auto nodes = terms_.NodesOf(id, ToOpId(op));
    return {nodes.begin(), nodes.end()};
  }
  egraph::ClassId Child(egraph::NodeId n, int i) const {
    return terms_.Find(terms_.children(n)[i]);
  }

 private:
  const Graph& graph_;
  TermLanguage language_;
  FactsAnalysis facts_;
  egraph::EGraph terms_;
  std::vector<egraph::ClassId> classes_;
};

// Layers in the form in which the pipeline passes them to the rules: norms and activations in
// primitives, chains of views merged.
class LayerBuilder {
 public:
  LayerBuilder() : graph_(Empty()), x_(&graph_) {}

  // Adds a parameter of a trained model, with known contents.
  NodeId Parameter(Shape shape) {
    const NodeId n = Declare(Op::kParameter, std::move(shape));
    SetMagnitude(20, &graph_.nodes[n]);
    return n;
  }
  NodeId Input(Shape shape) { return Declare(Op::kInput, std::move(shape)); }
  // Multiplies x [b, s, in] by a weight and adds a bias if `biased`.
  NodeId Linear(NodeId x, int64_t out, bool biased) {
    const Shape shape = x_.Type(x).shape;
    const NodeId w = Parameter({shape[2], out});
    const NodeId y = x_.Add(Op::kContract, {x, w}, {{"spec", "bsi,io->bso"}});
    if (!biased) return y;
    const Shape wide = x_.Type(y).shape;
    return x_.Add(Op::kAdd, {y, x_.Map(Parameter({out}), wide, {Expr::Axis(2)})});
  }
  // Attention over heads of x, and the projection of its result.
  NodeId Attention(NodeId x, int64_t heads, bool biased) {
    const Shape shape = x_.Type(x).shape;
    const int64_t width = *shape[2].constant(), head = width / heads;
    std::vector<NodeId> operands;
    for (int i = 0; i < 3; ++i) {
      operands.push_back(
          x_.Map(Linear(x, width, biased), {shape[0], heads, shape[1], head},
                 {Expr::Axis(0), Expr::Axis(2), head * Expr::Axis(1) + Expr::Axis(3)}));
    }
    const NodeId mixed =
        x_.Add(Op::kAttention, operands, {{"scale", 1 / std::sqrt(static_cast<double>(head))}});
    const Expr column = Expr::Axis(2);
    const NodeId joined = x_.Map(
        mixed, shape, {Expr::Axis(0), FloorDiv(column, head), Expr::Axis(1), Mod(column, head)});
    return Linear(joined, width, biased);
  }
  NodeId LayerNorm(NodeId x) {
    const Expr width = x_.Type(x).shape[2];
    return x_.Add(Op::kLayerNorm, {x, Parameter({width}), Parameter({width})},
                  {{"epsilon", 1e-12}});
  }
  NodeId RmsNorm(NodeId x) {
    return x_.Add(Op::kRmsNorm, {x, Parameter({x_.Type(x).shape[2]})}, {{"epsilon", 1e-6}});
  }
  Expansion& x() { return x_; }
  Graph Done(NodeId y) {
    graph_.outputs.push_back({"y", y});
    const absl::StatusOr<Graph> primitives = Decompose(graph_, [](const Node& node) {
      return OpInfo(node.op).composite() && node.op != Op::kContract && node.op != Op::kAttention;
    });
    return Canonicalize(ComposeViews(Canonicalize(primitives.value())));
  }

 private:
  static Graph Empty() {
    Graph graph;
    graph.dims = {{"b", 1, 8}, {"s", 1, 512}};
    return graph;
  }
  NodeId Declare(Op op, Shape shape) {
    const NodeId n = static_cast<NodeId>(graph_.nodes.size());
    graph_.nodes.push_back({op, {}, {}, {DType::kF32, std::move(shape)}, "p" + std::to_string(n)});
    return n;
  }

  Graph graph_;
  Expansion x_;
};

// Layers as in BERT: attention, then a network with gelu; after each, a residual and a norm.
inline Graph EncoderLayers(int layers, int64_t width = 384) {
  LayerBuilder b;
  NodeId x = b.Input({Expr::Symbol("b"), Expr::Symbol("s"), width});
  for (int i = 0; i < layers; ++i) {
    x = b.LayerNorm(b.x().Add(Op::kAdd, {x, b.Attention(x, width / 32, true)}));
    const NodeId up = b.x().Add(Op::kGelu, {b.Linear(x, 4 * width, true)});
    x = b.LayerNorm(b.x().Add(Op::kAdd, {x, b.Linear(up, width, true)}));
  }
  return b.Done(x);
}

// Layers as in LLaMA, without rotation: norms come first, and the network has a gate.
inline Graph DecoderLayers(int layers, int64_t width = 384) {
  LayerBuilder b;
  NodeId x = b.Input({Expr::Symbol("b"), Expr::Symbol("s"), width});
  for (int i = 0; i < layers; ++i) {
    x = b.x().Add(Op::kAdd, {x, b.Attention(b.RmsNorm(x), width / 32, false)});
    const NodeId normed = b.RmsNorm(x);
    const NodeId gate = b.x().Add(Op::kSilu, {b.Linear(normed, 3 * width, false)});
    const NodeId up = b.x().Add(Op::kMul, {gate, b.Linear(normed, 3 * width, false)});
    x = b.x().Add(Op::kAdd, {x, b.Linear(up, width, false)});
  }
  return b.Done(x);
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_TESTING_H_
