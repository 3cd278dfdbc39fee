#include "server/batch/request_queue.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr std::chrono::milliseconds kLookAgain{20};

// Reports whether `a` has had more service than `b`; both are lanes or both are lines.
template <typename Iterator>
bool Later(const Iterator& a, const Iterator& b) {
  return std::tie(a->second.start, a->first) > std::tie(b->second.start, b->first);
}

// Iterates over lanes or lines, each once, the least served first. A heap: only those that are
// asked for get sorted.
template <typename Map>
class Turns {
 public:
  using Iterator = typename Map::iterator;

  explicit Turns(Map& of) {
    for (auto it = of.begin(); it != of.end(); ++it) heap_.push_back(it);
    std::make_heap(heap_.begin(), heap_.end(), &Later<Iterator>);
  }
  bool empty() const { return heap_.empty(); }
  Iterator Next() {
    std::pop_heap(heap_.begin(), heap_.end(), &Later<Iterator>);
    const Iterator next = heap_.back();
    heap_.pop_back();
    return next;
  }

 private:
  std::vector<Iterator> heap_;
};

// Removes empty entries, moves their start times to `ends`, and drops end times that have passed.
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

double RequestQueue::Ends::StartOf(const std::string& name, double now) const {
  const auto end = by_name.find(name);
  return end == by_name.end() ? now : std::max(now, end->second);
}

