// Decides which requests may wait, and which make room for others.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/batch/request_queue.h"

namespace athanor {

std::shared_ptr<QueuedRequest> RequestQueue::EraseNewest(const std::string& model,
                                                         const std::string& client) {
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    const auto lane = level->second.lanes.find(model);
    if (lane == level->second.lanes.end()) continue;
    const auto line = lane->second.lines.find(client);
    if (line == lane->second.lines.end()) continue;
    const auto entry = std::prev(line->second.entries.end());
    std::shared_ptr<QueuedRequest> newest = entry->request;
    Erase(lane->second, line->second, entry);
    DropEmpty();
    return newest;
  }
  return nullptr;
}

absl::Status RequestQueue::MakeRoom(const Ticket& ticket, std::shared_ptr<QueuedRequest>* evicted) {
  const auto held = held_.find(ticket.model);
  if (held == held_.end()) return absl::OkStatus();
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
  if (all.requests < options_.max_queue) return absl::OkStatus();
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
  const std::string client = most->first;
  *evicted = EraseNewest(ticket.model, client);
  return absl::OkStatus();
}

RequestQueue::Ahead RequestQueue::AheadIn(const Lane& lane, const Ticket& ticket) const {
  const double pace = PaceOf(ticket.model);
  const auto mine = lane.lines.find(ticket.client);
  const bool waits = mine != lane.lines.end();
  const double own = waits ? static_cast<double>(mine->second.predicted_us) * pace : 0;
  const double first = waits ? mine->second.start : StartOf(lane.ends, ticket.client, lane.now);
  Ahead ahead{own, own};
  for (const auto& [client, line] : lane.lines) {
    if (client == ticket.client) continue;
    const double work = static_cast<double>(line.predicted_us) * pace;
    const double turn = Cost(line.entries.front().request->ticket());
    // Returns the other client's work that goes before virtual time `start`.
    const auto until = [&](double start) {
      return line.start > start ? 0 : std::min(work, start - line.start + turn);
    };
    ahead.all += until(first + own);
    ahead.apart += until(first);
  }
  return ahead;
}

// Fair queueing: before the ticket, another model of the same priority runs at most as much work as
// the ticket's own model.
RequestQueue::Ahead RequestQueue::AheadOf(const Ticket& ticket) const {
  Ahead ahead;
  for (const auto& [priority, level] : levels_) {
    if (priority > ticket.priority) break;
    const bool before = priority < ticket.priority;
    const auto mine = level.lanes.find(ticket.model);
    Ahead own;
    if (!before && mine != level.lanes.end()) own = AheadIn(mine->second, ticket);
    ahead.all += own.all;
    ahead.apart += own.apart;
    for (const auto& [model, lane] : level.lanes) {
      if (!before && model == ticket.model) continue;
      const double work = Work(model, lane);
      ahead.all += before ? work : std::min(work, own.all);
      ahead.apart += before ? work : std::min(work, own.apart);
    }
  }
  return ahead;
}

absl::Status RequestQueue::IsSoon(const Ticket& ticket) const {
  if (options_.max_delay.count() == 0) return absl::OkStatus();
  const Ahead ahead = AheadOf(ticket);
  const double wait = ahead.all / options_.threads, apart = ahead.apart / options_.threads;
  const double most = static_cast<double>(options_.max_delay.count());
  const double runs = kMostRuns * Cost(ticket);
  // A burst waits longer because others run in between, but not more of its own client's work is
  // queued than if it were alone.
  if (wait <= most || apart <= runs) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: the wait would be %.1f ms, more than the %.1f ms allowed (--max_queue_delay, or four "
      "runs where these are longer); try again later",
      ticket.model, wait / 1000, std::max(most, runs) / 1000));
}

absl::Status RequestQueue::Admit(const Ticket& ticket) {
  if (count_.load(std::memory_order_relaxed) == 0) return absl::OkStatus();
  std::shared_ptr<QueuedRequest> evicted;
  {
    MutexLock lock(mu_);
    RETURN_IF_ERROR(IsSoon(ticket));
    RETURN_IF_ERROR(MakeRoom(ticket, &evicted));
  }
  if (evicted != nullptr && evicted->Take()) {
    evicted->Refuse(absl::ResourceExhaustedError(absl::StrCat(
        ticket.model, ": ", options_.max_queue,
        " requests wait, the most allowed (--max_queue); this client has most of them, and its "
        "newest was dropped to admit another client's; try again later")));
  }
  return absl::OkStatus();
}

}  // namespace athanor
