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
#include "compiler/frontend/onnx/importer/importer.h"
#include "compiler/frontend/onnx/known/sizes.h"
#include "compiler/ir/graph/check.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

using ::onnx::TypeProto;
using ::onnx::ValueInfoProto;

constexpr size_t kShownNotes = 16;
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
      return "of no stated type";
  }
}

absl::StatusOr<Elem> ElemOfTensor(const TypeProto& type) {
  if (!type.has_tensor_type()) {
    return Unimplemented("is ", KindText(type.value_case()), "; only tensors are served");
  }
  const int32_t number = type.tensor_type().elem_type();
  const std::optional<Elem> elem = ElemOf(number);
  if (!elem) return Invalid("has element type number ", number, ", which ONNX does not have");
  if (Row(*elem).carry == Carry::kNone) {
    return Unimplemented("is of type ", ElemName(*elem), ", which is not served");
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

}  // namespace

Importer::Importer(const OnnxModel& model, const PayloadReader& reader,
                   const ImportOptions& options, std::vector<Refusal>* refusals)
    : model_(model),
      reader_(reader),
      options_(options),
      refusals_(refusals),
      folder_(
          {.max_bytes = options.limits.max_folded_bytes, .max_work = options.limits.max_fold_work},
          options.cancelled) {}

Importer::~Importer() = default;

absl::StatusOr<OnnxImported> Importer::Run() {
  const GraphProto& graph = model_.proto.graph();
  const Frame frame{.opsets = &model_.opsets};
  if (absl::Status s = AddInputs(frame); !s.ok()) return s;
  if (absl::Status s = VisitGraph(graph, &main_, frame, nullptr); !s.ok()) return s;
  if (absl::Status s = AddOutputs(frame); !s.ok()) return s;
  if (!refusals_->empty()) return ToStatus(*refusals_, kMessageBytes);
  return Finish();
}

absl::Status Importer::AddInputs(const Frame& frame) {
  const GraphProto& graph = model_.proto.graph();
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
    if (absl::Status s = CheckName("input", info.name(), options_.limits.graph); !s.ok()) return s;
    const absl::Status typed = ElemOfTensor(info.type()).status();
    if (typed.ok()) {
      inputs.push_back(&info);
      continue;
    }
    Refuse(nullptr, frame, 0, Prefixed(Cat("input ", Quoted(info.name()), " "), typed));
    Value poisoned;
    poisoned.poisoned = true;
    main_.Define(info.name(), std::move(poisoned));
  }
  if (!fixed.empty()) {
    Note(Cat(fixed.size() == 1 ? "input " : "inputs ", JoinNames(fixed),
             fixed.size() == 1 ? " has an initializer" : " have initializers",
             ", so a request cannot give ", fixed.size() == 1 ? "it" : "them"));
  }
  absl::StatusOr<DimTable> dims = DimTable::Create(inputs, options_.dims, options_.limits.graph);
  if (!dims.ok()) return dims.status();
  dims_ = *std::move(dims);
  graph_.dims = dims_->dims();
  const std::string& name = graph.name();
  if (CheckName("graph name", name, options_.limits.graph).ok()) graph_.name = name;
  b_.emplace(&graph_, options_.limits.graph);
  for (const ValueInfoProto* info : inputs) names_.emplace(info->name(), 0);
  for (const ValueInfoProto* info : inputs) {
    if (absl::Status s = AddInput(*info); !s.ok()) {
      return Prefixed(Cat("input ", Quoted(info->name()), ": "), s);
    }
  }
  return CheckValues();
}

absl::Status Importer::CheckValues() const {
  for (const auto& [name, value] : options_.values) {
    if (std::find(input_names_.begin(), input_names_.end(), name) != input_names_.end()) continue;
    const std::vector<std::string_view> names(input_names_.begin(), input_names_.end());
    return Invalid("a value is given for input ", Quoted(name), ", which the model has not",
                   DidYouMean(name, names));
  }
  return absl::OkStatus();
}

absl::Status Importer::AddInput(const ValueInfoProto& info) {
  const absl::StatusOr<Elem> elem = ElemOfTensor(info.type());
  if (!elem.ok()) return elem.status();
  const Shape& shape = dims_->ShapeOf(info.name());
  const auto position = static_cast<int>(input_names_.size());
  input_names_.push_back(info.name());
  input_elements_.push_back(ElementOf(*elem));
  const NodeId node = AddDeclared(Op::kInput, info.name(), {WireOf(*elem), shape});
  const bool bits = Row(*elem).carry == Carry::kBits;
  Value value = b_->At(node, bits ? Elem::kUInt8 : *elem);
  if (auto given = options_.values.find(info.name()); given != options_.values.end()) {
    if (absl::Status s = Pin(given->second, *elem, node, &value); !s.ok()) return s;
  } else {
    if (bits) value = b_->Bitcast(value, *elem);
    if (absl::Status s = b_->TakeStatus(); !s.ok()) return s;
    value.sources = {position};
  }
  main_.Define(info.name(), std::move(value));
  return absl::OkStatus();
}

