// athanor explain MODEL --ablate: measures the worth of each rule family, and of each rule behind
// the best genome, on this model and machine.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/cpp/commands/commands.h"
#include "clients/cpp/terminal/progress.h"
#include "clients/cpp/text/search_text.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

// Returns the families whose rules fired in the model's search or whose implementations it chose;
// always includes fusion, which takes part in every plan.
std::vector<std::string> FiredFamilies(const v1::SearchProgress& search) {
  std::set<std::string> families = {"fuse"};
  for (const v1::SearchRegion& region : search.regions()) {
    for (const v1::SearchRule& rule : region.rules()) {
      if (rule.fired() > 0) families.insert(rule.family());
    }
  }
  // The library family counts if its product is a kernel's best schedule.
  for (const v1::SearchTask& task : search.tasks()) {
    if (absl::StrContains(task.schedule(), " openblas ")) families.insert("library");
  }
  return {families.begin(), families.end()};
}

// Returns what to switch off, one run each: "" (nothing), each family, and each rule on the way to
// the best genome's graph.
std::vector<std::string> Switches(const v1::SearchProgress& search) {
  std::vector<std::string> switches = {""};
  for (std::string& family : FiredFamilies(search)) switches.push_back(std::move(family));
  std::set<std::string> rules;
  // The text in brackets names the place where the rule was applied.
  for (const std::string& rule : search.rules()) rules.insert(rule.substr(0, rule.find('(')));
  switches.insert(switches.end(), rules.begin(), rules.end());
  return switches;
}

// Starts a search from the baseline with `disabled` switched off ("" for nothing) and compares its
// result with the serving plan.
absl::StatusOr<v1::CompileJob> Search(Context* context, const v1::Model& model,
                                      const std::string& disabled, const std::string& budget) {
  v1::StartCompileRequest request;
  request.set_model(model.name());
  request.set_version(model.version());
  request.set_search_budget(budget);
  request.set_use(v1::SearchOptions::COMPARE);
  if (!disabled.empty()) request.add_disable_rules(disabled);
  absl::StatusOr<v1::CompileJob> job = context->client().StartCompile(request, context->call());
  if (!job.ok() || context->json) {
    if (!job.ok()) return job.status();
    return context->client().WatchCompileJob(
        job->id(), [](const v1::CompileJob&) { return true; }, context->call());
  }
  JobProgress progress(&context->out());
  return context->client().WatchCompileJob(
      job->id(), [&](const v1::CompileJob& state) { return progress.Show(state), true; },
      context->call());
}

std::string RowText(const std::string& disabled, const v1::CompileJob& job) {
  const v1::PlanComparison& c = job.comparison();
  return absl::StrFormat("  %-24s %8.3f  [%.3f, %.3f]  %6d  %s",
                         disabled.empty() ? "(nothing)" : disabled, c.ratio(), c.low(), c.high(),
                         job.search().candidates(), c.plan_id());
}

}  // namespace

absl::Status Ablate(Context* context, const v1::Model& model, const v1::SearchProgress& search,
                    const std::string& budget) {
  Printer& out = context->out();
  std::vector<std::string> lines;
  for (const std::string& disabled : Switches(search)) {
    if (!context->json) {
      out.Line(disabled.empty() ? "searches with every rule, to compare with:"
                                : absl::StrCat("searches without ", disabled, ":"));
    }
    ASSIGN_OR_RETURN(v1::CompileJob job, Search(context, model, disabled, budget));
    if (!job.has_comparison()) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", job.id(), " with ", disabled.empty() ? "nothing" : disabled,
                       " disabled found no plan to compare: ", StopReasonText(job.stop_reason()),
                       job.error().empty() ? "" : ": ", job.error()));
    }
    lines.push_back(RowText(disabled, job));
    if (context->json) {
      out.Object({{"disabled", disabled},
                  {"comparison", ComparisonJson(job.comparison())},
                  {"search_options", SearchOptionsJson(job.search_options())},
                  {"candidates", job.search().candidates()},
                  {"stop_reason", v1::CompileJob::StopReason_Name(job.stop_reason())}});
    }
  }
  if (context->json) return absl::OkStatus();
  out.Line("");
  out.Line(absl::StrCat(
      "Time of the plan found without it, as a ratio to the time of the serving plan (",
      model.plan_id(), "):"));
  out.Line(
      absl::StrFormat("  %-24s %8s  %-14s  %6s  %s", "disabled", "ratio", "95 %", "tried", "plan"));
  for (const std::string& line : lines) out.Line(line);
  out.Line("The first row shows how far two equal searches differ.");
  return absl::OkStatus();
}

}  // namespace athanor::client
