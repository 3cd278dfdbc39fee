#include "compiler/search/search/kernel_requests.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

// Factor on a task's expected gain for each measurement without a better schedule.
constexpr double kDecay = 0.88;

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

KernelRequests::KernelRequests(const SearchOptions* options, TaskTable* tasks, WorkTurns* turns)
    : options_(*options), tasks_(*tasks), turns_(*turns), random_(options->seed) {}

void KernelRequests::Ask(int task, size_t schedule, std::vector<int>* asked) {
  Tuning& t = tasks_.at(task);
  if (!MayAsk() || t.asked(schedule)) return;
  t.Ask(schedule);
  kernels_.push_back({task, t.schedule(schedule)});
  schedule_of_.push_back(schedule);
  turns_.CountKernel();
  asked->push_back(static_cast<int>(kernels_.size()) - 1);
}

void KernelRequests::Tell(int id, const absl::StatusOr<Seconds>& outcome) {
  const int task = kernels_[id].task;
  Tuning& t = tasks_.at(task);
  // ABORTED: there was no time to try it.
  if (!outcome.ok() && !absl::IsAborted(outcome.status())) ++failed_;
  if (!t.Tell(schedule_of_[id], outcome)) return;
  tasks_.NoteBest(task);
  const std::string anchor = AnchorOf(t.task());
  if (!anchor.empty()) tuned_[anchor] = task;
}

std::optional<size_t> KernelRequests::Inherited(int task) {
  const auto like = tuned_.find(AnchorOf(tasks_.at(task).task()));
  if (like == tuned_.end() || like->second == task) return std::nullopt;
  const Tuning& from = tasks_.at(like->second);
  return tasks_.at(task).Find(from.schedule(static_cast<size_t>(from.best_schedule())));
}

double KernelRequests::Gain(int task, int calls) const {
  Tuning& t = tasks_.at(task);
  if (t.best().empty() || t.Exhausted()) return 0;
  const double slack = tasks_.context().Weighted(t.best()) - tasks_.RooflineOf(t);
  // Expects half of what the roofline leaves, and less with each measurement that found nothing
  // better.
  return calls * std::max(0.0, slack) * 0.5 * std::pow(kDecay, t.since_better());
}

std::vector<int> KernelRequests::Tune(const Calls& calls, double least) {
  std::vector<int> asked;
  const auto full = [&] { return std::ssize(asked) >= options_.batch || !MayAsk(); };
  while (!full()) {
    int chosen = -1;
    double most = least;
    for (const auto& [task, count] : calls) {
      if (tasks_.at(task).Exhausted()) continue;
      // Kernels asked for in this step count as tried.
      const auto again = std::count_if(asked.begin(), asked.end(),
                                       [&, t = task](int k) { return kernels_[k].task == t; });
      const double gain = Gain(task, count) * std::pow(kDecay, again);
      if (gain > most) {
        most = gain;
        chosen = task;
      }
    }
    if (chosen < 0) break;
    for (int i = 0; i < options_.race && !full() && !tasks_.at(chosen).Exhausted(); ++i) {
      Ask(chosen, *tasks_.at(chosen).Pick(random_), &asked);
    }
  }
  return asked;
}

std::vector<int> KernelRequests::TuneRest() {
  Calls met;
  for (int task = 0; task < tasks_.size(); ++task) {
    if (tasks_.at(task).measured() > 0) met[task] = 1;
  }
  return Tune(met, -1);
}

}  // namespace athanor
