#include "server/tuner/check/roundings.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "compiler/ir/graph/scan.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/rules/decompose/decompose.h"
#include "deploy/bazel/libs/status_macros.h"

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
  switch (OpInfo(node.op).traits.errors) {
    case ErrorRule::kSum:
    case ErrorRule::kProduct:
      return elements(0) / std::max(Elements(node.type.shape, dims), 1.0);
    case ErrorRule::kContraction: {
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
    case ErrorRule::kBags:
      return ModeChooses(node.attrs) ? 0 : elements(1);
    case ErrorRule::kScattered:
      return ModeChooses(node.attrs) ? 0 : elements(1) + 1;
    default:
      return 0;
  }
}

bool Rounds(const Graph& graph, const Node& node) {
  switch (OpInfo(node.op).traits.rounding) {
    case Rounding::kRounds:
      return true;
    case Rounding::kByMode:
      return !ModeChooses(node.attrs);
    case Rounding::kConverts: {
      const DType from = graph.node(node.inputs[0]).type.dtype;
      return !IsFloat(from) || UnitRoundoff(from) < UnitRoundoff(node.type.dtype);
    }
    case Rounding::kChooses:
    case Rounding::kKeeps:
    case Rounding::kIntegral:
    case Rounding::kBits:
      return false;
  }
  return true;
}

// Adds up all steps of a loop.
absl::StatusOr<double> ScanSquares(const Node& node, const Expr::Env& dims) {
  const ScanView scan = ViewScan(node);
  ASSIGN_OR_RETURN(std::vector<double> step, RoundingNoise(BodyAt(scan, dims), {}));
  double most = 0;
  for (double noise : step) most = std::max(most, noise * noise);
  return most * static_cast<double>(scan.length.Evaluate(dims).value_or(0));
}

}  // namespace

absl::StatusOr<std::vector<double>> RoundingNoise(const Graph& graph, const Expr::Env& dims) {
  ASSIGN_OR_RETURN(Graph simple, Decompose(graph, [](const Node& node) {
                     return OpInfo(node.op).traits.errors == ErrorRule::kDecomposed;
                   }));
  std::vector<double> squares;
  for (const Node& node : simple.nodes) {
    double most = 0;
    for (NodeId operand : node.inputs) most = std::max(most, squares[operand]);
    if (IsLoop(node.op)) {
      ASSIGN_OR_RETURN(double steps, ScanSquares(node, dims));
      most += steps;
    } else if (IsFloat(node.type.dtype) && Rounds(simple, node)) {
      most += Squared((2 * OpInfo(node.op).ulp + 1) * UnitRoundoff(node.type.dtype));
      most += Terms(simple, node, dims) * Squared(UnitRoundoff(AccumulatorOf(node.type.dtype)));
    }
    squares.push_back(most);
  }
  std::vector<double> noise;
  for (const Output& output : simple.outputs) noise.push_back(std::sqrt(squares[output.node]));
  return noise;
}

}  // namespace athanor
