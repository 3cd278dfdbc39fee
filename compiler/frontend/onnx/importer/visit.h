// Visits the nodes of a model and of the graphs and functions inside: each is checked against its
// schema, then computed if its contents are known, else built by its handler.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_VISIT_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_VISIT_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/build.h"
#include "compiler/frontend/onnx/fold/fold.h"
#include "compiler/frontend/onnx/importer/file_tensors.h"
#include "compiler/frontend/onnx/importer/frame.h"
#include "compiler/frontend/onnx/importer/import.h"
#include "compiler/frontend/onnx/importer/import_budget.h"
#include "compiler/frontend/onnx/importer/import_log.h"
#include "compiler/frontend/onnx/importer/scope.h"
#include "compiler/frontend/onnx/model/dims.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/frontend/onnx/schema/schema.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

class NodeContext;

// State that the steps of one import share. `dims`, `b` and `tensors` are set once the inputs are
// read.
struct ImportState {
  ImportState(const OnnxModel& file, const ImportOptions& wanted,
              std::vector<ImportRefusal>* refusals);

  const OnnxModel& model;
  const ImportOptions& options;
  ImportLog log;
  ImportBudget budget;
  Graph graph;
  Folder folder;
  std::optional<DimTable> dims;
  std::optional<OpBuilder> b;
  std::optional<FileTensors> tensors;
  std::vector<std::string> input_names;  // names of the graph inputs, by position
};

// Poisons all results of a node that was refused.
void PoisonResults(const ::onnx::NodeProto& node, Scope* scope);

// A status ends the import. Refusals are noted, and the import goes on.
class GraphVisitor {
 public:
  explicit GraphVisitor(ImportState* state) : state_(*state) {}
  ~GraphVisitor();

  // Builds the nodes of `graph`. `outer` has the facts about the graph around it, or is null.
  absl::Status Visit(const ::onnx::GraphProto& graph, Scope* scope, const Frame& frame,
                     const GraphInfo* outer);

  // --- for NodeContext
  ImportState& state() { return state_; }
  // Returns ABORTED if a node inside was refused; the refusal has been noted.
  absl::StatusOr<std::vector<Value>> Inline(const ::onnx::GraphProto& graph,
                                            absl::Span<const Value> inputs, std::string_view label,
                                            NodeContext* context);
  // See HandlerContext::TryInline.
  absl::StatusOr<std::optional<std::vector<Value>>> TryInline(const ::onnx::GraphProto& graph,
                                                              absl::Span<const Value> inputs,
                                                              std::string_view label,
                                                              NodeContext* context);

 private:
  using GraphProto = ::onnx::GraphProto;
  using NodeProto = ::onnx::NodeProto;

  absl::Status AddInitializers(const GraphProto& graph, Scope* scope, const Frame& frame);
  const GraphInfo& InfoOf(const GraphProto& graph, const GraphInfo* outer);
  absl::Status VisitNode(const NodeProto& given, Scope* scope, const Frame& frame,
                         const GraphInfo& info);
  absl::Status CountKnown(const NodeContext& context, const Value& value);
  // Returns the node itself, or a copy whose attributes are filled in from the function's call.
  absl::StatusOr<const NodeProto*> Resolve(const NodeProto& node, const Frame& frame,
                                           absl::Status* status);
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
  // Checks the sub-graphs of a node that is not built, except those that `context` has inlined.
  absl::Status CheckInside(const NodeProto& node, const Scope& scope, const Frame& frame,
                           const GraphInfo& info, const NodeContext* context);
  void Refuse(const NodeProto* node, const Frame& frame, int64_t version,
              const absl::Status& status, std::vector<std::string> inputs = {}) {
    state_.log.Refuse(node, frame.path, version, status, std::move(inputs));
  }
  absl::Status Nested() const;  // the error for nesting that is too deep

  // --- visit_claims.cc
  // Notes a wrong shape; a wrong type is an error.
  void CheckStated(const GraphProto& graph, const Scope& scope, const Frame& frame,
                   const GraphInfo& info);
  absl::Status CheckClaims(std::string_view name, const Value& value, const Frame& frame,
                           const GraphInfo& info);
  absl::Status CheckClaim(std::string_view name, const Value& value, const Frame& frame,
                          const Claim& claim);

  // --- visit_functions.cc
  absl::Status CallFunction(const ::onnx::FunctionProto& function, const NodeProto& node,
                            absl::Span<const Value* const> operands, Scope* scope,
                            const Frame& outside);
  absl::Status BindFunction(const ::onnx::FunctionProto& function, const NodeProto& node,
                            absl::Span<const Value* const> operands, Scope* scope, Frame* frame,
                            Frame::Attributes* attributes, Frame::Opsets* opsets) const;
  const GraphProto& BodyOf(const ::onnx::FunctionProto& function);

  ImportState& state_;
  std::map<const GraphProto*, GraphInfo> infos_;
  std::map<const ::onnx::FunctionProto*, std::unique_ptr<GraphProto>> bodies_;
  std::deque<NodeProto> resolved_;    // nodes with attributes filled in from a function's call
  std::vector<NodeContext*> active_;  // nodes whose sub-graphs are being visited
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_VISIT_H_
