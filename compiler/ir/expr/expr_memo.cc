#include "compiler/ir/expr/expr_memo.h"

#include <memory>

#include "absl/hash/hash.h"
#include "compiler/ir/expr/expr_internal.h"

namespace athanor {

namespace {

thread_local BoundsMemo* memo_of_thread = nullptr;

size_t TextBytes(const Expr& e) {
  size_t bytes = 0;
  for (const Expr::Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) bytes += atom->key.size();
  }
  return bytes;
}

}  // namespace

BoundsMemory::BoundsMemory() : memo_(std::make_unique<BoundsMemo>()) {}

BoundsMemory::~BoundsMemory() = default;

RememberBounds::RememberBounds(const BoundsMemory& memory) : outermost_(memo_of_thread == nullptr) {
  if (outermost_) memo_of_thread = memory.memo_.get();
}

RememberBounds::~RememberBounds() {
  if (outermost_) memo_of_thread = nullptr;
}

BoundsMemo* BoundsMemo::OfThread() { return memo_of_thread; }

BoundsMemo::Key::Key(const Bounds& bounds, const Expr& e) : e(e), hash(expr_internal::HashOf(e)) {
  // Ranges may use symbols whose ranges came before them: looks again until no further one is used.
  uint64_t uses = expr_internal::UsesOf(e), before = 0;
  while (uses != before) {
    before = uses;
    for (const auto& [symbol, range] : bounds.ranges_) {
      if (uses & range.symbol) uses |= range.uses;
    }
  }
  for (const auto& range : bounds.ranges_) {
    if (!(uses & range.second.symbol)) continue;
    ranges.push_back(&range);
    hash = absl::HashOf(hash, range.second.hash);
  }
}

bool BoundsMemo::Key::Is(const Entry& entry) const {
  if (entry.ranges.size() != ranges.size() || !(entry.e == e)) return false;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& [symbol, range] = entry.ranges[i];
    if (symbol != ranges[i]->first || !(range.lower == ranges[i]->second.lower) ||
        !(range.upper == ranges[i]->second.upper)) {
      return false;
    }
  }
  return true;
}

BoundsMemo::Entry* BoundsMemo::Find(const Key& key) {
  const auto found = entries_.find(key.hash);
  return found != entries_.end() && key.Is(found->second) ? &found->second : nullptr;
}

BoundsMemo::Entry& BoundsMemo::At(const Key& key) {
  if (Entry* entry = Find(key)) return *entry;
  size_t bytes = TextBytes(key.e);
  for (const auto* range : key.ranges) {
    bytes += TextBytes(range->second.lower) + TextBytes(range->second.upper);
  }
  if (entries_.size() >= kMost || bytes_ + bytes > kMostBytes) {
    entries_.clear();
    bytes_ = 0;
  }
  bytes_ += bytes;
  Entry& entry = entries_[key.hash];
  entry = {.e = key.e};
  for (const auto* range : key.ranges) entry.ranges.emplace_back(range->first, range->second);
  return entry;
}

Expr BoundsMemo::Simplify(const Bounds& bounds, const Expr& e) {
  const Key key(bounds, e);
  if (const Entry* entry = Find(key); entry != nullptr && entry->simple) return *entry->simple;
  Expr simple = bounds.DecideSimplest(e);  // asks the memo itself
  At(key).simple = simple;
  return simple;
}

bool BoundsMemo::Proves(const Bounds& bounds, const Expr& e, Bounds::Search search) {
  const auto of = static_cast<size_t>(search);
  const Key key(bounds, e);
  if (const Entry* entry = Find(key); entry != nullptr && entry->proves[of]) {
    return *entry->proves[of];
  }
  const bool proves = bounds.TryToProve(e, search);
  At(key).proves[of] = proves;
  return proves;
}

bool BoundsMemo::NonNegative(const Bounds& bounds, const Expr& e) {
  const Key key(bounds, e);
  if (const Entry* entry = Find(key); entry != nullptr && entry->non_negative) {
    return *entry->non_negative;
  }
  const bool non_negative = bounds.DecideNonNegative(e);
  At(key).non_negative = non_negative;
  return non_negative;
}

}  // namespace athanor
