#include "server/search/search_record.h"

#include <string>
#include <utility>

#include "server/base/log.h"

namespace athanor {
namespace {

constexpr int kFailuresKept = 8;

}  // namespace

SearchRecord::SearchRecord() {
  progress_.set_best(1);
  progress_.set_predicted(1);
}

void SearchRecord::TakeStep(v1::SearchProgress progress) {
  progress.set_plans_measured(progress_.plans_measured());
  progress.set_plans_taken(progress_.plans_taken());
  progress.set_plans_failed(progress_.plans_failed());
  progress.set_best(progress_.best());
  progress.set_candidates_from_cache(progress_.candidates_from_cache());
  progress.set_failures_from_cache(progress_.failures_from_cache());
  *progress.mutable_failures() = progress_.failures();
  *progress.mutable_times() = progress_.times();
  progress_ = std::move(progress);
}

void SearchRecord::AddTime(absl::string_view on, double seconds, int64_t calls) {
  v1::SearchTime* time = nullptr;
  for (v1::SearchTime& t : *progress_.mutable_times()) {
    if (absl::string_view(t.on()) == on) time = &t;
  }
  if (time == nullptr) {
    time = progress_.add_times();
    time->set_on(std::string(on));
  }
  time->set_seconds(time->seconds() + seconds);
  time->set_calls(time->calls() + calls);
}

void SearchRecord::TakePlan(double ratio) {
  progress_.set_plans_taken(progress_.plans_taken() + 1);
  progress_.set_best(progress_.best() * ratio);
}

void SearchRecord::Fail(v1::SearchFailure failure, const absl::Status& status) {
  LogInfo("candidate put aside", {{"about", failure.about()},
                                  {"source_hash", failure.kernel()},
                                  {"plan", failure.plan_id()},
                                  {"from_cache", failure.from_cache()},
                                  {"error", status.ToString()}});
  if (failure.from_cache()) progress_.set_failures_from_cache(progress_.failures_from_cache() + 1);
  failure.set_code(static_cast<int>(status.code()));
  failure.set_message(std::string(status.message()));
  v1::SearchProgress kept;
  *kept.add_failures() = std::move(failure);
  for (const v1::SearchFailure& f : progress_.failures()) {
    if (kept.failures_size() < kFailuresKept) *kept.add_failures() = f;
  }
  progress_.mutable_failures()->Swap(kept.mutable_failures());
}

}  // namespace athanor
