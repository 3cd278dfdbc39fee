#include "tests/fuzz/onnx_mutate.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/frontend/elem_type.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/frontend/onnx/schema/schema.h"

namespace athanor {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;
using ::onnx::ValueInfoProto;

constexpr std::string_view kDomains[] = {"", "com.microsoft", "ai.onnx.preview"};
constexpr std::string_view kTexts[] = {"NOTSET",
                                       "SAME_UPPER",
                                       "SAME_LOWER",
                                       "VALID",
                                       "constant",
                                       "reflect",
                                       "edge",
                                       "wrap",
                                       "linear",
                                       "cubic",
                                       "nearest",
                                       "none",
                                       "add",
                                       "mul",
                                       "max",
                                       "min",
                                       "mean",
                                       "sum",
                                       "tanh",
                                       "DCR",
                                       "CRD",
                                       "forward",
                                       "reverse",
                                       "bidirectional",
                                       "LEFT",
                                       "RIGHT",
                                       "border",
                                       "reflection",
                                       "half_pixel",
                                       "align_corners",
                                       "asymmetric",
                                       "pytorch_half_pixel",
                                       "tf_crop_and_resize",
                                       "half_pixel_symmetric",
                                       "stretch",
                                       "not_larger",
                                       "not_smaller",
                                       "floor",
                                       "ceil",
                                       "bilinear",
                                       "avg",
                                       "Tanh",
                                       "Affine",
                                       "delta",
                                       "gated",
                                       "gated_delta",
                                       "silu",
                                       "ij,jk->ik",
                                       "...i,...i",
                                       "ii->i",
                                       "ij->",
                                       "bhwc,hkc->bhwk",
                                       "i,j"};

// Collects all graphs of a model, including sub-graphs; bodies of functions are separate.
void CollectGraphs(GraphProto* graph, std::vector<GraphProto*>* graphs) {
  graphs->push_back(graph);
  for (NodeProto& node : *graph->mutable_node()) {
    for (AttributeProto& attr : *node.mutable_attribute()) {
      if (attr.has_g()) CollectGraphs(attr.mutable_g(), graphs);
    }
  }
}

class Changer {
 public:
  Changer(absl::Span<const ModelProto* const> donors, Mutator* mutator, ModelProto* model)
      : donors_(donors), random_(*mutator), model_(*model) {
    CollectGraphs(model_.mutable_graph(), &graphs_);
    graph_ = graphs_[random_.Below(graphs_.size())];
  }

  void Change() {
    switch (random_.Below(15)) {
      case 0:
        return SwapOp();
      case 1:
        return Rewire();
      case 2:
        return Rename();
      case 3:
        return ChangeDim();
      case 4:
        return ChangeVersion();
      case 5:
      case 6:
        return ChangeAttribute();
      case 7:
        return AddAttribute();
      case 8:
        return ChangeTensor();
      case 9:
        return MakeExternal();
      case 10:
        return Splice();
      case 11:
        return Nest();
      case 12:
        return Fix();
      case 13:
        return ChangeType();
      default:
        return Omit();
    }
  }

 private:
  template <typename T>
  T* Any(google::protobuf::RepeatedPtrField<T>* all) {
    return all->empty() ? nullptr : all->Mutable(static_cast<int>(random_.Below(all->size())));
  }
  NodeProto* AnyNode() {
    if (model_.functions_size() > 0 && random_.OneIn(4)) {
      return Any(Any(model_.mutable_functions())->mutable_node());
    }
    return Any(graph_->mutable_node());
  }
  std::string AnyName() {
    std::vector<std::string> names;
    for (const GraphProto* graph : graphs_) {
      for (const auto& input : graph->input()) names.push_back(input.name());
      for (const auto& tensor : graph->initializer()) names.push_back(tensor.name());
      for (const auto& node : graph->node()) {
        names.insert(names.end(), node.output().begin(), node.output().end());
      }
    }
    return names.empty() ? "x" : names[random_.Below(names.size())];
  }
  // Picks a tensor of the initialisers and attributes.
  TensorProto* AnyTensor() {
    std::vector<TensorProto*> tensors;
    for (TensorProto& tensor : *graph_->mutable_initializer()) tensors.push_back(&tensor);
    for (NodeProto& node : *graph_->mutable_node()) {
      for (AttributeProto& attr : *node.mutable_attribute()) {
        if (attr.has_t()) tensors.push_back(attr.mutable_t());
      }
    }
    return tensors.empty() ? nullptr : tensors[random_.Below(tensors.size())];
  }

