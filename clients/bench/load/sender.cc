#include "clients/bench/load/sender.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace athanor::bench {
Sender::~Sender() {
  while (beginning_ > 0) std::this_thread::yield();
}

Slot* Sender::NewSlot() {
  MutexLock lock(mu_);
  Slot& slot = slots_.emplace_back();
  slot.index = static_cast<int>(slots_.size()) - 1;
  slot.call = target_.backend->NewCall();
  return &slot;
}

bool Sender::Send(Slot* slot, int64_t due_ns, int phase, const Done& done) {
  if (absl::Nanoseconds(Now() - due_ns) >= target_.timeout) return false;
  Begin(slot, due_ns, phase, done);
  return true;
}

void Sender::SendNow(Slot* slot, int phase, const Done& done) { Begin(slot, Now(), phase, done); }

void Sender::Begin(Slot* slot, int64_t due_ns, int phase, const Done& done) {
  slot->call->Prepare(target_.seed, next_number_++);
  const int64_t now = Now();
  slot->record = {.due_ns = due_ns, .sent_ns = now, .phase = phase};
  int most = most_outstanding_, out = ++outstanding_;
  while (out > most && !most_outstanding_.compare_exchange_weak(most, out)) {
  }
  ++beginning_;
  // Time may have run out while the request was made: then the call fails at once.
  slot->call->Begin(
      std::max(target_.timeout - absl::Nanoseconds(now - due_ns), absl::Microseconds(1)),
      [this, slot, done](absl::Status status) {
        Record(slot, status);
        done(slot, status.ok());
      });
  --beginning_;
}

void Sender::Record(Slot* slot, const absl::Status& status) {
  CallRecord& record = slot->record;
  record.done_ns = Now();
  --outstanding_;
  record.code = static_cast<int32_t>(status.code());
  if (status.ok()) {
    std::string plan_id;
    slot->call->Tell(start_, &record, &plan_id);
    if (!plan_id.empty()) {
      if (slot->plan < 0 || slot->plan_id != plan_id) {
        slot->plan_id = std::move(plan_id);
        slot->plan = PlanNumber(slot->plan_id);
      }
      record.plan = slot->plan;
    }
    if (record.tokens != nullptr) progress_.tokens += record.tokens->output_tokens;
    ++progress_.answered;
  } else {
    ++progress_.failed;
    MutexLock lock(mu_);
    messages_.emplace(record.code, status.message());
  }
  slot->records.push_back(record);
}

int32_t Sender::PlanNumber(const std::string& plan_id) {
  MutexLock lock(mu_);
  const auto found = std::find(plan_ids_.begin(), plan_ids_.end(), plan_id);
  if (found != plan_ids_.end()) return static_cast<int32_t>(found - plan_ids_.begin());
  plan_ids_.push_back(plan_id);
  return static_cast<int32_t>(plan_ids_.size()) - 1;
}

LoadResult Sender::Collect() {
  LoadResult result;
  MutexLock lock(mu_);
  for (Slot& slot : slots_) {
    result.calls.insert(result.calls.end(), slot.records.begin(), slot.records.end());
    slot.records = {};
  }
  std::sort(result.calls.begin(), result.calls.end(),
            [](const CallRecord& a, const CallRecord& b) { return a.due_ns < b.due_ns; });
  result.plan_ids = plan_ids_;
  result.messages = messages_;
  result.most_outstanding = most_outstanding_;
  return result;
}

}  // namespace athanor::bench
