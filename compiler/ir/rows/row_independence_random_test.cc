// Graphs of random ops over rows and columns: everything that is proved holds on values.
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/ops/reference_testing.h"
#include "compiler/ir/rows/row_independence.h"
#include "compiler/ir/rows/row_independence_testing.h"

namespace athanor {
namespace {

// Picks ops and operands at random, over rows and columns; about half of them mix rows.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : rng_(seed), builder_(Start(&graph_)) {
    AddInput("x", DType::kF32, {b_, 4});
    AddInput("z", DType::kF32, Coin() ? Shape{b_, s_, 4} : Shape{s_, 4});
    AddInput("t", DType::kF32, {2 * b_});
    AddInput("w", DType::kF32, {4, 3});
    const Shape indices[] = {{b_}, {2}, {b_, 2}, {s_}};
    indices_ = builder_.Input("ids", {DType::kU8, indices[Below(4)]}).value();
    for (int i = 0, steps = 1 + Below(7); i < steps; ++i) Keep(Next());
    for (int i = 0, outputs = 1 + Below(2); i < outputs; ++i) {
      builder_.Output(absl::StrCat("y", i), i == 0 ? values_.back() : Any());
    }
  }

  const Graph& graph() const { return graph_; }

 private:
  static Graph* Start(Graph* graph) {
    graph->dims = {{"b", 1, 9}, {"s", 1, 9}};
    return graph;
  }
  int Below(int n) { return static_cast<int>(rng_() % n); }
  bool Coin() { return Below(2) == 0; }
  NodeId Any() { return values_[rng_() % values_.size()]; }
  const Shape& ShapeOf(NodeId v) const { return graph_.node(v).type.shape; }
  int RankOf(NodeId v) const { return static_cast<int>(ShapeOf(v).size()); }

  void AddInput(const char* name, DType dtype, Shape shape) {
    values_.push_back(builder_.Input(name, {dtype, std::move(shape)}).value());
  }

  // Keeps a value if it is valid, f32 and small.
  void Keep(const absl::StatusOr<NodeId>& v) {
    if (!v.ok() || graph_.node(*v).type.dtype != DType::kF32 || RankOf(*v) > 5) return;
    const std::vector<int64_t> sizes = ConcreteShape(ShapeOf(*v), {{"b", 6}, {"s", 3}}).value();
    int64_t elements = 1;
    for (int64_t size : sizes) elements *= size;
    if (elements <= 1000) values_.push_back(*v);
  }

  absl::StatusOr<NodeId> Map(NodeId v, Shape shape, std::vector<Expr> at, bool fill = false) {
    Attrs attrs = {{"map", IndexMap{std::move(shape), std::move(at)}}};
    if (fill) attrs["fill"] = Of(DType::kF32, {}, {0.5});
    return builder_.Add(Op::kIndexMap, {v}, attrs);
  }

  std::vector<Expr> AxesOf(NodeId v) const {
    std::vector<Expr> axes;
    for (int i = 0; i < RankOf(v); ++i) axes.push_back(Expr::Axis(i));
    return axes;
  }

