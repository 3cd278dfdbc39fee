#include "clients/bench/flags.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

// Shorter slices hold too few calls to compare. Pairs are limited because each is kept and
// resampled.
constexpr double kFewestSliceSeconds = 0.05, kMostPairs = 10'000;
constexpr size_t kMostPoints = 64;    // of a sweep
constexpr double kShortestTrace = 1;  // seconds; all its calls may be due at its beginning
// A run that ends after a number of calls has this much time for them.
constexpr char kNoDuration[] = "168h";

absl::Status Bad(absl::string_view flag, absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", text, ": ", what));
}

absl::StatusOr<double> ParseSeconds(absl::string_view flag, const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return Bad(flag, text, "must be a time above 0 with its unit, such as 60s, 500ms or 2m");
  }
  return absl::ToDoubleSeconds(duration);
}

absl::Status ParseRate(absl::string_view flag, const std::string& text, Phase* phase) {
  const std::vector<std::string> ends = absl::StrSplit(text, "..");
  if (ends.size() > 2 || !absl::SimpleAtod(ends.front(), &phase->rate) ||
      !absl::SimpleAtod(ends.back(), &phase->rate_end) ||
      !(phase->rate >= 0 && phase->rate_end >= 0)) {
    return Bad(flag, text,
               "must be calls per second, not negative, such as 500, or 500..2500 for a ramp");
  }
  return absl::OkStatus();
}

// "10s:rate=500..2500" or "10s:concurrency=64"
absl::StatusOr<Phase> ParsePhase(const std::string& text, bool* open) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  ASSIGN_OR_RETURN(double seconds, ParseSeconds("--phase", parts.first));
  Phase phase;
  phase.seconds = seconds;
  absl::string_view load = parts.second;
  *open = absl::ConsumePrefix(&load, "rate=");
  if (*open) {
    RETURN_IF_ERROR(ParseRate("--phase", std::string(load), &phase));
  } else if (!absl::ConsumePrefix(&load, "concurrency=") ||
             !absl::SimpleAtoi(load, &phase.concurrency)) {
    return Bad("--phase", text, "must look like 10s:rate=500..2500 or 10s:concurrency=64");
  }
  return phase;
}

// A trace has one phase, of all calls that are due in it.
absl::StatusOr<std::vector<Phase>> PhasesOfTrace(const RunFlags& flags) {
  const std::pair<const char*, std::string> others[] = {
      {"--rate", flags.rate},
      {"--arrival", flags.arrival},
      {"--concurrency", flags.concurrency},
      {"--phase", flags.phases.empty() ? "" : flags.phases[0]},
      {"--knee", flags.knee ? "given" : ""}};
  for (const auto& [flag, text] : others) {
    if (!text.empty()) return Bad(flag, text, "--trace says when calls are due; leave one out");
  }
  Phase phase;
  phase.seconds = std::max(flags.due.back(), kShortestTrace);
  if (!flags.duration.empty()) {
    ASSIGN_OR_RETURN(phase.seconds, ParseSeconds("--duration", flags.duration));
  }
  const auto calls = std::upper_bound(flags.due.begin(), flags.due.end(), phase.seconds);
  if (calls - flags.due.begin() > MostCallsOf(flags.answers) && !flags.num_prompts.has_value()) {
    return Bad("--trace", absl::StrCat("(", calls - flags.due.begin(), " calls)"),
               absl::StrCat("at most ", MostCallsOf(flags.answers),
                            " are kept; end it early with --duration or --num_prompts"));
  }
  phase.rate = static_cast<double>(calls - flags.due.begin()) / phase.seconds;
  phase.rate_end = phase.rate;
  return std::vector<Phase>{phase};
}

// Parses the phases and reports whether they have a rate.
absl::StatusOr<std::vector<Phase>> ParsePhases(const RunFlags& flags, bool* open) {
  *open = !flags.rate.empty() || flags.knee || !flags.due.empty();
  if (!flags.due.empty()) return PhasesOfTrace(flags);
  if (flags.phases.empty()) {
    Phase phase;
    const std::string unset = flags.num_prompts.has_value() ? kNoDuration : "10s";
    ASSIGN_OR_RETURN(phase.seconds,
                     ParseSeconds("--duration", flags.duration.empty() ? unset : flags.duration));
    if (*open) {
      if (!flags.concurrency.empty()) {
        return Bad(
            "--concurrency", flags.concurrency,
            "limits closed loops only, and --rate makes an open loop; use --max_outstanding");
      }
      RETURN_IF_ERROR(ParseRate("--rate", flags.rate.empty() ? "1" : flags.rate, &phase));
    }
    return std::vector<Phase>{phase};
  }
  if (*open || !flags.concurrency.empty() || !flags.duration.empty()) {
    return Bad("--phase", flags.phases[0],
               "sets the whole load: leave out --rate, --knee, --concurrency and --duration");
  }
  std::vector<Phase> phases;
  for (const std::string& text : flags.phases) {
    bool has_rate = false;
    ASSIGN_OR_RETURN(Phase phase, ParsePhase(text, &has_rate));
    if (!phases.empty() && has_rate != *open) {
      return Bad("--phase", text, "must set a rate in all phases or a concurrency in all phases");
    }
    *open = has_rate;
    phases.push_back(phase);
  }
  return phases;
}

