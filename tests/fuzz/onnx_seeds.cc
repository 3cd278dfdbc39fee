#include "tests/fuzz/onnx_seeds.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "compiler/frontend/onnx/schema/schema.h"
#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

using ::onnx::AttributeProto;
using onnx::Elem;
using ::onnx::ModelProto;
using onnx::TestAttr;
using onnx::TestGraph;
using onnx::TestModel;
using onnx::TestSize;

struct NodeSeed {
  std::string_view op, operands, attrs;
  int results = 1;
};
constexpr NodeSeed kNodes[] = {
#include "tests/fuzz/onnx_seed_nodes.inc"
};

const std::map<char, Elem> kTypes = {
    {'f', Elem::kFloat},  {'h', Elem::kFloat16},     {'r', Elem::kBFloat16}, {'d', Elem::kDouble},
    {'q', Elem::kInt8},   {'u', Elem::kUInt8},       {'w', Elem::kInt32},    {'l', Elem::kInt64},
    {'s', Elem::kUInt32}, {'k', Elem::kUInt16},      {'b', Elem::kBool},     {'n', Elem::kInt4},
    {'m', Elem::kUInt4},  {'e', Elem::kFloat8E4M3FN}};

[[noreturn]] void Stop(std::string_view seed, std::string_view why) {
  std::fprintf(stderr, "seed %s: %s\n", std::string(seed).c_str(), std::string(why).c_str());
  std::abort();
}

std::vector<std::string> Parts(std::string_view text, char at) {
  return absl::StrSplit(absl::string_view(text.data(), text.size()), at, absl::SkipEmpty());
}

double Number(std::string_view seed, const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) Stop(seed, "no number: " + text);
  return value;
}

// Returns "=1,2" or "=*" as bytes; elements of less than a byte are packed from the lowest bits up.
Tensor Contents(std::string_view seed, Elem elem, std::vector<int64_t> shape,
                const std::string& text) {
  Tensor tensor = Tensor::Zeros(onnx::CarrierOf(elem), std::move(shape));
  const std::vector<std::string> numbers = Parts(text, ',');
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = text == "*" ? static_cast<double>(i % 3 + 1)
                                     : Number(seed, numbers.at(static_cast<size_t>(i)));
    const DType dtype = tensor.dtype;
    StoreScalar(tensor, i,
                IsFloat(dtype)    ? Scalar::Float(dtype, value)
                : IsSigned(dtype) ? Scalar::Signed(dtype, static_cast<int64_t>(value))
                                  : Scalar::Unsigned(dtype, static_cast<uint64_t>(value)));
  }
  const int bits = onnx::Row(elem).bits;
  if (bits >= 8) return tensor;
  std::string packed((tensor.bytes.size() * bits + 7) / 8, '\0');
  for (size_t i = 0; i < tensor.bytes.size(); ++i) {
    const int code = tensor.bytes[i] & ((1 << bits) - 1);
    packed[i * bits / 8] = static_cast<char>(packed[i * bits / 8] | code << (i * bits % 8));
  }
  tensor.bytes = std::move(packed);
  return tensor;
}

// Adds an operand written as "f[n,3]" or "l[2]=1,2".
void AddOperand(std::string_view seed, const std::string& text, const std::string& name,
                TestModel* model) {
  const size_t open = text.find('['), close = text.find(']');
  auto elem = kTypes.find(text[0]);
  if (elem == kTypes.end() || open != 1 || close == std::string::npos) Stop(seed, text);
  std::vector<TestSize> sizes;
  std::vector<int64_t> shape;
  for (const std::string& size : Parts(text.substr(open + 1, close - open - 1), ',')) {
    int64_t number = 0;
    if (absl::SimpleAtoi(size, &number)) {
      sizes.emplace_back(number);
      shape.push_back(number);
    } else {
      sizes.emplace_back(size);
    }
  }
  if (close + 1 == text.size()) {
    model->Input(name, elem->second, sizes);
    return;
  }
  Tensor value = Contents(seed, elem->second, shape, text.substr(close + 2));
  *model->proto.add_initializer() = ToProto(name, value, elem->second);
}

