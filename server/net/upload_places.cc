#include "server/net/upload_places.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr int kShareOfSpare = 10;

int64_t Milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

UploadPlaces::UploadPlaces(const UploadLimits& limits)
    : limits_(limits), shares_(limits.most, limits.peer_percent) {}

absl::StatusOr<UploadPlaces::PlacePtr> UploadPlaces::Take(const std::string& host, Leave leave,
                                                          Clock::time_point now) {
  PlacePtr leaves;
  auto place = std::make_shared<Place>();
  {
    MutexLock lock(mu_);
    const bool share_full = shares_.full(host);
    const bool full = static_cast<int64_t>(places_.size()) >= limits_.most;
    if (share_full || full) {
      leaves = WhoGivesWay(share_full ? &host : nullptr, now);
      if (leaves == nullptr && share_full && !full) {
        return absl::ResourceExhaustedError(
            absl::StrCat(shares_.share(), " uploads of ", host,
                         " are under way, the most that one peer may have", " of ", limits_.most,
                         " (--max_peer_percent, --max_uploads)"));
      }
      if (leaves == nullptr) {
        return absl::ResourceExhaustedError(
            absl::StrCat(limits_.most, " uploads are under way, the most allowed (--max_uploads)"));
      }
      leaves->state = Place::State::kEnded;
      Remove(leaves);
    }
    shares_.Take(host);
    place->host = host;
    place->leave = std::move(leave);
    place->begun = now;
    place->spare = limits_.idle;
    places_.insert(place);
  }
  if (leaves != nullptr) {
    leaves->leave(absl::ResourceExhaustedError(absl::StrCat(
        "the places for uploads are taken (--max_uploads, --max_peer_percent), and this upload, "
        "which waits for its client, gave its own to another; send faster, or try again later")));
  }
  return place;
}

void UploadPlaces::Drop(const PlacePtr& place) {
  MutexLock lock(mu_);
  Remove(place);
}

void UploadPlaces::Remove(const PlacePtr& place) {
  if (!std::exchange(place->held, false)) return;
  shares_.Drop(place->host);
  places_.erase(place);
}

UploadPlaces::Turn UploadPlaces::Wait(Place& place, Clock::time_point now) {
  MutexLock lock(mu_);
  place.state = Place::State::kAsks;
  place.waits_since = now;
  Turn turn{++place.turns, now + place.spare};
  if (limits_.longest > Clock::duration::zero()) {
    turn.until = std::min(turn.until, place.begun + limits_.longest);
  }
  return turn;
}

void UploadPlaces::Asked(Place& place, const Turn& turn) {
  MutexLock lock(mu_);
  const bool asks = place.turns == turn.number && place.state == Place::State::kAsks;
  if (asks) place.state = Place::State::kWaits;
}

bool UploadPlaces::Came(Place& place, int64_t bytes, Clock::time_point now) {
  MutexLock lock(mu_);
  if (place.state == Place::State::kEnded) return false;
  place.state = Place::State::kWorks;
  if (limits_.least_rate == 0) {
    place.spare = limits_.idle;
    return true;
  }
  const std::chrono::duration<double> earned(static_cast<double>(bytes) /
                                             static_cast<double>(limits_.least_rate));
  place.spare -= now - place.waits_since;
  // Casting more than `idle` would overflow.
  place.spare = earned >= limits_.idle
                    ? limits_.idle
                    : std::min(limits_.idle,
                               place.spare + std::chrono::duration_cast<Clock::duration>(earned));
  return true;
}

std::optional<absl::Status> UploadPlaces::Expire(Place& place, const Turn& turn,
                                                 Clock::time_point now) {
  MutexLock lock(mu_);
  if (place.turns != turn.number || place.state != Place::State::kWaits) return std::nullopt;
  place.state = Place::State::kEnded;
  const Clock::duration waited = now - place.waits_since;
  if (limits_.longest > Clock::duration::zero() && now - place.begun >= limits_.longest) {
    return absl::DeadlineExceededError(
        absl::StrCat("not done after ", Milliseconds(limits_.longest), " ms (--upload_time)"));
  }
  if (waited >= limits_.idle) {
    return absl::DeadlineExceededError(
        absl::StrCat("no whole message came for ", Milliseconds(limits_.idle),
                     " ms (--upload_idle); send smaller messages, or faster"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("fewer than ", limits_.least_rate,
                   " bytes a second came in whole messages (--upload_least_rate)"));
}

int64_t UploadPlaces::taken() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(places_.size());
}

UploadPlaces::Clock::duration UploadPlaces::SpentBy(const Place& place,
                                                    Clock::time_point now) const {
  if (place.state != Place::State::kWaits) return {};
  return limits_.idle - place.spare + (now - place.waits_since);
}

UploadPlaces::PlacePtr UploadPlaces::WhoGivesWay(const std::string* host,
                                                 Clock::time_point now) const {
  PlacePtr chosen;
  std::pair<int64_t, Clock::duration> most;  // places of its peer, time used up
  for (const PlacePtr& place : places_) {
    if (host != nullptr && place->host != *host) continue;
    const std::pair<int64_t, Clock::duration> is = {shares_.held(place->host),
                                                    SpentBy(*place, now)};
    if (is.second < limits_.idle / kShareOfSpare || (chosen != nullptr && is <= most)) continue;
    chosen = place;
    most = is;
  }
  return chosen;
}

}  // namespace athanor
