#include "compiler/search/search/search_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/search/search/search.h"

namespace athanor {
namespace {

std::string AboutOf(const KernelTask& task) {
  std::string about(OpName(task.graph.node(task.choice.root).op));
  if (task.choice.anchor >= 0 && task.choice.anchor != task.choice.root) {
    about += " over ";
    about += OpName(task.graph.node(task.choice.anchor).op);
  }
  return about;
}

}  // namespace

std::string_view SearchStopName(SearchStop stop) {
  switch (stop) {
    case SearchStop::kNone:
      return "none";
    case SearchStop::kRoofline:
      return "roofline";
    case SearchStop::kStagnation:
      return "stagnation";
    case SearchStop::kExhausted:
      return "exhausted";
    case SearchStop::kBudget:
      return "budget";
  }
  return "?";
}

SearchReport Search::Report() {
  SearchReport report;
  report.kernels_measured = requests_.size();
  report.kernels_failed = requests_.failed();
  report.genomes_tried = genomes_tried_;
  report.genomes_taken = best_.genomes_taken();
  report.forms_tried = forms_tried_;
  report.forms_taken = best_.forms_taken();
  report.recipes_tried = recipes_.tried();
  report.rules = forms_->About(best_.get().form);
  report.regions = forms_->Report();
  report.forms = forms_->status();
  report.plans_proposed = plans_.size();
  report.stop = stop_;
  if (!baseline_known_) return report;
  report.predicted = best_.time();
  for (const auto& [task, calls] : best_.get().calls) {
    const Tuning& t = tasks_.at(task);
    report.roofline += calls * tasks_.RooflineOf(t);
    TaskReport r{t.task().key, AboutOf(t.task()), calls,    t.measured(), t.failed(),
                 "",           t.first(),         t.best(), t.roofline()};
    if (t.best_schedule() >= 0) {
      r.schedule = ScheduleText(t.schedule(static_cast<size_t>(t.best_schedule())));
    }
    report.tasks.push_back(std::move(r));
  }
  auto time = [&](const TaskReport& t) {
    return t.calls * tasks_.context().Weighted(t.best.empty() ? t.roofline : t.best);
  };
  std::sort(report.tasks.begin(), report.tasks.end(),
            [&](const TaskReport& a, const TaskReport& b) {
              const double ta = time(a), tb = time(b);
              return ta != tb ? ta > tb : a.key < b.key;
            });
  report.limited_by = LimitedBy(report);
  return report;
}

std::string Search::LimitedBy(const SearchReport& report) const {
  if (stop_ == SearchStop::kNone || report.roofline <= 0) return "";
  const std::string above =
      absl::StrFormat("kernels take %.2f times what the machine's limits allow",
                      report.predicted / report.roofline);
  if (plans_.unheld() > 1 + options_.least_gain) {
    return absl::StrFormat("whole plans: the last took %.2f times the sum of its kernels; %s",
                           plans_.unheld(), above);
  }
  switch (stop_) {
    case SearchStop::kRoofline:
      return absl::StrCat("the machine: ", above);
    case SearchStop::kBudget:
      return absl::StrCat("the budget: ", above);
    default:
      return absl::StrCat("the space: ", above,
                          ", but no schedule, fusion or form promises a gain");
  }
}

}  // namespace athanor
