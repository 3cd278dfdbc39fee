// A state's role, which says how its rows lie in memory: attribute `role` of StateRead.
//
//   absl::Status s = CheckState(node.type, node.attrs);
//   const std::string& role = RoleOf(node);            // "keys", "values" or ""
//
// A state of keys or values is [slots, heads, width], of attention that reads it by blocks of
// slots.
#ifndef ATHANOR_COMPILER_IR_GRAPH_STATE_H_
#define ATHANOR_COMPILER_IR_GRAPH_STATE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

inline constexpr std::string_view kRole = "role";

// Checks a StateRead's declaration: its slots on axis 0, all other sizes constant, a known role and
// the rank that this needs.
absl::Status CheckState(const TensorType& type, const Attrs& attrs);

std::string RoleOf(const Node& node);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_STATE_H_
