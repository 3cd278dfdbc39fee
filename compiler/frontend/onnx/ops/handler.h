// Handlers convert ONNX ops to our graph: one row per op and per version that changes its code.
//
//   absl::Status Softplus(HandlerContext& c) {
//     const Value x = Up(c.b(), c.In(0));
//     ...
//     c.Set(0, Cast(c.b(), y, c.In(0).elem));
//     return absl::OkStatus();            // the caller checks the builder's status
//   }
//   constexpr HandlerRow kRows[] = {{"", "Softplus", 1, Softplus}};
//
// Before a handler runs, its node has been checked against the schema (schema_types.inc): number of
// operands, element types, attributes by name and kind. Handlers check the rest.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLER_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/build.h"
#include "compiler/frontend/onnx/model/value.h"
#include "compiler/frontend/refusal.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

// An ONNX node and its surroundings. Valid during the handler's call.
class HandlerContext {
 public:
  virtual ~HandlerContext() = default;

  virtual OpBuilder& b() = 0;
  virtual const ::onnx::NodeProto& node() const = 0;
  virtual int64_t version() const = 0;  // since_version of its schema

  // Operands and results as the node lists them, without omitted ones at the end.
  virtual int inputs() const = 0;
  virtual int outputs() const = 0;
  virtual bool Has(int i) const = 0;         // operand i is given
  virtual bool Wants(int o) const = 0;       // result o has a name
  virtual const Value& In(int i) const = 0;  // REQUIRES: Has(i)
  virtual void Set(int o, Value value) = 0;  // call once for each wanted result

  // Return an attribute, or the schema's default if it is absent. REQUIRES: the schema has an
  // attribute of that name and kind.
  virtual bool Given(std::string_view name) const = 0;
  virtual int64_t Int(std::string_view name) const = 0;
  virtual double Float(std::string_view name) const = 0;  // an f32 in the file
  virtual std::string String(std::string_view name) const = 0;
  virtual std::vector<int64_t> Ints(std::string_view name) const = 0;
  virtual std::vector<double> Floats(std::string_view name) const = 0;
  virtual std::vector<std::string> Strings(std::string_view name) const = 0;
  virtual absl::StatusOr<Value> TensorAttr(std::string_view name) const = 0;  // a known value
  virtual const ::onnx::GraphProto& GraphAttr(std::string_view name) const = 0;
  // Returns one of `allowed`; otherwise INVALID_ARGUMENT, which lists them.
  virtual absl::StatusOr<std::string> OneOf(std::string_view name,
                                            absl::Span<const std::string_view> allowed) const = 0;

  // Returns the contents of operand i, on which the structure of the result depends; `what` is the
  // operand's name in the schema. The failure says that they are known only at run time, and which
  // inputs they depend on.
  virtual absl::StatusOr<std::vector<Expr>> Sizes(int i, std::string_view what) const = 0;
  virtual absl::StatusOr<std::vector<int64_t>> Integers(int i, std::string_view what) const = 0;
  virtual absl::StatusOr<std::vector<double>> Numbers(int i, std::string_view what) const = 0;
  // Accepts a scalar or a vector of one element.
  virtual absl::StatusOr<Expr> OneSize(int i, std::string_view what) const = 0;
  // Returns the axis counted from 0; an error unless -rank <= axis < rank.
  virtual absl::StatusOr<int> Axis(int64_t axis, int rank) const = 0;
  virtual absl::StatusOr<std::vector<int>> Axes(absl::Span<const int64_t> axes, int rank) const = 0;

  // Builds a sub-graph in place. Its inputs are `inputs`; it sees names of enclosing graphs. Its
  // nodes are refused one by one, as the graph's are.
  virtual absl::StatusOr<std::vector<Value>> Inline(const ::onnx::GraphProto& graph,
                                                    absl::Span<const Value> inputs,
                                                    std::string_view label) = 0;
  // Same as Inline, but forgets refusals inside and then returns nullopt, for a caller that has an
  // alternative. A status ends the import.
  virtual absl::StatusOr<std::optional<std::vector<Value>>> TryInline(
      const ::onnx::GraphProto& graph, absl::Span<const Value> inputs, std::string_view label) = 0;
  // Returns the value that the node's sub-graphs see under a name they do not define; null if there
  // is none.
  virtual const Value* Outer(std::string_view name) = 0;
  // Returns the number of nodes that unrolling may still make.
  virtual int64_t unroll_left() const = 0;
  virtual std::optional<uint64_t> random_seed() const = 0;
  virtual void Note(std::string text) = 0;  // for Model.notes
};

using Handler = absl::Status (*)(HandlerContext& c);

struct HandlerRow {
  std::string_view domain;  // "", "com.microsoft" or "ai.onnx.preview"
  std::string_view op;
  int since = 1;  // first schema version that this code handles
  Handler handler = nullptr;
  std::string_view refused = {};  // reason to refuse the op: "sequence", "string", "training", ...
};

// Rows of the families, one function per file.
absl::Span<const HandlerRow> ElementwiseRows();
absl::Span<const HandlerRow> CastRows();
absl::Span<const HandlerRow> QuantisedRows();
absl::Span<const HandlerRow> ReduceRows();
absl::Span<const HandlerRow> NormRows();
absl::Span<const HandlerRow> LossRows();
absl::Span<const HandlerRow> RandomRows();
absl::Span<const HandlerRow> ShapeRows();
absl::Span<const HandlerRow> MovementRows();
absl::Span<const HandlerRow> IndexRows();
absl::Span<const HandlerRow> ResizeRows();
absl::Span<const HandlerRow> LinearRows();
absl::Span<const HandlerRow> SignalRows();
absl::Span<const HandlerRow> SortRows();
absl::Span<const HandlerRow> WindowRows();
absl::Span<const HandlerRow> AttentionRows();
absl::Span<const HandlerRow> RecurrentRows();
absl::Span<const HandlerRow> ControlRows();
absl::Span<const HandlerRow> MicrosoftRows();
absl::Span<const HandlerRow> PreviewRows();
absl::Span<const HandlerRow> NgramRows();
absl::Span<const HandlerRow> RefusedRows();

// Returns the row for this schema version; null if the op is not known.
const HandlerRow* FindHandler(std::string_view domain, std::string_view op, int64_t version);
std::vector<std::string_view> KnownOpNames(std::string_view domain);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLER_H_