  void SwapOp() {
    NodeProto* node = AnyNode();
    if (node == nullptr) return;
    const std::string_view domain = kDomains[random_.OneIn(4) ? random_.Below(3) : 0];
    const std::vector<std::string_view> ops = onnx::KnownOpNames(domain);
    node->set_domain(std::string(domain));
    node->set_op_type(std::string(ops[random_.Below(ops.size())]));
    if (random_.OneIn(2)) node->clear_attribute();
  }

  void Rewire() {
    NodeProto* node = AnyNode();
    if (node == nullptr) return;
    if (node->input_size() == 0 || random_.OneIn(6)) return node->add_input(AnyName());
    *Any(node->mutable_input()) = AnyName();  // may be the node's own result
  }

  void Rename() {
    NodeProto* node = AnyNode();
    switch (random_.Below(4)) {
      case 0:
        if (node != nullptr && node->output_size() > 0) *Any(node->mutable_output()) = AnyName();
        return;
      case 1:
        if (auto* output = Any(graph_->mutable_output())) output->set_name(AnyName());
        return;
      case 2:
        if (auto* tensor = Any(graph_->mutable_initializer())) tensor->set_name(AnyName());
        return;
      default:
        graph_->add_output()->set_name(AnyName());
    }
  }

  void ChangeDim() {
    std::vector<ValueInfoProto*> infos;
    for (auto* list :
         {graph_->mutable_input(), graph_->mutable_output(), graph_->mutable_value_info()}) {
      for (ValueInfoProto& info : *list) infos.push_back(&info);
    }
    if (infos.empty()) return;
    auto* shape =
        infos[random_.Below(infos.size())]->mutable_type()->mutable_tensor_type()->mutable_shape();
    if (shape->dim_size() == 0 || random_.OneIn(8)) shape->add_dim();
    if (random_.OneIn(10)) return shape->mutable_dim()->RemoveLast();
    auto* dim = Any(shape->mutable_dim());
    constexpr std::string_view kNames[] = {"n", "b", "2*n", "n + 1", "n//2", "b*n", "", "?"};
    if (random_.OneIn(3)) {
      dim->set_dim_param(std::string(kNames[random_.Below(std::size(kNames))]));
    } else {
      dim->set_dim_value(random_.OneIn(4) ? random_.AnyInteger(dim->dim_value())
                                          : static_cast<int64_t>(random_.Below(9)));
    }
  }

  void ChangeVersion() {
    if (auto* opset = Any(model_.mutable_opset_import())) {
      opset->set_version(static_cast<int64_t>(random_.Below(30)));
    }
  }

  void ChangeAttribute() {
    NodeProto* node = AnyNode();
    if (node == nullptr || node->attribute_size() == 0) return;
    AttributeProto& attr = *Any(node->mutable_attribute());
    if (random_.OneIn(12)) return node->mutable_attribute()->RemoveLast();
    switch (attr.type()) {
      case AttributeProto::INT:
        return attr.set_i(random_.AnyInteger(attr.i()));
      case AttributeProto::FLOAT:
        return attr.set_f(static_cast<float>(random_.AnyDouble(attr.f())));
      case AttributeProto::STRING:
        return attr.set_s(AnyText());
      case AttributeProto::INTS:
        if (attr.ints_size() == 0 || random_.OneIn(5)) {
          return attr.add_ints(static_cast<int64_t>(random_.Below(4)));
        }
        if (random_.OneIn(8)) return attr.mutable_ints()->RemoveLast();
        return ChangeElement(attr.mutable_ints());
      case AttributeProto::FLOATS:
        return attr.add_floats(static_cast<float>(random_.AnyDouble(1)));
      default:
        return;
    }
  }
  void ChangeElement(google::protobuf::RepeatedField<int64_t>* ints) {
    const int at = static_cast<int>(random_.Below(ints->size()));
    ints->Set(at, random_.AnyInteger(ints->Get(at)));
  }
  std::string AnyText() { return std::string(kTexts[random_.Below(std::size(kTexts))]); }

