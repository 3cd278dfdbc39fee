// The state of one import and its steps: tensors, nodes, functions. Other code uses import.h.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORTER_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORTER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/build.h"
#include "compiler/frontend/onnx/fold/fold.h"
#include "compiler/frontend/onnx/importer/import.h"
#include "compiler/frontend/onnx/importer/scope.h"
#include "compiler/frontend/onnx/model/dims.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/frontend/onnx/schema/schema.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

class NodeContext;

// The surroundings in which a node is visited.
struct Frame {
  using Opsets = std::map<std::string, int64_t, std::less<>>;
  using Attributes = std::map<std::string_view, const ::onnx::AttributeProto*, std::less<>>;

  const Opsets* opsets = nullptr;  // opsets of the model or the function
  // Attributes of the function's call; null outside functions.
  const Attributes* attributes = nullptr;
  std::string path;  // such as "loop1/body/"
  int depth = 0;
  bool check_only = false;  // builds nothing, since the values may be wrong
};

inline constexpr std::string_view kOutput = "output";

// The type that a graph states for one of its values.
struct Claim {
  const ::onnx::ValueInfoProto* info;
  std::string_view kind;  // "input", "value" or kOutput
};

// Facts about a graph, computed once however often it is visited.
struct GraphInfo {
  absl::Status status;               // result of OrderOf
  std::vector<int> order;            // indices of nodes
  std::set<std::string_view> names;  // names that the graph defines
  const GraphInfo* outer = nullptr;  // the enclosing graph's
  std::set<std::string_view> inputs;
  std::multimap<std::string_view, Claim> claims;  // by name
  int64_t looked_at = 0;  // items per visit besides nodes: names, attributes
};

// Reports whether the status ends the import instead of being one refusal of several.
bool EndsImport(const absl::Status& status);

class Importer {
 public:
  Importer(const OnnxModel& model, const PayloadReader& reader, const ImportOptions& options,
           std::vector<Refusal>* refusals);
  ~Importer();
  absl::StatusOr<OnnxImported> Run();

  // --- for NodeContext
  OpBuilder& b() { return *b_; }
  // Returns a tensor of the file: a known value if it is small, else a parameter with a similar
  // name.
  absl::StatusOr<Value> ValueOf(const ::onnx::TensorProto& tensor, std::string_view name);
  // Returns ABORTED if a node inside was refused; the refusal has been noted.
  absl::StatusOr<std::vector<Value>> Inline(const ::onnx::GraphProto& graph,
                                            absl::Span<const Value> inputs, std::string_view label,
                                            NodeContext* context);
  // See HandlerContext::TryInline.
  absl::StatusOr<std::optional<std::vector<Value>>> TryInline(const ::onnx::GraphProto& graph,
                                                              absl::Span<const Value> inputs,
                                                              std::string_view label,
                                                              NodeContext* context);
  const std::string& InputName(int position) const { return input_names_[position]; }
  int64_t unroll_left() const { return options_.limits.max_unrolled_nodes - unrolled_; }
  std::optional<uint64_t> random_seed() const { return options_.random_seed; }
  void Note(std::string text, bool of_output = false);

 private:
  using GraphProto = ::onnx::GraphProto;
  using NodeProto = ::onnx::NodeProto;

  // --- import.cc: the interface
  absl::Status AddInputs(const Frame& frame);
  absl::Status AddInput(const ::onnx::ValueInfoProto& info);
  absl::Status CheckValues() const;
  absl::Status Pin(const Tensor& given, Elem elem, NodeId node, Value* value);
  absl::Status AddOutputs(const Frame& frame);
  absl::Status AddOutput(const ::onnx::ValueInfoProto& info);
  absl::StatusOr<OnnxImported> Finish();

  // --- import_tensors.cc
  absl::Status AddInitializers(const GraphProto& graph, Scope* scope, const Frame& frame);
  absl::StatusOr<Value> MakeValue(const ::onnx::TensorProto& tensor, std::string_view name);
  absl::StatusOr<Value> MakeParameter(StoredTensor stored, std::string_view name);
  Value Unpacked(const Value& bytes, Elem elem, const Shape& shape);
  NodeId AddDeclared(Op op, std::string name, TensorType type);
  std::string UniqueName(std::string_view name);

