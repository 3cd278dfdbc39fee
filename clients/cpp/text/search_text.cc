#include "clients/cpp/text/search_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace athanor::client {
namespace {

using nlohmann::json;

json Numbers(const google::protobuf::RepeatedField<double>& numbers) {
  return std::vector<double>(numbers.begin(), numbers.end());
}

// Formats a time as a share of the baseline's; 0 means not known yet.
std::string ShareText(double share) {
  return share > 0 ? absl::StrFormat("%.1f %%", 100 * share) : "?";
}

std::string CodeText(int code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

// "98 candidates (3 failed, 90 from the cache, 2 recipes tried)"
std::string CandidatesText(const v1::SearchProgress& search) {
  std::string text =
      absl::StrFormat("%d candidates (%d failed", search.candidates(), search.candidates_failed());
  if (search.candidates_from_cache() > 0) {
    absl::StrAppend(&text, ", ", search.candidates_from_cache(), " from the cache");
  }
  if (search.recipes_tried() > 0) {
    absl::StrAppend(&text, ", ", search.recipes_tried(), " recipes tried");
  }
  return absl::StrCat(text, ")");
}

// "98 candidates (3 failed), 2 of 5 genomes and 1 of 2 plans taken"
std::string CountsText(const v1::SearchProgress& search) {
  return absl::StrFormat("%s, %d of %d genomes and %d of %d plans taken", CandidatesText(search),
                         search.genomes_taken(), search.genomes_tried(), search.plans_taken(),
                         search.plans_measured());
}

std::string SharesText(const v1::SearchProgress& search) {
  return absl::StrCat("time ", ShareText(search.best()), " of the baseline's; best genome ",
                      ShareText(search.predicted()), ", roofline ", ShareText(search.roofline()));
}

// Lists problems: "14 refused, 2 times over a budget, 1 error"; empty without any.
std::string TroubleText(const v1::SearchProgress& search) {
  int64_t refused = 0, bans = 0, errors = 0;
  for (const v1::SearchRegion& region : search.regions()) {
    for (const v1::SearchRule& rule : region.rules()) {
      refused += rule.refused();
      bans += rule.bans();
      errors += rule.errors();
    }
  }
  std::vector<std::string> parts;
  if (refused > 0) parts.push_back(absl::StrCat(refused, " refused"));
  if (bans > 0) {
    parts.push_back(absl::StrCat(bans, bans == 1 ? " time" : " times", " over a budget"));
  }
  if (errors > 0) parts.push_back(absl::StrCat(errors, errors == 1 ? " error" : " errors"));
  return absl::StrJoin(parts, ", ");
}

// "26 regions, 3 distinct (2 saturated), 1840 e-nodes; 5 rules fired 312 times, 14 refused"; empty
// without regions.
std::string RegionsText(const v1::SearchProgress& search) {
  if (search.regions().empty()) return "";
  int64_t instances = 0, saturated = 0, e_nodes = 0, fired = 0;
  std::set<std::string> rules;
  for (const v1::SearchRegion& region : search.regions()) {
    instances += region.instances();
    saturated += region.stop() == "saturated";
    e_nodes += region.e_nodes();
    for (const v1::SearchRule& rule : region.rules()) {
      if (rule.fired() > 0) rules.insert(rule.rule());
      fired += rule.fired();
    }
  }
  const std::string trouble = TroubleText(search);
  return absl::StrFormat(
      "%d regions, %d distinct (%d saturated), %d e-nodes; %d rules fired %d times%s%s", instances,
      search.regions_size(), saturated, e_nodes, rules.size(), fired, trouble.empty() ? "" : ", ",
      trouble);
}

// "1 of 12 forms taken, by contracts_share_operand"; empty if the rules made no forms.
std::string FormsText(const v1::SearchProgress& search) {
  if (!search.forms_error().empty()) {
    return absl::StrCat("no forms by rules: ", search.forms_error());
  }
  if (search.forms_tried() == 0) return "";
  return absl::StrCat(search.forms_taken(), " of ", search.forms_tried(), " forms taken",
                      search.rules().empty() ? "" : ", by ", absl::StrJoin(search.rules(), ", "));
}

void AddRules(const v1::SearchProgress& search, std::vector<std::string>* lines) {
  for (std::string text : {RegionsText(search), FormsText(search)}) {
    if (!text.empty()) lines->push_back(std::move(text));
  }
}

// Adds the rule's counts in another region.
void AddRule(const v1::SearchRule& rule, v1::SearchRule* all) {
  v1::SearchRule sum = rule;
  sum.set_fired(all->fired() + rule.fired());
  sum.set_matches(all->matches() + rule.matches());
  sum.set_refused(all->refused() + rule.refused());
  sum.set_errors(all->errors() + rule.errors());
  sum.set_bans(all->bans() + rule.bans());
  sum.set_banned_iterations(all->banned_iterations() + rule.banned_iterations());
  sum.set_milliseconds(all->milliseconds() + rule.milliseconds());
  if (sum.last_error().empty()) sum.set_last_error(all->last_error());
  *all = std::move(sum);
}

std::string RegionText(const v1::SearchRegion& region) {
  std::string text = absl::StrFormat(
      "%d x %d nodes: %d e-nodes in %d e-classes after %d iterations and %.1f ms, %.1f MB, %s",
      region.instances(), region.nodes(), region.e_nodes(), region.e_classes(), region.iterations(),
      region.milliseconds(), static_cast<double>(region.peak_bytes()) / 1e6, region.stop());
  for (const v1::SearchRule& rule : region.rules()) {
    if (rule.fired() > 0) absl::StrAppend(&text, "\n    ", rule.rule(), " ", rule.fired());
  }
  return text;
}

// Formats the list's value at one size, or "-" if it is not known.
std::string At(const google::protobuf::RepeatedField<double>& seconds, int size) {
  return size < seconds.size() ? SecondsText(seconds[size]) : "-";
}

std::string PercentAt(const std::vector<double>& shares, size_t size, int digits) {
  return size < shares.size() ? absl::StrFormat("%.*f %%", digits, 100 * shares[size]) : "-";
}

std::string CallsText(const v1::SearchTask& task) {
  return absl::StrCat(task.calls(), task.calls() == 1 ? " call" : " calls");
}

std::string ScheduleText(const v1::SearchTask& task) {
  return task.schedule().empty() ? "not measured yet" : task.schedule();
}

void AddKernel(const v1::SearchProgress& search, const KernelCost& cost, int number, int width,
               std::vector<std::string>* lines) {
  const v1::SearchTask& task = *cost.task;
  lines->push_back(absl::StrCat(
      "kernel ", number, ": ", task.about(), ", ", CallsText(task),
      cost.shares.empty() ? "" : absl::StrFormat(", %.1f %% of the whole", 100 * cost.share)));
  lines->push_back(absl::StrFormat("  %s (%d measured, %d failed)", ScheduleText(task),
                                   task.measured(), task.failed()));
  for (int size = 0; size < search.sizes_size(); ++size) {
    lines->push_back(absl::StrFormat(
        "  %-*s %9s %9s %9s %9s %9s", width, search.sizes(size), PercentAt(cost.shares, size, 1),
        At(task.seconds(), size), At(task.first_seconds(), size), At(task.roofline_seconds(), size),
        PercentAt(cost.of_roofline, size, 0)));
  }
}

json RegionsJson(const v1::SearchProgress& search) {
  json regions = json::array();
  for (const v1::SearchRegion& region : search.regions()) {
    json rules = json::array();
    for (const v1::SearchRule& rule : region.rules()) {
      rules.push_back({{"rule", rule.rule()},
                       {"fired", rule.fired()},
                       {"family", rule.family()},
                       {"rule_class", rule.rule_class()},
                       {"matches", rule.matches()},
                       {"refused", rule.refused()},
                       {"errors", rule.errors()},
                       {"last_error", rule.last_error()},
                       {"bans", rule.bans()},
                       {"banned_iterations", rule.banned_iterations()},
                       {"milliseconds", rule.milliseconds()}});
    }
    regions.push_back({{"instances", region.instances()},
                       {"nodes", region.nodes()},
                       {"e_nodes", region.e_nodes()},
                       {"e_classes", region.e_classes()},
                       {"iterations", region.iterations()},
                       {"milliseconds", region.milliseconds()},
                       {"peak_bytes", region.peak_bytes()},
                       {"stop", region.stop()},
                       {"rules", rules}});
  }
  return regions;
}

}  // namespace

std::vector<KernelCost> KernelCosts(const v1::SearchProgress& search) {
  std::vector<double> whole(search.sizes_size(), 0);
  for (const v1::SearchTask& task : search.tasks()) {
    for (int size = 0; size < std::min(task.seconds_size(), search.sizes_size()); ++size) {
      whole[size] += task.calls() * task.seconds(size);
    }
  }
  std::vector<KernelCost> costs;
  for (const v1::SearchTask& task : search.tasks()) {
    KernelCost cost{&task, {}, {}};
    const int sizes =
        std::min({task.seconds_size(), task.roofline_seconds_size(), search.sizes_size()});
    for (int size = 0; size < sizes; ++size) {
      const double seconds = task.seconds(size);
      cost.shares.push_back(whole[size] > 0 ? task.calls() * seconds / whole[size] : 0);
      cost.of_roofline.push_back(seconds > 0 ? task.roofline_seconds(size) / seconds : 0);
      cost.share += cost.shares.back() / sizes;
    }
    costs.push_back(std::move(cost));
  }
  return costs;
}

std::string StopReasonText(v1::CompileJob::StopReason reason) {
  switch (reason) {
    case v1::CompileJob::STOP_BASELINE_ONLY:
      return "no search was asked for";
    case v1::CompileJob::STOP_ERROR:
      return "an error";
    case v1::CompileJob::STOP_CANCELLED:
      return "it was cancelled";
    case v1::CompileJob::STOP_MODEL_DELETED:
      return "its model was deleted";
    case v1::CompileJob::STOP_SHUTDOWN:
      return "the server shuts down, and continues when it starts";
    case v1::CompileJob::STOP_ROOFLINE:
      return "near the machine's limit";
    case v1::CompileJob::STOP_STAGNATION:
      return "nothing left to try promises a gain";
    case v1::CompileJob::STOP_EXHAUSTED:
      return "everything was measured";
    case v1::CompileJob::STOP_SEARCH_FAILED:
      return "the search could not go on";
    case v1::CompileJob::STOP_BUDGET:
      return "the search's budget is used up";
    case v1::CompileJob::STOP_RESTORED:
      return "the plan was kept, and so was the end of its search";
    case v1::CompileJob::STOP_REASON_UNSPECIFIED:
      return "not finished";
    default:
      return v1::CompileJob::StopReason_Name(reason);  // a reason that only a newer server knows
  }
}

std::string SecondsText(double seconds) {
  constexpr const char* kUnits[] = {"s", "ms", "us", "ns"};
  int unit = 0;
  // A value that would round up to 1000 is shown in the larger unit.
  while (unit < 3 && seconds < 0.9995) {
    seconds *= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f %s",
                         seconds < 9.995   ? 2
                         : seconds < 99.95 ? 1
                                           : 0,
                         seconds, kUnits[unit]);
}

std::string SearchText(const v1::SearchProgress& search) {
  return absl::StrFormat("%.1f s, %s, %d of %d plans taken, %s", search.seconds(),
                         CandidatesText(search), search.plans_taken(), search.plans_measured(),
                         SharesText(search));
}

std::vector<std::string> SearchLines(const v1::SearchProgress& search, int kernels) {
  std::vector<std::string> lines = {CountsText(search), SharesText(search)};
  AddRules(search, &lines);
  const int last = search.sizes_size() - 1;
  const std::vector<KernelCost> costs = KernelCosts(search);
  const int shown = std::min<int>(kernels, costs.size());
  if (shown == 0 || last < 0) return lines;
  lines.push_back(absl::StrFormat("%7s %9s %9s %9s  kernel, at %s", "share", "time", "first",
                                  "roofline", search.sizes(last)));
  for (int i = 0; i < shown; ++i) {
    const v1::SearchTask& task = *costs[i].task;
    const std::string share =
        costs[i].shares.empty() ? "-" : absl::StrFormat("%.1f %%", 100 * costs[i].share);
    lines.push_back(absl::StrFormat(
        "%7s %9s %9s %9s  %s, %s", share, At(task.seconds(), last), At(task.first_seconds(), last),
        PercentAt(costs[i].of_roofline, last, 0), task.about(), CallsText(task)));
    lines.push_back(absl::StrCat("        ", ScheduleText(task)));
  }
  const int rest = static_cast<int>(costs.size()) - shown;
  if (rest > 0) lines.push_back(absl::StrCat("        and ", rest, " more"));
  return lines;
}

// "Went into: search 5.4 s, compile 10.7 s of 166, ..."
std::string TimesText(const v1::SearchProgress& search) {
  std::vector<std::string> parts;
  for (const v1::SearchTime& time : search.times()) {
    parts.push_back(absl::StrFormat("%s %.1f s of %d", time.on(), time.seconds(), time.calls()));
  }
  return absl::StrCat("Went into: ", absl::StrJoin(parts, ", "));
}

std::vector<std::string> SearchReport(const v1::SearchProgress& search) {
  std::vector<std::string> lines = {
      absl::StrFormat("%.1f s of search: %s", search.seconds(), CountsText(search)),
      SharesText(search)};
  if (!search.limited_by().empty()) lines.push_back("limited by " + search.limited_by());
  if (!search.times().empty()) lines.push_back(TimesText(search));
  AddRules(search, &lines);
  size_t width = 4;
  for (const std::string& size : search.sizes()) width = std::max(width, size.size());
  const std::vector<KernelCost> costs = KernelCosts(search);
  if (!costs.empty()) {
    lines.push_back("");
    lines.push_back("Kernels of the best genome, one call, with the schedule named:");
    lines.push_back(absl::StrFormat("  %-*s %9s %9s %9s %9s %9s", static_cast<int>(width), "size",
                                    "share", "time", "first", "roofline", "reached"));
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    AddKernel(search, costs[i], static_cast<int>(i) + 1, static_cast<int>(width), &lines);
  }
  if (!search.regions().empty()) {
    lines.push_back("");
    lines.push_back(
        "Distinct regions, as the rules saturated them, with what each rule found equal:");
  }
  for (int r = 0; r < search.regions_size(); ++r) {
    const std::string text = absl::StrCat("region ", r, ": ", RegionText(search.regions(r)));
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      lines.push_back(absl::StrCat("  ", line));
    }
  }
  if (!search.failures().empty()) {
    lines.push_back("");
    std::string head = absl::StrFormat("Put aside, the last %d of %d", search.failures_size(),
                                       search.candidates_failed() + search.plans_failed());
    if (search.failures_from_cache() > 0) {
      absl::StrAppend(&head, ", ", search.failures_from_cache(),
                      " of them not tried since they had failed before");
    }
    lines.push_back(absl::StrCat(head, ":"));
  }
  for (const v1::SearchFailure& failure : search.failures()) {
    const std::string which = failure.plan_id().empty()
                                  ? absl::StrCat("kernel ", failure.kernel().substr(0, 12))
                                  : absl::StrCat("plan ", failure.plan_id());
    lines.push_back(absl::StrCat("  ", failure.about(), " (", which,
                                 failure.from_cache() ? ", not tried again" : "",
                                 "): ", CodeText(failure.code()), ": ", failure.message()));
  }
  return lines;
}