  // Adds an attribute that the op's schema has.
  void AddAttribute() {
    NodeProto* node = AnyNode();
    if (node == nullptr) return;
    const onnx::SchemaRow* schema = onnx::FindSchema(node->domain(), node->op_type(), 28);
    if (schema == nullptr || schema->attrs.empty()) return;
    const onnx::SchemaAttr& row = schema->attrs[random_.Below(schema->attrs.size())];
    AttributeProto& attr = *node->add_attribute();
    attr.set_name(std::string(row.name));
    attr.set_type(static_cast<AttributeProto::AttributeType>(row.kind));
    attr.set_i(random_.AnyInteger(1));
    attr.set_f(static_cast<float>(random_.AnyDouble(1)));
    attr.set_s(AnyText());
    for (uint64_t i = random_.Below(5); i > 0; --i) {
      attr.add_ints(random_.OneIn(4) ? random_.AnyInteger(1)
                                     : static_cast<int64_t>(random_.Below(4)));
    }
    if (row.kind != AttributeProto::INT) attr.clear_i();
    if (row.kind != AttributeProto::FLOAT) attr.clear_f();
    if (row.kind != AttributeProto::STRING) attr.clear_s();
    if (row.kind != AttributeProto::INTS) attr.clear_ints();
  }

  void ChangeTensor() {
    TensorProto* tensor = AnyTensor();
    if (tensor == nullptr) return;
    std::string& raw = *tensor->mutable_raw_data();
    switch (random_.Below(6)) {
      case 0:
        return tensor->set_data_type(static_cast<int32_t>(random_.Below(30)));
      case 1:
        if (tensor->dims_size() == 0) return tensor->add_dims(1);
        return ChangeElement(tensor->mutable_dims());
      case 2:
        return raw.resize(random_.Below(raw.size() + 9));
      case 3:
        return random_.MutateBytes(&raw);
      case 4:  // adds or removes elements
        if (tensor->dims_size() == 1 && tensor->dims(0) > 0 && tensor->dims(0) < 64) {
          const size_t each = raw.size() / static_cast<size_t>(tensor->dims(0));
          tensor->set_dims(0, static_cast<int64_t>(random_.Below(6)));
          raw.resize(each * static_cast<size_t>(tensor->dims(0)));
        }
        return;
      default: {
        const size_t each = tensor->data_type() == onnx::Row(onnx::Elem::kInt64).number ? 8 : 4;
        if (raw.size() < each) return;
        const size_t at = random_.Below(raw.size() / each) * each;
        int64_t value = 0;
        std::memcpy(&value, raw.data() + at, each);
        value = random_.AnyInteger(value);
        std::memcpy(raw.data() + at, &value, each);
      }
    }
  }

  void MakeExternal() {
    TensorProto* tensor = AnyTensor();
    if (tensor == nullptr) return;
    tensor->clear_raw_data();
    tensor->clear_external_data();
    tensor->set_data_location(TensorProto::EXTERNAL);
    constexpr std::string_view kPaths[] = {"w.bin", "parts/v.bin", "./w.bin", "../w.bin", "", "/w"};
    const auto add = [&](const char* key, std::string value) {
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(std::move(value));
    };
    add("location", std::string(kPaths[random_.Below(random_.OneIn(4) ? std::size(kPaths) : 2)]));
    const auto number = [&] {
      return std::to_string(random_.OneIn(3) ? random_.AnyInteger(64)
                                             : static_cast<int64_t>(4 * random_.Below(32)));
    };
    if (!random_.OneIn(3)) add("offset", number());
    if (random_.OneIn(2)) add("length", number());
    if (random_.OneIn(10)) add("athanor.payload", number());
  }

