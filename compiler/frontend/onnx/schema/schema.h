// The schemas of ONNX's ops. schema_types.inc is generated from the onnx package by
// schema_types.py, and a test compares the two.
//
//   const SchemaRow* s = FindSchema("", "Softmax", /*opset=*/12);   // s->since == 11
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_SCHEMA_SCHEMA_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_SCHEMA_SCHEMA_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/frontend/elem_type.h"
#include "compiler/frontend/onnx/model/value.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

struct SchemaOperand {
  std::string_view name;
  uint32_t types;  // bit i: accepts element type i + 1; 0: only sequences and the like
  int8_t same_as;  // operands with equal numbers have equal types; -1: free
  bool optional, variadic, heterogeneous;
};
struct SchemaAttr {
  std::string_view name;
  int8_t kind;  // AttributeProto.AttributeType
  bool required;
  std::string_view otherwise;  // default as text: "1", "-1", "0.2", "NOTSET"; empty: none
};
struct SchemaRow {
  std::string_view domain, op;
  int since;
  bool deprecated;  // the op is removed from this version on
  int min_inputs, max_inputs, min_outputs, max_outputs;
  absl::Span<const SchemaOperand> inputs, outputs;
  absl::Span<const SchemaAttr> attrs;
};

// Returns the newest schema with a version of at most `opset`; null if there is none.
const SchemaRow* FindSchema(std::string_view domain, std::string_view op, int64_t opset);

// Checks operands and attributes against a schema; the messages say what would be right. `inputs`
// has one entry per operand of the node, null if it is omitted. Types of poisoned values are not
// known and not checked.
absl::Status CheckNode(const SchemaRow& schema, const ::onnx::NodeProto& node,
                       absl::Span<const Value* const> inputs);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_SCHEMA_SCHEMA_H_
