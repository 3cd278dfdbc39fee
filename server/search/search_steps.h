// The steps of a search's session in the child (compiler/pipeline/search_session.h): asks for the
// next one, and tells it what became of the one before.
//
//   SearchSteps steps(session, graph, &tuner, machine, &cache, &limits, options, &record);
//   absl::Status asked = steps.Ask(/*finish=*/false, end);
//   steps.step().kernels();       // to be tried
//   steps.TellKernel(key, seconds);
//
// Everything told is kept: a child that was lost, or has forgotten the session, is told all of it
// and asks the same next. What the cache knows of the graph's regions (recipes) is told with the
// first step; what the search leaves there is kept after the last. A graph with states has none.
#ifndef ATHANOR_SERVER_SEARCH_SEARCH_STEPS_H_
#define ATHANOR_SERVER_SEARCH_SEARCH_STEPS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/child/tuner_process.h"
#include "server/plans/plan_search.h"
#include "server/search/candidate_memory.h"
#include "server/search/machine_limits.h"
#include "server/search/search_record.h"

namespace athanor {

// Borrows everything but the graph and the options; used by one thread at a time.
class SearchSteps {
 public:
  using Time = std::chrono::steady_clock::time_point;

  SearchSteps(uint64_t session, const Graph& graph, TunerProcess* tuner,
              const internal::TargetReply& machine, Cache* cache, const CandidateMemory* memory,
              MachineLimits* limits, const PlanSearchOptions& options, SearchRecord* record);
  // The child may forget the session.
  ~SearchSteps() { tuner_.EndSearch(session_); }
  SearchSteps(const SearchSteps&) = delete;
  SearchSteps& operator=(const SearchSteps&) = delete;

  // Asks for the next step. `finish`: the time is up, the best plan is enough. Errors end the
  // search, but for CANCELLED and ABORTED (no time was left).
  absl::Status Ask(bool finish, Time end);
  const internal::SearchReply& step() const { return step_; }
  // Ends the step: Ask gives the next.
  void ClearPlan() { step_.clear_plan(); }
  // Returns the pictures of the step's e-graphs, and leaves none.
  std::vector<internal::RegionPicture> TakePictures();

  void TellKernel(const std::string& key, const absl::StatusOr<std::vector<double>>& outcome);
  void TellPlan(internal::PlanOutcome outcome);

  // Learns the machine's limits, measured again where that is due, or now: the search begins with
  // them or, if they were raised, is told with the next step. Returns whether they were.
  absl::StatusOr<bool> LearnLimits(MachineLimits::When when, Time end);
  // The limits that the search knows.
  const internal::MachineReply& limits() const {
    return raised_.empty() ? start_.machine() : raised_.back().machine();
  }
  // Goes on from limits that were raised where the step said that the search is done.
  void GoOn() { step_.clear_done(); }

  const std::string& graph_text() const { return start_.graph_text(); }
  uint64_t seed() const { return start_.seed(); }

 private:
  internal::SearchRequest Everything() const;
  absl::StatusOr<internal::MachineReply> MeasureMachine(Time end);
  // Adds the recipes that the cache knows of the graph's regions. The errors are CANCELLED and
  // ABORTED.
  absl::Status LearnRecipes();
  // Keeps the recipes of the step, which is the last.
  void KeepRecipes();

  const uint64_t session_;
  TunerProcess& tuner_;
  const internal::TargetReply& machine_;
  Cache& cache_;
  const CandidateMemory& memory_;
  MachineLimits& limits_;
  SearchRecord& record_;
  const bool recipes_;  // are tried and kept
  bool recipes_learnt_ = false;
  internal::SearchStart start_;  // its limits are those of the first step

  std::map<std::string, internal::KernelOutcome> kernels_;
  std::map<std::string, internal::PlanOutcome> plans_;
  std::vector<internal::RaisedLimits> raised_;
  internal::SearchRequest news_;  // still to be told
  int64_t child_ = -1;            // TunerProcess::starts() of the child that knows the session
  internal::SearchReply step_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_SEARCH_STEPS_H_
