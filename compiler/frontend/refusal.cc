#include "compiler/frontend/refusal.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr size_t kMostNames = 8;  // number of a group's nodes that are named

// Nodes that are refused for the same reason.
struct Group {
  std::string op;  // "Softmax-13", or empty
  std::string reason;
  std::vector<const ImportRefusal*> nodes;
};

std::string OpText(const ImportRefusal& refusal) {
  if (refusal.op.empty()) return "";
  std::string text;
  if (!refusal.domain.empty()) text = Cat(refusal.domain, ".");
  text += refusal.op;
  if (refusal.version > 0) text += Cat("-", refusal.version);
  return text;
}

std::vector<Group> GroupsOf(absl::Span<const ImportRefusal> refusals) {
  std::vector<Group> groups;
  std::map<std::pair<std::string, std::string>, size_t> by_key;
  for (const ImportRefusal& refusal : refusals) {
    std::string op = OpText(refusal);
    auto [it, added] = by_key.emplace(std::pair(op, refusal.reason), groups.size());
    if (added) groups.push_back({std::move(op), refusal.reason, {}});
    groups[it->second].nodes.push_back(&refusal);
  }
  return groups;
}

std::string Cut(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t end = bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return Cat(text.substr(0, end), "...");
}

std::string GroupText(const Group& group, size_t names, size_t reason_bytes) {
  std::string text = group.op;
  std::string nodes;
  size_t shown = 0;
  for (const ImportRefusal* refusal : group.nodes) {
    if (refusal->node.empty() || shown == names) continue;
    nodes += Cat(shown == 0 ? "" : ", ", Quoted(refusal->node));
    ++shown;
  }
  if (shown > 0 && shown < group.nodes.size()) {
    nodes += Cat(" and ", group.nodes.size() - shown, " more");
  }
  if (shown > 0) text += Cat(text.empty() ? "(" : " (", nodes, ")");
  if (reason_bytes == 0) return text;
  return Cat(text, text.empty() ? "" : ": ", Cut(group.reason, reason_bytes));
}

std::string Text(absl::Span<const Group> groups, size_t count, size_t names, size_t reason_bytes) {
  std::string text;
  if (count > 1) {
    text = Cat(count, count == groups.size() ? " refusals: "
                                             : Cat(" refusals of ", groups.size(), " kinds: "));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    text += Cat(i == 0 ? "" : "; ", GroupText(groups[i], names, reason_bytes));
  }
  return text;
}

}  // namespace

void AddRefusal(ImportRefusal refusal, std::vector<ImportRefusal>* refusals) {
  if (refusals->size() < kMostRefusals) {
    refusals->push_back(std::move(refusal));
    return;
  }
  if (refusals->size() == kMostRefusals) {
    refusals->emplace_back().reason =
        Cat("others are refused too; the first ", kMostRefusals, " are named");
  }
  if (refusal.code == absl::StatusCode::kInvalidArgument) refusals->back().code = refusal.code;
}

absl::Status ToStatus(absl::Span<const ImportRefusal> refusals, size_t bytes) {
  if (refusals.empty()) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kUnimplemented;
  for (absl::StatusCode first :
       {absl::StatusCode::kResourceExhausted, absl::StatusCode::kInvalidArgument}) {
    if (std::any_of(refusals.begin(), refusals.end(),
                    [&](const ImportRefusal& refusal) { return refusal.code == first; })) {
      code = first;
    }
  }
  const std::vector<Group> groups = GroupsOf(refusals);
  std::string text;
  // Shortens first the lists of nodes, then the reasons.
  for (auto [names, reason] : {std::pair<size_t, size_t>{kMostNames, 4096},
                               {3, 4096},
                               {1, 4096},
                               {1, 400},
                               {1, 200},
                               {1, 100},
                               {1, 50},
                               {0, 50},
                               {0, 0}}) {
    text = Text(groups, refusals.size(), names, reason);
    if (text.size() <= bytes) break;
  }
  if (text.size() > bytes) {  // only the ops, each once
    std::set<std::string> ops;
    for (const Group& group : groups) ops.insert(group.op);
    text = Cat(refusals.size(), " refusals of ", groups.size(), " kinds:");
    for (const std::string& op : ops) text += Cat(" ", op);
  }
  if (text.size() > bytes) text = Cut(text, bytes > 3 ? bytes - 3 : 0);
  return absl::Status(code, text);
}

}  // namespace athanor
