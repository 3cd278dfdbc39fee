#include "compiler/frontend/infer_request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/frontend/contents.h"
#include "compiler/frontend/names.h"
#include "compiler/ir/graph/input_value.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using inference::InferParameter;
using inference::ModelInferRequest;

constexpr std::string_view kParameters[] = {"wait", "timeout_us", "priority", "taps"};
// Triton's name of timeout_us; 0: no timeout.
constexpr std::string_view kTritonTimeout = "timeout";

std::string_view TypeName(InferParameter::ParameterChoiceCase choice) {
  switch (choice) {
    case InferParameter::kBoolParam:
      return "a bool";
    case InferParameter::kInt64Param:
      return "an int64";
    case InferParameter::kStringParam:
      return "a string";
    case InferParameter::kDoubleParam:
      return "a double";
    case InferParameter::kUint64Param:
      return "a uint64";
    case InferParameter::PARAMETER_CHOICE_NOT_SET:
      return "nothing";
  }
  return "nothing";
}

absl::StatusOr<int64_t> IntegerOf(std::string_view name, const InferParameter& value,
                                  int64_t least) {
  std::optional<int64_t> number;
  if (value.has_int64_param()) number = value.int64_param();
  if (value.has_uint64_param()) {
    number = static_cast<int64_t>(std::min<uint64_t>(value.uint64_param(), INT64_MAX));
  }
  if (!number) {
    return Invalid("parameter ", name, " is ", TypeName(value.parameter_choice_case()),
                   "; it must be an int64 or a uint64");
  }
  if (*number < least) {
    return Invalid("parameter ", name, " is ", *number, "; it must be at least ", least);
  }
  return *number;
}

absl::StatusOr<std::string> StringOf(std::string_view name, const InferParameter& value) {
  if (value.has_string_param()) return value.string_param();
  return Invalid("parameter ", name, " is ", TypeName(value.parameter_choice_case()),
                 "; it must be a string");
}

template <typename Map>
absl::Status RefuseParameters(std::string_view what, const std::string& name, const Map& map) {
  if (map.empty()) return absl::OkStatus();
  return Invalid(what, " ", Quoted(name), " does not take parameter ", Quoted(map.begin()->first));
}

std::vector<std::string_view> ViewsOf(absl::Span<const std::string> names) {
  return {names.begin(), names.end()};
}

// Returns the name of the row's dtype in numpy and similar libraries.
std::string CastHint(const DatatypeRow& row) {
  switch (row.dtype) {
    case DType::kBool:
      return "bool";
    case DType::kBF16:
      return "bfloat16";
    default:
      break;
  }
  const std::string bits = Cat(DTypeBytes(row.dtype) * 8);
  if (IsFloat(row.dtype)) return "float" + bits;
  return (IsUnsigned(row.dtype) ? "uint" : "int") + bits;
}

absl::Status CheckBools(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte > 1) return Invalid("element ", i, " is byte ", +byte, "; BOOL bytes must be 0 or 1");
  }
  return absl::OkStatus();
}

