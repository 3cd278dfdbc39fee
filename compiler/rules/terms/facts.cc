#include "compiler/rules/terms/facts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compiler/ir/value/message.h"
#include "compiler/ir/value/text_values.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

bool IsConstantShape(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(),
                     [](const Expr& e) { return e.constant().has_value(); });
}

// Replaces any NaN by one canonical NaN.
Tensor OneNaN(Tensor scalar) {
  if (IsFloat(scalar.dtype) && std::isnan(LoadScalar(scalar, 0).f)) {
    StoreScalar(scalar, 0, Scalar::Float(scalar.dtype, std::numeric_limits<double>::quiet_NaN()));
  }
  return scalar;
}

// Returns the element that all elements of a literal equal.
std::optional<Tensor> RepeatedElement(const Tensor& value) {
  const size_t width = DTypeBytes(value.dtype);
  if (!Computes(value.dtype) || value.bytes.size() < width) return std::nullopt;
  const std::string_view bytes = value.bytes;
  // All elements are equal if the bytes equal themselves shifted by one element.
  if (bytes.substr(width) != bytes.substr(0, bytes.size() - width)) return std::nullopt;
  return OneNaN({value.dtype, {}, std::string(bytes.substr(0, width))});
}

}  // namespace

std::optional<int64_t> MostTerms(Op op, const Attrs& attrs, absl::Span<const TensorType> operands,
                                 const Bounds& bounds) {
  std::vector<Expr> sizes;
  if (op == Op::kSumReduce) {
    for (const int64_t axis : GetAttr<std::vector<int64_t>>(attrs, "axes")) {
      sizes.push_back(operands[0].shape[axis]);
    }
  } else if (op == Op::kContract) {
    const ContractSpec spec = ContractSpec::Parse(GetAttr<std::string>(attrs, "spec")).value();
    std::string counted = spec.result;
    for (int side = 0; side < 2; ++side) {
      const std::string& letters = side == 0 ? spec.lhs : spec.rhs;
      for (size_t i = 0; i < letters.size(); ++i) {
        if (counted.find(letters[i]) != std::string::npos) continue;
        counted += letters[i];
        sizes.push_back(operands[side].shape[i]);
      }
    }
  }
  int64_t terms = 1;
  for (const Expr& size : sizes) {
    const std::optional<int64_t> most = bounds.Maximum(size);
    if (!most || __builtin_mul_overflow(terms, *most, &terms)) return std::nullopt;
  }
  return terms;
}

FactsAnalysis::FactsAnalysis(const TermLanguage* language, std::vector<Dim> dims)
    : language_(*language),
      dims_(std::move(dims)),
      bounds_([this] {
        Graph graph;
        graph.dims = dims_;
        return graph.DimBounds();
      }()),
      checker_(dims_, bounds_, limits_) {}

FactsAnalysis::~FactsAnalysis() = default;

std::optional<double> FactsAnalysis::Uniform(const egraph::EGraph& graph,
                                             egraph::ClassId id) const {
  constexpr int64_t kExact = int64_t{1} << 53;
  const std::optional<Tensor>& uniform = Get(graph, id).uniform;
  if (!uniform) return std::nullopt;
  const Scalar scalar = LoadScalar(*uniform, 0);
  if (IsFloat(scalar.dtype)) return scalar.f;
  if (IsSigned(scalar.dtype)) {
    if (scalar.i < -kExact || scalar.i > kExact) return std::nullopt;
    return static_cast<double>(scalar.i);
  }
  if (scalar.u > static_cast<uint64_t>(kExact)) return std::nullopt;
  return static_cast<double>(scalar.u);
}

absl::StatusOr<TensorType> FactsAnalysis::Infer(Op op, egraph::PayloadId payload,
                                                absl::Span<const TensorType> operands) const {
  absl::StatusOr<TensorType> type = IsDeclared(op)
                                        ? language_.declaration(payload).type
                                        : checker_.Infer(op, operands, language_.attrs(payload));
  if (type.ok()) return type;
  return Prefixed(Cat(OpName(op), ": "), type.status());
}

absl::StatusOr<Facts> FactsAnalysis::Make(const egraph::EGraph& graph, egraph::NodeId node) const {
  const Op op = ToOp(graph.op(node));
  std::vector<TensorType> operands;
  std::vector<ValueFacts> values;
  bool weights = true, equal = true;
  for (const egraph::ClassId child : graph.children(node)) {
    const Facts& facts = Get(graph, child);
    operands.push_back(facts.type);
    values.push_back(facts.values);
    weights = weights && facts.weight;
    equal = equal && graph.Find(child) == graph.Find(graph.children(node)[0]);
  }
  ASSIGN_OR_RETURN(TensorType type, Infer(op, graph.payload(node), operands));
  Facts facts;
  facts.weight = op != Op::kInput && op != Op::kStateRead && weights && IsConstantShape(type.shape);
  const bool view = op == Op::kIndexMap && !language_.attrs(graph.payload(node)).contains("fill");
  facts.stored = facts.weight && (op == Op::kParameter || op == Op::kConstant ||
                                  (view && Get(graph, graph.children(node)[0]).stored));
  if (IsDeclared(op)) facts.declared = graph.payload(node);
  const Attrs& attrs = language_.attrs(graph.payload(node));
  facts.values =
      ValueFactsOf(op, attrs, values, equal, operands.empty() ? type.dtype : operands[0].dtype,
                   type.dtype, MostTerms(op, attrs, operands, bounds_));
  facts.uniform = MakeUniform(graph, node, type);
  facts.type = std::move(type);
  return facts;
}

