#include "server/batch/admission.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

// Notes in a refusal when to come again. Predictions alone bring nobody back at once.
absl::Status After(double microseconds, bool measured, absl::Status refusal) {
  constexpr double kMost = 1e9;
  const std::chrono::microseconds least =
      measured ? std::chrono::microseconds(1) : kUnmeasuredRetry;
  const auto after = static_cast<int64_t>(std::clamp(microseconds, 0.0, kMost));
  return WithRetryAfter(std::move(refusal), std::max(least, std::chrono::microseconds(after)));
}

}  // namespace

void Admission::Add(const Ticket& ticket) {
  Held& held = held_[ticket.model];
  ++held.requests;
  ++held.by_client[ticket.client];
}

void Admission::Remove(const Ticket& ticket) {
  const auto held = held_.find(ticket.model);
  const auto own = held->second.by_client.find(ticket.client);
  if (--own->second == 0) held->second.by_client.erase(own);
  if (--held->second.requests == 0) held_.erase(held);
}

absl::Status Admission::CheckWait(const Ticket& ticket, const Ahead& ahead, double cost) const {
  const double wait = ahead.all / options_.threads, apart = ahead.apart / options_.threads;
  const double most = static_cast<double>(options_.max_delay.count());
  const double runs = kMostRuns * cost;
  // A burst waits longer because others run in between, but not more of its own client's work is
  // queued than if it were alone.
  if (wait <= most || apart <= runs) return absl::OkStatus();
  const double allowed = std::max(most, runs);
  return After(
      wait - allowed, ahead.measured,
      absl::ResourceExhaustedError(absl::StrFormat("%s: the wait would be %.1f ms, more than the "
                                                   "%.1f ms allowed (--max_queue_delay, or four "
                                                   "runs where these are longer); try again later",
                                                   ticket.model, wait / 1000, allowed / 1000)));
}

absl::StatusOr<std::optional<std::string>> Admission::MakeRoom(const Ticket& ticket) const {
  const auto held = held_.find(ticket.model);
  if (held == held_.end()) return std::nullopt;
  const Held& all = held->second;
  const auto found = all.by_client.find(ticket.client);
  const int64_t own = found == all.by_client.end() ? 0 : found->second;
  const int64_t share =
      std::max<int64_t>(1, options_.max_queue * options_.max_client_percent / 100);
  if (own >= share && all.by_client.size() > 1) {
    return absl::ResourceExhaustedError(absl::StrCat(
        ticket.model, ": ", own, " requests of this client wait already, its share (",
        options_.max_client_percent,
        " %, --max_client_percent) of the queue that others wait in too; try again later"));
  }
  if (all.requests < options_.max_queue) return std::nullopt;
  const auto most = std::max_element(
      all.by_client.begin(), all.by_client.end(), [](const auto& a, const auto& b) {
        return std::tie(a.second, a.first) < std::tie(b.second, b.first);
      });
  // Evicts nothing for a client that would then have as many.
  if (most->second <= own + 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat(ticket.model, ": ", all.requests,
                     " requests wait already, the most allowed (--max_queue); try again later"));
  }
  return most->first;
}

absl::Status Admission::Later(absl::Status refusal, const Ahead& ahead) const {
  return After(ahead.all / options_.threads, ahead.measured, std::move(refusal));
}

absl::Status Admission::EvictedError(const std::string& model) const {
  return absl::ResourceExhaustedError(absl::StrCat(
      model, ": ", options_.max_queue,
      " requests wait, the most allowed (--max_queue); this client has most of them, and its "
      "newest was dropped to admit another client's; try again later"));
}

}  // namespace athanor
