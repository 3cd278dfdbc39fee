// The handler's view of one node.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_CONTEXT_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_CONTEXT_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/importer/scope.h"
#include "compiler/frontend/onnx/importer/visit.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/frontend/onnx/schema/schema.h"

namespace athanor::onnx {

class NodeContext : public HandlerContext {
 public:
  // Borrows everything; all must outlive it. `operands` has one entry per operand of the node, null
  // if it is omitted.
  NodeContext(GraphVisitor* visitor, const ::onnx::NodeProto& node, const SchemaRow& schema,
              std::vector<const Value*> operands, const Scope& scope, const Frame& frame,
              const GraphInfo& info);

  OpBuilder& b() override { return *visitor_->state().b; }
  const ::onnx::NodeProto& node() const override { return node_; }
  int64_t version() const override { return schema_.since; }
  int inputs() const override { return static_cast<int>(operands_.size()); }
  int outputs() const override { return static_cast<int>(results_.size()); }
  bool Has(int i) const override { return i < inputs() && operands_[i] != nullptr; }
  bool Wants(int o) const override { return o < outputs() && !node_.output(o).empty(); }
  const Value& In(int i) const override { return *operands_[i]; }
  void Set(int o, Value value) override;

  bool Given(std::string_view name) const override { return Find(name) != nullptr; }
  int64_t Int(std::string_view name) const override;
  double Float(std::string_view name) const override;
  std::string String(std::string_view name) const override;
  std::vector<int64_t> Ints(std::string_view name) const override;
  std::vector<double> Floats(std::string_view name) const override;
  std::vector<std::string> Strings(std::string_view name) const override;
  absl::StatusOr<Value> TensorAttr(std::string_view name) const override;
  const ::onnx::GraphProto& GraphAttr(std::string_view name) const override;
  absl::StatusOr<std::string> OneOf(std::string_view name,
                                    absl::Span<const std::string_view> allowed) const override;

  absl::StatusOr<std::vector<Expr>> Sizes(int i, std::string_view what) const override;
  absl::StatusOr<std::vector<int64_t>> Integers(int i, std::string_view what) const override;
  absl::StatusOr<std::vector<double>> Numbers(int i, std::string_view what) const override;
  absl::StatusOr<Expr> OneSize(int i, std::string_view what) const override;
  absl::StatusOr<int> Axis(int64_t axis, int rank) const override;
  absl::StatusOr<std::vector<int>> Axes(absl::Span<const int64_t> axes, int rank) const override;

  absl::StatusOr<std::vector<Value>> Inline(const ::onnx::GraphProto& graph,
                                            absl::Span<const Value> inputs,
                                            std::string_view label) override;
  absl::StatusOr<std::optional<std::vector<Value>>> TryInline(const ::onnx::GraphProto& graph,
                                                              absl::Span<const Value> inputs,
                                                              std::string_view label) override;
  const Value* Outer(std::string_view name) override;
  int64_t unroll_left() const override { return visitor_->state().budget.unroll_left(); }
  std::optional<uint64_t> random_seed() const override {
    return visitor_->state().options.random_seed;
  }
  void Note(std::string text) override;

  // --- for GraphVisitor
  const SchemaRow& schema() const { return schema_; }
  const Scope& scope() const { return scope_; }
  const Frame& frame() const { return frame_; }
  const GraphInfo& info() const { return info_; }
  std::optional<Value>& result(int o) { return results_[o]; }
  // Adds the graph inputs that the value depends on, because the handler read its contents or a
  // sub-graph captured it.
  void Capture(const Value& value) { sources_.insert(value.sources.begin(), value.sources.end()); }
  std::vector<int> Sources() const;
  // Returns the inputs whose values, if given, would avoid this failure of Sizes and similar
  // functions.
  std::vector<std::string> Settles(const absl::Status& status) const;
  bool Visited(const ::onnx::GraphProto& graph) const { return inlined_.contains(&graph); }

 private:
  const ::onnx::AttributeProto* Find(std::string_view name) const;
  std::string_view Default(std::string_view name) const;
  absl::Status Unknown(int i, std::string_view what) const;

  GraphVisitor* const visitor_;
  const ::onnx::NodeProto& node_;
  const SchemaRow& schema_;
  std::vector<const Value*> operands_;
  const Scope& scope_;
  const Frame& frame_;
  const GraphInfo& info_;
  std::vector<std::optional<Value>> results_;
  std::set<int> sources_;
  std::set<const ::onnx::GraphProto*> inlined_;
  mutable std::vector<std::pair<std::string, std::vector<int>>> unknown_;  // messages, sources
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_CONTEXT_H_
