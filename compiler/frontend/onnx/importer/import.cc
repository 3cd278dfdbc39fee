// Imports a model: its inputs and dims, then its nodes, then its outputs.
#include "compiler/frontend/onnx/importer/import.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/dim_binding.h"
#include "compiler/frontend/names.h"
#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/importer/visit.h"
#include "compiler/frontend/onnx/known/sizes.h"
#include "compiler/ir/graph/check.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::TypeProto;
using ::onnx::ValueInfoProto;

constexpr size_t kMessageBytes = 2 << 10;

std::string_view KindText(TypeProto::ValueCase kind) {
  switch (kind) {
    case TypeProto::kSequenceType:
      return "a sequence";
    case TypeProto::kOptionalType:
      return "an optional value";
    case TypeProto::kMapType:
      return "a map";
    case TypeProto::kSparseTensorType:
      return "a sparse tensor";
    default:
      return "without a stated type";
  }
}

absl::StatusOr<Elem> ElemOfTensor(const TypeProto& type) {
  if (!type.has_tensor_type()) {
    return Unimplemented("is ", KindText(type.value_case()), "; only tensors are supported");
  }
  const int32_t number = type.tensor_type().elem_type();
  const std::optional<Elem> elem = ElemOf(number);
  if (!elem) return Invalid("has element type number ", number, ", which ONNX does not have");
  if (Row(*elem).carry == Carry::kNone) {
    return Unimplemented("is of type ", ElemName(*elem), ", which is not supported");
  }
  return *elem;
}

std::string ElementOf(Elem elem) {
  return Row(elem).carry == Carry::kSame ? std::string() : std::string(ElemName(elem));
}

// Checks that a request could carry these fixed contents.
absl::Status CheckElements(const Tensor& given, Elem elem) {
  const ElemRow& row = Row(elem);
  if (elem == Elem::kBool) {
    for (char byte : given.bytes) {
      if (byte != 0 && byte != 1) return Invalid("holds a bool that is neither 0 nor 1");
    }
  }
  if (row.low == row.high) return absl::OkStatus();
  for (char byte : given.bytes) {
    const int value = row.low < 0 ? static_cast<int8_t>(byte) : static_cast<uint8_t>(byte);
    if (value < row.low || value > row.high) {
      return Invalid("holds ", value, "; ", row.name, " has ", row.low, " to ", row.high);
    }
  }
  return absl::OkStatus();
}

// The interface of a model: its inputs and dims before the nodes are visited, its outputs after.
class Importer {
 public:
  Importer(const OnnxModel& model, const PayloadReader& reader, const ImportOptions& options,
           std::vector<ImportRefusal>* refusals)
      : reader_(reader), state_(model, options, refusals) {}

  absl::StatusOr<OnnxImported> Run();

 private:
  absl::Status AddInputs(const Frame& frame);
  absl::Status AddInput(const ValueInfoProto& info);
  absl::Status CheckValues() const;
  absl::Status Pin(const Tensor& given, Elem elem, NodeId node, Value* value);
  absl::Status AddOutputs(const Frame& frame);
  absl::Status AddOutput(const ValueInfoProto& info);
  absl::StatusOr<OnnxImported> Finish();

  const PayloadReader& reader_;
  ImportState state_;
  Scope main_;
  std::vector<std::string> input_elements_;  // by position
  std::vector<std::string> output_elements_;
};

absl::StatusOr<OnnxImported> Importer::Run() {
  const ::onnx::GraphProto& graph = state_.model.proto.graph();
  const Frame frame{.opsets = &state_.model.opsets};
  RETURN_IF_ERROR(AddInputs(frame));
  RETURN_IF_ERROR(GraphVisitor(&state_).Visit(graph, &main_, frame, nullptr));
  RETURN_IF_ERROR(AddOutputs(frame));
  if (!state_.log.refusals().empty()) return ToStatus(state_.log.refusals(), kMessageBytes);
  return Finish();
}

