#include "server/batch/request_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace athanor {
namespace {

// How much of what is known of a model's pace a run replaces.
constexpr double kNewShare = 0.1;
// Models that nobody asks for any more are forgotten all at once beyond this.
constexpr size_t kMostPaces = 4096;
constexpr double kLeastRatio = 1e-3, kMostRatio = 1e3;
constexpr std::chrono::milliseconds kLookAgain{20};

// Of lanes or lines, those that have had least first.
template <typename Map>
std::vector<typename Map::iterator> InTurn(Map& of) {
  std::vector<typename Map::iterator> order;
  for (auto it = of.begin(); it != of.end(); ++it) order.push_back(it);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a->second.start, a->first) < std::tie(b->second.start, b->first);
  });
  return order;
}

// Where one that comes back may start.
double StartOf(const std::map<std::string, double>& ends, const std::string& name, double now) {
  const auto end = ends.find(name);
  return end == ends.end() ? now : std::max(now, end->second);
}

// Puts ends of what is empty into `ends`, without those that no longer matter.
template <typename Map, typename Empty>
void MoveEnds(Map& of, std::map<std::string, double>& ends, double now, Empty empty) {
  for (auto it = of.begin(); it != of.end();) {
    if (!empty(it->second)) {
      ++it;
      continue;
    }
    ends[it->first] = it->second.start;
    it = of.erase(it);
  }
  std::erase_if(ends, [now](const auto& end) { return end.second <= now; });
}

}  // namespace

double RequestQueue::PaceOf(const std::string& model) const {
  const auto pace = paces_.find(model);
  return pace == paces_.end() ? 1 : pace->second.ratio;
}

double RequestQueue::Work(const std::string& model, const Lane& lane) const {
  return static_cast<double>(lane.predicted_us) * PaceOf(model);
}

absl::Status RequestQueue::HasRoom(const Ticket& ticket) const {
  const auto held = held_.find(ticket.model);
  if (held == held_.end()) return absl::OkStatus();
  const Held& all = held->second;
  const auto found = all.by_client.find(ticket.client);
  const int64_t own = found == all.by_client.end() ? 0 : found->second;
  const int64_t share =
      std::max<int64_t>(1, options_.max_queue * options_.max_client_percent / 100);
  // Room that nobody who has more can take.
  const int64_t most = options_.max_queue + (own < share ? share : 0);
  if (all.requests >= most) {
    return absl::ResourceExhaustedError(
        absl::StrCat(ticket.model, ": ", all.requests,
                     " requests wait already, the most allowed (--max_queue); try again later"));
  }
  if (own >= share && all.by_client.size() > 1) {
    return absl::ResourceExhaustedError(absl::StrCat(
        ticket.model, ": ", own, " requests of this client wait already, its share (",
        options_.max_client_percent,
        " %, --max_client_percent) of the queue that others wait in too; try again later"));
  }
  return absl::OkStatus();
}

// Of another model of the same priority no more runs before the ticket than has its own model.
double RequestQueue::Ahead(const Ticket& ticket) const {
  double ahead = 0;
  for (const auto& [priority, level] : levels_) {
    if (priority > ticket.priority) break;
    const auto mine = level.lanes.find(ticket.model);
    const double own = mine == level.lanes.end() ? 0 : Work(mine->first, mine->second);
    for (const auto& [model, lane] : level.lanes) {
      const bool shared = priority == ticket.priority && model != ticket.model;
      ahead += shared ? std::min(Work(model, lane), own) : Work(model, lane);
    }
  }
  return ahead;
}

absl::Status RequestQueue::Admit(const Ticket& ticket) {
  if (count_.load(std::memory_order_relaxed) == 0) return absl::OkStatus();
  MutexLock lock(mu_);
  if (absl::Status room = HasRoom(ticket); !room.ok()) return room;
  if (options_.max_delay.count() == 0) return absl::OkStatus();
  const double wait = Ahead(ticket) / options_.threads;
  const double allowed =
      std::max(static_cast<double>(options_.max_delay.count()),
               kMostRuns * static_cast<double>(ticket.predicted_us) * PaceOf(ticket.model));
  if (wait <= allowed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: the wait would be %.1f ms, more than the %.1f ms allowed (--max_queue_delay, or four "
      "runs where these are longer); try again later",
      ticket.model, wait / 1000, allowed / 1000));
}

