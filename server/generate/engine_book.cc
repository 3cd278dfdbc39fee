#include "server/generate/engine_book.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/base/retry_after.h"

namespace athanor {

EngineBook::EngineBook(const EngineOptions& options)
    : metrics_(options.metrics),
      block_bytes_(options.block_bytes),
      pool_(options.blocks),
      scheduler_(options.scheduler, &pool_) {}

SequenceId EngineBook::NewId() {
  MutexLock lock(mu_);
  return ++last_id_;
}

void EngineBook::Tell() {
  news_ = true;
  told_.NotifyOne();
}

absl::Status EngineBook::Add(SequenceId id, SequenceRequest request, std::unique_ptr<Reply> reply,
                             SequenceTime now) {
  MutexLock lock(mu_);
  if (closed_.has_value()) return *closed_;
  if (absl::Status s = scheduler_.Add(id, std::move(request)); !s.ok()) {
    // Each that ends lets one begin that waits, and so one more wait.
    return absl::IsResourceExhausted(s) ? WithRetryAfter(std::move(s), between_ends_) : s;
  }
  if (replies_.empty()) works_since_ = std::max(works_since_, now);
  replies_[id] = std::move(reply);
  Tell();
  return absl::OkStatus();
}

void EngineBook::Cancel(SequenceId id, const absl::Status& why) {
  MutexLock lock(mu_);
  scheduler_.Cancel(id, why);
  Tell();
}

void EngineBook::Resume(SequenceId id) {
  MutexLock lock(mu_);
  scheduler_.Resume(id);
  Tell();
}

void EngineBook::Close(const absl::Status& status) {
  MutexLock lock(mu_);
  if (!closed_.has_value()) closed_ = status;
  Tell();
}

EngineView EngineBook::view() const {
  MutexLock lock(mu_);
  EngineView view = since_start_;
  view.paused = scheduler_.paused();
  view.running = scheduler_.running() - view.paused;
  view.waiting = scheduler_.waiting();
  view.blocks = pool_.blocks();
  view.free_blocks = pool_.free();
  view.kept_blocks = pool_.kept();
  const SchedulerCounts& counts = scheduler_.counts();
  view.prompt_tokens = counts.prompt_tokens;
  view.queried_tokens = counts.queried_tokens;
  view.cached_tokens = counts.cached_tokens;
  view.preemptions = counts.preemptions;
  view.recomputed_tokens = counts.recomputed_tokens;
  return view;
}

std::vector<EngineBook::End> EngineBook::TakeEnds(SequenceTime now) {
  std::vector<End> ends;
  for (Ended& ended : scheduler_.TakeEnded()) {
    const auto found = replies_.find(ended.id);
    ends.push_back({std::move(found->second), ended.finish, std::move(ended.status),
                    ended.cached_tokens, ended.preemptions});
    replies_.erase(found);
  }
  if (!ends.empty()) LearnEnds(static_cast<int64_t>(ends.size()), now);
  return ends;
}

void EngineBook::LearnEnds(int64_t ends, SequenceTime now) {
  constexpr int kWeight = 8;
  now = std::max(now, works_since_);  // one that was added meanwhile may have a later time
  const SequenceTime::duration each = (now - std::exchange(works_since_, now)) / ends;
  const bool first = between_ends_ == SequenceTime::duration::zero();
  between_ends_ = first ? each : between_ends_ + (each - between_ends_) / kWeight;
}

void EngineBook::CountNew() {
  const SchedulerCounts before = std::exchange(counted_, scheduler_.counts());
  if (metrics_ == nullptr) return;
  const SchedulerCounts& now = counted_;
  MetricCells& cells = metrics_->cells;
  cells.Count(Metric::kPromptTokens, 0, now.prompt_tokens - before.prompt_tokens);
  cells.Count(Metric::kPrefixQueries, 0, now.queried_tokens - before.queried_tokens);
  cells.Count(Metric::kPrefixHits, 0, now.cached_tokens - before.cached_tokens);
  cells.Count(Metric::kPreemptions, 0, now.preemptions - before.preemptions);
  cells.Count(Metric::kRecomputedTokens, 0, now.recomputed_tokens - before.recomputed_tokens);
}

EngineBook::Turn EngineBook::Next(SequenceTime now, const StepTimes& times,
                                  const std::string& signature) {
  Turn turn;
  MutexLock lock(mu_);
  news_ = false;
  if (signature != signature_) {
    scheduler_.Forget();
    signature_ = signature;
  }
  if (closed_.has_value()) {
    for (const auto& [id, reply] : replies_) scheduler_.Cancel(id, *closed_);
  }
  turn.step = scheduler_.Next(now, times);
  turn.ends = TakeEnds(now);
  for (SequenceId id : turn.step.tables) {
    turn.replies.push_back(replies_.find(id)->second.get());
    turn.tables.push_back(scheduler_.BlocksOf(id));
  }
  if (turn.step.rows.empty()) lacks_ = false;
  turn.closed = closed_.has_value();
  turn.room = std::exchange(room_bytes_, 0);
  room_begun_ = room_asked_;
  CountNew();
  return turn;
}

std::vector<EngineBook::End> EngineBook::Done(const Turn& turn, absl::Span<const Told> told,
                                              const Facts& facts, SequenceTime now) {
  const int64_t generated =
      std::count_if(told.begin(), told.end(), [](const Told& one) { return one.status.ok(); });
  MutexLock lock(mu_);
  lacks_ = false;
  ++since_start_.steps;
  since_start_.committed_bytes = facts.committed_bytes;
  since_start_.plan_id = facts.plan_id;
  since_start_.generated_tokens += generated;
  const SchedulerCounts before = scheduler_.counts();
  scheduler_.Done(turn.step, told);
  if (metrics_ != nullptr) {
    const SchedulerCounts& after = scheduler_.counts();
    metrics_->cells.Count(Metric::kGenerationTokens, 0, generated);
    metrics_->cells.ObserveNumber(Metric::kStepTokens, after.prompt_tokens - before.prompt_tokens +
                                                           after.recomputed_tokens -
                                                           before.recomputed_tokens + generated);
  }
  CountNew();
  return TakeEnds(now);
}

std::vector<EngineBook::End> EngineBook::Failed(const Turn& turn, const absl::Status& status,
                                                SequenceTime now) {
  MutexLock lock(mu_);
  lacks_ = false;
  scheduler_.Failed(turn.step, status);
  return TakeEnds(now);
}

std::vector<EngineBook::End> EngineBook::Refused(const Turn& turn, const absl::Status& status,
                                                 bool waits, bool* alone, SequenceTime now) {
  MutexLock lock(mu_);
  lacks_ = *alone = scheduler_.Refused(turn.step, status, waits);
  return TakeEnds(now);
}

bool EngineBook::StartAnew() {
  MutexLock lock(mu_);
  return scheduler_.StartAnew();
}

void EngineBook::Pause(absl::Span<const SequenceId> ids, SequenceTime now) {
  MutexLock lock(mu_);
  for (SequenceId id : ids) {
    const auto found = replies_.find(id);
    if (found == replies_.end()) continue;
    scheduler_.Pause(id, now);
    // Drained ahead of the pause: Resume was, or will be, called for nothing.
    if (!found->second->outbox().full()) scheduler_.Resume(id);
  }
}

void EngineBook::Wait(SequenceTime until) {
  MutexLock lock(mu_);
  until = std::min(until, scheduler_.NextEnd());
  while (!news_) {
    if (until == SequenceTime::max()) {
      told_.Wait(lock);
    } else if (!told_.WaitUntil(lock, until)) {
      return;
    }
  }
}

std::vector<bool> EngineBook::BlocksInUse() const {
  MutexLock lock(mu_);
  std::vector<bool> in_use(pool_.blocks() + 1);
  for (int32_t block = 0; block <= pool_.blocks(); ++block) {
    in_use[block] = pool_.references(block) > 0 || pool_.IsKept(block);
  }
  return in_use;
}

std::vector<int32_t> EngineBook::Shed(int64_t most) {
  MutexLock lock(mu_);
  return pool_.Shed(most);
}

int64_t EngineBook::unused_bytes() const {
  MutexLock lock(mu_);
  // A thread that asks the ledger again and again must not ask itself.
  if (lacks_) return 0;
  const int64_t used = pool_.blocks() - pool_.free();
  if (block_bytes_ == 0) return used == 0 ? since_start_.committed_bytes : 0;
  // Block 0 is nobody's, and stays.
  return std::max<int64_t>(0, since_start_.committed_bytes - (used + 1) * block_bytes_);
}

int64_t EngineBook::NoteAsked(int64_t bytes) {
  room_bytes_ = std::max<int64_t>(1, bytes);
  Tell();
  return ++room_asked_;
}

void EngineBook::Ask(int64_t bytes) {
  MutexLock lock(mu_);
  NoteAsked(std::max(room_bytes_, bytes));
}

void EngineBook::Await(int64_t bytes, SequenceTime until) {
  MutexLock lock(mu_);
  if (since_start_.committed_bytes == 0) return;  // the thread may wait for a plan
  const int64_t most = std::numeric_limits<int64_t>::max() - room_bytes_;
  const int64_t own = NoteAsked(room_bytes_ + std::min(bytes, most));
  while (room_given_ < own && gave_room_.WaitUntil(lock, until)) {
  }
}

void EngineBook::GaveRoom(bool ever) {
  MutexLock lock(mu_);
  room_given_ = ever ? std::numeric_limits<int64_t>::max() : room_begun_;
  gave_room_.NotifyAll();
}

void EngineBook::SetCommitted(int64_t bytes) {
  MutexLock lock(mu_);
  since_start_.committed_bytes = bytes;
}

}  // namespace athanor