absl::Status Importer::AddInputs(const Frame& frame) {
  const ::onnx::GraphProto& graph = state_.model.proto.graph();
  const ImportOptions& options = state_.options;
  const GraphLimits& limits = options.limits.graph;
  std::set<std::string_view> weights;
  for (const auto& tensor : graph.initializer()) weights.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) weights.insert(tensor.values().name());
  std::vector<const ValueInfoProto*> inputs;
  std::vector<std::string_view> fixed;
  for (const ValueInfoProto& info : graph.input()) {
    if (weights.contains(info.name())) {
      fixed.push_back(info.name());
      continue;
    }
    RETURN_IF_ERROR(CheckName("input", info.name(), limits));
    const absl::Status typed = ElemOfTensor(info.type()).status();
    if (typed.ok()) {
      inputs.push_back(&info);
      continue;
    }
    state_.log.Refuse(nullptr, frame.path, 0,
                      Prefixed(Cat("input ", Quoted(info.name()), " "), typed));
    main_.Poison(info.name());
  }
  if (!fixed.empty()) {
    state_.log.Note(Cat(fixed.size() == 1 ? "input " : "inputs ", JoinNames(fixed),
                        fixed.size() == 1 ? " has an initializer" : " have initializers",
                        ", so a request cannot give ", fixed.size() == 1 ? "it" : "them"));
  }
  ASSIGN_OR_RETURN(state_.dims, DimTable::Create(inputs, options.dims, limits));
  state_.graph.dims = state_.dims->dims();
  const std::string& name = graph.name();
  if (CheckName("graph name", name, limits).ok()) state_.graph.name = name;
  state_.b.emplace(&state_.graph, limits);
  state_.tensors.emplace(state_.model, reader_, limits.max_name_bytes, &state_.graph, &*state_.b,
                         &state_.budget);
  for (const ValueInfoProto* info : inputs) state_.tensors->Reserve(info->name());
  for (const ValueInfoProto* info : inputs) {
    if (absl::Status s = AddInput(*info); !s.ok()) {
      return Prefixed(Cat("input ", Quoted(info->name()), ": "), s);
    }
  }
  return CheckValues();
}

absl::Status Importer::CheckValues() const {
  for (const auto& [name, value] : state_.options.values) {
    if (std::find(state_.input_names.begin(), state_.input_names.end(), name) !=
        state_.input_names.end())
      continue;
    const std::vector<std::string_view> names(state_.input_names.begin(), state_.input_names.end());
    return Invalid("a value is given for input ", Quoted(name), ", but the model has no such input",
                   DidYouMean(name, names));
  }
  return absl::OkStatus();
}

absl::Status Importer::AddInput(const ValueInfoProto& info) {
  ASSIGN_OR_RETURN(const Elem elem, ElemOfTensor(info.type()));
  const Shape& shape = state_.dims->ShapeOf(info.name());
  const auto position = static_cast<int>(state_.input_names.size());
  state_.input_names.push_back(info.name());
  input_elements_.push_back(ElementOf(elem));
  const NodeId node = state_.tensors->AddDeclared(DeclaredOp(/*parameter=*/false), info.name(),
                                                  {WireOf(elem), shape});
  const bool bits = Row(elem).carry == Carry::kBits;
  Value value = state_.b->At(node, bits ? Elem::kUInt8 : elem);
  if (auto given = state_.options.values.find(info.name()); given != state_.options.values.end()) {
    RETURN_IF_ERROR(Pin(given->second, elem, node, &value));
  } else {
    if (bits) value = Bitcast(*state_.b, value, elem);
    RETURN_IF_ERROR(state_.b->TakeStatus());
    value.sources = {position};
  }
  main_.Define(info.name(), std::move(value));
  return absl::OkStatus();
}

// Fixes an input's contents. The input stays, so that requests need not change; its value is known
// from here on.
absl::Status Importer::Pin(const Tensor& given, Elem elem, NodeId node, Value* value) {
  const Shape& shape = state_.graph.nodes[node].type.shape;
  if (given.dtype != CarrierOf(elem) && given.dtype != WireOf(elem)) {
    return Invalid("its value is given as ", DTypeName(given.dtype), "; it must be ",
                   DTypeName(WireOf(elem)));
  }
  bool fits = given.shape.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] == Expr(given.shape[i]);
  }
  if (!fits) {
    return Invalid("its value is given with shape ",
                   ShapeToString(Shape(given.shape.begin(), given.shape.end())),
                   ", but its shape is ", ShapeToString(shape), "; fix its dims to the same sizes");
  }
  if (given.elements() > kMaxKnownElements) {
    return Invalid("its value has ", given.elements(), " elements; at most ", kMaxKnownElements,
                   " can be given at upload");
  }
  if (given.bytes.size() != static_cast<size_t>(given.elements()) * DTypeBytes(given.dtype)) {
    return Invalid("its value has ", given.bytes.size(), " bytes; its shape needs ",
                   given.elements() * DTypeBytes(given.dtype));
  }
  if (absl::Status s = CheckElements(given, elem); !s.ok()) return Prefixed("its value ", s);
  Tensor wire = given;
  wire.dtype = WireOf(elem);
  state_.graph.nodes[node].attrs.emplace("value", std::move(wire));
  Tensor carried = given;
  carried.dtype = CarrierOf(elem);
  *value = Value();
  value->elem = elem;
  value->shape = shape;
  value->known = std::make_shared<const Known>(KnownOf(std::move(carried)));
  return absl::OkStatus();
}