// REQUIRES: the carrier has one byte.
absl::Status CheckElements(const onnx::ElemRow& row, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int value =
        row.carrier == DType::kI8 ? static_cast<int8_t>(bytes[i]) : static_cast<uint8_t>(bytes[i]);
    if (value >= row.low && value <= row.high) continue;
    return Invalid("element ", i, " is ", value, "; ", row.name, " has ", row.low, " to ",
                   row.high);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RequestBinder> RequestBinder::Create(const Graph& graph,
                                                    absl::Span<const std::string> elements) {
  ASSIGN_OR_RETURN(DimBinding dims, DimBinding::Create(graph));
  for (NodeId id : graph.InputIds()) {
    if (DatatypeOf(graph.node(id).type.dtype) == nullptr) {
      return Unimplemented("input ", Quoted(graph.node(id).name), " of dtype ",
                           DTypeName(graph.node(id).type.dtype), " cannot be sent in a request");
    }
  }
  return RequestBinder(graph, std::move(dims), elements);
}

RequestBinder::RequestBinder(const Graph& graph, DimBinding dims,
                             absl::Span<const std::string> elements)
    : dims_(std::move(dims)), indices_(graph) {
  for (NodeId id : graph.InputIds()) {
    const Node& node = graph.node(id);
    Input input{node.name, DatatypeOf(node.type.dtype)};
    if (inputs_.size() < elements.size()) input.element = FindElement(elements[inputs_.size()]);
    if (input.element != nullptr && input.element->bits == 8) input.element = nullptr;
    if (const auto* value = ValueOf(node)) input.fixed = *value;
    input_positions_[node.name] = static_cast<int>(inputs_.size());
    inputs_.push_back(std::move(input));
  }
  for (const Output& output : graph.outputs) {
    output_positions_[output.name] = static_cast<int>(outputs_.size());
    outputs_.push_back(output.name);
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (!graph.node(id).name.empty()) nodes_[graph.node(id).name] = {id, graph.node(id).type.dtype};
  }
}

absl::Status RequestBinder::CheckDatatype(const InputTensor& tensor, const Input& input) const {
  if (tensor.datatype() == input.datatype->name) return absl::OkStatus();
  const std::string prefix = Cat("input ", Quoted(input.name), ": datatype is ");
  const std::string right =
      Cat("; the model takes ", input.datatype->name, " (", DTypeName(input.datatype->dtype), ")");
  if (tensor.datatype() == "BYTES") {
    return Invalid(prefix, "BYTES (texts), which no tensor of a model here holds", right);
  }
  const DatatypeRow* sent = FindDatatype(tensor.datatype());
  if (sent == nullptr) {
    return Invalid(prefix, Quoted(tensor.datatype()), ", which is unknown", right);
  }
  return Invalid(prefix, sent->name, " (", DTypeName(sent->dtype), ")", right,
                 ": cast the array to ", CastHint(*input.datatype), " before sending it");
}

// Returns the index of each model input's tensor in the request.
absl::StatusOr<std::vector<int>> RequestBinder::MatchInputs(
    const ModelInferRequest& request) const {
  std::vector<int> tensor_of(inputs_.size(), -1);
  for (int t = 0; t < request.inputs_size(); ++t) {
    const InputTensor& tensor = request.inputs(t);
    auto it = input_positions_.find(tensor.name());
    if (it == input_positions_.end()) {
      std::vector<std::string_view> names;
      for (const Input& input : inputs_) names.push_back(input.name);
      return Invalid("the model has no input ", Quoted(tensor.name()), "; it has ",
                     names.empty() ? std::string("none") : JoinNames(names));
    }
    const Input& input = inputs_[it->second];
    if (tensor_of[it->second] >= 0) {
      return Invalid("input ", Quoted(input.name), " is there twice; send it once");
    }
    tensor_of[it->second] = t;
    absl::Status s = CheckDatatype(tensor, input);
    if (s.ok()) s = RefuseParameters("input", input.name, tensor.parameters());
    if (!s.ok()) return s;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (tensor_of[i] < 0) {
      return Invalid("input ", Quoted(inputs_[i].name), " (", inputs_[i].datatype->name,
                     ") is missing");
    }
  }
  return tensor_of;
}

absl::Status RequestBinder::CheckRawCount(const ModelInferRequest& request) const {
  if (request.raw_input_contents().empty()) return absl::OkStatus();
  for (const InputTensor& tensor : request.inputs()) {
    if (!HasContents(tensor.contents())) continue;
    return Invalid("input ", Quoted(tensor.name()),
                   " has contents, and the request has "
                   "raw_input_contents too; send all inputs in one of the two ways");
  }
  if (request.raw_input_contents_size() == request.inputs_size()) return absl::OkStatus();
  return Invalid("raw_input_contents has ", request.raw_input_contents_size(), " entries for ",
                 request.inputs_size(), " inputs; it must have one for each");
}

absl::Status RequestBinder::BindDims(const ModelInferRequest& request,
                                     absl::Span<const int> tensor_of, BoundRequest* bound) const {
  std::vector<absl::Span<const int64_t>> shapes;
  shapes.reserve(tensor_of.size());
  for (int t : tensor_of) {
    const auto& shape = request.inputs(t).shape();
    shapes.emplace_back(shape.data(), static_cast<size_t>(shape.size()));
  }
  return dims_.Bind(shapes, &bound->dims);
}

absl::Status RequestBinder::BindBytes(const ModelInferRequest& request,
                                      absl::Span<const int> tensor_of, BoundRequest* bound) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputTensor& tensor = request.inputs(tensor_of[i]);
    const DatatypeRow& datatype = *inputs_[i].datatype;
    // The sizes are those of the model's type with dims within bounds, so the product cannot
    // overflow.
    int64_t elements = 1;
    for (int64_t size : tensor.shape()) elements *= size;
    const int64_t bytes = elements * DTypeBytes(datatype.dtype);
    const std::string_view name = inputs_[i].name;
    if (!request.raw_input_contents().empty()) {
      const std::string& raw = request.raw_input_contents(tensor_of[i]);
      if (static_cast<int64_t>(raw.size()) != bytes) {
        return Invalid("input ", Quoted(name), ": raw contents have ", raw.size(), " bytes; ",
                       datatype.name, " of its shape needs ", bytes);
      }
      bound->inputs.push_back(raw);
    } else if (datatype.contents == Contents::kRawOnly && HasContents(tensor.contents())) {
      return Invalid("input ", Quoted(name), ": ", datatype.name,
                     " is sent in raw_input_contents only");
    } else if (elements > 0 && !HasContents(tensor.contents())) {
      return Invalid("input ", Quoted(name), " has neither contents nor raw_input_contents; ",
                     datatype.name, " is sent in ", ContentsField(datatype.contents));
    } else {
      absl::StatusOr<std::string_view> view =
          ContentsBytes(tensor.contents(), datatype, elements, &bound->converted);
      if (!view.ok()) return Prefixed(Cat("input ", Quoted(name), ": "), view.status());
      bound->inputs.push_back(*view);
    }
    if (absl::Status s = CheckContents(inputs_[i], bound->inputs.back()); !s.ok()) {
      return Prefixed(Cat("input ", Quoted(name), ": "), s);
    }
  }
  return absl::OkStatus();
}

