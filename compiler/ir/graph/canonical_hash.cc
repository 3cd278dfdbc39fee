#include <bit>
#include <string>

#include "absl/strings/escaping.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/ir/value/digest.h"

namespace athanor {
namespace {

// Version of the encoding and of the canonical form; part of every hash.
constexpr std::string_view kVersion = "athanor.graph.1";
// Most bytes of a literal that is encoded as it is; a longer one is encoded as its hash.
constexpr size_t kShortLiteral = 64;

// Encodes values with a fixed length or preceded by their length, so no two inputs have the same
// bytes.
class Encoder {
 public:
  explicit Encoder(std::string* bytes) : bytes_(bytes) {}

  void Int(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_->push_back(static_cast<char>(value >> (8 * i)));
  }
  void Text(std::string_view text) {
    Int(text.size());
    bytes_->append(text);
  }
  void Expression(const Expr& e) {
    const std::optional<int64_t> constant = e.constant();
    bytes_->push_back(constant ? 'n' : 'e');
    constant ? Int(*constant) : Text(e.ToString());
  }
  void Expressions(const std::vector<Expr>& list) {
    Int(list.size());
    for (const Expr& e : list) Expression(e);
  }
  void Type(const TensorType& type) {
    Text(DTypeName(type.dtype));
    Expressions(type.shape);
  }

  void operator()(bool value) { Int(value); }
  void operator()(int64_t value) { Int(value); }
  void operator()(double value) { Int(std::bit_cast<uint64_t>(value)); }
  void operator()(const std::string& value) { Text(value); }
  void operator()(DType value) { Text(DTypeName(value)); }
  void operator()(const std::vector<int64_t>& value) {
    Int(value.size());
    for (int64_t v : value) Int(v);
  }
  void operator()(const Shape& value) { Expressions(value); }
  void operator()(const IndexMap& value) {
    Expressions(value.shape);
    Expressions(value.coordinates);
  }
  void operator()(const SubGraph& value) {
    Int(value->nodes.size());
    for (const Node& node : value->nodes) EncodeNode(node, bytes_);
    Int(value->outputs.size());
    for (const Output& output : value->outputs) Int(output.node);
  }
  void operator()(const Tensor& value) {
    Text(DTypeName(value.dtype));
    (*this)(value.shape);
    Int(value.bytes.size());
    bytes_->append(value.bytes.size() > kShortLiteral ? Sha256Bytes(value.bytes) : value.bytes);
  }

 private:
  std::string* bytes_;
};

}  // namespace

void EncodeNode(const Node& node, std::string* bytes) {
  Encoder encoder(bytes);
  encoder.Text(OpName(node.op));
  encoder.Int(node.inputs.size());
  for (NodeId input : node.inputs) encoder.Int(input);
  encoder.Int(node.attrs.size());
  for (const auto& [name, value] : node.attrs) {
    encoder.Text(name);
    encoder.Int(value.index());
    std::visit(encoder, value);
  }
  encoder.Type(node.type);
}

std::string CanonicalHash(const Graph& graph) {
  const Graph canonical = Canonicalize(graph);
  std::string bytes;
  Encoder encoder(&bytes);
  encoder.Text(kVersion);
  encoder.Int(canonical.nodes.size());
  for (const Node& node : canonical.nodes) EncodeNode(node, &bytes);
  encoder.Int(canonical.outputs.size());
  for (const Output& output : canonical.outputs) encoder.Int(output.node);
  // Graphs without states have the hashes they had before there were any.
  if (!canonical.updates.empty()) encoder.Int(canonical.updates.size());
  for (NodeId update : canonical.updates) encoder.Int(update);
  const std::string digest = Sha256Bytes(bytes);
  return absl::BytesToHexString(digest);
}

}  // namespace athanor
