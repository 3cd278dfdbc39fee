// The state of one import, and its steps: tensors, nodes, functions. import.h is what others use.
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

// Where a node is visited.
struct Frame {
  using Opsets = std::map<std::string, int64_t, std::less<>>;
  using Attributes = std::map<std::string_view, const ::onnx::AttributeProto*, std::less<>>;

  const Opsets* opsets = nullptr;          // of the model or the function
  const Attributes* attributes = nullptr;  // of the function's call; null outside functions
  std::string path;                        // "loop1/body/"
  int depth = 0;
  bool check_only = false;  // nothing is built: the values are not known to be right
};

inline constexpr std::string_view kOutput = "output";

// What a graph states of one of its values.
struct Claim {
  const ::onnx::ValueInfoProto* info;
  std::string_view kind;  // "input", "value" or kOutput
};

// What is found once of a graph, however often it is visited.
struct GraphInfo {
  absl::Status status;               // of OrderOf
  std::vector<int> order;            // positions of nodes
  std::set<std::string_view> names;  // that it defines
  const GraphInfo* outer = nullptr;  // of the graph around it
  std::set<std::string_view> inputs;
  std::multimap<std::string_view, Claim> claims;  // by name
  int64_t looked_at = 0;                          // in each visit, besides nodes: names, attributes
};

// What ends the import, rather than being one refusal of several.
bool EndsImport(const absl::Status& status);

class Importer {
 public:
  Importer(const OnnxModel& model, const PayloadReader& reader, const ImportOptions& options,
           std::vector<Refusal>* refusals);
  ~Importer();
  absl::StatusOr<OnnxImported> Run();

  // --- for NodeContext
  OpBuilder& b() { return *b_; }
  // A tensor of the file: known where it is small, else a parameter of about this name.
  absl::StatusOr<Value> ValueOf(const ::onnx::TensorProto& tensor, std::string_view name);
  // ABORTED: inside it was refused, which has been noted.
  absl::StatusOr<std::vector<Value>> Inline(const ::onnx::GraphProto& graph,
                                            absl::Span<const Value> inputs, std::string_view label,
                                            NodeContext* context);
  // As HandlerContext::TryInline.
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

  // --- import_nodes.cc. Statuses are what ends the import; refusals are noted and gone past.
  const GraphInfo& InfoOf(const GraphProto& graph, const GraphInfo* outer);
  absl::Status VisitGraph(const GraphProto& graph, Scope* scope, const Frame& frame,
                          const GraphInfo* outer);
  absl::Status VisitNode(const NodeProto& given, Scope* scope, const Frame& frame,
                         const GraphInfo& info);
  absl::Status CheckLimits() const;
  // Of what a graph or function holds besides nodes, each time it is visited.
  absl::Status CountLookedAt(int64_t count);
  // Of a value whose contents are to be known from here on: elements, at most.
  int64_t MostKnown() const;
  absl::Status CountKnown(const NodeContext& context, const Value& value);
  // The node itself, or a copy in which the function's call says what its attributes are.
  absl::StatusOr<const NodeProto*> Resolve(const NodeProto& node, const Frame& frame,
                                           absl::Status* status);
  absl::Status CountCopied(size_t bytes);
  absl::StatusOr<std::vector<const Value*>> Operands(const NodeProto& node, const Scope& scope);
  // What is run for a node, or why none is.
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
  // The sub-graphs of a node that is not built, but for those that `context` has inlined.
  absl::Status CheckInside(const NodeProto& node, const Scope& scope, const Frame& frame,
                           const GraphInfo& info, const NodeContext* context);
  void Refuse(const NodeProto* node, const Frame& frame, int64_t version, absl::Status status,
              std::vector<std::string> inputs = {});
  absl::Status Nested() const;  // too deep

  // --- import_claims.cc
  // A wrong shape is noted, a wrong type is a failure.
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
  int64_t refused_ = 0;  // those beyond max_refusals too

  Graph graph_;
  std::optional<DimTable> dims_;
  std::optional<OpBuilder> b_;
  Folder folder_;
  Scope main_;
  std::vector<std::string> input_names_;     // of the interface, by position
  std::vector<std::string> input_elements_;  // by position
  std::vector<std::string> output_elements_;
  std::vector<std::pair<NodeId, StoredTensor>> parameters_;  // by id
  std::vector<StoredTensor> external_;                       // whose ranges must not overlap
  std::vector<std::string> notes_;                           // each once, those of outputs first
  std::set<std::string> noted_;
  int64_t output_notes_ = 0, notes_left_out_ = 0;
  std::map<std::string, int64_t, std::less<>> names_;  // of our nodes; how often each was asked for

  std::map<const ::onnx::TensorProto*, Value> tensors_;
  std::map<const GraphProto*, GraphInfo> infos_;
  std::map<const ::onnx::FunctionProto*, std::unique_ptr<GraphProto>> bodies_;
  std::deque<NodeProto> resolved_;    // nodes whose attributes a function's call gave
  std::vector<NodeContext*> active_;  // those whose sub-graphs are being visited
  int64_t visited_ = 0, looked_at_ = 0, unrolled_ = 0, copied_ = 0, known_ = 0;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORTER_H_
