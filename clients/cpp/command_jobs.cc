// athanor compile, athanor watch: compile jobs.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/cpp/commands.h"

namespace athanor::client {
namespace {

struct Options {
  std::string model, budget;
  std::vector<std::string> buckets;
  bool no_wait = false;
};

absl::Status Compile(Context* context, const Options& options) {
  const ModelName model = ParseModelName(options.model);
  v1::StartCompileRequest request;
  request.set_model(model.name);
  request.set_version(model.version);
  request.set_search_budget(options.budget);
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

// A model's latest job, or a job by its id.
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
  command->add_option("--budget", options->budget,
                      "how long to search, as in 30s; else the server's");
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
