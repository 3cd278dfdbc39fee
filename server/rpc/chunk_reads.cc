#include "server/rpc/chunk_reads.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr std::chrono::milliseconds kLookAgain{100};

}  // namespace

void ChunkReads::Begin() {
  absl::Status admitted = admission_.status();
  if (admitted.ok()) {
    const std::string& name = admission_.caller().name();
    auto place = core_.upload_places().Take(
        name.empty() ? PeerOfCall(context_->peer()).host : name,
        [this](const absl::Status& why) { GiveUp(why); }, UploadPlaces::Clock::now());
    if (place.ok()) {
      place_ = *std::move(place);
      return Read();
    }
    core_.metrics().server().Count(Metric::kRefusals, Refusal::kUploads);
    admitted = place.status();
  }
  End(admitted);
}

void ChunkReads::OnReadDone(bool ok) {
  const auto bytes = ok ? static_cast<int64_t>(bytes_.Length()) : 0;
  // On false the upload has been ended: it was too slow, or another upload took its place.
  if (!core_.upload_places().Came(*place_, bytes, UploadPlaces::Clock::now())) return;
  core_.timer().Cancel(timer_);
  queue_.Submit([this, ok] { Work(ok); });
}

void ChunkReads::Read() {
  const Timer::Clock::time_point now = Timer::Clock::now();
  const auto bytes = static_cast<int64_t>(bytes_.Length());
  ReadAt(now +
         std::max(core_.upload_rate().Take(bytes, now), admission_.caller().TakeUpload(bytes)));
}

void ChunkReads::FinishUpload(const grpc::Status& status) {
  if (place_ != nullptr) core_.upload_places().Drop(place_);
  Finish(status);
}

// A pause ends early when the call is cancelled: the read then ends the call.
void ChunkReads::ReadAt(Timer::Clock::time_point when) {
  const Timer::Clock::time_point now = Timer::Clock::now();
  if (now >= when || context_->IsCancelled()) return ReadNow();
  core_.timer().At(std::min(when, now + kLookAgain), [this, when] { ReadAt(when); });
}

void ChunkReads::ReadNow() {
  UploadPlaces& places = core_.upload_places();
  Timer& timer = core_.timer();
  const UploadPlaces::PlacePtr place = place_;
  const UploadPlaces::Turn turn = places.Wait(*place, Timer::Clock::now());
  // The call exists as long as the wait lasts.
  const auto expire = [this, &places, place, turn] {
    const auto why = places.Expire(*place, turn, Timer::Clock::now());
    if (why.has_value()) GiveUp(*why);
  };
  timer_ = timer.At(turn.until, expire);
  StartRead(&bytes_);
  // From here on the call may have ended.
  places.Asked(*place, turn);
  if (Timer::Clock::now() >= turn.until) timer.At(turn.until, expire);
}

void ChunkReads::GiveUp(const absl::Status& why) {
  End(absl::Status(why.code(), absl::StrCat(what_, ": ", why.message(), WhatIsMissing())));
}

}  // namespace athanor
