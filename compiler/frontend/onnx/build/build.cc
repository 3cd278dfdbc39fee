#include "compiler/frontend/onnx/build/build.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr size_t kMaxSources = 8;
// Literals with more equal elements than this are stored as one element and broadcast.
constexpr int64_t kMaxEqualElements = 64;
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

}  // namespace

OpBuilder::OpBuilder(Graph* graph, const GraphLimits& limits)
    : graph_(graph), builder_(graph, limits), bounds_(graph->DimBounds()), hints_(&graph->dims) {}

void OpBuilder::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

absl::StatusOr<NodeId> OpBuilder::AddNode(Op op, std::vector<NodeId> inputs, Attrs attrs) {
  RETURN_IF_ERROR(status_);
  if (IsConstant(op)) {
    literal_bytes_ += static_cast<int64_t>(GetAttr<Tensor>(attrs, "value").bytes.size());
    if (literal_bytes_ > kMaxLiteralBytes) {
      return absl::ResourceExhaustedError(
          Cat("values computed from constants exceed ", kMaxLiteralBytes,
              " bytes, the limit of an import; store them as initializers"));
    }
  }
  return builder_.Add(op, std::move(inputs), std::move(attrs));
}

NodeId OpBuilder::Node(const Value& v) {
  if (!status_.ok()) return kNoNode;
  if (v.node != kNoNode) return v.node;
  if (v.known == nullptr) {
    Fail(absl::InternalError("a value has neither a node nor known contents"));
    return kNoNode;
  }
  if (!v.known->literal) return KnownSizes(*this, v).node;
  const Tensor& literal = *v.known->literal;
  if (std::optional<Tensor> one = EqualElement(literal)) {
    return Splat(*this, Literal(v.elem, *std::move(one)), v.shape).node;
  }
  absl::StatusOr<NodeId> node = AddNode(Op::kConstant, {}, {{"value", literal}});
  if (!node.ok()) Fail(node.status());
  return node.value_or(kNoNode);
}

Value OpBuilder::At(NodeId node, Elem elem) {
  if (!status_.ok()) return FailedValue(elem);
  const TensorType& type = graph_->node(node).type;
  if (type.dtype != CarrierOf(elem)) {
    Fail(absl::InternalError(Cat(graph_->Describe(node), " has dtype ", DTypeName(type.dtype),
                                 ", which does not carry ", ElemName(elem))));
    return FailedValue(elem);
  }
  Value v;
  v.elem = elem;
  v.shape = type.shape;
  v.node = node;
  return v;
}

absl::StatusOr<Value> OpBuilder::Try(Op op, absl::Span<const Value> inputs, Attrs attrs,
                                     Elem elem) {
  std::vector<NodeId> nodes;
  for (const Value& v : inputs) nodes.push_back(Node(v));
  ASSIGN_OR_RETURN(const NodeId node, AddNode(op, std::move(nodes), std::move(attrs)));
  Value v = At(node, elem);
  v.sources = SourcesOf(inputs);
  return v;
}

Value OpBuilder::Raw(Op op, absl::Span<const Value> inputs, Attrs attrs, Elem elem) {
  absl::StatusOr<Value> v = Try(op, inputs, std::move(attrs), elem);
  if (v.ok()) return *std::move(v);
  Fail(v.status());
  return FailedValue(elem);
}

Value OpBuilder::OfNodes(Op op, std::vector<NodeId> inputs, Attrs attrs, Elem elem) {
  absl::StatusOr<NodeId> node = AddNode(op, std::move(inputs), std::move(attrs));
  if (node.ok()) return At(*node, elem);
  Fail(node.status());
  return FailedValue(elem);
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
  Value v = OfNodes(Op::kConstant, {}, {{"value", std::move(value)}}, elem);
  if (status_.ok()) v.known = std::move(known);
  return v;
}

Value OpBuilder::Sizes(Elem elem, std::vector<Expr> sizes, std::vector<int64_t> shape) {
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

Value OpBuilder::Guarded(Value index) {
  for (const auto& [condition, when] : guards_) {
    const Value none = Integer(index.elem, 0);
    index = when ? Select(*this, condition, index, none) : Select(*this, condition, none, index);
  }
  return index;
}

}  // namespace athanor::onnx
