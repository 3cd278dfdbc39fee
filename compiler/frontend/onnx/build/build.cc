// OpBuilder: nodes, literals, sizes as data.
#include "compiler/frontend/onnx/build/build.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

constexpr size_t kMaxSources = 8;
// Literals with more equal elements than this are stored as one element and broadcast.
constexpr int64_t kMaxEqualElements = 64;
// A size up to this is read from an Iota; a size that may be larger is computed from its symbols.
constexpr int64_t kMaxCounted = int64_t{1} << 20;
// Limit on the bytes of all literals of a graph; weights do not count.
constexpr int64_t kMaxLiteralBytes = 128 << 20;

std::vector<int> SourcesOf(absl::Span<const Value> inputs) {
  std::vector<int> all;
  for (const Value& v : inputs) {
    std::vector<int> merged;
    std::set_union(all.begin(), all.end(), v.sources.begin(), v.sources.end(),
                   std::back_inserter(merged));
    all = std::move(merged);
  }
  if (all.size() > kMaxSources) all.resize(kMaxSources);
  return all;
}

bool FitsInteger(DType dtype, int64_t value) {
  if (dtype == DType::kBool) return value == 0 || value == 1;
  const int bits = 8 * DTypeBytes(dtype);
  if (IsUnsigned(dtype)) return value >= 0 && (bits == 64 || value >> bits == 0);
  return bits == 64 || (value >= -(int64_t{1} << (bits - 1)) && value >> (bits - 1) <= 0);
}

// Returns the number in a dtype; nullopt if the dtype cannot hold it.
std::optional<::athanor::Scalar> NumberIn(DType dtype, int64_t value) {
  if (IsFloat(dtype)) {
    const auto number = static_cast<double>(value);
    const bool exact = value >= -(int64_t{1} << 53) && value <= int64_t{1} << 53 &&
                       DecodeFloat(dtype, EncodeFloat(dtype, number)) == number;
    return exact ? std::optional(::athanor::Scalar::Float(dtype, number)) : std::nullopt;
  }
  if (!FitsInteger(dtype, value)) return std::nullopt;
  return IsSigned(dtype) ? ::athanor::Scalar::Signed(dtype, value)
                         : ::athanor::Scalar::Unsigned(dtype, static_cast<uint64_t>(value));
}

// Returns integers and bools as expressions; empty if one is outside int64.
std::vector<Expr> SizesOf(const Tensor& literal) {
  std::vector<Expr> sizes;
  if (IsFloat(literal.dtype)) return sizes;
  for (int64_t i = 0; i < literal.elements(); ++i) {
    const ::athanor::Scalar s = LoadScalar(literal, i);
    if (s.i < 0 && !IsSigned(literal.dtype)) return {};
    sizes.push_back(s.i);
  }
  return sizes;
}

std::shared_ptr<const Known> KnownLiteral(const Tensor& literal) {
  Known known;
  known.shape = literal.shape;
  known.sizes = SizesOf(literal);
  known.literal = literal;
  return std::make_shared<const Known>(std::move(known));
}

// Returns the element that all elements of a literal equal, as a scalar, if the literal is large.
std::optional<Tensor> EqualElement(const Tensor& literal) {
  const auto bytes = static_cast<size_t>(DTypeBytes(literal.dtype));
  if (literal.elements() <= kMaxEqualElements) return std::nullopt;
  const std::string& all = literal.bytes;
  if (all.compare(0, all.size() - bytes, all, bytes, all.size() - bytes) != 0) return std::nullopt;
  return Tensor{literal.dtype, {}, all.substr(0, bytes)};
}

Value SizeData(OpBuilder& b, const Expr& size);

