// athanor explain: shows the plan that serves a model, and what its search learned about each
// kernel.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "clients/cpp/commands/commands.h"
#include "clients/cpp/text/plan_view.h"
#include "clients/cpp/text/search_text.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

const v1::PlanInfo* ServingPlan(const v1::Model& model) {
  for (const v1::PlanInfo& plan : model.plans()) {
    if (plan.plan_id() == model.plan_id()) return &plan;
  }
  return nullptr;
}

std::string PlanText(const v1::Model& model) {
  if (model.plan_id().empty()) return "no plan serves yet";
  std::string text = absl::StrCat("plan ", model.plan_id(), model.pinned() ? " (pinned)" : "");
  const v1::PlanInfo* plan = ServingPlan(model);
  if (plan == nullptr) return text;
  absl::StrAppend(&text, ", ", plan->kind(), ", ", plan->kernels(), " kernels in ", plan->steps(),
                  " steps");
  if (!plan->bucket().empty()) {
    absl::StrAppend(
        &text, ", ", absl::StrJoin(plan->bucket(), ", ", [](std::string* out, const auto& range) {
          absl::StrAppend(out, range.name(), " in [", range.min(), ", ", range.max(), "]");
        }));
  }
  return text;
}

// Returns a model's latest job; nullopt if the server no longer keeps one, which is no error.
absl::StatusOr<std::optional<v1::CompileJob>> LatestJob(Context* context, const v1::Model& model) {
  if (model.compile_job_id().empty()) return std::nullopt;
  absl::StatusOr<v1::CompileJob> job =
      context->client().GetCompileJob(model.compile_job_id(), context->call());
  if (absl::IsNotFound(job.status())) return std::nullopt;
  if (!job.ok()) return job.status();
  return *std::move(job);
}

struct Options {
  std::string model, out, budget;
  bool ablate = false, rules = false;
  int egraph = -1;  // a region's number; -1: not asked for
};

// Returns nullopt while no plan serves.
absl::StatusOr<std::optional<v1::PlanDetails>> ServingDetails(Context* context,
                                                              const v1::Model& model) {
  if (model.plan_id().empty()) return std::nullopt;
  v1::GetPlanRequest request;
  request.set_name(model.name());
  request.set_version(model.version());
  request.set_plan_id(model.plan_id());
  absl::StatusOr<v1::PlanDetails> details = context->client().GetPlan(request, context->call());
  if (!details.ok()) return details.status();
  return *std::move(details);
}

void PrintJson(Printer& out, const v1::Model& model, const std::optional<v1::CompileJob>& job,
               const std::optional<v1::PlanDetails>& details,
               const std::vector<std::string>& files) {
  const v1::PlanInfo* plan = ServingPlan(model);
  const bool searched = job.has_value() && job->has_search();
  out.Object({{"model", ModelJson(model)},
              {"plan", plan == nullptr ? nlohmann::json() : PlanJson(*plan)},
              {"job", job.has_value() ? JobJson(*job) : nlohmann::json()},
              {"kernels", searched ? KernelsJson(job->search()) : nlohmann::json::array()},
              {"details", details.has_value() ? PlanDetailsJson(*details) : nlohmann::json()},
              {"files", files}});
}

void PrintText(Printer& out, const v1::Model& model, const std::optional<v1::CompileJob>& job,
               const std::optional<v1::PlanDetails>& details, bool rules) {
  out.Line(absl::StrCat(model.name(), "/", model.version(), ": ",
                        v1::Model::State_Name(model.state()), ", ", PlanText(model)));
  for (const std::string& bucket : BucketLines(model)) out.Line(bucket);
  if (details.has_value()) {
    for (const std::string& line : PlanTable(*details)) out.Line(line);
  }
  if (!job.has_value()) {
    out.Line("no compile job of it is known; search again with: athanor compile " + model.name());
    return;
  }
  out.Line(JobText(*job));
  if (!job->has_search()) return;
  for (const std::string& line : SearchReport(job->search())) out.Line(line);
  if (!rules) return;
  out.Line("");
  const std::vector<std::string> table = RuleTable(job->search());
  if (table.empty()) out.Line("no rule has found anything in this search");
  for (const std::string& line : table) out.Line(line);
}

