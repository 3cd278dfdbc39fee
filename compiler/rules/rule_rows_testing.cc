#include "compiler/rules/rule_rows_testing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/sample/widen.h"
#include "compiler/ir/value/message.h"
#include "compiler/rules/saturate.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int kMaxAlternatives = 12;  // graphs compared per example

// --- Allowed difference of both sides ---

bool SumsFloats(const Node& node) {
  switch (node.op) {
    case Op::kSumReduce:
    case Op::kMulReduce:
    case Op::kCumulate:
    case Op::kConv:
    case Op::kPool:
    case Op::kRotary:
    case Op::kContract:
    case Op::kSoftmax:
    case Op::kLayerNorm:
    case Op::kRmsNorm:
    case Op::kAttention:
    case Op::kPagedAttention:
    case Op::kEmbeddingBag:
    case Op::kScatter:
      return IsFloat(node.type.dtype);
    default:
      return false;
  }
}

// Counts the ops whose results are not determined bit for bit.
std::map<Op, int> LooseOps(const Graph& graph) {
  std::map<Op, int> ops;
  for (const Node& node : graph.nodes) {
    if (OpInfo(node.op).ulp > 0 || SumsFloats(node)) ++ops[node.op];
  }
  return ops;
}

bool HasAny(const Graph& graph, std::initializer_list<Op> ops) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return std::find(ops.begin(), ops.end(), node.op) != ops.end();
  });
}

// Numbers at the end of a dtype's range count as infinite, such as the start value of a maximum.
double LargestFinite(const Tensor& t) {
  constexpr double kEnd = 1e30;
  double largest = 0;
  if (!IsFloat(t.dtype)) return largest;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double v = std::fabs(LoadScalar(t, i).f);
    if (v < kEnd) largest = std::max(largest, v);
  }
  return largest;
}

// The scale of rounding errors in a graph, from its values: the coarsest roundoff, the number of
// successive roundings, the largest value that is rounded.
struct ErrorScale {
  double roundoff = 0, roundings = 1, magnitude = 0;
  void Join(const ErrorScale& other) {
    roundoff = std::max(roundoff, other.roundoff);
    roundings += other.roundings;
    magnitude = std::max(magnitude, other.magnitude);
  }
};

// Reports whether the node's floats are copies of its operands' floats.
bool OnlyChooses(const Node& node) {
  if (node.op == Op::kEmbeddingBag || node.op == Op::kPool)
    return GetAttr<std::string>(node.attrs, "mode") == "max";
  return HasAny({.nodes = {node}}, {Op::kIndexMap, Op::kGather, Op::kSelect, Op::kMin, Op::kMax,
                                    Op::kRelu, Op::kMaxReduce});
}

// Converts to f64: in a twin graph, values that are only selected keep their dtype.
Tensor InF64(const Tensor& t) {
  Tensor wide = Tensor::Zeros(DType::kF64, t.shape);
  for (int64_t i = 0; i < t.elements(); ++i) {
    StoreScalar(wide, i, Scalar::Float(DType::kF64, LoadScalar(t, i).f));
  }
  return wide;
}

ErrorScale ScaleOf(const Graph& graph, const std::vector<Tensor>& values) {
  ErrorScale scale;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    double largest = LargestFinite(values[n]), length = 1, product = 1;
    for (const NodeId i : node.inputs) {
      const double operand = LargestFinite(values[i]);
      for (const int64_t size : values[i].shape) length = std::max<double>(length, size);
      product *= std::max(operand, 1.0);
      // Changing an exponent by d multiplies the power by e^d.
      if (HasAny({.nodes = {node}}, {Op::kExp, Op::kExp2, Op::kPow, Op::kSoftmax})) {
        scale.roundings += operand;
      }
    }
    if (node.op == Op::kConv) length = std::max<double>(length, values[node.inputs[1]].elements());
    if (SumsFloats(node)) {
      // Partial sums may be larger than the sum.
      largest = std::max(largest, length * product);
      scale.roundings += length;
      if (HasAny({.nodes = {node}}, {Op::kAttention, Op::kPagedAttention}))
        scale.roundings += length * product;
    }
    scale.roundings += 1 + OpInfo(node.op).ulp;
    scale.magnitude = std::max(scale.magnitude, largest);
    if (IsFloat(node.type.dtype) && !node.inputs.empty() && !OnlyChooses(node)) {
      scale.roundoff = std::max(scale.roundoff, UnitRoundoff(node.type.dtype));
    }
  }
  return scale;
}

