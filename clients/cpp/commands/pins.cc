// athanor pin, athanor unpin, athanor rollback: which plan and which version serve.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "clients/cpp/commands/commands.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

struct Options {
  std::string model, plan;
};

absl::Status PinPlan(Context* context, const std::string& text, const std::string& plan_id) {
  const ModelName name = ParseModelName(text);
  v1::PinPlanRequest request;
  request.set_name(name.name);
  request.set_version(name.version);
  request.set_plan_id(plan_id);
  ASSIGN_OR_RETURN(v1::Model model, context->client().PinPlan(request, context->call()));
  context->out().Model(model);
  return absl::OkStatus();
}

// Without a plan pins the one that serves. The server would take an empty plan for an unpin.
absl::Status Pin(Context* context, const Options& options) {
  if (!options.plan.empty()) return PinPlan(context, options.model, options.plan);
  const ModelName name = ParseModelName(options.model);
  ASSIGN_OR_RETURN(v1::Model model,
                   context->client().GetModel(name.name, name.version, context->call()));
  if (model.plan_id().empty()) {
    return absl::FailedPreconditionError(absl::StrCat("no plan of \"", options.model,
                                                      "\" serves yet; athanor watch ",
                                                      options.model, " tells when"));
  }
  // The version that was read, whichever serves by now.
  return PinPlan(context, absl::StrCat(model.name(), "/", model.version()), model.plan_id());
}

absl::Status Rollback(Context* context, const std::string& text) {
  const ModelName name = ParseModelName(text);
  ASSIGN_OR_RETURN(v1::Model model,
                   context->client().Rollback(name.name, name.version, context->call()));
  context->out().Model(model);
  return absl::OkStatus();
}

}  // namespace

void AddPin(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax command =
      root.Add("pin", "Makes a plan serve until it is unpinned, even if a faster one is found");
  command.Option("MODEL", &options->model, "NAME or NAME/VERSION")
      .Required()
      .Offer(Offers::kModels);
  command.Option("PLAN", &options->plan,
                 "the plan, as athanor models MODEL --json lists them under \"plans\"; a bucket's "
                 "is pinned for that bucket; default: the plan that serves");
  command.Then([=] { context->run = [=] { return Pin(context, *options); }; });
}

void AddUnpin(CommandSyntax root, Context* context) {
  auto name = std::make_shared<std::string>();
  CommandSyntax command = root.Add(
      "unpin", "Lets a model's fastest plans serve again, of the full range and of each bucket");
  command.Option("MODEL", name.get(), "NAME or NAME/VERSION").Required().Offer(Offers::kModels);
  command.Then([=] { context->run = [=] { return PinPlan(context, *name, ""); }; });
}

void AddRollback(CommandSyntax root, Context* context) {
  auto name = std::make_shared<std::string>();
  CommandSyntax command =
      root.Add("rollback", "Makes an earlier version serve requests that name no version");
  command
      .Option(
          "MODEL", name.get(),
          "NAME/VERSION; or NAME, for the newest version with a plan before the one that serves")
      .Required()
      .Offer(Offers::kModels);
  command.Then([=] { context->run = [=] { return Rollback(context, *name); }; });
}

}  // namespace athanor::client
