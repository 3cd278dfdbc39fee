#include "compiler/frontend/checkpoint/files/inert.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "compiler/ir/value/message.h"

namespace athanor::checkpoint {
namespace {

constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

// Returns the keys, each with a dot behind it, in order, without those that lie below another.
std::vector<std::string> Outermost(absl::Span<const std::string> ignore_keys) {
  std::set<std::string> sorted;
  for (const std::string& key : ignore_keys) sorted.insert(Cat(key, "."));
  std::vector<std::string> outermost;
  for (const std::string& key : sorted) {
    if (outermost.empty() || !key.starts_with(outermost.back())) outermost.push_back(key);
  }
  return outermost;
}

// Reports whether the key or an object that it is in is ignored. Only the last one not behind it
// can be: one between an object and a key in it would lie below the object.
bool Ignored(std::string_view key, const std::vector<std::string>& outermost) {
  const std::string below = Cat(key, ".");
  const auto behind = std::upper_bound(outermost.begin(), outermost.end(), below);
  return behind != outermost.begin() && below.starts_with(*std::prev(behind));
}

void RefuseUnless(std::string_view key, const std::string& text,
                  const std::vector<std::string_view>& values, KeyReader* read) {
  if (std::find(values.begin(), values.end(), text) != values.end()) return;
  std::string right;
  for (std::string_view value : values) right += Cat(right.empty() ? "" : " or ", value);
  read->Refuse(kUnimplemented, key, Cat("is ", Quoted(text), "; supported is ", right));
}

bool IsNamed(const InertRow& row, const KeysOwner& owner, std::string_view key) {
  if (row.format != owner.format || !owner.family.starts_with(row.family)) return false;
  std::string name(row.key);
  if (name.starts_with("$.")) name = Cat(owner.architecture, name.substr(1));
  if (!name.ends_with('*')) return key == name;
  name.pop_back();
  return key.starts_with(name);
}

}  // namespace

InertKey InertValuesIn(absl::Span<const InertRow> rows, const KeysOwner& owner,
                       std::string_view key) {
  const auto* row = std::find_if(rows.begin(), rows.end(),
                                 [&](const InertRow& each) { return IsNamed(each, owner, key); });
  if (row == rows.end()) return std::nullopt;
  std::vector<std::string_view> values;
  for (std::string_view rest = row->values; !rest.empty();) {
    const size_t end = std::min(rest.find('|'), rest.size());
    values.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return values;
}

void RefuseOthers(const Keys& keys, absl::Span<const std::string> ignore_keys,
                  const std::function<InertKey(std::string_view key)>& inert, KeyReader* read) {
  const std::vector<std::string> ignored = Outermost(ignore_keys);
  for (const auto& [key, value] : keys) {
    if (read->full()) return;
    if (read->WasRead(key) || Ignored(key, ignored)) continue;
    const InertKey values = inert(key);
    if (!values) {
      read->Refuse(kUnimplemented, key,
                   "is not supported; name it in ignore_keys if no number depends on it");
    } else if (!values->empty()) {
      RefuseUnless(key, TextOf(value), *values, read);
    }
  }
}

}  // namespace athanor::checkpoint
