// Limits the number of concurrent uploads and imports and ends those whose clients send too slowly.
// An upload starts with `idle` to spare. Waiting for its client uses this up; received data adds to
// it, a second for every `least_rate` bytes, up to `idle`. When all places are taken and a new
// upload wants one, an upload that has used up a tenth of `idle` is ended.
//
//   UploadPlaces places({.most = 16, .share = 12, .least_rate = 8192, .idle = 60s});
//   auto place = places.Take("10.0.0.7", leave, now);
//   const UploadPlaces::Turn turn = places.Wait(**place, now);
//   timer.At(turn.until, [=] { if (auto why = places.Expire(**place, turn, now)) ... });
//   ... start the read ...
//   places.Asked(**place, turn);
//   if (places.Came(**place, bytes, now)) ...          // else another upload has ended it
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
  int64_t peer_percent = 100;  // share of `most` that one peer may hold
  int64_t least_rate = 0;      // bytes per second; 0: any data makes up for all waiting
  std::chrono::steady_clock::duration idle = std::chrono::minutes(1);
  std::chrono::steady_clock::duration longest{};  // 0: no limit
};

class UploadPlaces {
 public:
  using Clock = std::chrono::steady_clock;
  // Ends the upload, which is waiting for its client. It gets no further call.
  using Leave = std::function<void(const absl::Status&)>;

  // An upload. Its members are guarded by the UploadPlaces' lock.
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

  // Takes a place. Returns RESOURCE_EXHAUSTED if all places are taken, or `host` has its share, and
  // no upload can be ended for it. `leave` is called at most once, from another upload's Take.
  absl::StatusOr<PlacePtr> Take(const std::string& host, Leave leave, Clock::time_point now);
  // Gives the place back at the end of the upload.
  void Drop(const PlacePtr& place);

  // A single wait of an upload for its client.
  struct Turn {
    int64_t number = 0;
    Clock::time_point until;
  };
  // Begins a wait. Nobody ends the upload before Asked: until then a message may have arrived
  // already.
  Turn Wait(Place& place, Clock::time_point now);
  void Asked(Place& place, const Turn& turn);
  // Records that the client has sent `bytes`. Returns false if the upload was ended before that.
  bool Came(Place& place, int64_t bytes, Clock::time_point now);
  // Ends the upload if `turn` is still waiting. Returns why the upload has waited too long.
  std::optional<absl::Status> Expire(Place& place, const Turn& turn, Clock::time_point now);

  int64_t taken() const;

 private:
  Clock::duration SpentBy(const Place& place, Clock::time_point now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the upload to end for a new one, null if there is none: one of `host`, or, if `host` is
  // null, one of the peer that holds most.
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