  absl::StatusOr<NodeId> Permute(NodeId v) {
    std::vector<int> order(RankOf(v));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng_);
    Shape shape;
    std::vector<Expr> at(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      shape.push_back(ShapeOf(v)[order[i]]);
      at[order[i]] = Expr::Axis(static_cast<int>(i));
    }
    return Map(v, shape, at);
  }

  // Merges two neighbouring axes.
  absl::StatusOr<NodeId> Merge(NodeId v) {
    if (RankOf(v) < 2) return Permute(v);
    const int axis = Below(RankOf(v) - 1);
    Shape shape;
    std::vector<Expr> at;
    for (int i = 0; i < RankOf(v); ++i) {
      const Expr to = Expr::Axis(static_cast<int>(shape.size()));
      if (i != axis) {
        at.push_back(to);
        shape.push_back(ShapeOf(v)[i]);
        continue;
      }
      const Expr inner = ShapeOf(v)[i + 1];
      at.push_back(FloorDiv(to, inner));
      at.push_back(Mod(to, inner));
      shape.push_back(ShapeOf(v)[i++] * inner);
    }
    return Map(v, shape, at);
  }

  // Splits an axis whose size is a product.
  absl::StatusOr<NodeId> Split(NodeId v) {
    if (RankOf(v) == 0) return Permute(v);
    const int axis = Below(RankOf(v));
    const Expr size = ShapeOf(v)[axis];
    if (size.terms().size() != 1) return Permute(v);
    const Expr::Term& term = size.terms()[0];
    Expr outer = term.coefficient, inner = 1;
    for (const AtomRef& atom : term.monomial) (Coin() ? outer : inner) *= Expr::Of(atom);
    if (Coin()) std::swap(outer, inner);
    Shape shape(ShapeOf(v));
    shape[axis] = inner;
    shape.insert(shape.begin() + axis, outer);
    std::vector<Expr> at;
    for (int i = 0; i < RankOf(v); ++i) {
      at.push_back(i < axis    ? Expr::Axis(i)
                   : i == axis ? Expr::Axis(i) * inner + Expr::Axis(i + 1)
                               : Expr::Axis(i + 1));
    }
    return Map(v, shape, at);
  }

  // Reverses, shifts, repeats, cuts or extends along one axis.
  absl::StatusOr<NodeId> Shift(NodeId v) {
    if (RankOf(v) == 0) return Permute(v);
    const int axis = Below(RankOf(v));
    Shape shape = ShapeOf(v);
    std::vector<Expr> at = AxesOf(v);
    const Expr own = at[axis], size = shape[axis];
    const Expr ways[] = {size - 1 - own, own - 1, own + 1, FloorDiv(own, 2),
                         Mod(own, 2),    2 * own, 0,       own - s_};
    at[axis] = ways[Below(8)];
    const Expr lengths[] = {size, size, size, size + 1, 2 * size, 2, b_};
    shape[axis] = lengths[Below(7)];
    return Map(v, shape, at, true);
  }

  absl::StatusOr<NodeId> Broadcast(NodeId v) {
    const int axis = Below(RankOf(v) + 1);
    const Expr sizes[] = {b_, s_, 2, 2 * b_};
    Shape shape = ShapeOf(v);
    shape.insert(shape.begin() + axis, sizes[Below(4)]);
    std::vector<Expr> at;
    for (int i = 0; i < RankOf(v); ++i) at.push_back(Expr::Axis(i < axis ? i : i + 1));
    return Map(v, shape, at);
  }

  absl::StatusOr<NodeId> Pick(NodeId v) {
    if (RankOf(v) == 0) return Broadcast(v);
    const int axis = Below(RankOf(v));
    Shape shape = ShapeOf(v);
    shape.erase(shape.begin() + axis);
    std::vector<Expr> at;
    for (int i = 0; i < RankOf(v); ++i) {
      at.push_back(i == axis ? Expr(0) : Expr::Axis(i < axis ? i : i - 1));
    }
    if (Coin()) at[axis] = ShapeOf(v)[axis] - 1;
    return Map(v, shape, at);
  }

  absl::StatusOr<NodeId> Elementwise(NodeId v) {
    for (int i = 0; i < 4; ++i) {
      const NodeId other = Any();
      if (ShapeOf(other) == ShapeOf(v)) return builder_.Add(Op::kAdd, {v, other});
    }
    return builder_.Add(Op::kTanh, {v});
  }

  absl::StatusOr<NodeId> Reduce(NodeId v) {
    std::vector<int64_t> axes;
    for (int i = 0; i < RankOf(v); ++i) {
      if (Below(3) == 0) axes.push_back(i);
    }
    return builder_.Add(Coin() ? Op::kSumReduce : Op::kMaxReduce, {v}, {{"axes", axes}});
  }

  absl::StatusOr<NodeId> Contract(NodeId v, NodeId w) {
    std::string lhs, rhs, result;
    for (int i = 0; i < RankOf(v); ++i) lhs += static_cast<char>('a' + i);
    for (int i = 0; i < RankOf(w); ++i) {
      char letter = static_cast<char>('n' + i);
      for (int j = 0; j < RankOf(v); ++j) {
        const bool fits = ShapeOf(v)[j] == ShapeOf(w)[i] && rhs.find(lhs[j]) == std::string::npos;
        if (fits && Below(4) != 0) letter = lhs[j];
      }
      rhs += letter;
    }
    for (char letter : lhs + rhs) {
      if (result.find(letter) == std::string::npos && Below(3) != 0) result += letter;
    }
    std::shuffle(result.begin(), result.end(), rng_);
    return builder_.Add(Op::kContract, {v, w}, {{"spec", lhs + "," + rhs + "->" + result}});
  }

  absl::StatusOr<NodeId> Scatter(NodeId v) {
    const int64_t axis = Below(std::max(RankOf(v), 1));
    const absl::StatusOr<NodeId> taken = builder_.Add(Op::kGather, {v, indices_}, {{"axis", axis}});
    if (!taken.ok() || Coin()) return taken;
    return builder_.Add(Op::kScatter, {v, indices_, *taken},
                        {{"axis", axis}, {"mode", std::string(Coin() ? "add" : "set")}});
  }

  absl::StatusOr<NodeId> Count(NodeId v) {
    const Attrs attrs = {{"shape", ShapeOf(v)},
                         {"axis", static_cast<int64_t>(Below(std::max(RankOf(v), 1)))},
                         {"dtype", DType::kF32}};
    const absl::StatusOr<NodeId> iota = builder_.Add(Op::kIota, {}, attrs);
    return iota.ok() ? builder_.Add(Op::kMul, {v, *iota}) : iota;
  }

  absl::StatusOr<NodeId> Next() {
    const NodeId v = Any();
    switch (Below(14)) {
      case 0:
        return Permute(v);
      case 1:
        return Merge(v);
      case 2:
        return Split(v);
      case 3:
        return Shift(v);
      case 4:
        return Broadcast(v);
      case 5:
        return Pick(v);
      case 6:
        return Reduce(v);
      case 7:
        return builder_.Add(Op::kSoftmax, {v},
                            {{"axis", static_cast<int64_t>(Below(std::max(RankOf(v), 1)))}});
      case 8:
        return Contract(v, Any());
      case 9:
        return Scatter(v);
      case 10:
        return builder_.Add(Op::kAttention, {v, v, v}, {{"causal", Coin()}});
      case 11:
        return Count(v);
      default:
        return Elementwise(v);
    }
  }

  const Expr b_ = Expr::Symbol("b"), s_ = Expr::Symbol("s");
  std::mt19937 rng_;
  Graph graph_;
  GraphBuilder builder_;
  std::vector<NodeId> values_;
  NodeId indices_ = -1;
};