ContextPool::Lease RequestQueue::TryNow(const Ticket& ticket, const ServedPlan& plan) {
  if (!ticket.group.empty() && options_.batch_delay.count() > 0) return {};
  if (count_.load(std::memory_order_relaxed) > 0) {
    MutexLock lock(mu_);
    if (held_.contains(ticket.model)) return {};
  }
  return plan.contexts->TryAcquire();
}

void RequestQueue::Push(std::shared_ptr<QueuedRequest> request) {
  const Ticket& ticket = request->ticket();
  const auto delay = ticket.group.empty() ? std::chrono::microseconds(0) : options_.batch_delay;
  {
    MutexLock lock(mu_);
    Level& level = levels_[ticket.priority];
    const auto [at, new_lane] = level.lanes.try_emplace(ticket.model);
    Lane& lane = at->second;
    if (new_lane) lane.start = StartOf(level.ends, ticket.model, level.now);
    const auto [line, new_line] = lane.lines.try_emplace(ticket.client);
    if (new_line) line->second.start = StartOf(lane.ends, ticket.client, lane.now);
    lane.predicted_us += ticket.predicted_us;
    Held& held = held_[ticket.model];
    ++held.requests;
    ++held.by_client[ticket.client];
    ++count_;
    line->second.entries.push_back({std::move(request), Clock::now() + delay});
  }
  changed_.NotifyOne();
}

void RequestQueue::Erase(Lane& lane, Line& line, std::list<Entry>::iterator entry) {
  const Ticket& ticket = entry->request->ticket();
  lane.predicted_us -= ticket.predicted_us;
  const auto held = held_.find(ticket.model);
  const auto own = held->second.by_client.find(ticket.client);
  if (--own->second == 0) held->second.by_client.erase(own);
  if (--held->second.requests == 0) held_.erase(held);
  --count_;
  line.entries.erase(entry);
}

void RequestQueue::Charge(Lane& lane, Line& line, const Ticket& ticket) {
  const double cost = static_cast<double>(ticket.predicted_us) * PaceOf(ticket.model);
  lane.start += cost;
  line.start += cost;
}

void RequestQueue::DropEmpty() {
  for (auto level = levels_.begin(); level != levels_.end();) {
    for (auto& [model, lane] : level->second.lanes) {
      MoveEnds(lane.lines, lane.ends, lane.now,
               [](const Line& line) { return line.entries.empty(); });
    }
    MoveEnds(level->second.lanes, level->second.ends, level->second.now,
             [](const Lane& lane) { return lane.lines.empty(); });
    // With nothing of it waiting, who had more and who less is forgotten.
    level = level->second.lanes.empty() ? levels_.erase(level) : std::next(level);
  }
}

void RequestQueue::Remove(const QueuedRequest& request) {
  const Ticket& ticket = request.ticket();
  std::shared_ptr<QueuedRequest> gone;  // may be the last that holds a model
  MutexLock lock(mu_);
  const auto level = levels_.find(ticket.priority);
  if (level == levels_.end()) return;
  const auto lane = level->second.lanes.find(ticket.model);
  if (lane == level->second.lanes.end()) return;
  const auto line = lane->second.lines.find(ticket.client);
  if (line == lane->second.lines.end()) return;
  std::list<Entry>& entries = line->second.entries;
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& e) { return e.request.get() == &request; });
  if (entry == entries.end()) return;
  gone = entry->request;
  Erase(lane->second, line->second, entry);
  DropEmpty();
  if (stopped_ && count_ == 0) changed_.NotifyAll();
}

bool RequestQueue::Waits(const Lane& lane, const Entry& entry, Clock::time_point now) const {
  const Ticket& ticket = entry.request->ticket();
  if (ticket.group.empty() || now >= entry.due) return false;
  int64_t rows = 0;
  for (const auto& [client, line] : lane.lines) {
    for (const Entry& other : line.entries) {
      if (other.request->ticket().group == ticket.group) rows += other.request->ticket().rows();
    }
  }
  return rows < ticket.batching->most_rows;
}

void RequestQueue::AddCompany(Lane& lane, Batch* batch) {
  const Ticket& first = batch->requests.front()->ticket();
  if (first.group.empty()) return;
  int64_t left = first.batching->most_rows - first.rows();
  for (bool added = true; added && left > 0;) {
    added = false;
    for (const auto& at : InTurn(lane.lines)) {
      Line& line = at->second;
      const auto fits = [&](const Entry& e) {
        const Ticket& ticket = e.request->ticket();
        return ticket.group == first.group && ticket.rows() <= left;
      };
      const auto entry = std::find_if(line.entries.begin(), line.entries.end(), fits);
      if (entry == line.entries.end()) continue;
      std::shared_ptr<QueuedRequest> request = entry->request;
      Erase(lane, line, entry);
      added = true;
      if (!request->Take()) {
        gone_.push_back(std::move(request));  // it has been answered
        break;
      }
      Charge(lane, line, request->ticket());
      left -= request->ticket().rows();
      batch->requests.push_back(std::move(request));
      break;
    }
  }
}