// Fixes an input's contents. The input stays, so that requests need not change; its value is known
// from here on.
absl::Status Importer::Pin(const Tensor& given, Elem elem, NodeId node, Value* value) {
  const Shape& shape = graph_.nodes[node].type.shape;
  if (given.dtype != CarrierOf(elem) && given.dtype != WireOf(elem)) {
    return Invalid("its value is given as ", DTypeName(given.dtype), ", but it is ",
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
  graph_.nodes[node].attrs.emplace("value", std::move(wire));
  Tensor carried = given;
  carried.dtype = CarrierOf(elem);
  *value = Value();
  value->elem = elem;
  value->shape = shape;
  value->known = std::make_shared<const Known>(KnownOf(std::move(carried)));
  return absl::OkStatus();
}

absl::Status Importer::AddOutputs(const Frame& frame) {
  if (model_.proto.graph().output_size() == 0) {
    return Invalid("the graph has no outputs; it must have at least one");
  }
  for (const ValueInfoProto& info : model_.proto.graph().output()) {
    const absl::Status s = AddOutput(info);
    if (EndsImport(s)) return s;
    if (!s.ok()) {
      Refuse(nullptr, frame, 0, Prefixed(Cat("output ", Quoted(info.name()), " "), s));
    }
  }
  return absl::OkStatus();
}

absl::Status Importer::AddOutput(const ValueInfoProto& info) {
  if (absl::Status s = CheckName("output", info.name(), options_.limits.graph); !s.ok()) return s;
  const Scope::Found found = main_.Find(info.name());
  if (found.value == nullptr) return Invalid("is made by nothing");
  // The node that makes the value was refused; the type that the file states may be another reason.
  if (found.value->poisoned) {
    return info.type().value_case() == TypeProto::VALUE_NOT_SET
               ? absl::OkStatus()
               : ElemOfTensor(info.type()).status();
  }
  Value value = *found.value;
  output_elements_.push_back(ElementOf(value.elem));
  if (Row(value.elem).carry == Carry::kBits) value = b_->Bitcast(value, Elem::kUInt8);
  const NodeId node = b_->Node(value);
  if (absl::Status s = b_->TakeStatus(); !s.ok()) return s;
  graph_.outputs.push_back({info.name(), node});
  return absl::OkStatus();
}

absl::StatusOr<OnnxImported> Importer::Finish() {
  std::vector<const StoredTensor*> external;
  for (const StoredTensor& tensor : external_) external.push_back(&tensor);
  if (absl::Status s = CheckOverlaps(external); !s.ok()) return s;
  // Drops nodes that no output needs; inputs stay.
  std::vector<bool> needed(graph_.nodes.size(), false);
  for (const Output& output : graph_.outputs) needed[output.node] = true;
  for (auto id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) {
    if (graph_.nodes[id].op == Op::kInput && !b_->IsStandIn(id)) needed[id] = true;
    if (!needed[id]) continue;
    for (NodeId operand : graph_.nodes[id].inputs) needed[operand] = true;
  }
  OnnxImported imported;
  std::vector<NodeId> moved(graph_.nodes.size(), kNoNode);
  std::vector<Node> nodes;
  for (size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!needed[id]) continue;
    moved[id] = static_cast<NodeId>(nodes.size());
    Node& node = nodes.emplace_back(std::move(graph_.nodes[id]));
    for (NodeId& operand : node.inputs) operand = moved[operand];
  }
  graph_.nodes = std::move(nodes);
  for (Output& output : graph_.outputs) output.node = moved[output.node];
  for (auto& [id, stored] : parameters_) {
    if (needed[id]) imported.parameters.push_back(std::move(stored));
  }
  absl::Status s = Verify(graph_, options_.limits.graph);
  if (s.ok()) s = VerifyBindable(graph_);
  if (s.ok()) s = DimBinding::Create(graph_).status();
  if (!s.ok()) return s;
  imported.graph = std::move(graph_);
  imported.input_elements = std::move(input_elements_);
  imported.output_elements = std::move(output_elements_);
  if (notes_.size() > kShownNotes) {
    const size_t more = notes_.size() - kShownNotes + static_cast<size_t>(notes_left_out_);
    notes_.resize(kShownNotes);
    notes_.push_back(Cat("and ", more, " more notes"));
  }
  imported.notes = std::move(notes_);
  return imported;
}

absl::StatusOr<OnnxImported> ImportOnnx(const OnnxModel& model, const PayloadReader& reader,
                                        const ImportOptions& options,
                                        std::vector<Refusal>* refusals) {
  refusals->clear();
  return Importer(model, reader, options, refusals).Run();
}

}  // namespace athanor::onnx
