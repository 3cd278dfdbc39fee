#include "clients/bench/sender.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace athanor::bench {
namespace {

int64_t Microseconds(const inference::ModelInferResponse& response, const char* key) {
  const auto found = response.parameters().find(key);
  return found == response.parameters().end() ? -1 : found->second.int64_param();
}

}  // namespace

Sender::~Sender() {
  while (beginning_ > 0) std::this_thread::yield();
}

Slot* Sender::NewSlot() {
  MutexLock lock(mu_);
  Slot& slot = slots_.emplace_back();
  slot.index = static_cast<int>(slots_.size()) - 1;
  return &slot;
}

bool Sender::Send(Slot* slot, int64_t due_ns, int phase, const Done& done) {
  const int64_t now = Now();
  client::CallOptions options;
  options.timeout = target_.timeout - absl::Nanoseconds(now - due_ns);
  if (options.timeout <= absl::ZeroDuration()) return false;
  const int64_t number = sent_++;
  slot->record = {.due_ns = due_ns, .sent_ns = now, .phase = phase};
  slot->response.Clear();
  int most = most_outstanding_, out = ++outstanding_;
  while (out > most && !most_outstanding_.compare_exchange_weak(most, out)) {
  }
  const auto& messages = *target_.messages;
  const auto& clients = *target_.clients;
  ++beginning_;
  clients[number % clients.size()]->InferAsync(messages[number % messages.size()], &slot->response,
                                               options, [this, slot, done](absl::Status status) {
                                                 Record(slot, status);
                                                 done(slot, status.ok());
                                               });
  --beginning_;
  return true;
}

void Sender::Record(Slot* slot, const absl::Status& status) {
  const int64_t now = Now();
  --outstanding_;
  CallRecord& record = slot->record;
  record.done_ns = now;
  record.code = static_cast<int32_t>(status.code());
  if (status.ok()) {
    record.queue_us = Microseconds(slot->response, "queue_us");
    record.batch_us = Microseconds(slot->response, "batch_us");
    record.exec_us = Microseconds(slot->response, "exec_us");
    const auto plan = slot->response.parameters().find("plan_id");
    if (plan != slot->response.parameters().end()) {
      if (slot->plan < 0 || slot->plan_id != plan->second.string_param()) {
        slot->plan_id = plan->second.string_param();
        slot->plan = PlanNumber(slot->plan_id);
      }
      record.plan = slot->plan;
    }
  } else {
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
