// athanor compile, athanor watch, athanor cancel: compile jobs.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/cpp/commands/commands.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

struct Options {
  std::string model, budget;
  std::vector<std::string> buckets, disable_rules;
  uint64_t seed = 0;
  bool no_wait = false, approximate = false, keep = false, compare = false;
};

absl::Status Compile(Context* context, const Options& options) {
  const ModelName model = ParseModelName(options.model);
  v1::StartCompileRequest request;
  request.set_model(model.name);
  request.set_version(model.version);
  request.set_search_budget(options.budget);
  request.mutable_disable_rules()->Assign(options.disable_rules.begin(),
                                          options.disable_rules.end());
  request.set_approximate(options.approximate);
  request.set_search_seed(options.seed);
  if (options.keep) request.set_use(v1::SearchOptions::KEEP);
  if (options.compare) request.set_use(v1::SearchOptions::COMPARE);
  for (const std::string& text : options.buckets) {
    ASSIGN_OR_RETURN(v1::DimBuckets buckets, ParseBuckets(text));
    *request.add_buckets() = std::move(buckets);
  }
  ASSIGN_OR_RETURN(v1::CompileJob job, context->client().StartCompile(request, context->call()));
  if (options.no_wait) {
    context->out().Job(job);
    return absl::OkStatus();
  }
  return FollowJob(context, job.id());
}

absl::Status Watch(Context* context, const std::string& text) {
  ASSIGN_OR_RETURN(v1::CompileJob job, FindJob(context, text));
  return FollowJob(context, job.id());
}

absl::Status Cancel(Context* context, const std::string& text) {
  ASSIGN_OR_RETURN(v1::CompileJob job, FindJob(context, text));
  if (!IsFinished(job)) {
    ASSIGN_OR_RETURN(job, context->client().CancelCompileJob(job.id(), context->call()));
  } else if (!context->json) {
    context->out().Line("it had ended already:");
  }
  context->out().Job(job);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::CompileJob> FindJob(Context* context, const std::string& text) {
  const ModelName model = ParseModelName(text);
  absl::StatusOr<v1::Model> found =
      context->client().GetModel(model.name, model.version, context->call());
  if (absl::IsNotFound(found.status())) {
    absl::StatusOr<v1::CompileJob> job = context->client().GetCompileJob(text, context->call());
    if (!absl::IsNotFound(job.status())) return job;
    return absl::NotFoundError(
        absl::StrCat("there is neither a model nor a compile job \"", text, "\""));
  }
  if (!found.ok()) return found.status();
  if (found->compile_job_id().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "model \"", text, "\" has no compile job; start one with: athanor compile ", text));
  }
  return context->client().GetCompileJob(found->compile_job_id(), context->call());
}

void AddCompile(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax command = root.Add("compile", "Compiles a stored model again and follows the job");
  command.Option("MODEL", &options->model, "NAME or NAME/VERSION")
      .Required()
      .Offer(Offers::kModels);
  command.Option("--budget", &options->budget, kBudgetHelp);
  command
      .Option("--disable_rules", &options->disable_rules,
              "rules, or families of rules, that the search must not use, separated by commas")
      .SplitAt(',');
  command.Flag("--approximate", &options->approximate,
               "let the search use rules that change results beyond rounding");
  command.Option("--seed", &options->seed,
                 "seed of the search's random choices; 0, the default: the server's");
  OptionSyntax keep =
      command.Flag("--keep", &options->keep,
                   "keep a faster plan, to be pinned later, and leave the serving plan in place");
  command
      .Flag("--compare", &options->compare,
            "search from the baseline, compare the result with the serving plan, and keep "
            "nothing")
      .Excludes(keep);
  command.Option("--buckets", &options->buckets,
                 "ranges into which the bounds of a dim are cut (b=1-1,2-64); repeatable; default: "
                 "the model's");
  command.Flag("--no_wait", &options->no_wait, "return as soon as the job is queued");
  command.Then([=] { context->run = [=] { return Compile(context, *options); }; });
}

void AddWatch(CommandSyntax root, Context* context) {
  auto name = std::make_shared<std::string>();
  CommandSyntax command = root.Add("watch", "Follows a compile job until it ends");
  command.Option("MODEL", name.get(), "the model, as NAME or NAME/VERSION, or a job's id")
      .Required()
      .Offer(Offers::kModels);
  command.Then([=] { context->run = [=] { return Watch(context, *name); }; });
}

void AddCancel(CommandSyntax root, Context* context) {
  auto name = std::make_shared<std::string>();
  CommandSyntax command =
      root.Add("cancel", "Cancels a compile job; the plan that serves goes on serving");
  command
      .Option("MODEL", name.get(),
              "the model, as NAME or NAME/VERSION, for its latest job; or a job's id")
      .Required()
      .Offer(Offers::kModels);
  command.Then([=] { context->run = [=] { return Cancel(context, *name); }; });
}

}  // namespace athanor::client