TEST(RowIndependenceRandomTest, ProofsHold) {
  std::mt19937 rng(4);
  int proved = 0, held = 0, refused = 0;
  std::map<Op, int> kept;
  for (uint32_t seed = 0; seed < 1500 && !HasFailure(); ++seed) {
    const RandomGraph random(seed);
    ASSERT_TRUE(Verify(random.graph()).ok()) << Verify(random.graph());
    for (const char* dim : {"b", "s"}) {
      const RowProof proof = ProveRowIndependent(random.graph(), dim);
      if (!proof.independent) {
        EXPECT_NE(proof.reason, "");
        ++refused;
        continue;
      }
      ++proved;
      for (Op op : OpsOf(random.graph())) ++kept[op];
      for (const Expr::Env& dims : {Expr::Env{{"b", 6}, {"s", 3}}, Expr::Env{{"b", 4}, {"s", 5}}}) {
        const absl::Status s = TryRandomRows(random.graph(), dim, proof, dims, rng, 2);
        held += s.ok();
        EXPECT_TRUE(s.ok() || s.code() == absl::StatusCode::kOutOfRange)
            << s << " seed " << seed << "\n"
            << ToText(random.graph());
      }
    }
  }
  std::printf("%d proved, %d trials held, %d refused\n", proved, held, refused);
  EXPECT_GT(proved, 300);
  EXPECT_GT(held, 300);
  EXPECT_GT(refused, 300);
  for (Op op : {Op::kIndexMap, Op::kGather, Op::kScatter, Op::kSumReduce, Op::kMaxReduce,
                Op::kSoftmax, Op::kContract, Op::kAttention, Op::kIota, Op::kAdd, Op::kTanh}) {
    EXPECT_GT(kept[op], 5) << OpName(op);
  }
}

}  // namespace
}  // namespace athanor
