#include "compiler/search/search/task_table.h"

#include <algorithm>
#include <utility>

#include "compiler/search/kernels/task.h"

namespace athanor {

TaskTable::TaskTable(TuningContext context, SearchMode mode)
    : context_(std::move(context)), mode_(mode) {
  for (auto& slack : slack_) slack.fill(1);
  bias_.fill(1);
}

int TaskTable::Find(const Graph& graph, TaskIndex& index, const std::vector<bool>& memory,
                    const KernelChoice& kernel, std::vector<NodeId>* nodes) {
  TaskIndex::Found found = index.Find(memory, kernel);
  if (nodes != nullptr) *nodes = std::move(found.nodes);
  auto [it, added] =
      task_of_.try_emplace(std::move(found.signature), static_cast<int>(tasks_.size()));
  if (added) tasks_.emplace_back(CutTask(graph, memory, index.weights(), kernel), &context_);
  return it->second;
}

void TaskTable::SetWeights(const Calls& calls) {
  const double sizes = static_cast<double>(context_.sizes.size());
  Seconds weights;
  for (size_t s = 0; s < context_.sizes.size(); ++s) {
    double total = 0;
    for (const auto& [task, count] : calls) {
      const Tuning& t = tasks_[task];
      total += count * (t.best().empty() ? t.start()[s] : t.best()[s]);
    }
    // A size counts by its share of the baseline's time there, so that large sizes do not outweigh
    // small ones.
    weights.push_back(total > 0 ? 1 / (sizes * total) : 0);
  }
  context_.weights = std::move(weights);
}

void TaskTable::RaiseLimits(const Machine& machine) {
  context_.machine = machine;
  for (auto& slack : slack_) slack.fill(1);
  for (int task = 0; task < size(); ++task) {
    tasks_[task].Reprice();
    NoteBest(task);
  }
}

size_t TaskTable::Magnitude(double roofline) {
  constexpr double kLeast = 3e-6;  // seconds; each magnitude is tenfold
  size_t magnitude = 0;
  for (double limit = kLeast; roofline > limit && magnitude + 1 < kMagnitudes; limit *= 10) {
    ++magnitude;
  }
  return magnitude;
}

void TaskTable::NoteBest(int task) {
  const Tuning& t = tasks_[task];
  for (size_t s = 0; s < t.best().size(); ++s) {
    const double roofline = t.roofline()[s];
    double& slack = slack_[static_cast<size_t>(t.task().choice.kind)][Magnitude(roofline)];
    if (roofline > 0) slack = std::min(slack, t.best()[s] / roofline);
  }
}

double TaskTable::RooflineOf(const Tuning& t) const {
  const auto& slack = slack_[static_cast<size_t>(t.task().choice.kind)];
  double roofline = 0;
  for (size_t s = 0; s < context_.weights.size(); ++s) {
    roofline += context_.weights[s] * t.roofline()[s] * slack[Magnitude(t.roofline()[s])];
  }
  if (t.best().empty()) return roofline;
  // A limit that was beaten is none: small kernels find more in the caches than is modelled. The
  // true one may be lower by as much again.
  const double best = context_.Weighted(t.best()), modelled = t.WeightedRoofline();
  if (best < modelled) return best * best / modelled;
  return std::min(roofline, best);
}

double TaskTable::TimeOf(Tuning& t) const {
  if (!t.best().empty()) return context_.Weighted(t.best());
  // Assumes the baseline's schedule: its failed measurement says nothing about others.
  if (t.Failed()) return t.PredictedStart();
  return mode_ == SearchMode::kFast ? t.PredictedBest() : RooflineOf(t);
}

double TaskTable::TimeOf(const Calls& calls) {
  double time = 0;
  for (const auto& [task, count] : calls) time += count * TimeOf(tasks_[task]);
  return time;
}

double TaskTable::ExpectedOf(const Calls& calls) {
  double time = 0;
  for (const auto& [task, count] : calls) {
    Tuning& t = tasks_[task];
    const double bias = bias_[static_cast<size_t>(t.task().choice.kind)];
    time += count * (t.measured() > 0 ? TimeOf(t) : bias * t.PredictedBest());
  }
  return time;
}

void TaskTable::SettleBias() {
  std::array<double, kKinds> measured{}, predicted{};
  for (Tuning& t : tasks_) {
    if (t.best().empty()) continue;
    const size_t kind = static_cast<size_t>(t.task().choice.kind);
    measured[kind] += context_.Weighted(t.best());
    predicted[kind] += t.PredictedBest();
  }
  for (size_t k = 0; k < kKinds; ++k) bias_[k] = predicted[k] > 0 ? measured[k] / predicted[k] : 1;
}

}  // namespace athanor