// NaN equals NaN. Zeros of different signs are equal only if an op leaves the sign unspecified.
absl::Status CompareBits(const Tensor& got, const Tensor& want, bool zeros_are_one) {
  RETURN_IF_ERROR(CompareTensors(got, want, 0, 0));
  for (int64_t i = 0; i < want.elements() && IsFloat(want.dtype); ++i) {
    const double a = LoadScalar(got, i).f, b = LoadScalar(want, i).f;
    if (!std::isnan(b) && !zeros_are_one && std::signbit(a) != std::signbit(b)) {
      return Invalid("element ", i, ": got ", a, ", want ", b, ", of the other sign");
    }
  }
  return absl::OkStatus();
}

// `roundoff` applies to the numbers in the graphs, if it is coarser than that of their dtypes.
absl::Status CompareGraphs(const Graph& want, const Graph& got, RuleClass rule_class,
                           const std::vector<Tensor>& values, const Expr::Env& dims,
                           double roundoff, int* unbounded) {
  constexpr double kSlack = 4, kBlind = 0.1;
  const absl::StatusOr<std::vector<Tensor>> a = EvaluateAll(want, values, &dims);
  const absl::StatusOr<std::vector<Tensor>> b = EvaluateAll(got, values, &dims);
  if (!a.ok()) return Prefixed("the example: ", a.status());
  if (!b.ok()) return b.status();
  const bool bits = rule_class == RuleClass::kExact && LooseOps(want) == LooseOps(got);
  const bool zeros_are_one =
      HasAny(want, {Op::kMax, Op::kMin, Op::kMaxReduce, Op::kRelu}) || !LooseOps(got).empty();
  ErrorScale scale = ScaleOf(want, *a);
  scale.Join(ScaleOf(got, *b));
  scale.roundoff = std::max(scale.roundoff, roundoff);
  const double gamma = Gamma(static_cast<int64_t>(scale.roundings), scale.roundoff);
  const double tolerance = kSlack * scale.magnitude * std::min(gamma, 1.0);
  if (!bits && gamma > kBlind) {
    // With so many roundings in low precision the comparison has no bound. Instead, the twins in
    // f64 must be equal, except for numbers that a decomposition rounds to f32.
    ASSIGN_OR_RETURN(const Graph wide, WidenToF64(want));
    ASSIGN_OR_RETURN(const Graph other, WidenToF64(got));
    const bool same_twin = ToText(wide) == ToText(want) && ToText(other) == ToText(got);
    if (!same_twin) {
      const absl::Status same = CompareGraphs(wide, other, RuleClass::kReassociating, values, dims,
                                              UnitRoundoff(DType::kF32), unbounded);
      if (!same.ok()) return Prefixed("in f64: ", same);
    } else if (unbounded != nullptr) {
      ++*unbounded;
    }
  }
  if (!std::isfinite(tolerance)) return absl::InternalError("no bound on the rounding errors");
  for (size_t i = 0; i < want.outputs.size(); ++i) {
    const Tensor& x = (*a)[want.outputs[i].node];
    const Tensor& y = (*b)[got.outputs[i].node];
    const bool widened = IsFloat(x.dtype) && IsFloat(y.dtype) && x.dtype != y.dtype;
    absl::Status same = bits      ? CompareBits(y, x, zeros_are_one)
                        : widened ? CompareTensors(InF64(y), InF64(x), 0, tolerance)
                                  : CompareTensors(y, x, 0, tolerance);
    if (!same.ok()) return Prefixed(Cat("output ", i, ": "), same);
  }
  return absl::OkStatus();
}

