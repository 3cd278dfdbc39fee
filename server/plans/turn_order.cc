#include "server/plans/turn_order.h"

#include <algorithm>

namespace athanor {

TurnOrder::TurnOrder(int threads) : threads_(threads) {}

void TurnOrder::Ask(Turn* turn) {
  (turn->kind == Kind::kStep ? steps_waiting_ : runs_waiting_).push_back(turn);
}

void TurnOrder::Leave(Turn* turn) {
  (turn->kind == Kind::kStep ? steps_waiting_ : runs_waiting_).remove(turn);
}

bool TurnOrder::RunFits(Clock::time_point now, Clock::duration usual) const {
  if (steps_ == 0 && now < runs_end_) {
    return runs_ < (now + usual <= runs_end_ ? threads_ : threads_ / 2);
  }
  if (steps_ == 0 && steps_waiting_.empty()) return true;
  if (threads_ == 1) return steps_ == 0 && runs_ == 0 && last_ == Kind::kStep;
  return runs_ < threads_ / 2;
}

TurnOrder::Clock::duration TurnOrder::StartOf(const void* party) const {
  const auto end = ends_.find(party);
  return end == ends_.end() ? now_ : std::max(now_, end->second);
}

TurnOrder::Turn* TurnOrder::StepThatFits(Clock::time_point now) const {
  const int most_runs = threads_ == 1 ? 0 : threads_ / 2;
  if (steps_waiting_.empty() || steps_ > 0 || runs_ > most_runs) return nullptr;
  if (RunsHaveAll(now)) return nullptr;
  if (threads_ == 1 && last_ == Kind::kStep && !runs_waiting_.empty()) return nullptr;
  return *std::min_element(
      steps_waiting_.begin(), steps_waiting_.end(),
      [&](const Turn* a, const Turn* b) { return StartOf(a->party) < StartOf(b->party); });
}

TurnOrder::Clock::duration TurnOrder::rest() const {
  return std::clamp(2 * longest_step_, kShortestRest, kLongestRest);
}

bool TurnOrder::RestIsDue(Clock::time_point now) const {
  const bool rested = steps_ + runs_ == 0 && now - idle_since_ >= rest();
  return !rested && now - busy_since_ >= kBusy * rest();
}

TurnOrder::Turn* TurnOrder::Next(Clock::time_point now, bool searching) {
  if (rests_) {
    if (searching && now < rest_end_) return nullptr;
    rests_ = false;
    rest_end_ = Clock::time_point::max();
    busy_since_ = now;
    longest_step_ = {};
  }
  if (now >= runs_end_) runs_end_ = Clock::time_point::min();
  if (Turn* step = StepThatFits(now)) {
    if (searching && RestIsDue(now)) {
      rests_ = true;
      if (steps_ + runs_ == 0) rest_end_ = idle_since_ + rest();
      return nullptr;
    }
    Leave(step);
    BeginTurn(*step, now);
    return step;
  }
  if (runs_waiting_.empty() || !RunFits(now, runs_waiting_.front()->usual)) return nullptr;
  Turn* const run = runs_waiting_.front();
  runs_waiting_.pop_front();
  BeginTurn(*run, now);
  return run;
}

bool TurnOrder::TryRun(Clock::time_point now, Clock::duration usual) {
  if (rests_ || !runs_waiting_.empty() || !RunFits(now, usual)) return false;
  BeginTurn({Kind::kRun, nullptr}, now);
  return true;
}

TurnOrder::Clock::time_point TurnOrder::next_look() const {
  if (rests_) return rest_end_;
  // Next has made a time that is over min().
  const bool waits = !steps_waiting_.empty() && RunsHaveAll(Clock::time_point::min());
  return waits ? runs_end_ : Clock::time_point::max();
}

void TurnOrder::BeginTurn(const Turn& turn, Clock::time_point now) {
  if (steps_ + runs_ == 0 && now - idle_since_ >= rest()) {
    busy_since_ = now;
    longest_step_ = {};
  }
  last_ = turn.kind;
  if (turn.kind == Kind::kRun) {
    ++runs_;
    return;
  }
  ++steps_;
  now_ = ends_[turn.party] = StartOf(turn.party);
  step_began_ = now;
}

void TurnOrder::End(const Turn& turn, Clock::time_point now) {
  if (turn.kind == Kind::kRun) {
    --runs_;
  } else {
    --steps_;
    const Clock::duration took = now - step_began_;
    ends_[turn.party] += took;
    longest_step_ = std::max(longest_step_, took);
    if (threads_ > 1 && !runs_waiting_.empty()) runs_end_ = now + took / kRunsPart;
    // Parties that have had no more than others begin where these are anyway.
    absl::erase_if(ends_, [&](const auto& party) { return party.second <= now_; });
  }
  if (steps_ + runs_ > 0) return;
  idle_since_ = now;
  if (rests_) rest_end_ = now + rest();
}

}  // namespace athanor
