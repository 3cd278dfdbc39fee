// Attributes, shapes and dtypes between their messages and the IR.
//
//   AttrFromProto("axis", AttrType::kInt, message, limits)   // an AttrValue that holds an int64_t
//   AttrToProto(AttrValue(int64_t{1})).i() == 1
//
// Only what the message form adds is checked here: the kind, names of dtypes, expressions, sizes of
// lists. That values make sense for a graph and an op is checked by GraphBuilder (compiler/ir).
// Errors are INVALID_ARGUMENT, name the attribute, and leave the node to the caller.
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

// The dtype of that name; `what` says whose it is.
absl::StatusOr<DType> DTypeFromProto(std::string_view what, std::string_view name);

absl::StatusOr<Shape> ShapeFromProto(std::string_view what, const SizeExprs& messages,
                                     const MessageLimits& limits);

absl::StatusOr<AttrValue> AttrFromProto(std::string_view name, AttrType type,
                                        const v1::AttrValue& message, const MessageLimits& limits);

// A graph inside a graph. Its nodes stand as stated; what they hold is checked with the node whose
// attribute it is.
absl::StatusOr<SubGraph> BodyFromProto(std::string_view what, const v1::Graph& message,
                                       const MessageLimits& limits);
void BodyToProto(const Graph& body, v1::Graph* message);

void ShapeToProto(const Shape& shape, SizeExprs* messages);
v1::AttrValue AttrToProto(const AttrValue& value);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_ATTR_PROTO_H_
