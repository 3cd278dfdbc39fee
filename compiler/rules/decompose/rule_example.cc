#include "compiler/rules/decompose/rule_example.h"

#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// Empty and single axes, and primes, which are multiples of nothing by chance.
constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 7, 13};
constexpr int kDims = 4;
constexpr int64_t kMaxDim = 16;

int64_t Uniform(std::mt19937_64& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// Box-Muller transform of two uniform numbers. Unlike the standard library's distributions, it
// gives the same values on every machine.
double Normal(std::mt19937_64& random) {
  constexpr double kTwoPi = 6.283185307179586;
  const double u = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(random() >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(kTwoPi * v);
}

}  // namespace

ExampleBuilder::ExampleBuilder(uint64_t seed, DType dtype)
    : random_(seed), dtype_(dtype), graph_(WithDims(random_, &dims_)), x_(&graph_) {}

Graph ExampleBuilder::WithDims(std::mt19937_64& random, Expr::Env* sizes) {
  Graph graph;
  graph.name = "example";
  for (int i = 0; i < kDims; ++i) {
    const int64_t size = kSizes[Uniform(random, 0, std::size(kSizes) - 1)];
    const int64_t least = size == 0 ? 0 : Uniform(random, 0, 1);
    graph.dims.push_back({Cat("d", i), least, kMaxDim});
    (*sizes)[Cat("d", i)] = size;
  }
  return graph;
}

Expr ExampleBuilder::Size(int64_t min) {
  if (Coin()) return ConstantSize(min);
  const Dim& dim = graph_.dims[Pick(0, kDims - 1)];
  return dim.min >= min ? Expr::Symbol(dim.name) : Expr(ConstantSize(min));
}

int64_t ExampleBuilder::ConstantSize(int64_t min) {
  int first = 0;
  while (kSizes[first] < min) ++first;
  return kSizes[Pick(first, std::size(kSizes) - 1)];
}

int64_t ExampleBuilder::Pick(int64_t low, int64_t high) { return Uniform(random_, low, high); }

NodeId ExampleBuilder::Declare(Op op, const char* prefix, Shape shape, DType dtype) {
  const NodeId n = static_cast<NodeId>(graph_.nodes.size());
  graph_.nodes.push_back({op, {}, {}, {dtype, std::move(shape)}, Cat(prefix, n)});
  return n;
}

NodeId ExampleBuilder::Input(Shape shape, DType dtype) {
  return Declare(Op::kInput, "x", std::move(shape), dtype);
}

NodeId ExampleBuilder::Input(Shape shape, ExampleEdges edges) {
  const NodeId n = Input(std::move(shape));
  edges_[n] = edges;
  return n;
}

NodeId ExampleBuilder::Indices(Shape shape, const Expr& size, DType dtype) {
  const NodeId n = Declare(Op::kInput, "i", std::move(shape), dtype);
  index_limits_[n] = size.Evaluate(dims_).value_or(0);
  return n;
}

NodeId ExampleBuilder::Parameter(Shape shape, DType dtype) {
  return Declare(Op::kParameter, "w", std::move(shape), dtype);
}

NodeId ExampleBuilder::BoundedParameter(Shape shape, DType dtype) {
  const NodeId n = Parameter(std::move(shape), dtype);
  SetMagnitude(kMagnitude, &graph_.nodes[n]);
  edges_[n] = ExampleEdges::kNone;
  return n;
}

NodeId ExampleBuilder::Constant(std::vector<int64_t> shape, DType dtype) {
  Tensor value = Tensor::Zeros(dtype, std::move(shape));
  for (int64_t i = 0; i < value.elements(); ++i) StoreScalar(value, i, RandomScalar(dtype));
  return x_.Add(Op::kConstant, {}, {{"value", std::move(value)}});
}

Scalar ExampleBuilder::RandomScalar(DType dtype) {
  const double v = 2 * Normal(random_);
  if (dtype == DType::kBool) return Scalar::Unsigned(dtype, v > 0);
  if (IsFloat(dtype)) return Scalar::Float(dtype, v);
  if (IsSigned(dtype)) return Scalar::Signed(dtype, std::llround(v));
  return Scalar::Unsigned(dtype, static_cast<uint64_t>(std::llround(std::abs(v))));
}

NodeId ExampleBuilder::PowerOfTwo() {
  return x_.Fill(dtype_, std::ldexp(Coin() ? 1 : -1, static_cast<int>(Pick(-3, 3))), {});
}

void ExampleBuilder::Output(NodeId node) {
  graph_.outputs.push_back({Cat("y", graph_.outputs.size()), node});
}

}  // namespace athanor
