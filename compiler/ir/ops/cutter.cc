#include "compiler/ir/ops/cutter.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/input_value.h"
#include "compiler/ir/ops/reference_util.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Reports whether the op rounds its float results, or leaves a choice, so that another kernel may
// compute others.
bool MayDiffer(const OpRow& row) {
  const Rounding rounding = row.traits.rounding;
  return rounding != Rounding::kKeeps && rounding != Rounding::kBits &&
         rounding != Rounding::kConverts;
}

// Returns the index of each position in `wanted`, which is sorted and distinct.
Positions PlacesIn(const Positions& wanted, const Positions& positions) {
  Positions places;
  places.reserve(positions.size());
  size_t next = 0;  // runs of neighbours are common
  for (int64_t position : positions) {
    if (next >= wanted.size() || wanted[next] != position) {
      next = std::lower_bound(wanted.begin(), wanted.end(), position) - wanted.begin();
    }
    places.push_back(static_cast<int64_t>(next++));
  }
  return places;
}

template <typename Element>
void CopyElements(const char* from, const Positions& positions, char* to) {
  for (size_t i = 0; i < positions.size(); ++i) {
    std::copy_n(from + positions[i] * sizeof(Element), sizeof(Element), to + i * sizeof(Element));
  }
}

}  // namespace

Cutter::Cutter(const Graph& graph, const Expr::Env& dims,
               absl::Span<const absl::string_view> inputs, int64_t* budget)
    : graph_(graph),
      dims_(dims),
      bytes_(inputs),
      budget_(budget),
      budget_before_(*budget),
      leaf_bytes_(graph.nodes.size()),
      shapes_(graph.nodes.size()),
      inexact_(graph.nodes.size()),
      wanted_(graph.nodes.size()),
      recipes_(graph.nodes.size()),
      builder_(&part_.graph),
      made_(graph.nodes.size(), -1) {}

absl::Status Cutter::SetShapes() {
  for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
    const Node& node = graph_.node(n);
    absl::StatusOr<std::vector<int64_t>> shape = ConcreteShape(node.type.shape, dims_);
    if (!shape.ok()) {
      return absl::Status(shape.status().code(),
                          absl::StrCat(graph_.Describe(n), ": ", shape.status().message()));
    }
    shapes_[n] = *std::move(shape);
    inexact_[n] = IsFloat(node.type.dtype) && MayDiffer(OpInfo(node.op));
    for (NodeId i : node.inputs) inexact_[n] = inexact_[n] || inexact_[i];
  }
  return absl::OkStatus();
}

absl::Status Cutter::Start() {
  RETURN_IF_ERROR(SetShapes());
  const std::vector<NodeId> ids = graph_.ArgumentIds();
  if (ids.size() != bytes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the graph takes ", ids.size(),
                     " tensors (inputs, then parameters, then states), got ", bytes_.size()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t bytes =
        static_cast<size_t>(Product(shapes_[ids[i]])) * DTypeBytes(graph_.node(ids[i]).type.dtype);
    if (bytes_[i].size() != bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          graph_.Describe(ids[i]), ": has ", bytes_[i].size(), " bytes, its shape needs ", bytes));
    }
    const Tensor* value = ValueOf(graph_.node(ids[i]));
    if (value != nullptr && value->bytes != bytes_[i]) {
      return absl::InvalidArgumentError(absl::StrCat(
          graph_.Describe(ids[i]), ": its bytes differ from those of its attribute value"));
    }
    leaf_bytes_[ids[i]] = bytes_[i];
  }
  for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
    if (!IsConstant(graph_.node(n).op)) continue;
    leaf_bytes_[n] = GetAttr<Tensor>(graph_.node(n).attrs, "value").bytes;
  }
  return absl::OkStatus();
}

absl::Status Cutter::Spend(NodeId node, int64_t a, int64_t b) {
  int64_t count = 0;
  if (__builtin_mul_overflow(a, b, &count) || count > *budget_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(graph_.Describe(node), ": the elements asked for depend on more than ",
                     budget_before_, " elements, the limit of a sample"));
  }
  *budget_ -= count;
  return absl::OkStatus();
}

bool Cutter::IsLeaf(NodeId node) const {
  const Op op = graph_.node(node).op;
  return IsDeclared(op) || IsConstant(op);
}

Tensor Cutter::Read(NodeId leaf, std::vector<int64_t> shape, const Positions& positions) const {
  const char* from = leaf_bytes_[leaf].data();
  Tensor tensor = Tensor::Zeros(graph_.node(leaf).type.dtype, std::move(shape));
  char* to = tensor.bytes.data();
  switch (DTypeBytes(tensor.dtype)) {
    case 1:
      CopyElements<uint8_t>(from, positions, to);
      break;
    case 2:
      CopyElements<uint16_t>(from, positions, to);
      break;
    case 4:
      CopyElements<uint32_t>(from, positions, to);
      break;
    default:
      CopyElements<uint64_t>(from, positions, to);
  }
  return tensor;
}