Value AtomData(OpBuilder& b, const AtomRef& atom) {
  if (atom->kind == Atom::Kind::kSymbol) {
    const Expr symbol = Expr::Of(atom);
    const Value counted = b.Iota(Elem::kInt64, {symbol + 1}, 0);
    return b.Raw(Op::kIndexMap, {counted}, {{"map", IndexMap{{}, {symbol}}}}, Elem::kInt64);
  }
  const Op op = atom->kind == Atom::Kind::kFloorDiv ? Op::kFloorDiv
                : atom->kind == Atom::Kind::kMin    ? Op::kMin
                                                    : Op::kMax;
  const Value first = SizeData(b, atom->args[0]);
  return b.Raw(op, {first, SizeData(b, atom->args[1])}, {}, Elem::kInt64);
}

// Returns the size as a scalar of i64: either an element of an Iota that is long enough, or the
// polynomial computed from its symbols.
Value SizeData(OpBuilder& b, const Expr& size) {
  if (auto number = size.constant()) return b.Integer(Elem::kInt64, *number);
  const std::optional<int64_t> most = b.bounds().Maximum(size);
  if (most && *most < kMaxCounted && b.bounds().NonNegative(size)) {
    const Value counted = b.Iota(Elem::kInt64, {size + 1}, 0);
    return b.Raw(Op::kIndexMap, {counted}, {{"map", IndexMap{{}, {size}}}}, Elem::kInt64);
  }
  Value sum = b.Integer(Elem::kInt64, 0);
  for (const Expr::Term& term : size.terms()) {
    Value product = b.Integer(Elem::kInt64, term.coefficient);
    for (const AtomRef& atom : term.monomial) {
      product = b.Raw(Op::kMul, {product, AtomData(b, atom)}, {}, Elem::kInt64);
    }
    sum = b.Raw(Op::kAdd, {sum, product}, {}, Elem::kInt64);
  }
  return sum;
}

// Returns expressions as a vector of i64. Expressions that differ by a constant share the
// computation of one size.
Value VectorData(OpBuilder& b, absl::Span<const Expr> sizes) {
  const auto count = static_cast<int64_t>(sizes.size());
  Tensor numbers = Tensor::Zeros(DType::kI64, {count});
  std::map<Expr, std::vector<int64_t>> places;  // by the part that is not a number
  for (int64_t i = 0; i < count; ++i) {
    int64_t number = 0;
    for (const Expr::Term& term : sizes[i].terms()) {
      if (term.monomial.empty()) number = term.coefficient;
    }
    numbers.data<int64_t>()[i] = number;
    const Expr rest = sizes[i] - number;
    if (!rest.IsConstant(0)) places[rest].push_back(i);
  }
  Value sum = b.Literal(Elem::kInt64, std::move(numbers));
  for (const auto& [rest, at] : places) {
    Value part = b.Splat(SizeData(b, rest), {count});
    if (static_cast<int64_t>(at.size()) != count) {
      Tensor here = Tensor::Zeros(DType::kBool, {count});
      for (int64_t i : at) here.bytes[i] = 1;
      part = b.Raw(Op::kSelect,
                   {b.Literal(Elem::kBool, std::move(here)), part,
                    b.Splat(b.Integer(Elem::kInt64, 0), {count})},
                   {}, Elem::kInt64);
    }
    sum = b.Raw(Op::kAdd, {sum, part}, {}, Elem::kInt64);
  }
  return sum;
}

// Arranges a vector's elements in a constant shape, in row-major order.
Value VectorAs(OpBuilder& b, const Value& vector, const Shape& shape) {
  if (shape.size() == 1) return vector;
  Expr at = 0;
  for (size_t i = 0; i < shape.size(); ++i) at = at * shape[i] + Expr::Axis(static_cast<int>(i));
  return b.Raw(Op::kIndexMap, {vector}, {{"map", IndexMap{shape, {at}}}}, vector.elem);
}

}  // namespace

OpBuilder::OpBuilder(Graph* graph, const GraphLimits& limits)
    : graph_(graph), builder_(graph, limits), bounds_(graph->DimBounds()), hints_(&graph->dims) {}

void OpBuilder::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

