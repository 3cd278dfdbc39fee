// The search for a faster genome: decides what to measure next from what was measured so far. It
// measures nothing itself and knows no device. Its owner lowers, compiles, checks and times what it
// asks for and tells it the outcome.
//
//   Search search(SingleForm(graph), target, machine, {.sizes = {{1, 128}, {8, 128}}});
//   while (true) {
//     Search::Step step = search.Next();
//     if (step.done) break;                                   // step.stop says why
//     for (int id : step.kernels) search.TellKernel(id, Measure(search.kernel(id)));
//     if (step.plan >= 0) search.TellPlan(step.plan, MeasureWhole(search.plan(step.plan)));
//   }
//
// Two levels (DESIGN §6.5). Kernels: each distinct task of the genome has a space of schedules, of
// which the best predicted, the neighbours of the best, and some random ones are measured. Genomes:
// which nodes have memory, and which of the equal forms of the graph is used. A genome changes by
// one decision at a time, in all equal layers at once, and is scored by the sum of its tasks' best
// times. Whole plans are proposed when the sum promises enough; in the end only their own
// measurement counts.
//
// Deterministic: the same forms, options and outcomes give the same questions. A search that was
// lost is resumed by telling a new one what the old one knew. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "compiler/search/kernels/tuning.h"
#include "compiler/search/regions/forms.h"
#include "compiler/search/regions/recipe.h"
#include "compiler/search/search/best_genome.h"
#include "compiler/search/search/genomes.h"
#include "compiler/search/search/kernel_requests.h"
#include "compiler/search/search/moves.h"
#include "compiler/search/search/proposed_plans.h"
#include "compiler/search/search/recipe_trials.h"
#include "compiler/search/search/search_options.h"
#include "compiler/search/search/search_report.h"
#include "compiler/search/search/task_table.h"
#include "compiler/search/search/work_turns.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

class Search {
 public:
  struct Step {
    std::vector<int> kernels;  // each to be answered by TellKernel
    int plan = -1;             // to be answered by TellPlan
    bool done = false;
    SearchStop stop = SearchStop::kNone;
  };

  // `target.threads` is the number of threads that the server uses.
  Search(std::unique_ptr<FormSpace> forms, const v1::Target& target, const Machine& machine,
         SearchOptions options);
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  // Returns what to do next. REQUIRES: everything asked for before has been told.
  Step Next();
  // Says that the time is up: Next() proposes the best plan if it gains, and then is done.
  void Finish() { finishing_ = true; }

  const KernelTask& task(int id) const { return tasks_.at(id).task(); }
  const KernelCandidate& kernel(int id) const { return requests_.kernel(id); }
  const PlanCandidate& plan(int id) const { return plans_.plan(id); }
  const FormSpace& forms() const { return *forms_; }
  // Returns the times of the task's best schedule so far; empty if none is known.
  const Seconds& BestOf(int task) const { return tasks_.at(task).best(); }
  // Returns that schedule's choice, in nodes of task(task).graph. REQUIRES: it is known.
  const KernelChoice& BestChoiceOf(int task) const {
    const Tuning& t = tasks_.at(task);
    return t.schedule(static_cast<size_t>(t.best_schedule()));
  }
  // Returns the weight of a second at each size; empty until the baseline's times are known. The
  // best plan is the one with the least weighted sum.
  const Seconds& size_weights() const { return tasks_.context().weights; }

  // Records a kernel's outcome. An error: it cannot be lowered, compiled, checked or measured.
  void TellKernel(int id, const absl::StatusOr<Seconds>& outcome) { requests_.Tell(id, outcome); }
  // Records a plan's outcome. `taken`: it serves now, and later plans have to beat it. `ratio`: its
  // measured time as a share of that of the plan that served before; nullopt: not measured.
  void TellPlan(int id, bool taken, std::optional<double> ratio = std::nullopt) {
    plans_.Tell(id, taken, ratio);
  }
  // Says that the machine reaches more; a search that is done may go on. REQUIRES: as Next().
  void RaiseLimits(const Machine& machine);

  SearchReport Report();
  // Returns recipes for the regions of the plan that was taken last; empty if none was.
  std::vector<RegionRecipe> Recipes();

 private:
  // Schedules that a plan gives to kernels that were not measured: those that the cost model
  // predicts to be best, those of the rule of thumb, or those of recipes.
  enum class Schedules : uint8_t { kBest, kStarted, kSuggested };

  bool fast() const { return options_.mode == SearchMode::kFast; }
  bool exhaust() const { return options_.mode == SearchMode::kExhaust; }

  // Makes all times shares of the baseline's.
  void SettleBaseline();
  Step NextFinalist();
  // Takes turns of schedules, changes of memory, and forms.
  std::optional<Step> Improve();
  std::array<Work, kWorks> Turns();
  bool NearRoofline();
  Step Done(SearchStop stop);
  std::string LimitedBy(const SearchReport& report) const;

  const v1::Target& target() const { return tasks_.context().target; }
  // Reports whether the genome's kernels compute in the baseline's orders, or may compute in
  // others.
  bool KeepsSums(const FusedForm& state);
  // Returns the orders in which a task starts, by node of its graph.
  const std::map<NodeId, std::string>& OrdersOf(int task);
  // Returns the signature of the kernels with the schedules that they start with, without those
  // that `prepare` runs. Those of whole plans are compared as well, when they are proposed.
  std::string KernelSignatureOf(const FusedForm& state);
  FusedForm MakeTried(int form, Fusion fusion);  // counts it as tried
  // Asks for the kernels that a genome lacks before it can be compared, and returns them. If it
  // lacks none, compares it with the best one now.
  std::vector<int> Try(FusedForm state);
  void AskForMissing(const FusedForm& state, std::vector<int>* asked);
  std::optional<Step> TryMove(Work work);
  std::optional<Step> GoOnTrying();
  // Makes `state` the best genome if it is better. Returns true if so.
  bool Take(FusedForm state);
  // Asks for the schedules suggested for the best genome; then tries the recipes' genomes.
  std::optional<Step> TryRecipes();
  std::optional<FusedForm> NextFromRecipes();

  Genome Scheduled(const FusedForm& state, Schedules which);  // over the form's graph
  std::optional<Step> Propose(const FusedForm& state, Schedules which = Schedules::kBest);
  std::optional<Step> ProposeBest(double least_gain);

  const std::unique_ptr<FormSpace> forms_;
  const SearchOptions options_;
  TaskTable tasks_;
  Genomes genomes_;
  BestGenome best_;
  WorkTurns turns_;
  KernelRequests requests_;
  RecipeTrials recipes_;
  Moves moves_;
  ProposedPlans plans_;

  std::string signature_;  // of the baseline; empty: plans may have any
  std::string kernel_signature_;
  std::map<int, std::map<NodeId, std::string>> orders_;  // by task
  bool baseline_known_ = false;
  bool recipes_left_ = true;  // some are still to be tried
  std::optional<FusedForm> trying_;
  int trying_steps_ = 0;
  int64_t kernels_at_plan_ = 0;  // kernels asked for when the last plan was proposed
  int genomes_tried_ = 0, forms_tried_ = 0;
  size_t finalists_ = 0;  // proposed so far, in kFast
  bool finishing_ = false;
  SearchStop stop_ = SearchStop::kNone;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_H_