// Prints only the DOT text, so that it can be piped.
absl::Status ShowEGraph(Context* context, const ModelName& model, int region) {
  v1::GetEGraphRequest request;
  request.set_name(model.name);
  request.set_version(model.version);
  request.set_region(region);
  ASSIGN_OR_RETURN(v1::EGraph egraph, context->client().GetEGraph(request, context->call()));
  if (context->json) {
    context->out().Object({{"region", region}, {"dot", egraph.dot()}});
  } else {
    context->out().Line(absl::StripSuffix(egraph.dot(), "\n"));
  }
  return absl::OkStatus();
}

absl::Status Explain(Context* context, const Options& options) {
  const ModelName asked = ParseModelName(options.model);
  if (options.egraph >= 0) return ShowEGraph(context, asked, options.egraph);
  ASSIGN_OR_RETURN(v1::Model model,
                   context->client().GetModel(asked.name, asked.version, context->call()));
  ASSIGN_OR_RETURN(std::optional<v1::CompileJob> job, LatestJob(context, model));
  ASSIGN_OR_RETURN(std::optional<v1::PlanDetails> details, ServingDetails(context, model));
  std::vector<std::string> files;
  if (!options.out.empty()) {
    if (!details.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("model \"", options.model, "\" has no plan that serves"));
    }
    ASSIGN_OR_RETURN(files, WritePlan(*details, options.out));
  }
  Printer& out = context->out();
  if (context->json) {
    PrintJson(out, model, job, details, files);
  } else {
    PrintText(out, model, job, details, options.rules);
    for (const std::string& file : files) out.Line("wrote " + file);
  }
  if (!options.ablate) return absl::OkStatus();
  const v1::SearchProgress none;
  const v1::SearchProgress& search = job.has_value() ? job->search() : none;
  std::string budget = options.budget;
  // Every switched-off search gets the budget that the serving plan's search had, so that they
  // compare.
  if (budget.empty() && job.has_value()) budget = job->search_options().budget();
  return Ablate(context, model, search, budget == "0" ? "" : budget);
}

}  // namespace

void AddExplain(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax command =
      root.Add("explain", "Shows the plan that serves a model and the time of each kernel");
  command.Option("MODEL", &options->model, "NAME or NAME/VERSION")
      .Required()
      .Offer(Offers::kModels);
  OptionSyntax egraph = command.Option(
      "--egraph", &options->egraph,
      "print only the e-graph of one region of the latest search, given by its number "
      "from 0, in Graphviz's DOT language: ... --egraph 0 | dot -Tsvg > region.svg; "
      "refused above 300 e-nodes");
  egraph.NotNegative();
  command
      .Option("--out", &options->out,
              "directory to write the plan to: genome, KIR and source of each kernel, a drawing "
              "(plan.svg), plan.json")
      .Offer(Offers::kFolders)
      .Excludes(egraph);
  command
      .Flag("--rules", &options->rules,
            "also print a table of each rule in the latest search: matches, times it fired, "
            "was refused, was banned for exceeding its budget, and failed, and its time "
            "(always part of --json)")
      .Excludes(egraph);
  OptionSyntax ablate =
      command.Flag("--ablate", &options->ablate,
                   "measure the worth of rules: search again without each family that the latest "
                   "search applied, and without each rule that led to its best genome, and compare "
                   "each result with the serving plan, which stays");
  ablate.Excludes(egraph);
  command
      .Option("--budget", &options->budget,
              "extent of each search of --ablate, as for athanor compile; default: the model's")
      .Needs(ablate);
  command.Then([=] { context->run = [=] { return Explain(context, *options); }; });
}

}  // namespace athanor::client