NodeId OpBuilder::AddNode(Op op, std::vector<NodeId> inputs, Attrs attrs) {
  if (!status_.ok()) return kNoNode;
  if (IsConstant(op)) {
    literal_bytes_ += static_cast<int64_t>(GetAttr<Tensor>(attrs, "value").bytes.size());
    if (literal_bytes_ > kMaxLiteralBytes) {
      Fail(absl::ResourceExhaustedError(
          Cat("values computed from constants exceed ", kMaxLiteralBytes,
              " bytes, the limit of an import; store them as initializers")));
      return kNoNode;
    }
  }
  absl::StatusOr<NodeId> node = builder_.Add(op, std::move(inputs), std::move(attrs));
  if (node.ok()) return *node;
  Fail(node.status());
  return kNoNode;
}

NodeId OpBuilder::Node(const Value& v) {
  if (!status_.ok()) return kNoNode;
  if (v.node != kNoNode) return v.node;
  if (v.known == nullptr) {
    Fail(absl::InternalError("a value has neither a node nor known contents"));
    return kNoNode;
  }
  const Known& known = *v.known;
  if (known.literal) {
    if (std::optional<Tensor> one = EqualElement(*known.literal)) {
      return Splat(Literal(v.elem, *std::move(one)), v.shape).node;
    }
    return AddNode(Op::kConstant, {}, {{"value", *known.literal}});
  }
  Value data = VectorAs(*this, VectorData(*this, known.sizes), v.shape);
  if (known.divisor != 1) {
    const Value divisor = Scalar(Elem::kDouble, static_cast<double>(known.divisor));
    data = Div(Cast(data, Elem::kDouble), divisor);
  }
  return Cast(data, v.elem).node;
}

Value OpBuilder::At(NodeId node, Elem elem) {
  if (!status_.ok()) return FailedValue();
  const TensorType& type = graph_->node(node).type;
  if (type.dtype != CarrierOf(elem)) {
    Fail(absl::InternalError(Cat(graph_->Describe(node), " has dtype ", DTypeName(type.dtype),
                                 ", which does not carry ", ElemName(elem))));
    return FailedValue();
  }
  Value v;
  v.elem = elem;
  v.shape = type.shape;
  v.node = node;
  return v;
}

Value OpBuilder::Raw(Op op, absl::Span<const Value> inputs, Attrs attrs, Elem elem) {
  std::vector<NodeId> nodes;
  for (const Value& v : inputs) nodes.push_back(Node(v));
  const NodeId node = AddNode(op, std::move(nodes), std::move(attrs));
  Value v = At(node, elem);
  if (status_.ok()) v.sources = SourcesOf(inputs);
  return v;
}

Value OpBuilder::OfNodes(Op op, std::vector<NodeId> inputs, Attrs attrs, Elem elem) {
  return At(AddNode(op, std::move(inputs), std::move(attrs)), elem);
}

Value OpBuilder::StandIn(TensorType type, Elem elem) {
  if (!status_.ok()) return FailedValue(elem);
  // The name holds an unprintable byte, so no name of the file can be equal to it.
  absl::StatusOr<NodeId> node = builder_.Input(Cat("\x01", stand_ins_.size()), std::move(type));
  if (!node.ok()) {
    Fail(node.status());
    return FailedValue(elem);
  }
  stand_ins_.insert(*node);
  return At(*node, elem);
}

Value OpBuilder::Scalar(Elem elem, double value) {
  if (!status_.ok()) return FailedValue();
  const DType dtype = CarrierOf(elem);
  Tensor literal = Tensor::Zeros(dtype, {});
  if (Computes(dtype) && IsFloat(dtype)) {
    const double held = DecodeFloat(dtype, EncodeFloat(dtype, value));
    if (held == value || std::isnan(value)) {
      StoreScalar(literal, 0, ::athanor::Scalar::Float(dtype, value));
      return Literal(elem, std::move(literal));
    }
  } else if (!IsFloat(dtype) && value == std::floor(value) && std::abs(value) < 0x1p63) {
    return Integer(elem, static_cast<int64_t>(value));
  }
  Fail(Invalid(value, " is not a value of ", ElemName(elem)));
  return FailedValue();
}