// --- Graphs that a row produces ---

// Returns graphs that each use one e-node which the example does not have, and otherwise as much of
// the example as possible. If the row merged values of the example, what is left of the example
// comes first.
std::vector<Graph> OtherSides(const TermGraph& terms, absl::Status* status,
                              size_t most = kMaxAlternatives) {
  const egraph::EGraph& e = terms.terms();
  const std::vector<egraph::ClassId> roots = terms.Roots();
  const egraph::Extractor extractor(e, [](egraph::NodeId) { return 1.0; });
  const egraph::Choice original = terms.Original();
  std::vector<Graph> sides;
  const auto add = [&](const egraph::Choice& choice) {
    absl::StatusOr<Graph> graph = terms.Extract(choice);
    if (status->ok()) *status = graph.status();
    if (!graph.ok()) return;
    if (status->ok()) *status = Prefixed(ToText(*graph), Verify(*graph));
    sides.push_back(*std::move(graph));
  };
  add(original);
  if (status->ok() && CanonicalHash(sides[0]) == CanonicalHash(terms.graph())) sides.clear();
  for (const egraph::ClassId id : e.Classes()) {
    if (!original.Get(id).valid()) continue;  // reached through the nodes of other classes
    for (const egraph::NodeId n : e.nodes(id)) {
      if (n == original.Get(id) || sides.size() >= most) continue;
      egraph::Choice choice = original;
      choice.Set(id, n);
      if (!extractor.EnforceAcyclic(roots, &choice).ok() || choice.Get(id) != n) continue;
      add(choice);
      if (!status->ok()) return {};
    }
  }
  return sides;
}

// Returns a program of random e-nodes, as a search may produce.
egraph::Choice RandomChoice(const TermGraph& terms, const egraph::Extractor& extractor,
                            std::mt19937_64& random) {
  const egraph::EGraph& e = terms.terms();
  egraph::Choice choice(e);
  for (const egraph::ClassId id : e.Classes()) {
    const absl::Span<const egraph::NodeId> nodes = e.nodes(id);
    choice.Set(id, nodes[random() % nodes.size()]);
  }
  // Every class represents a term, so this always succeeds.
  extractor.EnforceAcyclic(terms.Roots(), &choice).IgnoreError();
  return choice;
}

absl::Status CheckChoices(const ExampleBuilder& e, uint64_t seed, int choices, RowCheck* check) {
  if (!e.status().ok()) return e.status();
  ASSIGN_OR_RETURN(std::unique_ptr<TermGraph> terms, TermGraph::Create(e.graph()));
  const size_t before = terms->terms().num_nodes();
  RETURN_IF_ERROR(Saturate(terms.get(), {}, {.limits = {.iterations = 8, .nodes = 3000}}).status());
  RETURN_IF_ERROR(terms->terms().Verify());
  check->fired += terms->terms().num_nodes() > before;
  const egraph::Extractor extractor(terms->terms(), [](egraph::NodeId) { return 1.0; });
  std::mt19937_64 random(seed);
  for (int i = 0; i < choices; ++i) {
    ASSIGN_OR_RETURN(const Graph side, terms->Extract(RandomChoice(*terms, extractor, random)));
    if (absl::Status s = Verify(side); !s.ok()) return Prefixed(ToText(side), s);
    for (const bool special : {false, true}) {
      const absl::Status same =
          CompareSides(e.graph(), side, RuleClass::kReassociating, ExampleValues(e, seed, special),
                       e.dims(), &check->unbounded);
      if (!same.ok()) {
        return Prefixed(Cat(ToText(side), special ? "special values: " : ""), same);
      }
    }
    ++check->compared;
  }
  return absl::OkStatus();
}