std::optional<Batch> RequestQueue::ChooseFrom(Level& level, Lane& lane, Clock::time_point now,
                                              Clock::time_point* again) {
  for (const auto& at : InTurn(lane.lines)) {
    Line& line = at->second;
    while (!line.entries.empty()) {
      const auto entry = line.entries.begin();
      if (Waits(lane, *entry, now)) {
        *again = std::min(*again, entry->due);
        break;
      }
      Batch batch;
      batch.plan = entry->request->plan();
      batch.lease = batch.plan->contexts->TryAcquire();
      if (!batch.lease) break;
      std::shared_ptr<QueuedRequest> request = entry->request;
      Erase(lane, line, entry);
      if (!request->Take()) {
        gone_.push_back(std::move(request));
        gone_plans_.push_back(std::move(batch.plan));
        continue;
      }
      level.now = std::max(level.now, lane.start);
      lane.now = std::max(lane.now, line.start);
      Charge(lane, line, request->ticket());
      batch.requests.push_back(std::move(request));
      AddCompany(lane, &batch);
      return batch;
    }
  }
  return std::nullopt;
}

std::optional<Batch> RequestQueue::Choose(Clock::time_point now, Clock::time_point* again) {
  for (auto& [priority, level] : levels_) {
    for (const auto& at : InTurn(level.lanes)) {
      std::optional<Batch> batch = ChooseFrom(level, at->second, now, again);
      if (!batch) continue;
      DropEmpty();
      return batch;
    }
  }
  DropEmpty();
  return std::nullopt;
}

std::optional<Batch> RequestQueue::Next() {
  // Their memory is given back without the lock.
  std::vector<std::shared_ptr<QueuedRequest>> gone;
  std::vector<std::shared_ptr<const ServedPlan>> gone_plans;
  MutexLock lock(mu_);
  for (;;) {
    Clock::time_point again = Clock::time_point::max();
    std::optional<Batch> batch = Choose(Clock::now(), &again);
    gone.swap(gone_);
    gone_plans.swap(gone_plans_);
    if (batch) {
      // Another may run beside it: it was pushed to a runner that this one has overtaken.
      if (count_ > 0) changed_.NotifyOne();
      return batch;
    }
    if (stopped_ && count_ == 0) {
      changed_.NotifyAll();
      return std::nullopt;
    }
    // A plan with free contexts may have taken the place of one without.
    if (count_ > 0) again = std::min<Clock::time_point>(again, Clock::now() + kLookAgain);
    if (again == Clock::time_point::max()) {
      changed_.Wait(lock);
    } else {
      changed_.WaitUntil(lock, again);
    }
  }
}

void RequestQueue::Ran(const std::string& model, int64_t predicted_us, Clock::duration took) {
  if (predicted_us > 0) {
    const double ratio =
        std::chrono::duration<double, std::micro>(took).count() / static_cast<double>(predicted_us);
    MutexLock lock(mu_);
    if (paces_.size() > kMostPaces) paces_.clear();
    Pace& pace = paces_[model];
    // The prediction itself counts as the first run.
    const double share = std::max(kNewShare, 1.0 / static_cast<double>(++pace.runs + 1));
    pace.ratio += share * (std::clamp(ratio, kLeastRatio, kMostRatio) - pace.ratio);
  }
  changed_.NotifyOne();
}

void RequestQueue::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  changed_.NotifyAll();
}

std::vector<RequestQueue::Waiting> RequestQueue::waiting() const {
  std::map<std::string, Waiting> found;
  MutexLock lock(mu_);
  for (const auto& [priority, level] : levels_) {
    for (const auto& [model, lane] : level.lanes) {
      Waiting& waiting = found[model];
      waiting.model = model;
      waiting.predicted_us += static_cast<int64_t>(Work(model, lane));
      for (const auto& [client, line] : lane.lines) {
        waiting.requests += static_cast<int64_t>(line.entries.size());
      }
    }
  }
  std::vector<Waiting> list;
  for (auto& [model, waiting] : found) list.push_back(std::move(waiting));
  return list;
}

}  // namespace athanor