TestAttr AttrOf(std::string_view seed, int kind, const std::string& text) {
  const std::vector<std::string> parts = Parts(text, ',');
  std::vector<int64_t> ints;
  std::vector<float> floats;
  if (kind == AttributeProto::INT) return static_cast<int64_t>(Number(seed, text));
  if (kind == AttributeProto::FLOAT) return static_cast<float>(Number(seed, text));
  if (kind == AttributeProto::STRING) return text;
  if (kind == AttributeProto::STRINGS) return parts;
  for (const std::string& part : parts) {
    ints.push_back(static_cast<int64_t>(Number(seed, part)));
    floats.push_back(static_cast<float>(ints.back()));
  }
  if (kind == AttributeProto::INTS) return ints;
  if (kind == AttributeProto::FLOATS) return floats;
  Stop(seed, "an attribute of this kind");
}

ModelProto OneNode(const NodeSeed& seed) {
  const std::vector<std::string> head = Parts(seed.op, ' ');
  const size_t colon = head[0].find(':');
  const std::string domain = colon == std::string::npos ? "" : head[0].substr(0, colon);
  const std::string op = colon == std::string::npos ? head[0] : head[0].substr(colon + 1);
  int64_t opset = 0;
  if (head.size() != 2 || !absl::SimpleAtoi(head[1], &opset)) Stop(seed.op, "no opset");
  const onnx::SchemaRow* schema = onnx::FindSchema(domain, op, domain.empty() ? opset : 1);
  if (schema == nullptr) Stop(seed.op, "no schema");
  TestModel model(opset);
  std::vector<std::string> operands, results;
  for (const std::string& operand : Parts(seed.operands, ' ')) {
    operands.push_back(operand == "_" ? "" : "x" + std::to_string(operands.size()));
    if (operand != "_") AddOperand(seed.op, operand, operands.back(), &model);
  }
  std::map<std::string, TestAttr> attrs;
  for (const std::string& attr : Parts(seed.attrs, ' ')) {
    const size_t equals = attr.find('=');
    const std::string name = attr.substr(0, equals);
    int kind = 0;
    for (const onnx::SchemaAttr& one : schema->attrs) kind = one.name == name ? one.kind : kind;
    attrs.emplace(name, AttrOf(seed.op, kind, attr.substr(equals + 1)));
  }
  for (int i = 0; i < seed.results; ++i) {
    results.push_back("y" + std::to_string(i));
    model.proto.add_output()->set_name(results.back());
  }
  model.Node(op, operands, results, attrs, domain);
  ModelProto proto = model.Model();
  if (domain == "ai.onnx.preview") {
    auto* preview = proto.add_opset_import();
    preview->set_domain(domain);
    preview->set_version(1);
  }
  return proto;
}

Tensor Int64s(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(DType::kI64, {static_cast<int64_t>(values.size())}, values);
}

Tensor Flag(bool value) {
  Tensor flag = Tensor::Zeros(DType::kBool, {});
  flag.bytes[0] = value ? 1 : 0;
  return flag;
}

Tensor Scalar64(int64_t value) {
  Tensor scalar = Int64s({value});
  scalar.shape.clear();
  return scalar;
}

// Exporters write sizes computed from a shape.
ModelProto ShapeChain() {
  TestModel m(17);
  m.Input("x", Elem::kFloat, {"b", "2*s", 4}).Input("y", Elem::kFloat, {"s", ""});
  m.Initializer("zero", Int64s({0})).Initializer("minus", Int64s({-1}));
  m.Node("Shape", {"x"}, {"shape"}).Node("Gather", {"shape", "zero"}, {"rows"});
  m.Node("Concat", {"rows", "minus"}, {"to"}, {{"axis", int64_t{0}}});
  m.Node("Reshape", {"x", "to"}, {"flat"}).Output("flat", Elem::kFloat, {"b", ""});
  m.Node("Shape", {"y"}, {"of_y"}).Node("ReduceProd", {"of_y"}, {"count"});
  m.Node("Range", {"nought", "size", "one"}, {"range"});
  m.Node("Squeeze", {"count"}, {"size"});
  m.Initializer("nought", Scalar64(0)).Initializer("one", Scalar64(1));
  m.Output("range", Elem::kInt64);
  return m.Model();
}

