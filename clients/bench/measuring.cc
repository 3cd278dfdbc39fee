#include "clients/bench/measuring.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/bench/environment.h"
#include "clients/bench/figures/compare.h"
#include "clients/bench/figures/summary.h"
#include "clients/bench/figures/summary_text.h"
#include "clients/bench/knee.h"
#include "clients/bench/progress_line.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

// Seeds of a sweep's points are this far apart, so that no point repeats another's requests.
constexpr uint64_t kPointSeeds = 1'000'003;

// Holds a side's run at a point of the sweep.
struct Outcome {
  LoadResult result;
  json summary;
};

// The sides at one point of the sweep.
struct Point {
  std::vector<Outcome> outcomes;
  json comparison;
};

json OptionsJson(const RunFlags& flags, const LoadOptions& load) {
  json phases = json::array();
  for (const Phase& phase : load.phases) {
    json row = {{"seconds", phase.seconds}};
    if (load.arrival == Arrival::kClosed) {
      row["concurrency"] = phase.concurrency;
    } else {
      row["rate"] = phase.rate;
      row["rate_end"] = phase.rate_end;
    }
    phases.push_back(std::move(row));
  }
  return {{"server", load.address},
          {"arrival", std::string(ArrivalName(load.arrival))},
          {"phases", phases},
          {"warmup", load.warmups},
          {"timeout_s", absl::ToDoubleSeconds(load.timeout)},
          {"connections", load.connections},
          {"max_outstanding", load.most_outstanding},
          {"num_prompts", flags.num_prompts.has_value() ? json(*flags.num_prompts) : json()},
          {"seed", load.seed},
          {"slo_share", flags.slo_share}};
}

class Measurement {
 public:
  Measurement(const RunOptions& options, const RunPlan& plan, const std::vector<Side>& sides)
      : options_(options), plan_(plan), sides_(sides) {}

  absl::StatusOr<ExitCode> Run() {
    if (plan_.knee_most > 0) {
      FindKnee();
    } else {
      RunSweep();
    }
    if (is_sweep()) PrintSweep();
    if (knee_.has_value() && figures()) std::fputs(KneeText().c_str(), stdout);
    return End();
  }

 private:
  bool is_sweep() const { return plan_.sweep.size() > 1 || plan_.knee_most > 0; }
  // Reports whether stdout is for figures; otherwise it is for a program.
  bool figures() const { return options_.outputs.out != "-" && !options_.json; }

  std::string PointName(const LoadOptions& load) const {
    if (!is_sweep()) return "";
    return plan_.knee_most > 0 ? absl::StrFormat("rate %.4g", load.phases[0].rate)
                               : absl::StrCat("concurrency ", load.phases[0].concurrency);
  }

  // Adds to a point's name which one of the sweep it is.
  std::string ProgressName(const LoadOptions& load) const {
    const std::string name = PointName(load);
    if (plan_.sweep.size() < 2) return name;
    return absl::StrCat(name, ", ", points_.size() + 1, " of ", plan_.sweep.size());
  }

  // Returns the seconds that a side's load takes; 0: it ends with a number of calls.
  double Whole(const LoadOptions& load) const {
    double seconds = 0;
    for (const Phase& phase : load.phases) seconds += phase.seconds;
    return options_.flags.num_prompts.has_value() ? 0 : seconds;
  }

  void RunPoint(LoadOptions load) {
    load.seed += points_.size() * kPointSeeds;
    points_.push_back(sides_.size() == 1 ? One(load) : Two(load));
    Print(points_.back());
  }

  void RunSweep() {
    if (plan_.sweep.empty()) return RunPoint(plan_.load);
    for (int callers : plan_.sweep) {
      LoadOptions load = plan_.load;
      load.phases[0].concurrency = callers;
      RunPoint(std::move(load));
    }
  }

