#include "server/generate/block_pool.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace athanor {

BlockPool::BlockPool(int32_t blocks) : references_(blocks), free_(blocks - 1) {
  std::iota(free_.begin(), free_.end(), 1);  // sorted, which is a heap
}

std::optional<int32_t> BlockPool::Take() {
  if (free_.empty()) return std::nullopt;
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const int32_t block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

bool BlockPool::Drop(int32_t block) {
  if (--references_[block] > 0) return false;
  free_.push_back(block);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
  return true;
}

absl::Status BlockPool::Check() const {
  std::vector<int32_t> found(references_.size());
  for (int32_t block : free_) {
    if (block <= 0 || block >= static_cast<int32_t>(references_.size())) {
      return absl::InternalError(absl::StrCat("block ", block, " is free, but is not the pool's"));
    }
    ++found[block];
  }
  for (size_t block = 1; block < references_.size(); ++block) {
    if (found[block] != (references_[block] == 0 ? 1 : 0)) {
      return absl::InternalError(absl::StrCat("block ", block, " has ", references_[block],
                                              " references and is free ", found[block], " times"));
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