  // Copies a donor's node and gives it values of this graph.
  void Splice() {
    if (donors_.empty()) return;
    const ModelProto& donor = *donors_[random_.Below(donors_.size())];
    if (donor.graph().node().empty()) return;
    const int at = static_cast<int>(random_.Below(donor.graph().node_size()));
    NodeProto node = donor.graph().node(at);
    for (std::string& input : *node.mutable_input()) {
      if (input.empty()) continue;
      const TensorProto* weight = nullptr;
      for (const TensorProto& tensor : donor.graph().initializer()) {
        if (tensor.name() == input) weight = &tensor;
      }
      if (weight != nullptr && !random_.OneIn(4)) {
        input = "s" + std::to_string(graph_->initializer_size());
        *graph_->add_initializer() = *weight;
        graph_->mutable_initializer()->rbegin()->set_name(input);
      } else {
        input = AnyName();
      }
    }
    for (std::string& output : *node.mutable_output()) {
      if (output.empty()) continue;
      output = "t" + std::to_string(random_.Below(1000));
      graph_->add_output()->set_name(output);
    }
    *graph_->add_node() = std::move(node);
  }

  // Puts the graph inside itself, or turns a node into a call of a function.
  void Nest() {
    NodeProto* node = AnyNode();
    if (node == nullptr) return;
    for (AttributeProto& attr : *node->mutable_attribute()) {
      if (!attr.has_g()) continue;
      GraphProto inner = attr.g();
      if (inner.ByteSizeLong() > 100'000) return;
      *attr.mutable_g()->add_node() = *node;
      return;
    }
    if (model_.functions_size() == 0) return;
    const auto& function = *Any(model_.mutable_functions());
    node->set_domain(function.domain());
    node->set_op_type(function.name());
    if (random_.OneIn(2)) node->clear_attribute();
  }

  // Turns an input into an initialiser with small numbers: a literal or a parameter.
  void Fix() {
    auto* input = Any(graph_->mutable_input());
    if (input == nullptr) return;
    const auto& type = input->type().tensor_type();
    const std::optional<onnx::Elem> elem = onnx::ElemOf(type.elem_type());
    if (!elem) return;
    const size_t each = (static_cast<size_t>(onnx::Row(*elem).bits) + 7) / 8;
    size_t bytes = each;
    TensorProto& tensor = *graph_->add_initializer();
    tensor.set_name(input->name());
    tensor.set_data_type(type.elem_type());
    for (const auto& dim : type.shape().dim()) {
      const int64_t size = dim.has_dim_value() ? std::clamp<int64_t>(dim.dim_value(), 0, 16) : 2;
      tensor.add_dims(size);
      bytes *= static_cast<size_t>(size);
      if (bytes > 100'000) bytes = 0;
    }
    std::string raw(bytes, '\0');
    for (size_t i = 0; i < bytes; i += each) raw[i] = static_cast<char>(random_.Below(4));
    tensor.set_raw_data(raw);
  }

  void ChangeType() {
    if (auto* input = Any(graph_->mutable_input())) {
      constexpr int kOften[] = {1, 6, 7, 9, 10};
      input->mutable_type()->mutable_tensor_type()->set_elem_type(
          random_.OneIn(2) ? kOften[random_.Below(5)] : static_cast<int>(random_.Below(30)));
    }
  }

  void Omit() {
    NodeProto* node = AnyNode();
    if (node == nullptr) return;
    auto* names = random_.OneIn(2) ? node->mutable_input() : node->mutable_output();
    if (names->empty()) return;
    if (random_.OneIn(2)) return names->RemoveLast();
    Any(names)->clear();
  }

  const absl::Span<const ModelProto* const> donors_;
  Mutator& random_;
  ModelProto& model_;
  std::vector<GraphProto*> graphs_;
  GraphProto* graph_;
};

}  // namespace

void MutateOnnx(absl::Span<const ModelProto* const> donors, Mutator* mutator, ModelProto* model) {
  const uint64_t changes = 1 + (mutator->OneIn(2) ? 0 : mutator->Below(6));
  // Takes few donors, because Mutator visits all messages it is given.
  std::vector<const google::protobuf::Message*> messages;
  for (int i = 0; i < 3 && !donors.empty(); ++i) {
    messages.push_back(donors[mutator->Below(donors.size())]);
  }
  for (uint64_t i = 0; i < changes; ++i) {
    if (mutator->OneIn(4)) {
      mutator->Mutate(messages, model);
    } else {
      Changer(donors, mutator, model).Change();
    }
  }
}

}  // namespace athanor