absl::StatusOr<Arrival> ParseArrival(const RunFlags& flags, bool open) {
  if (!flags.due.empty()) return Arrival::kTrace;
  if (flags.arrival.empty()) return open ? Arrival::kPoisson : Arrival::kClosed;
  const std::optional<Arrival> arrival = FindArrival(flags.arrival);
  if (!arrival.has_value() || *arrival == Arrival::kTrace) {
    return Bad("--arrival", flags.arrival, "must be closed, fixed, poisson or gamma");
  }
  if (open && *arrival == Arrival::kClosed) {
    return Bad("--arrival", flags.arrival, "a closed loop has no rate; give --concurrency");
  }
  if (!open && *arrival != Arrival::kClosed) {
    return Bad("--arrival", flags.arrival, "needs --rate, calls per second");
  }
  return *arrival;
}

// Returns how many whole slices fit. 0.3 s holds three of 0.1 s though the quotient is just below
// 3.
double SlicesIn(double seconds, double slice) { return std::floor(seconds / slice + 1e-9); }

absl::Status CheckComparison(const RunFlags& flags, const RunPlan& plan) {
  if (flags.servers.empty() || flags.servers.size() > 2) {
    return Bad("--address", absl::StrCat("(given ", flags.servers.size(), " times)"),
               "must be given once, or twice to compare");
  }
  if (flags.servers.size() == 1) {
    return flags.slice.empty() ? absl::OkStatus()
                               : Bad("--slice", flags.slice, "needs a second --address");
  }
  if (flags.num_prompts.has_value()) {
    return Bad("--num_prompts", absl::StrCat(*flags.num_prompts),
               "two servers take turns by time; give --duration and --slice");
  }
  const std::vector<Phase>& phases = plan.load.phases;
  if (phases.size() > 1 || phases[0].rate != phases[0].rate_end || !flags.due.empty()) {
    return Bad("--address", flags.servers[1], "two servers are compared at one constant load");
  }
  const std::string slice = absl::StrCat(plan.slice_seconds, "s");
  if (plan.slice_seconds < kFewestSliceSeconds) {
    return Bad("--slice", slice,
               absl::StrCat("must be at least ", kFewestSliceSeconds, "s, such as 2s"));
  }
  const double slices = SlicesIn(phases[0].seconds, plan.slice_seconds);
  if (slices < 2) return Bad("--slice", slice, "at least two slices must fit into --duration");
  if (slices > kMostPairs) {
    return Bad(
        "--slice", slice,
        absl::StrCat("makes ", slices, " slices of --duration; at most ", kMostPairs, ", so ",
                     std::ceil(phases[0].seconds / kMostPairs * 1e3) / 1e3, "s or more"));
  }
  return absl::OkStatus();
}

absl::Status ParseKnee(const RunFlags& flags, RunPlan* plan) {
  if (!flags.knee) return absl::OkStatus();
  const Phase& phase = plan->load.phases[0];
  if (plan->slos.empty()) {
    return absl::InvalidArgumentError("--knee: needs the levels to meet: --slo, such as e2el:5");
  }
  if (flags.servers.size() > 1) {
    return absl::InvalidArgumentError("--knee: is looked for on one --address at a time");
  }
  if (phase.rate != phase.rate_end || !(phase.rate > 0)) {
    return Bad("--rate", flags.rate, "is the first rate that --knee measures: one number above 0");
  }
  // Ends below the limit of kept calls, with room for more arrivals than expected.
  plan->knee_most = kMostRate;
  if (!flags.num_prompts.has_value()) {
    const auto most = static_cast<double>(MostCallsOf(flags.answers));
    plan->knee_most = std::max(phase.rate, std::min(kMostRate, most / 2 / phase.seconds));
  }
  return absl::OkStatus();
}