std::vector<std::string> RuleTable(const v1::SearchProgress& search) {
  std::map<std::string, v1::SearchRule> rules;
  for (const v1::SearchRegion& region : search.regions()) {
    for (const v1::SearchRule& rule : region.rules()) AddRule(rule, &rules[rule.rule()]);
  }
  std::vector<const v1::SearchRule*> dearest;
  for (const auto& [name, rule] : rules) dearest.push_back(&rule);
  std::sort(dearest.begin(), dearest.end(), [](const auto* a, const auto* b) {
    const double ta = a->milliseconds(), tb = b->milliseconds();
    return ta != tb ? ta > tb : a->rule() < b->rule();
  });
  std::vector<std::string> lines;
  if (dearest.empty()) return lines;
  lines.push_back("Rules that found anything, in all distinct regions together:");
  lines.push_back(absl::StrFormat("  %-24s %-10s %-13s %8s %6s %7s %6s %6s %8s", "rule", "family",
                                  "class", "matches", "fired", "refused", "banned", "errors",
                                  "ms"));
  for (const v1::SearchRule* r : dearest) {
    lines.push_back(absl::StrFormat("  %-24s %-10s %-13s %8d %6d %7d %6d %6d %8.2f", r->rule(),
                                    r->family(), r->rule_class(), r->matches(), r->fired(),
                                    r->refused(), r->bans(), r->errors(), r->milliseconds()));
    if (!r->last_error().empty()) lines.push_back("    last error: " + r->last_error());
  }
  return lines;
}