double SpecialValue(uint64_t draw, ExampleEdges edges) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double kValues[] = {1.0, 0.0, -0.0, std::nan(""), kInf, -kInf};
  const uint64_t allowed[] = {6, 4, 3};
  return kValues[draw % allowed[static_cast<int>(edges)]];
}

// Returns extreme values that a weight's known facts allow. The smallest are large enough that
// products of two are not subnormal, because rows leave infinity times an underflowing product
// unspecified.
double BoundedValue(uint64_t draw, int magnitude) {
  const double most = std::ldexp(1.0, magnitude), least = 0x1p-60;
  const double kValues[] = {most, -most, 0.0, -0.0, least, -least, 1.0};
  return kValues[draw % std::size(kValues)];
}

Scalar WholeNumber(DType dtype, int64_t value) {
  if (dtype == DType::kBool) return Scalar::Unsigned(dtype, value > 0);
  return IsSigned(dtype) ? Scalar::Signed(dtype, value)
                         : Scalar::Unsigned(dtype, static_cast<uint64_t>(std::abs(value)));
}

// --- Values at the ends of a dtype's range ---

double Largest(DType dtype) {
  return dtype == DType::kF64   ? std::numeric_limits<double>::max()
         : dtype == DType::kF16 ? 65504.0
                                : DecodeFloat(dtype, EncodeFloat(dtype, 0x1.fep127));
}

double Small(DType dtype, uint64_t draw) {
  const double normal = dtype == DType::kF64   ? std::numeric_limits<double>::min()
                        : dtype == DType::kF16 ? 0x1p-14
                                               : std::numeric_limits<float>::min();
  const double kValues[] = {normal, -normal, UnitInLastPlace(dtype, 0), -UnitInLastPlace(dtype, 0),
                            0.0,    -0.0};
  return kValues[draw % std::size(kValues)];
}

uint64_t EndOfIntegers(DType dtype, uint64_t draw) {
  const int bits = 8 * DTypeBytes(dtype);
  const uint64_t most = ~uint64_t{0} >> (64 - bits + (IsSigned(dtype) ? 1 : 0));
  const uint64_t kValues[] = {most, most + 1, uint64_t{1} << 53, 0};
  return kValues[draw % std::size(kValues)] + draw / 4 % 3 - 1;
}

// Same as ExampleValues(e, seed, false), with extreme values. In a float input, either one element
// is half the largest number of its dtype, so that overflow of a sum does not depend on its order;
// or all elements are, with one sign; or many are near the smallest normal and subnormal numbers.
// Integers are at the ends of their range and near 2^53. Weights stay as usual, because rows know
// facts about them.
std::vector<Tensor> ValuesAtEnds(const ExampleBuilder& e, uint64_t seed) {
  std::vector<Tensor> values = ExampleValues(e, seed, false);
  std::mt19937_64 random(seed + 0x9e3779b9);
  const std::vector<NodeId> inputs = e.graph().InputIds();
  for (size_t n = 0; n < inputs.size(); ++n) {
    Tensor& t = values[n];
    if (t.elements() == 0 || !Computes(t.dtype) || e.index_limits().contains(inputs[n])) continue;
    const uint64_t kind = random() % 4, place = random() % t.elements();
    const double half = (random() % 2 == 0 ? 0.5 : -0.5) * Largest(t.dtype);
    for (int64_t i = 0; i < t.elements(); ++i) {
      const uint64_t draw = random();
      if (!IsFloat(t.dtype)) {
        if (t.dtype == DType::kBool || kind == 0) continue;
        StoreScalar(t, i, Scalar::Unsigned(t.dtype, EndOfIntegers(t.dtype, draw)));
      } else if (kind < 2 ? kind == 0 || i == static_cast<int64_t>(place) : draw % 2 == 0) {
        const double value = kind < 2 ? half : Small(t.dtype, draw / 2);
        StoreScalar(t, i, Scalar::Float(t.dtype, value));
      }
    }
  }
  return values;
}