absl::Status ParseMetadata(const RunFlags& flags, RunPlan* plan) {
  for (const std::string& text : flags.metadata) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.first.empty() || parts.first.size() == text.size()) {
      return Bad("--metadata", text, "must be KEY=VALUE");
    }
    plan->metadata.insert(parts);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunPlan> ParseRunFlags(const RunFlags& flags) {
  RunPlan plan;
  bool open = false;
  ASSIGN_OR_RETURN(plan.load.phases, ParsePhases(flags, &open));
  ASSIGN_OR_RETURN(Arrival arrival, ParseArrival(flags, open));
  plan.load.arrival = arrival;
  for (double due : flags.due) {
    if (due <= plan.load.phases[0].seconds) plan.load.due.push_back(due);
  }
  plan.load.answers = flags.answers;
  plan.load.most_calls = flags.num_prompts.value_or(MostCallsOf(flags.answers));
  if (flags.phases.empty() && !open) {
    ASSIGN_OR_RETURN(plan.sweep, ParseSweep(flags.concurrency.empty() ? "1" : flags.concurrency));
    plan.load.phases[0].concurrency = plan.sweep.back();
  }
  if (flags.burstiness != 1 && arrival != Arrival::kGamma) {
    return Bad("--burstiness", absl::StrCat(flags.burstiness), "needs --arrival gamma");
  }
  if (flags.max_outstanding.has_value() && !open) {
    return Bad("--max_outstanding", absl::StrCat(*flags.max_outstanding),
               "limits open loops only; a closed loop has --concurrency calls in progress");
  }
  const client::ModelName model = client::ParseModelName(flags.model);
  plan.load.model = model.name;
  plan.load.version = model.version;
  plan.load.burstiness = flags.burstiness;
  plan.load.warmups = flags.warmups;
  plan.load.seed = flags.seed;
  plan.load.connections = flags.connections;
  plan.load.most_outstanding = flags.max_outstanding.value_or(plan.load.most_outstanding);
  if (!flags.timeout.empty()) {
    ASSIGN_OR_RETURN(double seconds, ParseSeconds("--timeout", flags.timeout));
    plan.load.timeout = absl::Seconds(seconds);
  }
  if (!flags.think.empty()) {
    ASSIGN_OR_RETURN(double seconds, ParseSeconds("--think", flags.think));
    plan.load.think = absl::Seconds(seconds);
  }
  if (!flags.slice.empty()) {
    ASSIGN_OR_RETURN(plan.slice_seconds, ParseSeconds("--slice", flags.slice));
  }
  ASSIGN_OR_RETURN(plan.slos, ParseSlos(flags.slo, flags.answers));
  if (!(flags.slo_share > 0 && flags.slo_share <= 1)) {
    return Bad("--slo_share", absl::StrCat(flags.slo_share), "must be above 0 and at most 1");
  }
  if (flags.slo_share != plan.slo_share && plan.slos.empty()) {
    return Bad("--slo_share", absl::StrCat(flags.slo_share), "needs --slo, such as e2el:5");
  }
  plan.slo_share = flags.slo_share;
  RETURN_IF_ERROR(ParseKnee(flags, &plan));
  RETURN_IF_ERROR(CheckComparison(flags, plan));
  plan.load.address = flags.servers[0];
  if (flags.servers.size() == 2) plan.second_server = flags.servers[1];
  RETURN_IF_ERROR(ParseMetadata(flags, &plan));
  // Checks the rest as the load will; the requests are not known yet.
  LoadOptions checked = plan.load;
  checked.requests = {client::InferRequest{plan.load.model}};
  RETURN_IF_ERROR(CheckLoadOptions(checked));
  return plan;
}

absl::StatusOr<std::vector<int>> ParseSweep(const std::string& text) {
  const absl::Status bad =
      Bad("--concurrency", text,
          absl::StrCat("must be a number of callers, or ascending ones, at most ", kMostPoints,
                       ": 1,4,16, or 1:64:x2, or 4:16:+4"));
  std::vector<int> points;
  const std::vector<std::string> range = absl::StrSplit(text, ':');
  if (range.size() == 3) {
    int low = 0, high = 0, step = 0;
    const bool times = absl::StartsWith(range[2], "x");
    if (!absl::SimpleAtoi(range[0], &low) || !absl::SimpleAtoi(range[1], &high) ||
        !(times || absl::StartsWith(range[2], "+")) ||
        !absl::SimpleAtoi(range[2].substr(1), &step) || low < 1 || high < low ||
        step < (times ? 2 : 1)) {
      return bad;
    }
    for (int64_t at = low; at <= high && points.size() <= kMostPoints;
         at = times ? at * step : at + step) {
      points.push_back(static_cast<int>(at));
    }
  } else {
    for (absl::string_view part : absl::StrSplit(text, ',')) {
      int point = 0;
      if (!absl::SimpleAtoi(part, &point)) return bad;
      if (!points.empty() && point <= points.back()) return bad;
      points.push_back(point);
    }
  }
  if (points.size() > kMostPoints || points.front() < 1) return bad;
  return points;
}

int Pairs(const RunPlan& plan) {
  const double slices = SlicesIn(plan.load.phases[0].seconds, plan.slice_seconds);
  return static_cast<int>(std::clamp(slices, 2.0, kMostPairs));
}

}  // namespace athanor::bench