Value OpBuilder::Integer(Elem elem, int64_t value) {
  if (!status_.ok()) return FailedValue();
  Tensor literal = Tensor::Zeros(CarrierOf(elem), {});
  const auto number = NumberIn(literal.dtype, value);
  const ElemRow& row = Row(elem);
  const bool narrow = row.carry == Carry::kNarrow && (value < row.low || value > row.high);
  if (!number || narrow) {
    Fail(Invalid(value, " is not a value of ", ElemName(elem)));
    return FailedValue();
  }
  StoreScalar(literal, 0, *number);
  return Literal(elem, std::move(literal));
}

Value OpBuilder::Literal(Elem elem, Tensor value) {
  if (!status_.ok()) return FailedValue();
  if (value.dtype != CarrierOf(elem)) {
    Fail(absl::InternalError(
        Cat("a literal of ", DTypeName(value.dtype), " does not carry ", ElemName(elem))));
    return FailedValue();
  }
  std::shared_ptr<const Known> known;
  if (value.elements() <= kMaxKnownElements) known = KnownLiteral(value);
  Value v = At(AddNode(Op::kConstant, {}, {{"value", std::move(value)}}), elem);
  if (status_.ok()) v.known = std::move(known);
  return v;
}

Value OpBuilder::Splat(const Value& scalar, Shape shape) {
  if (!status_.ok()) return FailedValue();
  if (scalar.rank() != 0) {
    Fail(absl::InternalError(Cat("a splat of ", ShapeToString(scalar.shape), ", not a scalar")));
    return FailedValue();
  }
  if (shape.empty()) return scalar;
  return Raw(Op::kIndexMap, {scalar}, {{"map", IndexMap{std::move(shape), {}}}}, scalar.elem);
}

Value OpBuilder::Sizes(std::vector<Expr> sizes, std::vector<int64_t> shape, Elem elem) {
  if (!status_.ok()) return FailedValue();
  Tensor literal = Tensor::Zeros(CarrierOf(elem), shape);
  if (literal.elements() != static_cast<int64_t>(sizes.size())) {
    Fail(absl::InternalError(Cat(sizes.size(), " sizes for ", literal.elements(), " elements")));
    return FailedValue();
  }
  bool concrete = true;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::optional<int64_t> value = sizes[i].constant();
    const auto number = value ? NumberIn(literal.dtype, *value) : std::nullopt;
    if (number) StoreScalar(literal, static_cast<int64_t>(i), *number);
    concrete = concrete && number;
    if (sizes[i].overflow() || (value && !number)) {
      Fail(Invalid("the size ", sizes[i].ToString(), " is not a value of ", ElemName(elem)));
      return FailedValue();
    }
  }
  Value v;
  v.elem = elem;
  v.shape.assign(shape.begin(), shape.end());
  Known known;
  known.shape = std::move(shape);
  known.sizes = std::move(sizes);
  if (concrete) known.literal = std::move(literal);
  v.known = std::make_shared<const Known>(std::move(known));
  return v;
}

Value OpBuilder::Size(Elem elem, const Expr& size, Shape shape) {
  if (!status_.ok()) return FailedValue();
  return Splat(Cast(SizeData(*this, size), elem), std::move(shape));
}

Value OpBuilder::Iota(Elem elem, Shape shape, int axis) {
  Attrs attrs = {{"shape", std::move(shape)},
                 {"axis", static_cast<int64_t>(axis)},
                 {"dtype", CarrierOf(elem)}};
  return Raw(Op::kIota, {}, std::move(attrs), elem);
}

OpBuilder::Guard::Guard(OpBuilder* b, Value condition, bool when) : b_(b) {
  b_->guards_.emplace_back(std::move(condition), when);
}

OpBuilder::Guard::~Guard() { b_->guards_.pop_back(); }

}  // namespace athanor::onnx