std::optional<Tensor> FactsAnalysis::MakeUniform(const egraph::EGraph& graph, egraph::NodeId node,
                                                 const TensorType& type) const {
  const Op op = ToOp(graph.op(node));
  const Attrs& attrs = language_.attrs(graph.payload(node));
  const auto operand = [&](int i) -> const std::optional<Tensor>& {
    return Get(graph, graph.children(node)[i]).uniform;
  };
  switch (op) {
    case Op::kConstant:
      return RepeatedElement(GetAttr<Tensor>(attrs, "value"));
    case Op::kIndexMap: {
      const auto fill = attrs.find("fill");
      if (fill == attrs.end() || !operand(0)) return operand(0);
      const std::optional<Tensor> outside = RepeatedElement(std::get<Tensor>(fill->second));
      return outside == operand(0) ? operand(0) : std::nullopt;
    }
    case Op::kGather:
      return operand(0);
    case Op::kSelect: {
      // Both sides are the same number, for any condition.
      if (operand(1) && operand(1) == operand(2)) return operand(1);
      return EvaluateUniform(graph, node, type.dtype);
    }
    default:
      return OpInfo(op).op_class == OpClass::kElementwise ? EvaluateUniform(graph, node, type.dtype)
                                                          : std::nullopt;
  }
}

std::optional<Tensor> FactsAnalysis::EvaluateUniform(const egraph::EGraph& graph,
                                                     egraph::NodeId node, DType dtype) const {
  if (!Computes(dtype)) return std::nullopt;
  std::vector<const Tensor*> operands;
  for (const egraph::ClassId child : graph.children(node)) {
    const std::optional<Tensor>& uniform = Get(graph, child).uniform;
    if (!uniform) return std::nullopt;
    operands.push_back(&*uniform);
  }
  Tensor result = Tensor::Zeros(dtype, {});
  const absl::Status status = OpInfo(ToOp(graph.op(node)))
                                  .reference(operands, language_.attrs(graph.payload(node)),
                                             /*dims=*/{}, &result);
  if (!status.ok()) return std::nullopt;
  return OneNaN(std::move(result));
}

absl::StatusOr<egraph::DidMerge> FactsAnalysis::Merge(Facts* into, const Facts& from) const {
  if (!(into->type == from.type)) {
    return absl::FailedPreconditionError(Cat("a value of type ", TypeToString(into->type),
                                             " cannot equal one of type ",
                                             TypeToString(from.type)));
  }
  if (into->declared.valid() && from.declared.valid() && into->declared != from.declared) {
    return absl::FailedPreconditionError(
        Cat("inputs ", DeclarationText(language_.declaration(into->declared)), " and ",
            DeclarationText(language_.declaration(from.declared)), " are not one value"));
  }
  Facts joined = *into;
  joined.weight = into->weight || from.weight;
  joined.values = Joined(into->values, from.values);
  joined.stored = into->stored || from.stored;
  if (from.declared.valid()) joined.declared = from.declared;
  joined.uniform_disputed = into->uniform_disputed || from.uniform_disputed ||
                            (into->uniform && from.uniform && into->uniform != from.uniform);
  if (!joined.uniform) joined.uniform = from.uniform;
  if (joined.uniform_disputed) joined.uniform.reset();
  const egraph::DidMerge did{.into_changed = !(joined == *into), .from_differs = !(joined == from)};
  *into = std::move(joined);
  return did;
}

size_t FactsAnalysis::Bytes() const {
  // A shape owns a list of sizes, and a size a list of terms; equal facts share them.
  constexpr size_t kShapeBytes = 96;
  return TypedAnalysis::Bytes() + TypedAnalysis::Bytes() / sizeof(Facts) * kShapeBytes +
         language_.Bytes();
}

std::string FactsAnalysis::ValueText(const egraph::EGraph& graph, egraph::ClassId id) const {
  const Facts& facts = Get(graph, id);
  std::string text = TypeToString(facts.type);
  if (facts.weight) text += " weight";
  if (facts.uniform) text += " =" + ElementText(*facts.uniform, 0);
  const int magnitude = facts.values.magnitude;
  if (IsFloat(facts.type.dtype) && !facts.uniform && magnitude != ValueFacts::kUnknown) {
    text += Cat(" <=2^", magnitude);
  }
  return text;
}

}  // namespace athanor