absl::StatusOr<Positions> Cutter::IndexValues(NodeId node, const Positions& positions) {
  Positions values;
  if (positions.empty()) return values;
  Tensor tensor;
  if (IsLeaf(node)) {
    RETURN_IF_ERROR(Spend(node, static_cast<int64_t>(positions.size())));
    tensor = Read(node, {static_cast<int64_t>(positions.size())}, positions);
  } else {
    // Indices decide which elements are wanted, so they are cut out and evaluated at once.
    ASSIGN_OR_RETURN(PartialGraph part,
                     Cutter(graph_, dims_, bytes_, budget_).CutNode(node, positions));
    ASSIGN_OR_RETURN(std::vector<Tensor> outputs, Evaluate(part.graph, part.inputs));
    tensor = std::move(outputs[0]);
  }
  values.reserve(positions.size());
  for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(LoadIndex(tensor, i));
  return values;
}

Cutter::Handle Cutter::Pull(NodeId node, std::vector<int64_t> shape, Positions positions) {
  if (!IsLeaf(node)) {
    wanted_[node].insert(wanted_[node].end(), positions.begin(), positions.end());
  }
  pulled_.push_back({node, std::move(shape), std::move(positions)});
  return static_cast<Handle>(pulled_.size()) - 1;
}

Cutter::Handle Cutter::PullIfInexact(NodeId node, const Positions& positions) {
  if (!inexact_[node] || positions.empty()) return -1;
  return Pull(node, {1, static_cast<int64_t>(positions.size())}, positions);
}

Cutter::Recipe Cutter::PullOr(NodeId node, std::vector<int64_t> shape, Positions positions,
                              const Tensor& outside) {
  const auto inside =
      std::find_if(positions.begin(), positions.end(), [](int64_t p) { return p >= 0; });
  const bool any = inside != positions.end();
  if (std::find(positions.begin(), positions.end(), -1) == positions.end()) {
    const Handle all = Pull(node, std::move(shape), std::move(positions));
    return [this, all] { return Get(all); };
  }
  Tensor is_inside = Tensor::Zeros(DType::kBool, shape);
  Tensor fills{outside.dtype, shape, {}};
  const int64_t instead = any ? *inside : 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    is_inside.bytes[i] = static_cast<char>(positions[i] >= 0);
    fills.bytes += outside.bytes;
    if (positions[i] < 0) positions[i] = instead;
  }
  if (!any) return [this, fills] { return Literal(fills); };
  const Handle moved = Pull(node, std::move(shape), std::move(positions));
  return [this, moved, is_inside, fills] {
    return Add(Op::kSelect, {Literal(is_inside), Get(moved), Literal(fills)});
  };
}

