// athanor compile, athanor watch: compile jobs.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/cpp/commands.h"

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
    absl::StatusOr<v1::DimBuckets> buckets = ParseBuckets(text);
    if (!buckets.ok()) return buckets.status();
    *request.add_buckets() = *std::move(buckets);
  }
  absl::StatusOr<v1::CompileJob> job = context->client().StartCompile(request, context->call());
  if (!job.ok()) return job.status();
  if (options.no_wait) {
    context->out().Job(*job);
    return absl::OkStatus();
  }
  return FollowJob(context, job->id());
}

// Watches a model's latest job, or a job given by its id.
absl::Status Watch(Context* context, const std::string& text) {
  const ModelName model = ParseModelName(text);
  absl::StatusOr<v1::Model> found =
      context->client().GetModel(model.name, model.version, context->call());
  if (absl::IsNotFound(found.status())) {
    absl::StatusOr<v1::CompileJob> job = context->client().GetCompileJob(text, context->call());
    if (absl::IsNotFound(job.status())) {
      return absl::NotFoundError(
          absl::StrCat("there is neither a model nor a compile job \"", text, "\""));
    }
    if (!job.ok()) return job.status();
    return FollowJob(context, job->id());
  }
  if (!found.ok()) return found.status();
  if (found->compile_job_id().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "model \"", text, "\" has no compile job; start one with: athanor compile ", text));
  }
  return FollowJob(context, found->compile_job_id());
}

}  // namespace

void AddCompile(CLI::App* app, Context* context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app->add_subcommand("compile", "Compiles a stored model again");
  command->add_option("MODEL", options->model, "NAME or NAME/VERSION")->required();
  command->add_option("--budget", options->budget, kBudgetHelp);
  command
      ->add_option("--disable_rules", options->disable_rules,
                   "rules, or families of rules, not to be used")
      ->delimiter(',');
  command->add_flag("--approximate", options->approximate,
                    "rules that change results beyond rounding may be used");
  command->add_option("--seed", options->seed, "of the search's random choices; 0: the server's");
  CLI::Option* keep = command->add_flag(
      "--keep", options->keep, "a faster plan is kept, to be pinned; what serves is left alone");
  command
      ->add_flag(
          "--compare", options->compare,
          "searches from the baseline, times what it finds beside what serves, keeps nothing")
      ->excludes(keep);
  command->add_option("--buckets", options->buckets,
                      "ranges of a dim, as in b=1-1,2-64; repeatable");
  command->add_flag("--no_wait", options->no_wait, "return once the job is queued");
  command->callback([=] { context->run = [=] { return Compile(context, *options); }; });
}

void AddWatch(CLI::App* app, Context* context) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app->add_subcommand("watch", "Shows a compile job until it has ended");
  command->add_option("MODEL", *name, "NAME, NAME/VERSION, or the id of a job")->required();
  command->callback([=] { context->run = [=] { return Watch(context, *name); }; });
}

}  // namespace athanor::client
