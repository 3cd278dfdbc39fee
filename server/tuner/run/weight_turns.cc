#include "server/tuner/run/weight_turns.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

// Returns each parameter's kind: its type and the operands that read it.
std::vector<std::string> Kinds(const Graph& graph, const std::vector<NodeId>& ids) {
  std::map<NodeId, std::set<std::string>> readers;
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      readers[node.inputs[i]].insert(absl::StrCat(std::string(OpName(node.op)), ".", i));
    }
  }
  std::vector<std::string> kinds;
  for (NodeId id : ids) {
    std::string kind = TypeToString(graph.node(id).type);
    for (const std::string& reader : readers[id]) absl::StrAppend(&kind, " ", reader);
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

struct Kind {
  int64_t bytes = 0;  // bytes of one parameter
  std::vector<int> members;
};

int64_t BytesHeld(const std::map<std::string, Kind>& kinds, int64_t turns) {
  int64_t held = 0;
  for (const auto& [name, kind] : kinds) {
    held += kind.bytes * std::min(turns, static_cast<int64_t>(kind.members.size()));
  }
  return held;
}

// Returns the bytes of a type with constant sizes; 0 for others.
int64_t BytesOf(const TensorType& type) {
  int64_t bytes = DTypeBytes(type.dtype);
  for (const Expr& size : type.shape) {
    if (__builtin_mul_overflow(bytes, size.constant().value_or(0), &bytes)) return 0;
  }
  return bytes;
}

}  // namespace

std::vector<int> WeightTurns(const Graph& graph, int64_t most) {
  const std::vector<NodeId> ids = graph.ParameterIds();
  const std::vector<std::string> names = Kinds(graph, ids);
  std::map<std::string, Kind> kinds;
  int64_t longest = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    Kind& kind = kinds[names[i]];
    kind.bytes = BytesOf(graph.node(ids[i]).type);
    kind.members.push_back(static_cast<int>(i));
    longest = std::max(longest, static_cast<int64_t>(kind.members.size()));
  }
  int64_t turns = longest;
  while (turns > 2 && BytesHeld(kinds, turns) > most) --turns;
  std::vector<int> first(ids.size());
  for (const auto& [name, kind] : kinds) {
    for (size_t k = 0; k < kind.members.size(); ++k) {
      first[kind.members[k]] = kind.members[k % static_cast<size_t>(turns)];
    }
  }
  return first;
}

bool AreShared(const std::vector<int>& turns) {
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i] != static_cast<int>(i)) return true;
  }
  return false;
}

std::string WeightName(int set, int turn) { return absl::StrCat("weights ", set, " ", turn); }

absl::StatusOr<RepeatedBytes> RepeatedInput(const DrawnInput& input) {
  std::vector<int64_t> strides;
  int64_t bytes = DTypeBytes(input.drawn.dtype);
  for (size_t axis = input.shape.size(); axis-- > 0;) {
    strides.push_back(bytes);
    if (__builtin_mul_overflow(bytes, input.shape[axis], &bytes)) {
      return absl::ResourceExhaustedError("an input has too many bytes");
    }
  }
  return RepeatedBytes::Create(bytes, strides, input.drawn.bytes);
}

}  // namespace athanor
