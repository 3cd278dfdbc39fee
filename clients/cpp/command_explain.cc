// athanor explain: what serves a model, and what its search found out about each kernel.
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cpp/commands.h"
#include "clients/cpp/search_text.h"

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

// A job is not kept for ever: none is no error.
absl::StatusOr<std::optional<v1::CompileJob>> LatestJob(Context* context, const v1::Model& model) {
  if (model.compile_job_id().empty()) return std::nullopt;
  absl::StatusOr<v1::CompileJob> job =
      context->client().GetCompileJob(model.compile_job_id(), context->call());
  if (absl::IsNotFound(job.status())) return std::nullopt;
  if (!job.ok()) return job.status();
  return *std::move(job);
}

absl::Status Explain(Context* context, const std::string& name) {
  const ModelName asked = ParseModelName(name);
  absl::StatusOr<v1::Model> model =
      context->client().GetModel(asked.name, asked.version, context->call());
  if (!model.ok()) return model.status();
  absl::StatusOr<std::optional<v1::CompileJob>> job = LatestJob(context, *model);
  if (!job.ok()) return job.status();
  const bool searched = job->has_value() && (*job)->has_search();
  Printer& out = context->out();
  if (context->json) {
    const v1::PlanInfo* plan = ServingPlan(*model);
    out.Object({{"model", ModelJson(*model)},
                {"plan", plan == nullptr ? nlohmann::json() : PlanJson(*plan)},
                {"job", job->has_value() ? JobJson(**job) : nlohmann::json()},
                {"kernels", searched ? KernelsJson((*job)->search()) : nlohmann::json::array()}});
    return absl::OkStatus();
  }
  out.Line(absl::StrCat(model->name(), "/", model->version(), ": ",
                        v1::Model::State_Name(model->state()), ", ", PlanText(*model)));
  if (!job->has_value()) {
    out.Line("no compile job of it is known; search again with: athanor compile " + name);
    return absl::OkStatus();
  }
  out.Line(JobText(**job));
  if (!searched) return absl::OkStatus();
  for (const std::string& line : SearchReport((*job)->search())) out.Line(line);
  return absl::OkStatus();
}

}  // namespace

void AddExplain(CLI::App* app, Context* context) {
  auto name = std::make_shared<std::string>();
  CLI::App* command =
      app->add_subcommand("explain", "Shows what serves a model and what each kernel takes");
  command->add_option("MODEL", *name, "NAME or NAME/VERSION")->required();
  command->callback([=] { context->run = [=] { return Explain(context, *name); }; });
}

}  // namespace athanor::client