Admission::Ahead RequestQueue::AheadIn(const Lane& lane, const Ticket& ticket) const {
  const double pace = paces_.Of(ticket.model);
  const auto mine = lane.lines.find(ticket.client);
  const bool waits = mine != lane.lines.end();
  const double own = waits ? static_cast<double>(mine->second.predicted_us) * pace : 0;
  const double first = waits ? mine->second.start : lane.ends.StartOf(ticket.client, lane.now);
  Admission::Ahead ahead{own, own};
  for (const auto& [client, line] : lane.lines) {
    if (client == ticket.client) continue;
    const double work = static_cast<double>(line.predicted_us) * pace;
    const double turn = paces_.Cost(line.entries.front().request->ticket());
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
Admission::Ahead RequestQueue::AheadOf(const Ticket& ticket) const {
  Admission::Ahead ahead{.measured = paces_.Knows(ticket.model)};
  for (const auto& [priority, level] : levels_) {
    if (priority > ticket.priority) break;
    const bool before = priority < ticket.priority;
    const auto mine = level.lanes.find(ticket.model);
    Admission::Ahead own;
    if (!before && mine != level.lanes.end()) own = AheadIn(mine->second, ticket);
    ahead.all += own.all;
    ahead.apart += own.apart;
    for (const auto& [model, lane] : level.lanes) {
      if (!before && model == ticket.model) continue;
      const double work = static_cast<double>(lane.predicted_us) * paces_.Of(model);
      ahead.all += before ? work : std::min(work, own.all);
      ahead.apart += before ? work : std::min(work, own.apart);
    }
  }
  return ahead;
}

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

absl::Status RequestQueue::Admit(const Ticket& ticket) {
  if (count_.load(std::memory_order_relaxed) == 0) return absl::OkStatus();
  std::shared_ptr<QueuedRequest> evicted;
  absl::Status refusal;
  {
    MutexLock lock(mu_);
    if (options_.max_delay.count() > 0) {
      RETURN_IF_ERROR(admission_.CheckWait(ticket, AheadOf(ticket), paces_.Cost(ticket)));
    }
    absl::StatusOr<std::optional<std::string>> client = admission_.MakeRoom(ticket);
    if (!client.ok()) return admission_.Later(client.status(), AheadOf(ticket));
    if (client->has_value()) {
      evicted = EraseNewest(ticket.model, **client);
      refusal = admission_.Later(admission_.EvictedError(ticket.model), AheadOf(evicted->ticket()));
    }
  }
  if (evicted != nullptr && evicted->Take()) evicted->Refuse(refusal);
  return absl::OkStatus();
}

ContextPool::Lease RequestQueue::TryNow(const Ticket& ticket, const ServedPlan& plan) {
  const bool joins = !ticket.group.empty() && ticket.rows() < ticket.batching->most_rows;
  if (joins && options_.batch_delay.count() > 0) return {};
  if (!joins && count_.load(std::memory_order_relaxed) == 0) return plan.contexts->TryRun();
  MutexLock lock(mu_);
  if (admission_.waits(ticket.model) || (joins && paces_.Shares(ticket.model))) return {};
  ContextPool::Lease lease = plan.contexts->TryRun(joins);
  // Other models wait meanwhile: charge this run to its model too.
  if (const auto level = levels_.find(ticket.priority); lease && level != levels_.end()) {
    Level& l = level->second;
    l.ends.by_name[ticket.model] = l.ends.StartOf(ticket.model, l.now) + paces_.Cost(ticket);
  }
  return lease;
}

ContextPool::Lease RequestQueue::AwaitContext(const ServedPlan& plan) {
  changed_.NotifyOne();  // another runner may use a context that was given back for this
  MutexLock lock(mu_);
  for (;;) {
    if (ContextPool::Lease lease = plan.contexts->TryAcquire()) return lease;
    freed_.WaitUntil(lock, Clock::now() + kLookAgain);
  }
}

void RequestQueue::Push(std::shared_ptr<QueuedRequest> request) {
  const Ticket& ticket = request->ticket();
  {
    MutexLock lock(mu_);
    Level& level = levels_[ticket.priority];
    const auto [at, new_lane] = level.lanes.try_emplace(ticket.model);
    Lane& lane = at->second;
    if (new_lane) lane.start = level.ends.StartOf(ticket.model, level.now);
    const auto [line, new_line] = lane.lines.try_emplace(ticket.client);
    if (new_line) line->second.start = lane.ends.StartOf(ticket.client, lane.now);
    lane.predicted_us += ticket.predicted_us;
    line->second.predicted_us += ticket.predicted_us;
    if (!ticket.group.empty()) {
      Group& group = lane.groups[ticket.group];
      ++group.requests;
      group.rows += ticket.rows();
    }
    admission_.Add(ticket);
    ++count_;
    ++changes_;
    const Clock::time_point now = Clock::now();
    line->second.entries.push_back({std::move(request), now, DueOf(ticket, now)});
  }
  changed_.NotifyOne();
}

void RequestQueue::Erase(Lane& lane, Line& line, std::list<Entry>::iterator entry) {
  const Ticket& ticket = entry->request->ticket();
  lane.predicted_us -= ticket.predicted_us;
  line.predicted_us -= ticket.predicted_us;
  if (!ticket.group.empty()) {
    const auto group = lane.groups.find(ticket.group);
    group->second.rows -= ticket.rows();
    if (--group->second.requests == 0) lane.groups.erase(group);
  }
  admission_.Remove(ticket);
  --count_;
  line.entries.erase(entry);
}

void RequestQueue::DropEmpty() {
  for (auto level = levels_.begin(); level != levels_.end();) {
    for (auto& [model, lane] : level->second.lanes) {
      MoveEnds(lane.lines, lane.ends.by_name, lane.now,
               [](const Line& line) { return line.entries.empty(); });
    }
    MoveEnds(level->second.lanes, level->second.ends.by_name, level->second.now,
             [](const Lane& lane) { return lane.lines.empty(); });
    // A level without waiting requests forgets how much service each model has had.
    level = level->second.lanes.empty() ? levels_.erase(level) : std::next(level);
  }
}

void RequestQueue::Remove(const QueuedRequest& request) {
  const Ticket& ticket = request.ticket();
  // Released after the lock: it may hold the last reference to a model.
  std::shared_ptr<QueuedRequest> gone;
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

RequestQueue::Clock::time_point RequestQueue::DueOf(const Ticket& ticket,
                                                    Clock::time_point now) const {
  if (ticket.group.empty() || options_.batch_delay.count() == 0) return now;
  const auto run = std::chrono::microseconds(static_cast<int64_t>(paces_.Cost(ticket)));
  const Clock::duration spare = ticket.deadline - now - run;
  return now + std::clamp<Clock::duration>(spare / 2, {}, options_.batch_delay);
}

bool RequestQueue::Waits(const Lane& lane, const Entry& entry, Clock::time_point now) {
  const Ticket& ticket = entry.request->ticket();
  if (ticket.group.empty() || now >= entry.due) return false;
  return lane.groups.at(ticket.group).rows < ticket.batching->most_rows;
}

bool RequestQueue::TakeEntry(Lane& lane, Line& line, std::list<Entry>::iterator entry,
                             Taken* taken) {
  Entry out = *entry;
  Erase(lane, line, entry);
  if (!out.request->Take()) {
    gone_.requests.push_back(std::move(out.request));
    return false;
  }
  const double cost = paces_.Cost(out.request->ticket());
  lane.start += cost;
  line.start += cost;
  taken->push_back(std::move(out));
  return true;
}

int64_t RequestQueue::RowsOf(const Lane& lane, const Ticket& ticket) {
  if (ticket.group.empty()) return ticket.rows();
  return std::max(ticket.rows(),
                  std::min(lane.groups.at(ticket.group).rows, ticket.batching->most_rows));
}

bool RequestQueue::ChoosePlan(const QueuedRequest& request, int64_t rows, Batch* batch) {
  const Ticket& ticket = request.ticket();
  std::vector<int64_t> dims = ticket.dims;
  if (ticket.batching != nullptr) dims[ticket.batching->dim] = rows;
  std::shared_ptr<const ServedPlan> plan = request.plan(dims);
  if (plan == batch->plan) return true;
  batch->lease = {};
  if (batch->plan != nullptr) gone_.plans.push_back(std::move(batch->plan));
  batch->lease = plan->contexts->TryAcquire();
  batch->plan = std::move(plan);
  if (batch->lease) return true;
  gone_.plans.push_back(std::move(batch->plan));
  return false;
}

std::vector<RequestQueue::Place> RequestQueue::CompanyOf(Lane& lane, const Place& first) {
  std::vector<Place> company = {first};
  const Ticket& wanted = first.entry->request->ticket();
  if (wanted.group.empty()) return company;
  int64_t left = wanted.batching->most_rows - wanted.rows();
  const double pace = paces_.Of(wanted.model);
  struct Turn {
    double start;  // the line's start, after charging the requests chosen so far
    const std::string* client;
    Line* line;
    std::list<Entry>::iterator next;  // requests before it never fit
  };
  const auto later = [](const Turn& a, const Turn& b) {
    return std::tie(a.start, *a.client) > std::tie(b.start, *b.client);
  };
  const auto cost = [&](const Entry& entry) {
    return static_cast<double>(entry.request->ticket().predicted_us) * pace;
  };
  std::vector<Turn> turns;
  for (auto& [client, line] : lane.lines) {
    const double more = &line == first.line ? cost(*first.entry) : 0;
    turns.push_back({line.start + more, &client, &line, line.entries.begin()});
  }
  std::make_heap(turns.begin(), turns.end(), later);
  while (left > 0 && !turns.empty()) {
    std::pop_heap(turns.begin(), turns.end(), later);
    Turn& turn = turns.back();
    auto at = turn.next;
    const auto fits = [&](const std::list<Entry>::iterator& entry) {
      const Ticket& ticket = entry->request->ticket();
      return entry != first.entry && ticket.group == wanted.group && ticket.rows() <= left;
    };
    while (at != turn.line->entries.end() && !fits(at)) ++at;
    if (at == turn.line->entries.end()) {
      turns.pop_back();
      continue;
    }
    company.push_back({turn.line, at});
    left -= at->request->ticket().rows();
    turn.start += cost(*at);
    turn.next = std::next(at);
    std::push_heap(turns.begin(), turns.end(), later);
  }
  return company;
}

void RequestQueue::Fill(const Taken& taken, Clock::time_point now, Batch* batch) {
  Clock::time_point held = Clock::time_point::max();
  for (const Entry& entry : taken) held = std::min(held, entry.held);
  for (const Entry& entry : taken) {
    batch->requests.push_back(entry.request);
    if (held == Clock::time_point::max()) continue;
    batch->waited.push_back(
        std::chrono::duration_cast<std::chrono::microseconds>(now - std::max(entry.pushed, held)));
  }
}

std::optional<Batch> RequestQueue::ChooseFrom(Level& level, Lane& lane, Clock::time_point now,
                                              Clock::time_point* again) {
  for (Turns turns(lane.lines); !turns.empty();) {
    Line& line = turns.Next()->second;
    for (auto at = line.entries.begin(); at != line.entries.end();) {
      const auto entry = at++;
      if (!stopped_ && Waits(lane, *entry, now)) {
        entry->held = std::min(entry->held, now);
        *again = std::min(*again, entry->due);
        continue;
      }
      Batch batch;
      if (!ChoosePlan(*entry->request, RowsOf(lane, entry->request->ticket()), &batch)) break;
      const std::vector<Place> company = CompanyOf(lane, {&line, entry});
      int64_t rows = 0;
      for (const Place& place : company) rows += place.entry->request->ticket().rows();
      if (!ChoosePlan(*entry->request, rows, &batch)) break;
      Taken taken;
      const double lane_start = lane.start, line_start = line.start;
      for (const Place& place : company) TakeEntry(lane, *place.line, place.entry, &taken);
      if (taken.empty()) {
        gone_.plans.push_back(std::move(batch.plan));
        at = line.entries.begin();  // `at` may point to an erased entry
        continue;
      }
      level.now = std::max(level.now, lane_start);
      lane.now = std::max(lane.now, line_start);
      Fill(taken, now, &batch);
      return batch;
    }
  }
  return std::nullopt;
}

std::optional<Batch> RequestQueue::Choose(Clock::time_point now, Clock::time_point* again) {
  for (auto& [priority, level] : levels_) {
    for (Turns turns(level.lanes); !turns.empty();) {
      std::optional<Batch> batch = ChooseFrom(level, turns.Next()->second, now, again);
      if (!batch) continue;
      DropEmpty();
      return batch;
    }
  }
  DropEmpty();
  return std::nullopt;
}

std::optional<Batch> RequestQueue::Next() {
  Gone gone;
  MutexLock lock(mu_);
  for (;;) {
    Clock::time_point again = Clock::time_point::max();
    const int64_t seen = changes_;
    std::optional<Batch> batch = Choose(Clock::now(), &again);
    std::swap(gone, gone_);
    if (batch) {
      // Another call may run in parallel: its wake-up may have gone to a runner that this one
      // overtook.
      if (count_ > 0) changed_.NotifyOne();
      return batch;
    }
    if (stopped_ && count_ == 0) {
      changed_.NotifyAll();
      return std::nullopt;
    }
    if (!gone.empty()) {
      // Releases them before waiting, for an unknown time: a plan may be the last of its model.
      lock.Unlock();
      gone = {};
      lock.Lock();
      if (changes_ != seen) continue;
    }
    // A plan with free contexts may have replaced one without.
    if (count_ > 0) again = std::min<Clock::time_point>(again, Clock::now() + kLookAgain);
    if (again == Clock::time_point::max()) {
      changed_.Wait(lock);
    } else {
      changed_.WaitUntil(lock, again);
    }
  }
}

void RequestQueue::Ran(const std::string& model, int64_t predicted_us, Clock::duration took,
                       size_t requests) {
  if (predicted_us > 0) {
    MutexLock lock(mu_);
    paces_.Learn(model, predicted_us, took, requests);
  }
  ++changes_;
  if (count_ > 0) changed_.NotifyOne();
  freed_.NotifyAll();
}

void RequestQueue::Forget(const std::string& model) {
  MutexLock lock(mu_);
  paces_.Forget(model);
}

void RequestQueue::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    ++changes_;
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
      waiting.predicted_us +=
          static_cast<int64_t>(static_cast<double>(lane.predicted_us) * paces_.Of(model));
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
