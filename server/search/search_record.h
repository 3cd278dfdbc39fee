// Keeps what a search says of itself (v1.SearchProgress). Nothing else changes it.
//
//   SearchRecord record;
//   auto object = record.Timed("compile", [&] { return maker.Compile(kernel); });
//   record.TakeStep(reply.progress());   // what the child's session knows
//   record.Fail(failure, status);        // shown among the latest failures
//
// Plain data of one search; used by one thread at a time.
#ifndef ATHANOR_SERVER_SEARCH_SEARCH_RECORD_H_
#define ATHANOR_SERVER_SEARCH_SEARCH_RECORD_H_

#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/v1/search.pb.h"

namespace athanor {

class SearchRecord {
 public:
  SearchRecord();

  const v1::SearchProgress& progress() const { return progress_; }

  // Takes over what the child's session knows, and keeps what only this side does.
  void TakeStep(v1::SearchProgress progress);
  // Adds the time that `work` takes; returns what it returns.
  template <typename Work>
  auto Timed(absl::string_view on, Work work) {
    const auto start = std::chrono::steady_clock::now();
    auto result = work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    AddTime(on, took.count(), 1);
    return result;
  }
  void AddTime(absl::string_view on, double seconds, int64_t calls);
  void CountFromCache() {
    progress_.set_candidates_from_cache(progress_.candidates_from_cache() + 1);
  }
  void CountPlanMeasured() { progress_.set_plans_measured(progress_.plans_measured() + 1); }
  void CountPlanFailed() { progress_.set_plans_failed(progress_.plans_failed() + 1); }
  // A plan serves that takes `ratio` of the time of the one before.
  void TakePlan(double ratio);
  // Logs a candidate that cannot be used, and shows it among the latest.
  void Fail(v1::SearchFailure failure, const absl::Status& status);

 private:
  v1::SearchProgress progress_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_SEARCH_RECORD_H_
