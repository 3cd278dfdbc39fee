// Converts attributes, shapes and dtypes between their messages and the IR.
//
//   AttrFromProto("axis", AttrType::kInt, message, limits)   // an AttrValue that holds an int64_t
//   AttrToProto(AttrValue(int64_t{1})).i() == 1
//
// Checks only what the message form adds: the kind, names of dtypes, expressions, sizes of lists.
// GraphBuilder (compiler/ir) checks whether values make sense for a graph and an op. Errors are
// INVALID_ARGUMENT and name the attribute; the caller adds the node.
#ifndef ATHANOR_COMPILER_FRONTEND_ATTR_PROTO_H_
#define ATHANOR_COMPILER_FRONTEND_ATTR_PROTO_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/graph/op.h"
#include "proto/athanor/v1/graph.pb.h"

namespace athanor {

using SizeExprs = google::protobuf::RepeatedPtrField<v1::SizeExpr>;

struct MessageLimits {
  GraphLimits graph;
  int max_nesting = kMaxNesting;
};

// Returns the dtype of that name; `what` names its owner in messages.
absl::StatusOr<DType> DTypeFromProto(std::string_view what, std::string_view name);

absl::StatusOr<Shape> ShapeFromProto(std::string_view what, const SizeExprs& messages,
                                     const MessageLimits& limits);

absl::StatusOr<AttrValue> AttrFromProto(std::string_view name, AttrType type,
                                        const v1::AttrValue& message, const MessageLimits& limits);

// Reads a nested graph with its nodes as stated. They are checked with the node whose attribute the
// graph is.
absl::StatusOr<SubGraph> BodyFromProto(std::string_view what, const v1::Graph& message,
                                       const MessageLimits& limits);
void BodyToProto(const Graph& body, v1::Graph* message);

void ShapeToProto(const Shape& shape, SizeExprs* messages);
v1::AttrValue AttrToProto(const AttrValue& value);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_ATTR_PROTO_H_