absl::Status RequestBinder::CheckContents(const Input& input, std::string_view bytes) {
  const DType dtype = input.datatype->dtype;
  if (dtype == DType::kBool) {
    RETURN_IF_ERROR(CheckBools(bytes));
  }
  if (input.element != nullptr) {
    RETURN_IF_ERROR(CheckElements(*input.element, bytes));
  }
  if (!input.fixed.has_value()) return absl::OkStatus();
  const std::optional<ValueDifference> other = DifferenceFrom(*input.fixed, bytes);
  if (!other) return absl::OkStatus();
  return Invalid(other->element, other->element.empty() ? "is " : " is ", other->got,
                 "; this version was uploaded with values that make it ", other->wanted);
}

absl::Status RequestBinder::BindOutputs(const ModelInferRequest& request,
                                        BoundRequest* bound) const {
  if (request.outputs().empty()) {
    for (size_t i = 0; i < outputs_.size(); ++i) bound->outputs.push_back(static_cast<int>(i));
    return absl::OkStatus();
  }
  std::vector<bool> asked(outputs_.size(), false);
  for (const auto& output : request.outputs()) {
    auto it = output_positions_.find(output.name());
    if (it == output_positions_.end()) {
      return Invalid("the model has no output ", Quoted(output.name()), "; it has ",
                     JoinNames(ViewsOf(outputs_)));
    }
    if (asked[it->second]) {
      return Invalid("output ", Quoted(output.name()), " is asked for twice; ask for it once");
    }
    asked[it->second] = true;
    if (output.parameters().contains("classification")) {
      return Unimplemented("output ", Quoted(output.name()),
                           ": classification is not supported, since models have no labels; take "
                           "the whole output and sort it");
    }
    absl::Status s = RefuseParameters("output", output.name(), output.parameters());
    if (!s.ok()) return s;
    bound->outputs.push_back(it->second);
  }
  return absl::OkStatus();
}