json SearchOptionsJson(const v1::SearchOptions& options) {
  return {{"budget", options.budget()},
          {"seed", options.seed()},
          {"disabled_rules", std::vector<std::string>(options.disabled_rules().begin(),
                                                      options.disabled_rules().end())},
          {"approximate", options.approximate()},
          {"use", v1::SearchOptions::Use_Name(options.use())}};
}

json ComparisonJson(const v1::PlanComparison& comparison) {
  return {{"plan_id", comparison.plan_id()},
          {"against", comparison.against()},
          {"ratio", comparison.ratio()},
          {"low", comparison.low()},
          {"high", comparison.high()}};
}

json SearchJson(const v1::SearchProgress& search) {
  json tasks = json::array();
  for (const v1::SearchTask& task : search.tasks()) {
    tasks.push_back({{"about", task.about()},
                     {"calls", task.calls()},
                     {"schedule", task.schedule()},
                     {"measured", task.measured()},
                     {"failed", task.failed()},
                     {"seconds", Numbers(task.seconds())},
                     {"first_seconds", Numbers(task.first_seconds())},
                     {"roofline_seconds", Numbers(task.roofline_seconds())}});
  }
  json failures = json::array();
  for (const v1::SearchFailure& failure : search.failures()) {
    failures.push_back({{"kernel", failure.kernel()},
                        {"plan_id", failure.plan_id()},
                        {"about", failure.about()},
                        {"code", CodeText(failure.code())},
                        {"message", failure.message()},
                        {"from_cache", failure.from_cache()}});
  }
  json times = json::array();
  for (const v1::SearchTime& time : search.times()) {
    times.push_back({{"on", time.on()}, {"seconds", time.seconds()}, {"calls", time.calls()}});
  }
  return {{"candidates", search.candidates()},
          {"candidates_failed", search.candidates_failed()},
          {"candidates_from_cache", search.candidates_from_cache()},
          {"failures_from_cache", search.failures_from_cache()},
          {"recipes_tried", search.recipes_tried()},
          {"genomes_tried", search.genomes_tried()},
          {"genomes_taken", search.genomes_taken()},
          {"plans_measured", search.plans_measured()},
          {"plans_taken", search.plans_taken()},
          {"plans_failed", search.plans_failed()},
          {"predicted", search.predicted()},
          {"best", search.best()},
          {"roofline", search.roofline()},
          {"limited_by", search.limited_by()},
          {"seconds", search.seconds()},
          {"sizes", std::vector<std::string>(search.sizes().begin(), search.sizes().end())},
          {"tasks", tasks},
          {"regions", RegionsJson(search)},
          {"forms_tried", search.forms_tried()},
          {"forms_taken", search.forms_taken()},
          {"rules", std::vector<std::string>(search.rules().begin(), search.rules().end())},
          {"mode", v1::SearchMode_Name(search.mode())},
          {"forms_error", search.forms_error()},
          {"times", times},
          {"failures", failures}};
}

json KernelsJson(const v1::SearchProgress& search) {
  json kernels = json::array();
  for (const KernelCost& cost : KernelCosts(search)) {
    kernels.push_back({{"about", cost.task->about()},
                       {"calls", cost.task->calls()},
                       {"schedule", cost.task->schedule()},
                       {"measured", cost.task->measured()},
                       {"failed", cost.task->failed()},
                       {"share", cost.share},
                       {"shares", cost.shares},
                       {"seconds", Numbers(cost.task->seconds())},
                       {"first_seconds", Numbers(cost.task->first_seconds())},
                       {"roofline_seconds", Numbers(cost.task->roofline_seconds())},
                       {"of_roofline", cost.of_roofline}});
  }
  return kernels;
}

}  // namespace athanor::client