// Checks that the other side is a number wherever the example's result is one, and the same number
// if the dtype does not round.
absl::Status CompareAtEnds(const Graph& want, const Graph& got, const std::vector<Tensor>& values,
                           const Expr::Env& dims) {
  const absl::StatusOr<std::vector<Tensor>> a = Evaluate(want, values, &dims);
  const absl::StatusOr<std::vector<Tensor>> b = Evaluate(got, values, &dims);
  if (!a.ok()) return Prefixed("the example: ", a.status());
  if (!b.ok()) return b.status();
  for (size_t o = 0; o < a->size(); ++o) {
    const Tensor &x = (*a)[o], &y = (*b)[o];
    if (!IsFloat(x.dtype)) {
      if (absl::Status s = CompareTensors(y, x, 0, 0); !s.ok()) {
        return Prefixed(Cat("output ", o, ": "), s);
      }
      continue;
    }
    for (int64_t i = 0; i < x.elements(); ++i) {
      const double wanted = LoadScalar(x, i).f, found = LoadScalar(y, i).f;
      if (!std::isfinite(wanted) || std::isfinite(found)) continue;
      return Invalid("output ", o, ", element ", i, ": got ", found, ", want ", wanted);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckExample(const RuleRow& row, const ExampleBuilder& e, uint64_t seed,
                          RowCheck* check) {
  if (!e.status().ok()) return e.status();
  RETURN_IF_ERROR(Verify(e.graph()));
  ASSIGN_OR_RETURN(std::unique_ptr<TermGraph> terms, TermGraph::Create(e.graph()));
  const RuleRow* const rows[] = {&row};
  ASSIGN_OR_RETURN(const egraph::Report report,
                   SaturateWith(terms.get(), rows, {.limits = {.iterations = 4, .nodes = 2000}}));
  RETURN_IF_ERROR(terms->terms().Verify());
  bool fired = false;
  for (const egraph::RuleReport& rule : report.rules) {
    fired |= rule.unions > 0;
    if (rule.refused > 0) {
      return Invalid(rule.name,
                     " asked for what the facts refuse: ", terms->terms().refusals()[0].message);
    }
    if (!rule.last_error.empty()) return Invalid(rule.name, ": ", rule.last_error);
  }
  check->fired += fired;
  absl::Status status;
  for (const Graph& side : OtherSides(*terms, &status)) {
    for (const bool special : {false, true}) {
      const std::vector<Tensor> values = ExampleValues(e, seed, special);
      const absl::Status same =
          CompareSides(e.graph(), side, row.rule_class, values, e.dims(), &check->unbounded);
      if (!same.ok()) return Prefixed(Cat(ToText(side), special ? "special values: " : ""), same);
    }
    ++check->compared;
    // Composites round once at the end, but their primitives round more often; approximate rows may
    // overflow.
    if (row.rewrites == nullptr || row.rule_class == RuleClass::kApproximate) continue;
    const absl::Status ends = CompareAtEnds(e.graph(), side, ValuesAtEnds(e, seed), e.dims());
    if (!ends.ok()) return Prefixed(Cat(ToText(side), "values at the ends: "), ends);
  }
  return status;
}

using Check = absl::FunctionRef<absl::Status(const ExampleBuilder&, uint64_t, RowCheck*)>;

RowCheck CheckExamples(const RuleRow& row, DType dtype, int seeds, Check one) {
  RowCheck check;
  for (int seed = 0; seed < seeds && check.status.ok(); ++seed) {
    ExampleBuilder e(static_cast<uint64_t>(seed), dtype);
    row.example(e);
    check.status = Prefixed(Cat("example of ", row.name, ", ", DTypeName(dtype), ", seed ", seed,
                                ": ", ToText(e.graph())),
                            one(e, static_cast<uint64_t>(seed), &check));
  }
  return check;
}

}  // namespace

std::vector<Tensor> ExampleValues(const ExampleBuilder& e, uint64_t seed, bool special) {
  std::mt19937_64 random(seed * 2 + special);
  std::normal_distribution<double> normal(0, 2);
  std::vector<NodeId> ids = e.graph().InputIds();
  for (const NodeId n : e.graph().ParameterIds()) ids.push_back(n);
  std::vector<Tensor> values;
  for (const NodeId id : ids) {
    const TensorType& type = e.graph().node(id).type;
    Tensor t = Tensor::Zeros(type.dtype, *ConcreteShape(type.shape, e.dims()));
    const auto limit = e.index_limits().find(id);
    const std::optional<int> magnitude = MagnitudeOf(e.graph().node(id));
    for (int64_t i = 0; i < t.elements(); ++i) {
      const double v = normal(random);
      const uint64_t draw = random();
      if (limit != e.index_limits().end()) {
        StoreScalar(t, i, WholeNumber(type.dtype, static_cast<int64_t>(draw % limit->second)));
      } else if (!IsFloat(type.dtype)) {
        // Large enough that products of two wrap in narrow dtypes.
        StoreScalar(t, i, WholeNumber(type.dtype, std::llround(v * 50)));
      } else {
        const bool strewn = special && draw % 4 == 0;
        double value = v;
        if (strewn && magnitude) value = BoundedValue(draw / 4, *magnitude);
        if (strewn && !magnitude) value = SpecialValue(draw / 4, e.edges(id));
        StoreScalar(t, i, Scalar::Float(type.dtype, value));
      }
    }
    values.push_back(std::move(t));
  }
  return values;
}

absl::Status CompareSides(const Graph& want, const Graph& got, RuleClass rule_class,
                          const std::vector<Tensor>& values, const Expr::Env& dims,
                          int* unbounded) {
  return CompareGraphs(want, got, rule_class, values, dims, 0, unbounded);
}

RowCheck CheckRow(const RuleRow& row, DType dtype, int seeds) {
  return CheckExamples(row, dtype, seeds,
                       [&](const ExampleBuilder& e, uint64_t seed, RowCheck* check) {
                         return CheckExample(row, e, seed, check);
                       });
}

absl::StatusOr<int> CheckGraph(const Graph& graph, const std::vector<Tensor>& values,
                               const Expr::Env& dims, double relative, const RuleChoice& choice) {
  constexpr size_t kMost = 100;
  ASSIGN_OR_RETURN(std::unique_ptr<TermGraph> terms, TermGraph::Create(graph));
  RETURN_IF_ERROR(
      Saturate(terms.get(), choice, {.limits = {.iterations = 8, .nodes = 3000}}).status());
  ASSIGN_OR_RETURN(const std::vector<Tensor> want, Evaluate(graph, values, &dims));
  absl::Status status;
  const std::vector<Graph> sides = OtherSides(*terms, &status, kMost);
  for (const Graph& side : sides) {
    const absl::StatusOr<std::vector<Tensor>> got = Evaluate(side, values, &dims);
    status.Update(got.status());
    for (size_t o = 0; o < want.size() && status.ok(); ++o) {
      status = CompareTensors((*got)[o], want[o], relative, 0);
    }
    if (!status.ok()) return Prefixed(ToText(side), status);
  }
  if (!status.ok()) return status;
  return static_cast<int>(sides.size());
}

RowCheck CheckTogether(const RuleRow& row, DType dtype, int seeds, int choices) {
  return CheckExamples(row, dtype, seeds,
                       [&](const ExampleBuilder& e, uint64_t seed, RowCheck* check) {
                         return CheckChoices(e, seed, choices, check);
                       });
}

}  // namespace athanor
