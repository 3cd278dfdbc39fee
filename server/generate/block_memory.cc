#include "server/generate/block_memory.h"

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::Status BlockMemory::Use(int32_t block) {
  used_[block] = true;
  if (committed_[block]) return absl::OkStatus();
  RETURN_IF_ERROR(runner_->Commit(block));
  committed_[block] = true;
  if (++count_ == 1) next_look_ = SequenceTime();  // as soon as the caller has the time
  return absl::OkStatus();
}

void BlockMemory::Look(const std::vector<bool>& in_use, SequenceTime now) {
  chosen_.clear();
  for (auto block = static_cast<int32_t>(committed_.size()) - 1; block > 0; --block) {
    if (committed_[block] && !used_[block] && !in_use[block]) chosen_.push_back(block);
  }
  used_ = in_use;
  next_look_ = count_ == 0 ? SequenceTime::max() : now + kKeep;
}

void BlockMemory::GiveBack(int64_t most) {
  for (; most > 0 && !chosen_.empty(); --most) {
    const int32_t block = chosen_.back();
    chosen_.pop_back();
    if (!used_[block]) GiveBackNow(block);
  }
}

int64_t BlockMemory::GiveBackUnused(const std::vector<bool>& in_use, int64_t most) {
  int64_t given = 0;
  for (auto block = static_cast<int32_t>(committed_.size()) - 1; block > 0 && given < most;
       --block) {
    if (!in_use[block] && GiveBackNow(block)) ++given;
  }
  return given;
}

bool BlockMemory::GiveBackNow(int32_t block) {
  if (!committed_[block]) return false;
  runner_->Decommit(block);
  committed_[block] = false;
  --count_;
  return true;
}

}  // namespace athanor
