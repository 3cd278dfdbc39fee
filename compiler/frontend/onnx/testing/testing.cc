#include "compiler/frontend/onnx/testing/testing.h"

#include <utility>

#include "compiler/frontend/onnx/model/wire.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::AttributeProto;

void SetType(Elem elem, const std::vector<TestSize>* shape, ::onnx::TypeProto* type) {
  auto* tensor = type->mutable_tensor_type();
  tensor->set_elem_type(Row(elem).number);
  if (shape == nullptr) return;
  tensor->mutable_shape();
  for (const TestSize& size : *shape) {
    auto* dim = tensor->mutable_shape()->add_dim();
    if (const auto* number = std::get_if<int64_t>(&size)) {
      dim->set_dim_value(*number);
    } else if (const std::string& name = std::get<std::string>(size); !name.empty()) {
      dim->set_dim_param(name);
    }
  }
}

struct AttrWriter {
  AttributeProto* to;
  void operator()(int64_t v) const {
    to->set_type(AttributeProto::INT);
    to->set_i(v);
  }
  void operator()(float v) const {
    to->set_type(AttributeProto::FLOAT);
    to->set_f(v);
  }
  void operator()(const std::string& v) const {
    to->set_type(AttributeProto::STRING);
    to->set_s(v);
  }
  void operator()(const std::vector<int64_t>& v) const {
    to->set_type(AttributeProto::INTS);
    for (int64_t one : v) to->add_ints(one);
  }
  void operator()(const std::vector<float>& v) const {
    to->set_type(AttributeProto::FLOATS);
    for (float one : v) to->add_floats(one);
  }
  void operator()(const std::vector<std::string>& v) const {
    to->set_type(AttributeProto::STRINGS);
    for (const std::string& one : v) to->add_strings(one);
  }
  void operator()(const Tensor& v) const {
    to->set_type(AttributeProto::TENSOR);
    *to->mutable_t() = ToProto("", v);
  }
  void operator()(const ::onnx::GraphProto& v) const {
    to->set_type(AttributeProto::GRAPH);
    *to->mutable_g() = v;
  }
};

absl::StatusOr<std::vector<Tensor>> ReadParameters(const OnnxImported& imported,
                                                   const PayloadReader& reader) {
  std::vector<Tensor> parameters;
  const std::vector<NodeId> ids = imported.graph.ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorType& type = imported.graph.node(ids[i]).type;
    Tensor& tensor = parameters.emplace_back();
    tensor.dtype = type.dtype;
    for (const Expr& size : type.shape) tensor.shape.push_back(size.constant().value_or(-1));
    const absl::Status status =
        ForEachPiece(imported.parameters[i], reader, 1 << 20, [&](std::string_view piece) {
          tensor.bytes += piece;
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
  }
  return parameters;
}

}  // namespace

::onnx::TensorProto ToProto(std::string_view name, const Tensor& tensor, Elem elem) {
  ::onnx::TensorProto proto;
  proto.set_name(std::string(name));
  proto.set_data_type(Row(elem).number);
  for (int64_t size : tensor.shape) proto.add_dims(size);
  proto.set_raw_data(tensor.bytes);
  return proto;
}

absl::StatusOr<Tensor> FromProto(const ::onnx::TensorProto& proto) {
  ASSIGN_OR_RETURN(StoredTensor stored, DescribeTensor(proto, {}, {}));
  return ReadTensor(stored, BytesReader({}), int64_t{1} << 34);
}

TestGraph& TestGraph::Input(std::string_view name, Elem elem, const std::vector<TestSize>& shape) {
  auto* info = proto.add_input();
  info->set_name(std::string(name));
  SetType(elem, &shape, info->mutable_type());
  return *this;
}

TestGraph& TestGraph::Initializer(std::string_view name, const Tensor& value) {
  *proto.add_initializer() = ToProto(name, value);
  return *this;
}

TestGraph& TestGraph::Node(std::string_view op, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs,
                           const std::map<std::string, TestAttr>& attrs, std::string_view domain) {
  auto* node = proto.add_node();
  node->set_op_type(std::string(op));
  node->set_domain(std::string(domain));
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  for (const auto& [name, value] : attrs) {
    AttributeProto* attr = node->add_attribute();
    attr->set_name(name);
    std::visit(AttrWriter{attr}, value);
  }
  return *this;
}

TestGraph& TestGraph::Output(std::string_view name, Elem elem) {
  auto* info = proto.add_output();
  info->set_name(std::string(name));
  SetType(elem, nullptr, info->mutable_type());
  return *this;
}

TestGraph& TestGraph::Output(std::string_view name, Elem elem, const std::vector<TestSize>& shape) {
  Output(name, elem);
  SetType(elem, &shape, proto.mutable_output()->rbegin()->mutable_type());
  return *this;
}

::onnx::ModelProto TestModel::Model() const {
  ::onnx::ModelProto model;
  model.set_ir_version(kNewestIr);
  *model.mutable_graph() = proto;
  model.mutable_graph()->set_name("test");
  model.add_opset_import()->set_version(opset_);
  auto* microsoft = model.add_opset_import();
  microsoft->set_domain("com.microsoft");
  microsoft->set_version(1);
  return model;
}

TestImport ImportBytes(const std::string& model, const ImportOptions& options) {
  TestImport result;
  const auto bytes = static_cast<int64_t>(model.size());
  absl::StatusOr<Lifted> lifted = LiftPayloads(model, {});
  result.status = lifted.status();
  if (!result.status.ok()) return result;
  absl::StatusOr<OnnxModel> parsed = ParseOnnx(*std::move(lifted), {{{"", bytes}}});
  result.status = parsed.status();
  if (!result.status.ok()) return result;
  const BytesReader reader({model});
  absl::StatusOr<OnnxImported> imported = ImportOnnx(*parsed, reader, options, &result.refusals);
  result.status = imported.status();
  if (!result.status.ok()) return result;
  result.imported = *std::move(imported);
  absl::StatusOr<std::vector<Tensor>> parameters = ReadParameters(result.imported, reader);
  result.status = parameters.status();
  if (result.status.ok()) result.parameters = *std::move(parameters);
  return result;
}

absl::StatusOr<std::vector<Tensor>> Evaluate(const TestImport& import,
                                             absl::Span<const Tensor> inputs) {
  if (!import.status.ok()) return import.status;
  std::vector<Tensor> arguments(inputs.begin(), inputs.end());
  arguments.insert(arguments.end(), import.parameters.begin(), import.parameters.end());
  return Evaluate(import.imported.graph, arguments);
}

absl::StatusOr<std::vector<Tensor>> RunModel(const TestModel& model,
                                             absl::Span<const Tensor> inputs,
                                             const ImportOptions& options) {
  return Evaluate(ImportBytes(model.Bytes(), options), inputs);
}

}  // namespace athanor::onnx
