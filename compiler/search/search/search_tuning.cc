// Chooses the schedules that a search asks for.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/search/search/search.h"

namespace athanor {
namespace {

// Factor on a task's expected gain for each measurement without a better schedule.
constexpr double kDecay = 0.88;
// Number of kernels, about, over which spent_ is averaged.
constexpr double kTurnMemory = 64;

// Names the anchor of a task. Tasks with one anchor differ in what follows it: a schedule that is
// fast for one is a good guess for the others.
std::string AnchorOf(const KernelTask& task) {
  const NodeId anchor = task.choice.anchor;
  if (anchor < 0) return "";
  const Node& node = task.graph.node(anchor);
  std::string text(OpName(node.op));
  if (FormOf(node.op) == OpForm::kContract)
    absl::StrAppend(&text, " ", GetAttr<std::string>(node.attrs, "spec"));
  for (NodeId i : node.inputs) {
    const Node& operand = task.graph.node(i);
    absl::StrAppend(&text, IsParameter(operand.op) ? " weight " : " ", TypeToString(operand.type));
  }
  return text;
}

}  // namespace

void Search::AskFor(int task, size_t schedule, Step* step) {
  Tuning& t = tasks_[task];
  if (!MayAsk() || t.asked(schedule)) return;
  t.Ask(schedule);
  kernels_.push_back({task, t.schedule(schedule)});
  schedule_of_.push_back(schedule);
  ++kernels_since_plan_;
  for (double& spent : spent_) spent *= 1 - 1 / kTurnMemory;
  ++spent_[static_cast<size_t>(working_)];
  step->kernels.push_back(static_cast<int>(kernels_.size()) - 1);
}

void Search::TellKernel(int id, const absl::StatusOr<Seconds>& outcome) {
  const int task = kernels_[id].task;
  Tuning& t = tasks_[task];
  // ABORTED: there was no time to try it.
  if (!outcome.ok() && !absl::IsAborted(outcome.status())) ++failed_;
  if (!t.Tell(schedule_of_[id], outcome)) return;
  NoteSlack(t);
  const std::string anchor = AnchorOf(t.task());
  if (!anchor.empty()) tuned_[anchor] = task;
}

std::optional<size_t> Search::Inherited(int task) {
  const auto like = tuned_.find(AnchorOf(tasks_[task].task()));
  if (like == tuned_.end() || like->second == task) return std::nullopt;
  const Tuning& from = tasks_[like->second];
  return tasks_[task].Find(from.schedule(static_cast<size_t>(from.best_schedule())));
}

void Search::AskForState(const State& state, Step* step) {
  for (const auto& [task, calls] : state.calls) {
    Tuning& t = tasks_[task];
    if (t.measured() > 0) continue;
    AskFor(task, 0, step);
    if (!baseline_known_ || t.Exhausted() || AskForSuggested(task, step)) continue;
    AskFor(task, Inherited(task).value_or(1), step);
  }
}

double Search::TuningGain(int task, int calls) {
  Tuning& t = tasks_[task];
  if (t.best().empty() || t.Exhausted()) return 0;
  const double slack = context_.Weighted(t.best()) - RooflineOf(t);
  return calls * std::max(0.0, slack) * 0.5 * std::pow(kDecay, t.since_better());
}

std::optional<Search::Step> Search::Tune(const Calls& calls, double least) {
  Step step;
  for (int i = 0; i < options_.batch && MayAsk(); ++i) {
    int chosen = -1;
    double most = least;
    for (const auto& [task, count] : calls) {
      if (tasks_[task].Exhausted()) continue;
      // Kernels asked for in this step count as tried.
      const auto again = std::count_if(step.kernels.begin(), step.kernels.end(),
                                       [&, t = task](int k) { return kernels_[k].task == t; });
      const double gain = TuningGain(task, count) * std::pow(kDecay, again);
      if (gain > most) {
        most = gain;
        chosen = task;
      }
    }
    if (chosen < 0) break;
    AskFor(chosen, *tasks_[chosen].Pick(random_), &step);
  }
  if (step.kernels.empty()) return std::nullopt;
  return step;
}

// Tunes everything ever compared, for a search that exhausts its space.
std::optional<Search::Step> Search::TuneRest() {
  Calls met;
  for (int task = 0; task < static_cast<int>(tasks_.size()); ++task) {
    if (tasks_[task].measured() > 0) met[task] = 1;
  }
  return Tune(met, -1);
}

}  // namespace athanor