  // --- import_nodes.cc. A status ends the import. Refusals are noted, and the import goes on.
  const GraphInfo& InfoOf(const GraphProto& graph, const GraphInfo* outer);
  absl::Status VisitGraph(const GraphProto& graph, Scope* scope, const Frame& frame,
                          const GraphInfo* outer);
  absl::Status VisitNode(const NodeProto& given, Scope* scope, const Frame& frame,
                         const GraphInfo& info);
  absl::Status CheckLimits() const;
  // Counts the items of a graph or function besides nodes, for each visit.
  absl::Status CountLookedAt(int64_t count);
  // Returns the largest number of elements of a value whose contents may still become known.
  int64_t MostKnown() const;
  absl::Status CountKnown(const NodeContext& context, const Value& value);
  // Returns the node itself, or a copy whose attributes are filled in from the function's call.
  absl::StatusOr<const NodeProto*> Resolve(const NodeProto& node, const Frame& frame,
                                           absl::Status* status);
  absl::Status CountCopied(size_t bytes);
  absl::StatusOr<std::vector<const Value*>> Operands(const NodeProto& node, const Scope& scope);
  // The handler or function that a node runs; all null if it runs none.
  struct Target {
    const SchemaRow* schema = nullptr;
    const HandlerRow* row = nullptr;
    const ::onnx::FunctionProto* function = nullptr;
  };
  absl::StatusOr<Target> TargetOf(const NodeProto& node, const Frame& frame,
                                  int64_t* version) const;
  absl::StatusOr<Target> CheckedAge(const NodeProto& node, int64_t imported,
                                    const Target& target) const;
  absl::Status RunHandler(const Target& target, NodeContext* context);
  absl::Status Conclude(NodeContext* context, NodeId mark, Scope* scope);
  void Poison(const NodeProto& node, Scope* scope);
  // Checks the sub-graphs of a node that is not built, except those that `context` has inlined.
  absl::Status CheckInside(const NodeProto& node, const Scope& scope, const Frame& frame,
                           const GraphInfo& info, const NodeContext* context);
  void Refuse(const NodeProto* node, const Frame& frame, int64_t version, absl::Status status,
              std::vector<std::string> inputs = {});
  absl::Status Nested() const;  // the error for nesting that is too deep

  // --- import_claims.cc
  // Notes a wrong shape; a wrong type is an error.
  void CheckStated(const GraphProto& graph, const Scope& scope, const Frame& frame,
                   const GraphInfo& info);
  absl::Status CheckClaims(std::string_view name, const Value& value, const Frame& frame,
                           const GraphInfo& info);
  absl::Status CheckClaim(std::string_view name, const Value& value, const Frame& frame,
                          const Claim& claim);

  // --- import_functions.cc
  absl::Status CallFunction(const ::onnx::FunctionProto& function, const NodeProto& node,
                            absl::Span<const Value* const> operands, Scope* scope,
                            const Frame& outside);
  absl::Status BindFunction(const ::onnx::FunctionProto& function, const NodeProto& node,
                            absl::Span<const Value* const> operands, Scope* scope, Frame* frame,
                            Frame::Attributes* attributes, Frame::Opsets* opsets) const;
  const GraphProto& BodyOf(const ::onnx::FunctionProto& function);

  const OnnxModel& model_;
  const PayloadReader& reader_;
  const ImportOptions& options_;
  std::vector<Refusal>* const refusals_;
  int64_t refused_ = 0;  // includes those beyond max_refusals

  Graph graph_;
  std::optional<DimTable> dims_;
  std::optional<OpBuilder> b_;
  Folder folder_;
  Scope main_;
  std::vector<std::string> input_names_;     // names of the graph inputs, by position
  std::vector<std::string> input_elements_;  // by position
  std::vector<std::string> output_elements_;
  std::vector<std::pair<NodeId, StoredTensor>> parameters_;  // by id
  std::vector<StoredTensor> external_;  // external ranges, which must not overlap
  std::vector<std::string> notes_;      // each once, first those of outputs
  std::set<std::string> noted_;
  int64_t output_notes_ = 0, notes_left_out_ = 0;
  // Names of our nodes, with the number of requests for each.
  std::map<std::string, int64_t, std::less<>> names_;

  std::map<const ::onnx::TensorProto*, Value> tensors_;
  std::map<const GraphProto*, GraphInfo> infos_;
  std::map<const ::onnx::FunctionProto*, std::unique_ptr<GraphProto>> bodies_;
  std::deque<NodeProto> resolved_;    // nodes with attributes filled in from a function's call
  std::vector<NodeContext*> active_;  // nodes whose sub-graphs are being visited
  int64_t visited_ = 0, looked_at_ = 0, unrolled_ = 0, copied_ = 0, known_ = 0;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORTER_H_
