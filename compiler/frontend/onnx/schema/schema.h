// The schemas of ONNX's ops, as schema_types.inc has them: generated from the onnx package by
// schema_types.py, and held against it by a test.
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
  uint32_t types;  // bit i: element type of number i + 1 is taken; 0: sequences and the like only
  int8_t same_as;  // operands with equal numbers have one type; -1: free
  bool optional, variadic, heterogeneous;
};
struct SchemaAttr {
  std::string_view name;
  int8_t kind;  // AttributeProto.AttributeType
  bool required;
  std::string_view otherwise;  // the default as text: "1", "-1", "0.2", "NOTSET"; empty: none
};
struct SchemaRow {
  std::string_view domain, op;
  int since;
  bool deprecated;  // from this version on the op is no more
  int min_inputs, max_inputs, min_outputs, max_outputs;
  absl::Span<const SchemaOperand> inputs, outputs;
  absl::Span<const SchemaAttr> attrs;
};

// The newest schema of at most this opset; null: none.
const SchemaRow* FindSchema(std::string_view domain, std::string_view op, int64_t opset);

// Operands and attributes against a schema: the messages say what would be right. `inputs` has one
// for each of the node's operands, null where it is left out; types of poisoned ones are not known.
absl::Status CheckNode(const SchemaRow& schema, const ::onnx::NodeProto& node,
                       absl::Span<const Value* const> inputs);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_SCHEMA_SCHEMA_H_
