#include "server/rpc/chunk_reads.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr std::chrono::milliseconds kLookAgain{100};

}  // namespace

void ChunkReads::Begin() {
  absl::Status admitted = slot_.status();
  if (core_.uploads().fetch_add(1) >= core_.options().max_uploads && admitted.ok()) {
    core_.metrics().server().Count(Metric::kRefusals, Refusal::kUploads);
    admitted = absl::ResourceExhaustedError(absl::StrCat(
        core_.options().max_uploads, " uploads are under way, the most allowed (--max_uploads)"));
  }
  admitted.ok() ? Read() : End(admitted);
}

void ChunkReads::OnReadDone(bool ok) {
  if (!StopIdleTimer()) return;  // the timer ends the call
  queue_.Submit([this, ok] { Work(ok); });
}

void ChunkReads::Read() {
  const Timer::Clock::time_point now = Timer::Clock::now();
  ReadAt(now + core_.upload_rate().Take(static_cast<int64_t>(bytes_.Length()), now));
}

void ChunkReads::FinishUpload(const grpc::Status& status) {
  core_.uploads().fetch_sub(1);
  Finish(status);
}

// A pause is cut short when the call is cancelled: reading ends it.
void ChunkReads::ReadAt(Timer::Clock::time_point when) {
  const Timer::Clock::time_point now = Timer::Clock::now();
  if (now >= when || context_->IsCancelled()) return ReadNow();
  core_.timer().At(std::min(when, now + kLookAgain), [this, when] { ReadAt(when); });
}

void ChunkReads::ReadNow() {
  idle_ = std::make_shared<Idle>();
  timer_ = core_.timer().At(
      Timer::Clock::now() + std::chrono::milliseconds(core_.options().upload_idle_ms),
      [this, idle = idle_] {
        if (idle->decided.exchange(true)) return;
        End(absl::DeadlineExceededError(absl::StrCat(what_, ": nothing came for ",
                                                     core_.options().upload_idle_ms,
                                                     " ms (--upload_idle)", WhatIsMissing())));
      });
  StartRead(&bytes_);
}

bool ChunkReads::StopIdleTimer() {
  const bool first = !idle_->decided.exchange(true);
  if (first) core_.timer().Cancel(timer_);
  return first;
}

}  // namespace athanor