absl::Status Importer::AddOutputs(const Frame& frame) {
  if (state_.model.proto.graph().output_size() == 0) {
    return Invalid("the graph has no outputs; it must have at least one");
  }
  for (const ValueInfoProto& info : state_.model.proto.graph().output()) {
    const absl::Status s = AddOutput(info);
    if (EndsImport(s)) return s;
    if (!s.ok()) {
      state_.log.Refuse(nullptr, frame.path, 0,
                        Prefixed(Cat("output ", Quoted(info.name()), " "), s));
    }
  }
  return absl::OkStatus();
}

absl::Status Importer::AddOutput(const ValueInfoProto& info) {
  RETURN_IF_ERROR(CheckName("output", info.name(), state_.options.limits.graph));
  const Scope::Found found = main_.Find(info.name());
  if (found.value == nullptr) return Invalid(kUndefined);
  // The node that makes the value was refused; the type that the file states may be another reason.
  if (found.value->poisoned) {
    return info.type().value_case() == TypeProto::VALUE_NOT_SET
               ? absl::OkStatus()
               : ElemOfTensor(info.type()).status();
  }
  Value value = *found.value;
  output_elements_.push_back(ElementOf(value.elem));
  if (Row(value.elem).carry == Carry::kBits) value = Bitcast(*state_.b, value, Elem::kUInt8);
  const NodeId node = state_.b->Node(value);
  RETURN_IF_ERROR(state_.b->TakeStatus());
  state_.graph.outputs.push_back({info.name(), node});
  return absl::OkStatus();
}

absl::StatusOr<OnnxImported> Importer::Finish() {
  RETURN_IF_ERROR(state_.tensors->CheckExternal());
  // Drops nodes that no output needs; inputs stay.
  std::vector<bool> needed(state_.graph.nodes.size(), false);
  for (const Output& output : state_.graph.outputs) needed[output.node] = true;
  for (auto id = static_cast<NodeId>(state_.graph.nodes.size()); id-- > 0;) {
    if (IsInput(state_.graph.nodes[id].op) && !state_.b->IsStandIn(id)) needed[id] = true;
    if (!needed[id]) continue;
    for (NodeId operand : state_.graph.nodes[id].inputs) needed[operand] = true;
  }
  OnnxImported imported;
  std::vector<NodeId> moved(state_.graph.nodes.size(), kNoNode);
  std::vector<Node> nodes;
  for (size_t id = 0; id < state_.graph.nodes.size(); ++id) {
    if (!needed[id]) continue;
    moved[id] = static_cast<NodeId>(nodes.size());
    Node& node = nodes.emplace_back(std::move(state_.graph.nodes[id]));
    for (NodeId& operand : node.inputs) operand = moved[operand];
  }
  state_.graph.nodes = std::move(nodes);
  for (Output& output : state_.graph.outputs) output.node = moved[output.node];
  for (auto& [id, stored] : state_.tensors->parameters()) {
    if (needed[id]) imported.parameters.push_back(std::move(stored));
  }
  absl::Status s = Verify(state_.graph, state_.options.limits.graph);
  if (s.ok()) s = VerifyBindable(state_.graph);
  if (s.ok()) s = DimBinding::Create(state_.graph).status();
  if (!s.ok()) return s;
  imported.graph = std::move(state_.graph);
  imported.input_elements = std::move(input_elements_);
  imported.output_elements = std::move(output_elements_);
  imported.notes = state_.log.TakeNotes();
  return imported;
}

}  // namespace

absl::StatusOr<OnnxImported> ImportOnnx(const OnnxModel& model, const PayloadReader& reader,
                                        const ImportOptions& options,
                                        std::vector<ImportRefusal>* refusals) {
  refusals->clear();
  return Importer(model, reader, options, refusals).Run();
}

}  // namespace athanor::onnx