ModelProto If() {
  TestGraph yes, no;
  yes.Node("Relu", {"x"}, {"a"}).Output("a", Elem::kFloat);
  no.Initializer("two", Tensor::Of<float>(DType::kF32, {1}, {2}));
  no.Node("Mul", {"x", "two"}, {"c"}).Output("c", Elem::kFloat);
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2, 3}).Input("p", Elem::kBool, {});
  m.Node("If", {"p"}, {"y"}, {{"then_branch", yes.proto}, {"else_branch", no.proto}});
  m.Output("y", Elem::kFloat);
  return m.Model();
}

ModelProto Loop() {
  TestGraph body;
  body.Input("i", Elem::kInt64, {}).Input("on", Elem::kBool, {}).Input("a", Elem::kFloat, {2});
  body.Node("Identity", {"on"}, {"more"}).Node("Add", {"a", "x"}, {"b"});
  body.Node("Identity", {"b"}, {"row"});
  for (const char* name : {"more", "b", "row"}) body.proto.add_output()->set_name(name);
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Initializer("trips", Scalar64(3));
  m.Initializer("go", Flag(true));
  m.Node("Loop", {"trips", "go", "x"}, {"last", "rows"}, {{"body", body.proto}});
  m.Output("last", Elem::kFloat).Output("rows", Elem::kFloat);
  return m.Model();
}

// Data decide the trip count and the end.
ModelProto LoopWhile() {
  TestGraph body;
  body.Input("i", Elem::kInt64, {}).Input("on", Elem::kBool, {}).Input("a", Elem::kFloat, {});
  body.Node("Less", {"a", "x"}, {"more"}).Node("Add", {"a", "a"}, {"b"});
  for (const char* name : {"more", "b"}) body.proto.add_output()->set_name(name);
  TestModel m(21);
  m.Input("x", Elem::kFloat, {}).Input("trips", Elem::kInt64, {}).Initializer("go", Flag(true));
  m.Node("Loop", {"trips", "go", "x"}, {"last"}, {{"body", body.proto}});
  m.Output("last", Elem::kFloat);
  return m.Model();
}

ModelProto Scan(int64_t opset) {
  const bool batched = opset == 8;
  TestGraph body;
  body.Input("a", Elem::kFloat, {2}).Input("row", Elem::kFloat, {2});
  body.Node("Add", {"a", "row"}, {"sum"}).Node("Mul", {"sum", "row"}, {"out"});
  for (const char* name : {"sum", "out"}) body.proto.add_output()->set_name(name);
  TestModel m(opset);
  if (batched) {
    m.Input("s", Elem::kFloat, {1, 2}).Input("x", Elem::kFloat, {1, 3, 2});
  } else {
    m.Input("s", Elem::kFloat, {2}).Input("x", Elem::kFloat, {"t", 2});
  }
  std::map<std::string, TestAttr> attrs = {{"body", body.proto}, {"num_scan_inputs", int64_t{1}}};
  std::vector<std::string> operands = {"s", "x"};
  if (batched) operands.insert(operands.begin(), "");
  m.Node("Scan", operands, {"last", "outs"}, attrs);
  m.Output("last", Elem::kFloat).Output("outs", Elem::kFloat);
  return m.Model();
}

