// The search for a faster genome: decides what to measure next from what was measured so far. It
// measures nothing itself and knows no device: whoever owns it lowers, compiles, checks and times
// what it asks for and tells it the outcome.
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
// which nodes have memory, and which of several equal forms of the graph is used; changed in one
// place at a time, in all equal layers at once, and scored by the sum of the tasks' best times.
// Whole plans are proposed when the sum promises enough; only their own measurement counts in the
// end.
//
// Deterministic: the same forms, options and outcomes give the same questions, so a search that was
// lost is resumed by telling a new one what the old one knew. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"
#include "compiler/search/cost.h"
#include "compiler/search/forms.h"
#include "compiler/search/fusion.h"
#include "compiler/search/schedule.h"
#include "compiler/search/task.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct SearchOptions {
  // At which sizes everything is measured; each counts the same. Not empty.
  std::vector<SizePoint> sizes;
  uint64_t seed = 1;
  int64_t max_kernels = 1 << 20;  // measured candidates, failed ones included
  int batch = 4;                  // kernels asked for at once
  double least_gain = 0.02;       // of the whole time, that makes a plan worth proposing
};

enum class SearchStop : uint8_t {
  kNone,        // goes on
  kRoofline,    // the sum of the tasks is near what the machine allows
  kStagnation,  // nothing left promises a gain
  kExhausted,   // everything was measured
  kBudget,      // max_kernels, or Finish
};
std::string_view SearchStopName(SearchStop stop);

// Seconds of one call at each of SearchOptions::sizes.
using Seconds = std::vector<double>;

struct KernelCandidate {
  int task;
  KernelChoice choice;  // in nodes of task(task).graph
};

struct PlanCandidate {
  int form;
  Fusion fusion;
  ScheduledGraph scheduled;
  double predicted = 1;  // time as a share of the baseline's, by the sum of its tasks
};

struct TaskReport {
  std::string key;
  std::string about;  // "Mul over Contract"
  int calls = 0;      // in the best genome
  int measured = 0, failed = 0;
  std::string schedule;  // of the best
  Seconds first, best;   // by size; empty: nothing measured
  Seconds roofline;
};

struct SearchReport {
  int64_t kernels_measured = 0, kernels_failed = 0;
  int genomes_tried = 0, genomes_taken = 0;
  int forms_tried = 0, forms_taken = 0;  // of those: changes of the graph by rules
  std::string rules;                     // that lead to the best genome's form
  std::vector<RegionReport> regions;
  int plans_proposed = 0;
  double predicted = 1;  // of the best genome, share of the baseline's time
  double roofline = 0;   // share of the baseline's time that the machine's limits allow
  SearchStop stop = SearchStop::kNone;
  std::vector<TaskReport> tasks;  // of the best genome, longest first
};

class Search {
 public:
  struct Step {
    std::vector<int> kernels;  // each to be answered by TellKernel
    int plan = -1;             // to be answered by TellPlan
    bool done = false;
    SearchStop stop = SearchStop::kNone;
  };

  // `target.threads` is that of the server.
  Search(std::unique_ptr<FormSpace> forms, const v1::Target& target, const Machine& machine,
         SearchOptions options);
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  // What is to be done next. REQUIRES: everything asked for before has been told.
  Step Next();
  // The time is up: Next() proposes the best plan if it promises a gain, and then is done.
  void Finish() { finishing_ = true; }

  const KernelTask& task(int id) const { return tasks_[id].task; }
  const KernelCandidate& kernel(int id) const { return kernels_[id]; }
  const PlanCandidate& plan(int id) const { return plans_[id]; }
  // Times of the task's best schedule so far; empty: none is known.
  const Seconds& BestOf(int task) const { return tasks_[task].best; }

  // An error: it cannot be lowered, compiled, checked or measured; the reason is its text.
  void TellKernel(int id, const absl::StatusOr<Seconds>& outcome);
  // True if it serves now: the best genome so far is measured against it from here on.
  void TellPlan(int id, bool taken);

  SearchReport Report() const;

 private:
  // A task and what is known about its schedules.
  struct Tuning {
    KernelTask task;
    std::vector<KernelChoice> schedules;  // best predicted first
    std::vector<bool> asked;
    Seconds roofline;
    Seconds first, best;  // measured
    int best_schedule = -1;
    int asked_count = 0, measured = 0, failed = 0;
    int since_better = 0;  // measured since the best was found
    bool exhausted() const { return next_unasked >= schedules.size(); }
    size_t next_unasked = 0;
  };
  using Calls = std::map<int, int>;  // by task
  // A genome to be: what ChooseKernels needs, and the tasks it comes to.
  struct State {
    int form = 0;
    Fusion fusion;
    Calls calls;
  };
  // A change of the best genome that is worth a look.
  struct Move {
    std::string key;  // equal in equal layers: tried once
    State state;
    double gain;  // predicted share of the baseline's time
  };

  State MakeState(int form, Fusion fusion);
  Calls CallsOf(const Graph& graph, const Fusion& fusion);
  int TaskOf(KernelTask task);
  void MakeSchedules(Tuning& t);
  double Weighted(const Seconds& seconds) const;
  // The machine's limits were measured on a busy machine if kernels are faster than them.
  double RooflineOf(const Tuning& t) const { return Weighted(t.roofline) * slack_; }
  double TimeOf(const Tuning& t) const;  // weighted best, or predicted
  double TimeOf(const Calls& calls) const;
  double TimeOf(const State& state) const { return TimeOf(state.calls); }
  bool Failed(const State& state) const;
  int AskFor(int task, size_t schedule);
  // The next schedule of a task worth measuring; none: nothing left.
  std::optional<size_t> PickSchedule(Tuning& t);
  double TuningGain(int task, int calls) const;
  void FindMoves();
  void AddFlips(const State& from);
  void AddForms(const State& from);
  // GraphCost: of the rule of thumb's genome.
  double CostOf(const Graph& graph);
  // Asks for what a state's tasks lack before they can be compared.
  std::vector<int> AskForState(const State& state);
  std::optional<Step> TuneBest();
  std::optional<Step> TryMove();
  std::optional<Step> ProposePlan(double least_gain);
  void Settle();
  ScheduledGraph Schedule(const State& state) const;

  const std::unique_ptr<FormSpace> forms_;
  const v1::Target target_;
  const Machine machine_;
  const SearchOptions options_;
  std::mt19937_64 random_;

  std::vector<Tuning> tasks_;
  std::map<std::string, int> task_of_;  // by key
  std::vector<KernelCandidate> kernels_;
  std::vector<size_t> schedule_of_;  // by kernel: in its task's schedules
  std::vector<PlanCandidate> plans_;
  std::set<std::string> proposed_;  // texts of genomes

  double slack_ = 1;            // share of the rooflines that kernels were seen to take
  std::vector<double> weight_;  // by size: 1 / (sizes * baseline seconds)
  State best_;
  bool baseline_known_ = false;
  std::optional<State> trying_;
  std::vector<Move> moves_;      // least promising first
  std::set<std::string> moved_;  // keys of moves made
  double served_ = 1;            // predicted share of the plan that serves
  int kernels_since_plan_ = 0;
  int genomes_tried_ = 0, genomes_taken_ = 0;
  int forms_tried_ = 0, forms_taken_ = 0;  // of those
  int64_t failed_ = 0;
  bool finishing_ = false;
  SearchStop stop_ = SearchStop::kNone;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_H_
