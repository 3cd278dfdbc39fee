// A search (compiler/search) as messages: lowers what the search asks for, and answers what is
// known already by itself.
//
//   auto session = SearchSession::Create(request.start()).value();
//   internal::SearchReply step = session->Next(request).value();
//   // step has kernels to time, or a plan, or is done
//
// Deterministic: with the same outcomes, another session asks the same. A lost session is therefore
// begun again with all outcomes so far in its first request. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_PIPELINE_SEARCH_SESSION_H_
#define ATHANOR_COMPILER_PIPELINE_SEARCH_SESSION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/pipeline/plan_builder.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/pipeline/search_start.h"
#include "compiler/search/search/search.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

class SearchSession {
 public:
  // Errors are those of ReadSearchStart.
  static absl::StatusOr<std::unique_ptr<SearchSession>> Create(const internal::SearchStart& start);

  // Takes in the outcomes of `request` and continues until an outcome is unknown. Kernels that
  // cannot be lowered count as failed. INVALID_ARGUMENT: an outcome without a time for each size.
  absl::StatusOr<internal::SearchReply> Next(const internal::SearchRequest& request);

 private:
  SearchSession(const internal::SearchStart& start, const SearchSetup& setup);

  absl::Status TakeIn(const internal::SearchRequest& request);
  // Adds a kernel to `reply` if its outcome is not known.
  void Ask(int id, internal::SearchReply* reply);
  // Returns the plan that the task's best kernel was measured in. REQUIRES: there is one.
  const v1::Plan& BestPlanOf(int task);
  void TellPlan(int id, const internal::PlanOutcome& outcome);
  absl::Status AskPlan(int id, internal::SearchReply* reply);
  // Tells the search the outcomes of the last step, all of which are known by now.
  absl::Status TellStep();
  v1::SearchProgress Progress();
  // Reports whether limits were raised at the step that the search has reached, or before.
  bool RaisedByNow() const { return !raised_.empty() && raised_.front().steps() <= steps_; }
  void TellLimits();
  // Draws the regions' e-graphs once there are any.
  void AddPictures(internal::SearchReply* reply);

  const v1::Target target_;
  const PlanBuilder builder_;
  const Prepared prepared_;
  const std::string graph_hash_;
  const std::vector<SizePoint> sizes_;  // in the order of prepared_.graph.dims, as in every plan
  const int64_t weight_bytes_;
  const v1::SearchMode mode_;
  std::vector<std::string> refused_recipes_;  // not reported yet
  Search search_;
  std::map<std::string, absl::StatusOr<Seconds>> known_;      // by kernel key
  std::map<std::string, internal::PlanOutcome> plans_known_;  // by plan id
  std::map<int, std::pair<Seconds, v1::Plan>> best_plans_;    // by task: of these times
  std::set<int> wrong_forms_;  // forms whose plans do not compute what the graph means
  // Kernels of the last step, not told yet.
  struct Waiting {
    std::string key;
    absl::Status failed;  // it could not be lowered, and has no key
  };
  std::map<int, Waiting> waiting_;             // by kernel id
  std::deque<internal::RaisedLimits> raised_;  // not told yet
  int64_t steps_ = 0;                          // of search_
  bool drawn_ = false;
  int plan_waiting_ = -1;
  std::string plan_id_;  // of plan_waiting_; empty: the plan cannot be made
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_SEARCH_SESSION_H_