// A function with an attribute is called inside another function.
ModelProto Functions() {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {"n", 2}).Node("Twice", {"x"}, {"y"}, {{"by", 0.5F}}, "own");
  m.Output("y", Elem::kFloat);
  ModelProto model = m.Model();
  auto* own = model.add_opset_import();
  own->set_domain("own");
  own->set_version(1);
  const auto add = [&](const char* name, const TestGraph& body) {
    auto* function = model.add_functions();
    function->set_domain("own");
    function->set_name(name);
    function->add_input("a");
    function->add_output("r");
    function->add_attribute("by");
    *function->mutable_node() = body.proto.node();
    *function->add_opset_import() = model.opset_import(0);
    *function->add_opset_import() = *own;
    for (auto& node : *function->mutable_node()) {
      for (auto& attr : *node.mutable_attribute()) attr.set_ref_attr_name("by");
    }
  };
  TestGraph once, twice;
  once.Node("LeakyRelu", {"a"}, {"r"}, {{"alpha", 0.0F}});
  twice.Node("Once", {"a"}, {"t"}, {{"by", 0.0F}}, "own");
  twice.Node("Once", {"t"}, {"r"}, {{"by", 0.0F}}, "own");
  add("Once", once);
  add("Twice", twice);
  return model;
}

// Holds weights in files beside the model, inside the message, and with elements of less than a
// byte.
ModelProto Weights() {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {"n", 20});
  m.Node("MatMul", {"x", "w"}, {"t"}).Node("Add", {"t", "v"}, {"u"}).Output("u", Elem::kFloat);
  m.Node("DequantizeLinear", {"q", "scale"}, {"y"}).Output("y", Elem::kFloat);
  m.Initializer("scale", Tensor::Of<float>(DType::kF32, {}, {0.5F}));
  const auto external = [&](const char* name, std::vector<int64_t> dims, const char* file,
                            const char* offset, const char* length) {
    auto* tensor = m.proto.add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(Row(Elem::kFloat).number);
    for (int64_t size : dims) tensor->add_dims(size);
    tensor->set_data_location(::onnx::TensorProto::EXTERNAL);
    const std::pair<const char*, const char*> entries[] = {
        {"location", file}, {"offset", offset}, {"length", length}};
    for (const auto& [key, value] : entries) {
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
  };
  external("w", {20, 7}, "w.bin", "16", "560");
  external("v", {7}, "parts/v.bin", "0", "28");
  auto* packed = m.proto.add_initializer();
  packed->set_name("q");
  packed->set_data_type(Row(Elem::kInt4).number);
  for (int64_t size : {40, 30}) packed->add_dims(size);
  packed->set_raw_data(std::string(600, '\x5A'));
  auto* typed = m.proto.add_initializer();
  typed->set_name("t64");
  typed->set_data_type(Row(Elem::kInt64).number);
  typed->add_dims(300);
  for (int i = 0; i < 300; ++i) typed->add_int64_data(i);
  m.Node("Gather", {"t64", "at"}, {"g"}).Output("g", Elem::kInt64);
  m.Input("at", Elem::kInt64, {2});
  return m.Model();
}

// A layer as quantising exporters write it.
ModelProto Quantised() {
  TestModel m(19);
  m.Input("x", Elem::kFloat, {"n", 4});
  m.Initializer("s", Tensor::Of<float>(DType::kF32, {}, {0.25F}));
  m.Initializer("z", Tensor::Of<uint8_t>(DType::kU8, {}, {3}));
  m.Node("QuantizeLinear", {"x", "s", "z"}, {"q"}).Node("DequantizeLinear", {"q", "s", "z"}, {"d"});
  m.Node("Constant", {}, {"c"},
         {{"value", Tensor::Of<float>(DType::kF32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}});
  m.Node("MatMul", {"d", "c"}, {"y"}).Output("y", Elem::kFloat);
  return m.Model();
}

}  // namespace

std::vector<ModelProto> OnnxSeeds() {
  std::vector<ModelProto> seeds;
  for (const NodeSeed& seed : kNodes) seeds.push_back(OneNode(seed));
  for (ModelProto (*make)() : {ShapeChain, If, Loop, LoopWhile, Functions, Weights, Quantised}) {
    seeds.push_back(make());
  }
  seeds.push_back(Scan(8));
  seeds.push_back(Scan(25));
  return seeds;
}

}  // namespace athanor
