#include "compiler/search/kernels/tuning.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "compiler/search/kernels/signature.h"
#include "compiler/search/kernels/space.h"

namespace athanor {

double TuningContext::Weighted(const Seconds& seconds) const {
  return std::inner_product(weights.begin(), weights.end(), seconds.begin(), 0.0);
}

Tuning::Tuning(KernelTask task, const TuningContext* context)
    : context_(*context), task_(std::move(task)), schedules_({task_.choice}), asked_({false}) {
  Reprice();
}

std::vector<TaskCost> Tuning::Costs() const {
  std::vector<TaskCost> costs;
  for (const SizePoint& sizes : context_.sizes) {
    costs.emplace_back(task_, sizes, context_.target, context_.machine);
  }
  return costs;
}

double Tuning::Predicted(const std::vector<TaskCost>& costs, const KernelChoice& choice) const {
  double predicted = 0;
  for (size_t s = 0; s < costs.size(); ++s) {
    predicted += context_.weights[s] * costs[s].Predict(choice);
  }
  return predicted;
}

void Tuning::Reprice() {
  const std::vector<TaskCost> costs = Costs();
  roofline_.clear();
  start_.clear();
  for (const TaskCost& cost : costs) {
    roofline_.push_back(cost.roofline() + context_.machine.launch_seconds);
    start_.push_back(cost.Predict(task_.choice));
  }
  for (size_t i = 0; i < predicted_.size(); ++i) predicted_[i] = Predicted(costs, schedules_[i]);
}

void Tuning::Rank() {
  if (ranked_ || context_.weights.empty()) return;
  ranked_ = true;
  const std::vector<TaskCost> costs = Costs();
  std::vector<KernelChoice> all = Schedules(task_, context_.target);
  if (context_.fixed_sums) {
    std::erase_if(all, std::not_fn(SameOrders(task_, context_.target)));
  }
  std::vector<std::pair<double, size_t>> order;  // ties keep the order of Schedules
  const double start = PredictedStart();
  const std::string text = ScheduleText(task_.choice);
  for (size_t i = 0; i < all.size(); ++i) {
    const double predicted = Predicted(costs, all[i]);
    // Only a schedule with the same prediction can equal the starting one.
    const bool alike = std::abs(predicted - start) <= 1e-9 * start;
    if (!alike || ScheduleText(all[i]) != text) order.emplace_back(predicted, i);
  }
  std::sort(order.begin(), order.end());
  // Puts the library's best block or call right behind the best: predictions know little of its
  // inner loops, and of a GPU's not which tiles it takes and whether it splits their sums.
  const auto library = std::find_if(order.begin(), order.end(), [&](const auto& ranked) {
    const KernelChoice& choice = all[ranked.second];
    return IsCall(choice) || IsLibraryProduct(choice);
  });
  constexpr double kHopeless = 2;  // times the best prediction
  if (library - order.begin() > 1 && library != order.end() &&
      (IsCall(all[library->second]) || library->first < kHopeless * order.front().first)) {
    std::rotate(order.begin() + 1, library, library + 1);
  }
  predicted_ = {start};
  schedules_.reserve(order.size() + 1);
  for (const auto& [predicted, i] : order) {
    predicted_.push_back(predicted);
    schedules_.push_back(std::move(all[i]));
  }
  asked_.resize(schedules_.size());
}

size_t Tuning::BestPredicted() {
  Rank();
  return schedules_.size() > 1 && predicted_[1] < predicted_[0] ? 1 : 0;
}

double Tuning::PredictedBest() {
  const size_t best = BestPredicted();
  return predicted_.empty() ? PredictedStart() : predicted_[best];
}

bool Tuning::Exhausted() {
  Rank();
  while (next_unasked_ < asked_.size() && asked_[next_unasked_]) ++next_unasked_;
  return next_unasked_ >= asked_.size();
}

std::optional<size_t> Tuning::Find(const KernelChoice& like) {
  Rank();
  for (; named_ < schedules_.size(); ++named_) by_text_[ScheduleText(schedules_[named_])] = named_;
  auto found = by_text_.find(ScheduleText(like));
  if (found == by_text_.end()) return std::nullopt;
  return found->second;
}

std::optional<size_t> Tuning::OpenNeighbour() {
  // Neighbours are found again only when another schedule is the best.
  if (near_to_ != best_schedule_) {
    near_to_ = best_schedule_;
    near_.clear();
    for (const KernelChoice& c : Neighbours(schedules_[near_to_], schedules_)) {
      near_.push_back(*Find(c));
    }
    std::sort(near_.begin(), near_.end());
  }
  for (size_t s : near_) {
    if (!asked_[s]) return s;
  }
  return std::nullopt;
}

std::optional<size_t> Tuning::Pick(std::mt19937_64& random) {
  if (Exhausted()) return std::nullopt;
  if (best_schedule_ < 0) return next_unasked_;
  // Every second pick is a neighbour of the best, every eighth a random one.
  const int turn = asked_count_ % 8;
  if (turn == 7) {
    std::vector<size_t> open;
    for (size_t s = 0; s < asked_.size(); ++s) {
      if (!asked_[s]) open.push_back(s);
    }
    // Draws from the better half: a schedule predicted to be many times slower is not worth
    // measuring.
    return open[random() % (open.size() / 2 + 1)];
  }
  if (turn % 2 == 1) {
    if (std::optional<size_t> near = OpenNeighbour()) return near;
  }
  return next_unasked_;
}

void Tuning::Ask(size_t schedule) {
  asked_[schedule] = true;
  ++asked_count_;
}

void Tuning::LeaveOutProposalsBehind(size_t schedule) {
  const auto* const missing = std::get_if<CallSchedule>(&schedules_[schedule].contract);
  if (missing == nullptr) return;
  for (size_t s = 0; s < schedules_.size(); ++s) {
    const auto* const call = std::get_if<CallSchedule>(&schedules_[s].contract);
    if (call != nullptr && call->swap == missing->swap && call->workspace == missing->workspace &&
        call->proposal > missing->proposal) {
      asked_[s] = true;
    }
  }
}

bool Tuning::Tell(size_t schedule, const absl::StatusOr<Seconds>& outcome) {
  ++measured_;
  if (!outcome.ok()) {
    ++failed_;
    ++since_better_;
    if (absl::IsOutOfRange(outcome.status())) LeaveOutProposalsBehind(schedule);
    return false;
  }
  if (first_.empty()) first_ = *outcome;
  const Seconds even(outcome->size(), 1);
  const Seconds& weights = context_.weights.empty() ? even : context_.weights;
  auto weighted = [&](const Seconds& seconds) {
    return std::inner_product(weights.begin(), weights.end(), seconds.begin(), 0.0);
  };
  if (!best_.empty() && weighted(*outcome) >= weighted(best_)) {
    ++since_better_;
    return false;
  }
  best_ = *outcome;
  best_schedule_ = static_cast<int>(schedule);
  since_better_ = 0;
  return true;
}

}  // namespace athanor
