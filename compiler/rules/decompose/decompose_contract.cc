// Decomposes Contract.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/decompose/decompose_families.h"
#include "compiler/rules/decompose/rule_example.h"

namespace athanor {
namespace {

NodeId ExpandContract(Expansion& x, const Node& node, Inputs in) {
  ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  // The joint axes: the result's, then the summed ones.
  std::string letters = spec.result;
  std::map<char, Expr> extents;
  for (int side = 0; side < 2; ++side) {
    const std::string& own = side == 0 ? spec.lhs : spec.rhs;
    for (size_t i = 0; i < own.size(); ++i) {
      extents[own[i]] = x.Type(in[side]).shape[i];
      if (letters.find(own[i]) == std::string::npos) letters += own[i];
    }
  }
  Shape joint;
  for (char c : letters) joint.push_back(extents[c]);
  auto expand = [&](NodeId n, const std::string& own) {
    std::vector<Expr> coordinates;
    for (char c : own) coordinates.push_back(Expr::Axis(static_cast<int>(letters.find(c))));
    return x.Map(Up(x, n), joint, std::move(coordinates));
  };
  NodeId product = x.Add(Op::kMul, {expand(in[0], spec.lhs), expand(in[1], spec.rhs)});
  std::vector<int64_t> axes;
  for (size_t i = spec.result.size(); i < letters.size(); ++i)
    axes.push_back(static_cast<int64_t>(i));
  return x.Cast(x.Reduce(Op::kSumReduce, product, std::move(axes)), node.type.dtype);
}

void ContractExample(ExampleBuilder& e) {
  const char* const kSpecs[] = {"mk,kn->mn", "mk,nk->nm", "bqd,bkd->bqk", "k,k->", "m,n->mn"};
  const ContractSpec spec = *ContractSpec::Parse(kSpecs[e.Pick(0, std::size(kSpecs) - 1)]);
  std::map<char, Expr> extents;
  const auto operand = [&](const std::string& letters) {
    Shape shape;
    for (const char c : letters) shape.push_back(extents.try_emplace(c, e.Size()).first->second);
    return e.Input(std::move(shape));
  };
  const NodeId lhs = operand(spec.lhs);
  e.Output(e.x().Add(Op::kContract, {lhs, operand(spec.rhs)}, {{"spec", spec.ToString()}}));
}

constexpr DecompositionRow kRows[] = {
    {Op::kContract, "contract", "sum of products over expanded operands", ExpandContract,
     ContractExample},
};

}  // namespace

absl::Span<const DecompositionRow> ContractDecompositions() { return kRows; }

}  // namespace athanor
