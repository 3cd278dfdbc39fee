#include "server/tuner/check/roundings.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "compiler/ir/graph/scan.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/rules/decompose/decompose.h"

namespace athanor {
namespace {

double Elements(const Shape& shape, const Expr::Env& dims) {
  double n = 1;
  for (const Expr& size : shape) n *= static_cast<double>(size.Evaluate(dims).value_or(0));
  return n;
}

double Squared(double x) { return x * x; }

// Returns how many terms each element of a sum has.
double Terms(const Graph& graph, const Node& node, const Expr::Env& dims) {
  const auto elements = [&](int operand) {
    return Elements(graph.node(node.inputs[operand]).type.shape, dims);
  };
  switch (node.op) {
    case Op::kSumReduce:
    case Op::kMulReduce:
      return elements(0) / std::max(Elements(node.type.shape, dims), 1.0);
    case Op::kContract: {
      const auto spec = ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
      if (!spec.ok()) return 1;
      double terms = 1;
      std::string counted = spec->result;
      for (int side = 0; side < 2; ++side) {
        const std::string& letters = side == 0 ? spec->lhs : spec->rhs;
        for (size_t axis = 0; axis < letters.size(); ++axis) {
          if (counted.find(letters[axis]) != std::string::npos) continue;
          counted += letters[axis];
          terms *= Elements({graph.node(node.inputs[side]).type.shape[axis]}, dims);
        }
      }
      return terms;
    }
    case Op::kEmbeddingBag:
      return GetAttr<std::string>(node.attrs, "mode") == "max" ? 0 : elements(1);
    case Op::kScatter: {
      const std::string& mode = GetAttr<std::string>(node.attrs, "mode");
      return mode == "add" || mode == "mul" ? elements(1) + 1 : 0;
    }
    default:
      return 0;
  }
}

bool Rounds(const Graph& graph, const Node& node) {
  switch (node.op) {
    case Op::kMin:
    case Op::kMax:
    case Op::kSelect:
    case Op::kFloor:
    case Op::kRound:
    case Op::kBitcast:
    case Op::kMaxReduce:
    case Op::kIndexMap:
    case Op::kGather:
      return false;
    case Op::kCast: {
      const DType from = graph.node(node.inputs[0]).type.dtype;
      return !IsFloat(from) || UnitRoundoff(from) < UnitRoundoff(node.type.dtype);
    }
    case Op::kScatter:
    case Op::kEmbeddingBag: {
      const std::string& mode = GetAttr<std::string>(node.attrs, "mode");
      return mode == "add" || mode == "mul" || mode == "sum" || mode == "mean";
    }
    default:
      return OpInfo(node.op).op_class != OpClass::kLeaf;
  }
}

// Adds up all steps of a loop.
absl::StatusOr<double> ScanSquares(const Node& node, const Expr::Env& dims) {
  const ScanView scan = ViewScan(node);
  absl::StatusOr<std::vector<double>> step = RoundingNoise(BodyAt(scan, dims), {});
  if (!step.ok()) return step.status();
  double most = 0;
  for (double noise : *step) most = std::max(most, noise * noise);
  return most * static_cast<double>(scan.length.Evaluate(dims).value_or(0));
}

}  // namespace

absl::StatusOr<std::vector<double>> RoundingNoise(const Graph& graph, const Expr::Env& dims) {
  absl::StatusOr<Graph> simple = Decompose(graph, [](const Node& node) {
    return OpInfo(node.op).composite() && node.op != Op::kContract && node.op != Op::kEmbeddingBag;
  });
  if (!simple.ok()) return simple.status();
  std::vector<double> squares;
  for (const Node& node : simple->nodes) {
    double most = 0;
    for (NodeId operand : node.inputs) most = std::max(most, squares[operand]);
    if (node.op == Op::kScan) {
      absl::StatusOr<double> steps = ScanSquares(node, dims);
      if (!steps.ok()) return steps.status();
      most += *steps;
    } else if (IsFloat(node.type.dtype) && Rounds(*simple, node)) {
      most += Squared((2 * OpInfo(node.op).ulp + 1) * UnitRoundoff(node.type.dtype));
      most += Terms(*simple, node, dims) * Squared(UnitRoundoff(AccumulatorOf(node.type.dtype)));
    }
    squares.push_back(most);
  }
  std::vector<double> noise;
  for (const Output& output : simple->outputs) noise.push_back(std::sqrt(squares[output.node]));
  return noise;
}

}  // namespace athanor
