// Helpers for the tests of recognition rows: build small graphs, decompose them, recognise them
// again, and compare values with the reference evaluator.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_TESTING_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_TESTING_H_

#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/sample/compare.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/decompose/recognise.h"
#include "gtest/gtest.h"

namespace athanor {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline int Count(const Graph& g, Op op) {
  int count = 0;
  for (const Node& n : g.nodes) count += n.op == op;
  return count;
}

inline Graph Primitives(Graph g) {
  while (true) {
    bool any = false;
    for (const Node& n : g.nodes) any = any || OpInfo(n.op).composite();
    if (!any) return Canonicalize(g);
    absl::StatusOr<Graph> d = Decompose(g, [](const Node& n) { return OpInfo(n.op).composite(); });
    EXPECT_TRUE(d.ok()) << d.status();
    if (!d.ok()) return g;
    g = *std::move(d);
  }
}

inline Graph Recognised(const Graph& g) {
  absl::StatusOr<Graph> r = Recognise(g);
  EXPECT_TRUE(r.ok()) << r.status();
  if (!r.ok()) return g;
  EXPECT_TRUE(Verify(*r).ok()) << Verify(*r);
  return Canonicalize(*r);
}

// Returns random normal values for the inputs, with `b` = 2 and every other dim 5.
inline std::vector<Tensor> RandomInputs(const Graph& g, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal(0, 1);
  std::vector<Tensor> inputs;
  for (NodeId id : g.InputIds()) {
    const TensorType& type = g.node(id).type;
    Expr::Env env;
    for (const Dim& d : g.dims) env[d.name] = d.min == 2 ? 2 : 5;
    std::vector<int64_t> shape;
    for (const Expr& e : type.shape) shape.push_back(*e.Evaluate(env));
    Tensor t = Tensor::Zeros(type.dtype, shape);
    for (int64_t i = 0; i < t.elements(); ++i) {
      double v = normal(rng);
      StoreScalar(t, i,
                  type.dtype == DType::kBool ? Scalar::Unsigned(type.dtype, v > 0)
                                             : Scalar::Float(type.dtype, v));
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

inline void ExpectSame(const Graph& want, const Graph& got, double relative = 1e-5) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    std::vector<Tensor> inputs = RandomInputs(want, seed);
    auto a = Evaluate(want, inputs), b = Evaluate(got, inputs);
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    for (size_t i = 0; i < a->size(); ++i) {
      absl::Status same = CompareTensors((*b)[i], (*a)[i], relative, relative);
      EXPECT_TRUE(same.ok()) << same;
    }
  }
}

struct Build {
  Graph g;
  Expansion x{&g};
  NodeId In(const std::string& name, Shape shape, DType t = DType::kF32) {
    g.nodes.push_back({Op::kInput, {}, {}, {t, std::move(shape)}, name});
    return static_cast<NodeId>(g.nodes.size()) - 1;
  }
  NodeId Dot(NodeId a, NodeId b, const std::string& spec) {
    return x.Add(Op::kContract, {a, b}, {{"spec", spec}});
  }
  Graph Done(std::vector<NodeId> outputs) {
    EXPECT_TRUE(x.status().ok()) << x.status();
    for (NodeId n : outputs) g.outputs.push_back({"y" + std::to_string(g.outputs.size()), n});
    return g;
  }
};

inline Expr A(int i) { return Expr::Axis(i); }

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_TESTING_H_
