#include "server/generate/schedule/block_pool.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr int64_t kGoneRemembered = 1024;

}  // namespace

BlockPool::BlockPool(int32_t blocks) : blocks_(blocks), blank_(blocks - 1) {
  std::iota(blank_.begin(), blank_.end(), 1);  // sorted, which is a heap
}

std::optional<int32_t> BlockPool::Find(const BlockKey& key) const {
  ++lookups_;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  return found->second;
}

std::optional<int32_t> BlockPool::Take() {
  if (blank_.empty()) Shed(1);
  if (blank_.empty()) return std::nullopt;
  std::pop_heap(blank_.begin(), blank_.end(), std::greater<>());
  const int32_t block = blank_.back();
  blank_.pop_back();
  blocks_[block].references = 1;
  return block;
}

void BlockPool::Share(int32_t block) {
  if (IsKept(block)) Unkeep(block);
  ++blocks_[block].references;
}

bool BlockPool::Drop(int32_t block) {
  if (--blocks_[block].references > 0) return false;
  if (blocks_[block].keyed) {
    Keep(block);
  } else {
    MakeBlank(block);
  }
  return true;
}

void BlockPool::Name(int32_t block, const BlockKey& key) {
  if (!by_key_.try_emplace(key, block).second) return;
  blocks_[block].keyed = true;
  blocks_[block].key = key;
}

void BlockPool::Unname(int32_t block) {
  if (blocks_[block].keyed) TakeKey(block);
}

std::vector<int32_t> BlockPool::Shed(int64_t most) {
  std::vector<int32_t> shed;
  while (static_cast<int64_t>(shed.size()) < most && kept_ > 0) {
    const int32_t block = blocks_[0].newer;
    Unkeep(block);
    TakeKey(block);
    MakeBlank(block);
    shed.push_back(block);
  }
  return shed;
}

void BlockPool::Forget() {
  Shed(kept_);
  for (const auto& [key, block] : by_key_) blocks_[block].keyed = false;
  by_key_.clear();
  gone_before_ = gone() + 1;
  gone_.clear();
}

std::optional<absl::Span<const int32_t>> BlockPool::GoneSince(int64_t since) const {
  if (since < gone_before_) return std::nullopt;
  return absl::MakeConstSpan(gone_).subspan(since - gone_before_);
}

void BlockPool::Keep(int32_t block) {
  const int32_t newest = blocks_[0].older;
  blocks_[block].older = newest;
  blocks_[block].newer = 0;
  blocks_[newest].newer = block;
  blocks_[0].older = block;
  ++kept_;
}

void BlockPool::Unkeep(int32_t block) {
  const Block& gone = blocks_[block];
  blocks_[gone.older].newer = gone.newer;
  blocks_[gone.newer].older = gone.older;
  --kept_;
}

void BlockPool::MakeBlank(int32_t block) {
  blank_.push_back(block);
  std::push_heap(blank_.begin(), blank_.end(), std::greater<>());
}

void BlockPool::TakeKey(int32_t block) {
  by_key_.erase(blocks_[block].key);
  blocks_[block].keyed = false;
  if (std::ssize(gone_) == 2 * kGoneRemembered) {
    gone_.erase(gone_.begin(), gone_.begin() + kGoneRemembered);
    gone_before_ += kGoneRemembered;
  }
  gone_.push_back(block);
}

absl::Status BlockPool::Check() const {
  std::vector<int32_t> found(blocks_.size());
  for (int32_t block : blank_) {
    if (block <= 0 || block >= static_cast<int32_t>(blocks_.size())) {
      return absl::InternalError(absl::StrCat("block ", block, " is free, but is not the pool's"));
    }
    if (blocks_[block].keyed) {
      return absl::InternalError(absl::StrCat("block ", block, " is blank, but has a key"));
    }
    ++found[block];
  }
  int64_t kept = 0;
  for (int32_t block = blocks_[0].newer; block != 0 && kept <= kept_;
       block = blocks_[block].newer) {
    ++found[block];
    ++kept;
  }
  if (kept != kept_) {
    return absl::InternalError(absl::StrCat(kept_, " blocks are kept; the list has ", kept));
  }
  int64_t keyed = 0;
  for (size_t block = 1; block < blocks_.size(); ++block) {
    const Block& one = blocks_[block];
    if (found[block] != (one.references == 0 ? 1 : 0)) {
      return absl::InternalError(absl::StrCat("block ", block, " has ", one.references,
                                              " references and is free ", found[block], " times"));
    }
    if (!one.keyed) continue;
    ++keyed;
    if (Find(one.key) != static_cast<int32_t>(block)) {
      return absl::InternalError(absl::StrCat("block ", block, " is not found by its key"));
    }
  }
  if (keyed == static_cast<int64_t>(by_key_.size())) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(keyed, " blocks have keys; by key there are ", by_key_.size()));
}

}  // namespace athanor