absl::Status RequestBinder::AddTap(const std::string& name, RequestOptions* options) const {
  auto it = nodes_.find(name);
  if (it == nodes_.end()) {
    std::vector<std::string_view> names;  // in the order of the graph
    for (const auto& [known, inner] : nodes_) {
      names.resize(std::max<size_t>(names.size(), inner.node + 1));
      names[inner.node] = known;
    }
    return Invalid(
        "parameter taps names ", Quoted(name),
        ", which is not a node of the model; it must be names of nodes, separated by commas",
        DidYouMean(name, names));
  }
  const Inner& inner = it->second;
  if (DatatypeOf(inner.dtype) == nullptr) {
    return Unimplemented("parameter taps names ", Quoted(name), " of dtype ",
                         DTypeName(inner.dtype),
                         ", which cannot be sent in a reply; name a Cast of "
                         "it to f16 or a Bitcast to u8");
  }
  if (std::find(options->taps.begin(), options->taps.end(), inner.node) != options->taps.end()) {
    return Invalid("parameter taps names ", Quoted(name), " twice; name it once");
  }
  options->taps.push_back(inner.node);
  return absl::OkStatus();
}

// Reads names separated by commas; a backslash makes a comma or a backslash part of a name.
absl::Status RequestBinder::ReadTaps(std::string_view names, const RequestLimits& limits,
                                     RequestOptions* options) const {
  std::string name;
  for (size_t i = 0; i <= names.size(); ++i) {
    if (i < names.size() && names[i] != ',') {
      const bool escaped =
          names[i] == '\\' && i + 1 < names.size() && (names[i + 1] == ',' || names[i + 1] == '\\');
      name += names[escaped ? ++i : i];
      continue;
    }
    if (static_cast<int64_t>(options->taps.size()) == limits.max_taps) {
      return Invalid("parameter taps names more than ", limits.max_taps,
                     " nodes, the most allowed (--max_taps)");
    }
    RETURN_IF_ERROR(AddTap(name, options));
    name.clear();
  }
  return absl::OkStatus();
}

absl::Status RequestBinder::ReadOptions(const Parameters& parameters, const RequestLimits& limits,
                                        RequestOptions* options) const {
  for (const auto& [name, value] : parameters) {
    if (name == "timeout_us") {
      ASSIGN_OR_RETURN(options->timeout_us, IntegerOf(name, value, 1));
    } else if (name == kTritonTimeout) {
      if (parameters.contains("timeout_us")) {
        return Invalid("parameters timeout and timeout_us mean the same; set one");
      }
      ASSIGN_OR_RETURN(options->timeout_us, IntegerOf(name, value, 0));
    } else if (name.rfind("sequence_", 0) == 0) {
      return Invalid("parameter ", Quoted(name),
                     " is not supported: requests share no state, so there are no sequences of "
                     "them");
    } else if (name == "priority") {
      ASSIGN_OR_RETURN(options->priority, IntegerOf(name, value, 0));
    } else if (name == "wait" || name == "taps") {
      ASSIGN_OR_RETURN(std::string text, StringOf(name, value));
      if (name == "taps") {
        RETURN_IF_ERROR(ReadTaps(text, limits, options));
      } else if (text == "none") {
        options->wait = RequestOptions::Wait::kNone;
      } else if (text != "baseline") {
        return Invalid("parameter wait is ", Quoted(text), "; it must be \"baseline\" or \"none\"");
      }
    } else {
      return Invalid("parameter ", Quoted(name), " is unknown; the parameters are ",
                     JoinNames(kParameters), DidYouMean(name, kParameters));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BoundRequest> RequestBinder::Bind(const ModelInferRequest& request,
                                                 const RequestLimits& limits) const {
  BoundRequest bound;
  absl::StatusOr<std::vector<int>> tensor_of = MatchInputs(request);
  if (!tensor_of.ok()) return Shortened(tensor_of.status());
  bound.inputs.reserve(inputs_.size());
  absl::Status s = CheckRawCount(request);
  if (s.ok()) s = BindDims(request, *tensor_of, &bound);
  if (s.ok()) s = BindBytes(request, *tensor_of, &bound);
  if (s.ok()) s = indices_.Check(bound.dims, bound.inputs);
  if (s.ok()) s = BindOutputs(request, &bound);
  if (s.ok()) s = ReadOptions(request.parameters(), limits, &bound.options);
  if (!s.ok()) return Shortened(s);
  return bound;
}

}  // namespace athanor
