// The places of uploads and imports, and how long each may keep its place: no longer than its
// client sends. An upload begins with `idle` to spare; waiting for its client takes from that, what
// comes adds to it, a second for every `least_rate` bytes, up to `idle` again. Who has spent a
// tenth of it gives way where all places are taken and another wants one.
//
//   UploadPlaces places({.most = 16, .share = 12, .least_rate = 8192, .idle = 60s});
//   auto place = places.Take("10.0.0.7", leave, now);
//   const UploadPlaces::Turn turn = places.Wait(**place, now);
//   timer.At(turn.until, [=] { if (auto why = places.Expire(**place, turn, now)) ... });
//   ... ask for what comes next ...
//   places.Asked(**place, turn);
//   if (places.Came(**place, bytes, now)) ...          // else another has ended it
//
// Thread-safe.
#ifndef ATHANOR_SERVER_NET_UPLOAD_PLACES_H_
#define ATHANOR_SERVER_NET_UPLOAD_PLACES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/net/peers.h"

namespace athanor {

struct UploadLimits {
  int64_t most = 1;
  int64_t peer_percent = 100;  // of them, that one peer may hold
  int64_t least_rate = 0;      // bytes a second; 0: whatever comes makes up for all waiting
  std::chrono::steady_clock::duration idle = std::chrono::minutes(1);
  std::chrono::steady_clock::duration longest{};  // 0: no end
};

class UploadPlaces {
 public:
  using Clock = std::chrono::steady_clock;
  // Ends the upload, which waits for its client and is told nothing else from here on.
  using Leave = std::function<void(const absl::Status&)>;

  // One upload. What is in it is guarded by the places' lock.
  class Place {
   private:
    friend class UploadPlaces;
    enum class State : uint8_t { kWorks, kAsks, kWaits, kEnded };
    std::string host;
    Leave leave;
    Clock::time_point begun;
    Clock::duration spare{};
    State state = State::kWorks;
    Clock::time_point waits_since;
    int64_t turns = 0;
    bool held = true;
  };
  using PlacePtr = std::shared_ptr<Place>;

  explicit UploadPlaces(const UploadLimits& limits);

  // RESOURCE_EXHAUSTED: all places are taken, or `host` has its share, and none gives way. `leave`
  // is called at most once, by another's Take.
  absl::StatusOr<PlacePtr> Take(const std::string& host, Leave leave, Clock::time_point now);
  // The end of the upload.
  void Drop(const PlacePtr& place);

  // One wait of an upload for its client.
  struct Turn {
    int64_t number = 0;
    Clock::time_point until;
  };
  // The wait begins. Nobody ends it before Asked, until when something may have come already.
  Turn Wait(Place& place, Clock::time_point now);
  void Asked(Place& place, const Turn& turn);
  // Its client has sent `bytes`. False: the wait was ended before, and with it the upload.
  bool Came(Place& place, int64_t bytes, Clock::time_point now);
  // Why it has waited too long, if the turn has lasted until its end.
  std::optional<absl::Status> Expire(Place& place, const Turn& turn, Clock::time_point now);

  int64_t taken() const;

 private:
  Clock::duration SpentBy(const Place& place, Clock::time_point now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: none. Of `host` alone, or of whoever holds most.
  PlacePtr WhoGivesWay(const std::string* host, Clock::time_point now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remove(const PlacePtr& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const UploadLimits limits_;
  PeerShares shares_;
  mutable Mutex mu_;
  absl::flat_hash_set<PlacePtr> places_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_UPLOAD_PLACES_H_
