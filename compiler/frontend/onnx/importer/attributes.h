// The attributes of one node, with the defaults of its schema.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_ATTRIBUTES_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_ATTRIBUTES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/schema/schema.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

// Borrows the node and the schema. The functions that read an attribute are HandlerContext's.
class NodeAttributes {
 public:
  NodeAttributes(const ::onnx::NodeProto& node, const SchemaRow& schema)
      : node_(node), schema_(schema) {}

  // Returns the attribute that the node gives; null if it gives none.
  const ::onnx::AttributeProto* Find(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  double Float(std::string_view name) const;
  std::string String(std::string_view name) const;
  std::vector<int64_t> Ints(std::string_view name) const;
  std::vector<double> Floats(std::string_view name) const;
  std::vector<std::string> Strings(std::string_view name) const;
  const ::onnx::GraphProto& Graph(std::string_view name) const;
  absl::StatusOr<std::string> OneOf(std::string_view name,
                                    absl::Span<const std::string_view> allowed) const;

 private:
  std::string_view Default(std::string_view name) const;

  const ::onnx::NodeProto& node_;
  const SchemaRow& schema_;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_ATTRIBUTES_H_