absl::Status Cutter::Walk() {
  // Goes from users to operands: when a node is sampled, all elements that are wanted of it are
  // known. The new nodes are then made in the other order.
  for (NodeId n = static_cast<NodeId>(graph_.nodes.size()); n-- > 0;) {
    Positions& wanted = wanted_[n];
    if (wanted.empty()) continue;
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    const auto sample = OpInfo(graph_.node(n).op).traits.sample;
    if (sample == nullptr) continue;  // bytes, which Read takes
    RETURN_IF_ERROR(sample(*this, n));
  }
  for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
    if (!recipes_[n]) continue;
    ASSIGN_OR_RETURN(made_[n], recipes_[n]());
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeId> Cutter::Literal(Tensor tensor) {
  TensorType type{tensor.dtype, Shape(tensor.shape.begin(), tensor.shape.end())};
  std::string name = absl::StrCat("i", part_.inputs.size());
  part_.inputs.push_back(std::move(tensor));
  return builder_.Input(std::move(name), std::move(type));
}

absl::StatusOr<NodeId> Cutter::IndexLiteral(std::vector<int64_t> shape, const Positions& values) {
  return Literal(Tensor::Of<int64_t>(DType::kI64, std::move(shape), values));
}

absl::StatusOr<NodeId> Cutter::Add(Op op, std::initializer_list<absl::StatusOr<NodeId>> operands,
                                   Attrs attrs) {
  std::vector<NodeId> ids;
  for (const absl::StatusOr<NodeId>& operand : operands) {
    if (!operand.ok()) return operand.status();
    ids.push_back(*operand);
  }
  return builder_.Add(op, std::move(ids), std::move(attrs));
}

absl::StatusOr<NodeId> Cutter::Get(Handle handle) {
  const Pulled& pulled = pulled_[handle];
  const DType dtype = graph_.node(pulled.node).type.dtype;
  if (pulled.positions.empty()) return Literal(Tensor::Zeros(dtype, pulled.shape));
  if (IsLeaf(pulled.node)) return Literal(Read(pulled.node, pulled.shape, pulled.positions));
  const NodeId made = made_[pulled.node];
  const Positions& wanted = wanted_[pulled.node];
  if (pulled.shape.size() == 1 && pulled.positions == wanted) return made;
  // The node was made with the elements that all its users want, sorted; this user takes its own.
  return Add(Op::kGather, {made, IndexLiteral(pulled.shape, PlacesIn(wanted, pulled.positions))},
             {{"axis", int64_t{0}}});
}

absl::StatusOr<NodeId> Cutter::Flatten(absl::StatusOr<NodeId> node, std::vector<int64_t> shape) {
  IndexMap map{{Product(shape)}, {}};
  int64_t behind = Product(shape);
  for (int64_t size : shape) {
    behind /= std::max<int64_t>(size, 1);
    map.coordinates.push_back(Mod(FloorDiv(Expr::Axis(0), behind), std::max<int64_t>(size, 1)));
  }
  return Add(Op::kIndexMap, {std::move(node)}, {{"map", std::move(map)}});
}

absl::StatusOr<NodeId> Cutter::Guarded(absl::StatusOr<NodeId> node,
                                       std::initializer_list<Handle> indices) {
  for (Handle index : indices) {
    if (index < 0 || !node.ok()) continue;
    const TensorType type = part_.graph.node(*node).type;
    // An index is never less than itself, except where an error analysis treats it as inexact.
    absl::StatusOr<NodeId> largest =
        Add(Op::kMaxReduce, {Get(index)}, {{"axes", std::vector<int64_t>{1}}});
    absl::StatusOr<NodeId> another = Add(Op::kLessThan, {largest, largest});
    const int64_t count = *type.shape[0].constant();
    absl::StatusOr<NodeId> spread = Add(
        Op::kGather, {another, IndexLiteral({count}, Positions(count, 0))}, {{"axis", int64_t{0}}});
    absl::StatusOr<NodeId> instead;
    if (IsFloat(type.dtype)) {
      Tensor nan = Tensor::Zeros(type.dtype, {count});
      for (int64_t i = 0; i < count; ++i) {
        StoreScalar(nan, i, Scalar::Float(type.dtype, std::numeric_limits<double>::quiet_NaN()));
      }
      instead = Literal(std::move(nan));
    } else {
      instead = Add(Op::kNot, {node});
    }
    node = Add(Op::kSelect, {spread, instead, node});
  }
  return node;
}

absl::StatusOr<PartialGraph> Cutter::Finish(absl::Span<const std::string> names,
                                            absl::Span<const Handle> handles) {
  RETURN_IF_ERROR(Walk());
  for (size_t i = 0; i < handles.size(); ++i) {
    ASSIGN_OR_RETURN(NodeId node, Get(handles[i]));
    builder_.Output(names[i], node);
  }
  part_.graph.name = graph_.name;
  part_.visited = budget_before_ - *budget_;
  return std::move(part_);
}

absl::StatusOr<PartialGraph> Cutter::Cut(absl::Span<const Positions> positions) {
  RETURN_IF_ERROR(Start());
  if (positions.size() != graph_.outputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("positions are given for ", positions.size(),
                                                   " outputs; the graph has ",
                                                   graph_.outputs.size()));
  }
  std::vector<std::string> names;
  std::vector<Handle> handles;
  for (size_t o = 0; o < positions.size(); ++o) {
    const Output& output = graph_.outputs[o];
    const int64_t elements = Product(shapes_[output.node]);
    for (int64_t position : positions[o]) {
      if (position >= 0 && position < elements) continue;
      return absl::InvalidArgumentError(absl::StrCat("output \"", output.name, "\" has ", elements,
                                                     " elements; there is none at position ",
                                                     position));
    }
    const auto count = static_cast<int64_t>(positions[o].size());
    RETURN_IF_ERROR(Spend(output.node, count));
    names.push_back(output.name);
    handles.push_back(Pull(output.node, {count}, positions[o]));
  }
  return Finish(names, handles);
}

absl::StatusOr<PartialGraph> Cutter::CutNode(NodeId node, const Positions& positions) {
  RETURN_IF_ERROR(Start());
  const auto count = static_cast<int64_t>(positions.size());
  RETURN_IF_ERROR(Spend(node, count));
  const Handle handle = Pull(node, {count}, positions);
  return Finish({std::string("y")}, {handle});
}

}  // namespace athanor
