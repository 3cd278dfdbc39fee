#include "compiler/ir/graph/state.h"

#include "compiler/ir/value/message.h"

namespace athanor {

std::string RoleOf(const Node& node) { return GetAttrOr<std::string>(node.attrs, kRole, ""); }

absl::Status CheckState(const TensorType& type, const Attrs& attrs) {
  const std::string role = GetAttrOr<std::string>(attrs, kRole, "");
  if (!role.empty() && role != "keys" && role != "values") {
    return Invalid("attribute ", kRole, " is ", Quoted(role),
                   "; it must be \"keys\", \"values\" or empty");
  }
  const auto rank = static_cast<int>(type.shape.size());
  if (role.empty() ? rank < 1 : rank != 3) {
    return Invalid("is of shape ", ShapeToString(type.shape), "; a state",
                   role.empty() ? std::string(" has its slots on axis 0")
                                : Cat(" of ", role, " is [slots, heads, width]"));
  }
  for (int i = 1; i < rank; ++i) {
    if (type.shape[i].constant()) continue;
    return Invalid("axis ", i, " has size ", type.shape[i].ToString(),
                   "; only the number of a state's slots, axis 0, may vary");
  }
  return absl::OkStatus();
}

}  // namespace athanor