  // Measures rates in the order of Knee and keeps them by rate: the curve of the goodput.
  void FindKnee() {
    knee_.emplace(plan_.load.phases[0].rate, plan_.knee_most);
    std::map<double, size_t> order;
    while (const std::optional<double> rate = knee_->Next()) {
      LoadOptions load = plan_.load;
      load.phases[0].rate = load.phases[0].rate_end = *rate;
      order[*rate] = points_.size();
      RunPoint(std::move(load));
      // A rate at which no call was due says nothing: it counts as missed.
      const json& share = points_.back().outcomes[0].summary["slo_share"];
      knee_->Tell(share.is_number() && share.get<double>() >= plan_.slo_share);
    }
    std::vector<Point> by_rate;
    for (const auto& [rate, point] : order) by_rate.push_back(std::move(points_[point]));
    points_ = std::move(by_rate);
  }

  std::string KneeText() const {
    if (knee_->rate() == 0) {
      return absl::StrFormat("no knee: the service levels are missed at %.4g calls/s\n",
                             knee_->missed());
    }
    return absl::StrFormat("the knee: %.4g calls/s meet the service levels, %s\n", knee_->rate(),
                           std::isinf(knee_->missed())
                               ? "as does every rate measured"
                               : absl::StrFormat("%.4g miss them", knee_->missed()));
  }

  Point One(const LoadOptions& load) {
    Outcome outcome;
    {
      ProgressLine progress({&sides_[0].load->progress()}, ProgressName(load), Whole(load));
      outcome.result = sides_[0].load->Run(load.phases, load.seed, next_number_);
      next_number_ += static_cast<int64_t>(outcome.result.calls.size());
    }
    Point point;
    point.outcomes.push_back(Finish(0, "", load, std::move(outcome.result)));
    return point;
  }

  Point Two(const LoadOptions& load) {
    Turns turns{load.phases[0], Pairs(plan_), load.seed, next_number_};
    turns.slice.seconds = plan_.slice_seconds;
    std::optional<Interleaved> slices;
    {
      ProgressLine progress({&sides_[0].load->progress(), &sides_[1].load->progress()},
                            ProgressName(load), 2 * turns.slice.seconds * turns.pairs);
      slices = RunInterleaved(sides_[0].load.get(), sides_[1].load.get(), turns);
      next_number_ = slices->next_number;
    }
    Point point;
    LoadOptions whole = load;
    whole.phases[0].seconds = turns.slice.seconds * turns.pairs;
    point.outcomes.push_back(Finish(0, "first", whole, Join(slices->first)));
    point.outcomes.push_back(Finish(1, "second", whole, Join(slices->second)));
    point.comparison =
        Compare(*slices, sides_[0].load->options(), sides_[1].load->options(), plan_.slos);
    if (is_sweep()) {
      point.comparison["first"] = point.outcomes[0].summary["label"];
      point.comparison["second"] = point.outcomes[1].summary["label"];
    }
    return point;
  }

  // Makes a side's summary: its figures, label, server, environment and options.
  Outcome Finish(size_t side, const std::string& side_name, const LoadOptions& load,
                 LoadResult result) const {
    LoadOptions own = sides_[side].load->options();
    own.phases = load.phases;
    own.seed = load.seed;
    json summary = Summarise(result, own, plan_.slos);
    const json& about = sides_[side].about;
    std::vector<std::string> label;
    for (const std::string& part : {options_.label, side_name, PointName(load)}) {
      if (!part.empty()) label.push_back(part);
    }
    summary["date"] = NowText();
    summary["backend"] = about["backend"];
    summary["server"] = about["server"];
    summary["label"] = absl::StrJoin(label, " ");
    if (is_sweep()) {
      label.pop_back();
      label.push_back(absl::StrCat(own.model, " at ", own.address));
      summary["sweep"] = absl::StrJoin(label, ", ");
    }
    summary["environment"] = Environment();
    summary["options"] = OptionsJson(options_.flags, own);
    summary["options"].update(about["options"]);
    summary["metadata"] = plan_.metadata;
    return {std::move(result), std::move(summary)};
  }

  // With figures(), prints them to stdout. Otherwise prints only the warnings, to stderr, and with
  // --json the summaries.
  void Print(const Point& point) const {
    if (figures()) {
      for (const Outcome& outcome : point.outcomes) {
        std::fputs(SummaryText(outcome.summary).c_str(), stdout);
      }
      if (!point.comparison.is_null()) {
        std::fputs(ComparisonText(point.comparison).c_str(), stdout);
      }
      std::fflush(stdout);
      return;
    }
    if (options_.json) PrintLines(point);
    std::vector<std::string> warnings;
    for (const Outcome& outcome : point.outcomes) {
      for (std::string& warning : Warnings(outcome.summary)) {
        warnings.push_back(std::move(warning));
      }
    }
    for (std::string& warning : ComparisonWarnings(point.comparison)) {
      warnings.push_back(std::move(warning));
    }
    for (const std::string& warning : warnings) {
      std::fprintf(stderr, "athanor-bench: %s\n", warning.c_str());
    }
  }

  static void PrintLines(const Point& point) {
    for (const Outcome& outcome : point.outcomes) PrintLine(outcome.summary);
    if (!point.comparison.is_null()) PrintLine({{"comparison", point.comparison}});
  }

  static void PrintLine(const json& object) {
    const std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  void PrintSweep() const {
    if (!figures() && !options_.json) return;
    std::vector<json> summaries;
    for (const Point& point : points_) {
      for (const Outcome& outcome : point.outcomes) summaries.push_back(outcome.summary);
    }
    if (options_.json) return PrintLine({{"sweep", CurveJson(summaries)}});
    std::fputs(SweepText(summaries).c_str(), stdout);
    for (size_t side = 0; side < sides_.size(); ++side) {
      std::vector<json> own;
      for (const Point& point : points_) own.push_back(point.outcomes[side].summary);
      std::fputs(CurveText(own).c_str(), stdout);
    }
  }

  // Returns the curve alone: what a plot of throughput against times needs.
  static json CurveJson(const std::vector<json>& summaries) {
    json curve = json::array();
    for (const json& summary : summaries) {
      json point;
      for (const char* key : {"label", "max_concurrency", "request_rate", "request_throughput",
                              "request_goodput", "output_throughput", "median_e2el_ms",
                              "p99_e2el_ms", "median_ttft_ms", "p99_ttft_ms", "failed"}) {
        point[key] = At(summary, key);
      }
      curve.push_back(std::move(point));
    }
    return curve;
  }

  absl::StatusOr<ExitCode> End() const {
    std::vector<Part> parts;
    for (const Point& point : points_) {
      Part part{{}, point.comparison};
      for (const Outcome& outcome : point.outcomes) {
        part.runs.push_back({&outcome.summary, &outcome.result});
      }
      parts.push_back(std::move(part));
    }
    const Kept kept = Keep(options_.outputs, parts);
    if (!kept.names.empty()) {
      std::fprintf(figures() ? stdout : stderr, "kept as %s\n",
                   absl::StrJoin(kept.names, " and ").c_str());
    }
    if (!kept.status.ok()) return Usage(kept.status);
    return Judge();
  }

  // Returns kMissed when a service level was missed, kFailed when a run had no answered call. A
  // knee misses levels on purpose, and has rates at which no call is due.
  ExitCode Judge() const {
    ExitCode code = kOk;
    bool answered = false;
    for (const Point& point : points_) {
      for (const Outcome& outcome : point.outcomes) {
        const bool silent = outcome.summary["completed"].get<int64_t>() == 0;
        if (silent && !knee_.has_value()) return kFailed;
        answered = answered || !silent;
        const json& share = outcome.summary["slo_share"];
        if (share.is_number() && share.get<double>() < plan_.slo_share) code = kMissed;
      }
    }
    if (!answered) return kFailed;
    return knee_.has_value() && knee_->rate() > 0 ? kOk : code;
  }

  const RunOptions& options_;
  const RunPlan& plan_;
  const std::vector<Side>& sides_;
  std::vector<Point> points_;
  std::optional<Knee> knee_;
  int64_t next_number_ = 0;  // of the next run's first call
};

}  // namespace

absl::StatusOr<ExitCode> Measure(const RunOptions& options, const RunPlan& plan,
                                 const std::vector<Side>& sides) {
  return Measurement(options, plan, sides).Run();
}

}  // namespace athanor::bench
