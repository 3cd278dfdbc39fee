// athanor models, athanor versions, athanor delete, athanor status: shows and deletes models, shows
// the server's status and its devices.
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cpp/commands/commands.h"
#include "clients/cpp/terminal/ask.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

struct Options {
  std::string model;
  bool names = false, yes = false;
};

// Returns all versions, newest first; NOT_FOUND if a model is named that has none.
absl::StatusOr<v1::ListModelsResponse> Versions(Context* context, const std::string& name) {
  ASSIGN_OR_RETURN(v1::ListModelsResponse reply,
                   context->client().ListModels(name, context->call()));
  if (!reply.models().empty() || name.empty()) return reply;
  return absl::NotFoundError(
      absl::StrCat("model \"", name, "\" does not exist; athanor models lists those that do"));
}

absl::Status Models(Context* context, const Options& options) {
  ASSIGN_OR_RETURN(v1::ListModelsResponse reply, Versions(context, options.model));
  Printer& out = context->out();
  if (options.names) {
    std::set<std::string> names;
    for (const v1::Model& model : reply.models()) names.insert(model.name());
    for (const std::string& name : names) out.Line(name);
  } else if (options.model.empty()) {
    out.Models(reply.models());
  } else {
    for (const v1::Model& model : reply.models()) out.Model(model);
  }
  return absl::OkStatus();
}

absl::Status ListVersions(Context* context, const std::string& name) {
  ASSIGN_OR_RETURN(v1::ListModelsResponse reply, Versions(context, name));
  context->out().Versions(reply.models());
  return absl::OkStatus();
}

// Asks before several versions are deleted, where somebody can answer.
absl::Status Confirm(Context* context, const std::string& name) {
  if (!CanAsk()) return absl::OkStatus();
  ASSIGN_OR_RETURN(v1::ListModelsResponse reply, Versions(context, name));
  if (reply.models_size() < 2) return absl::OkStatus();
  const std::string list =
      absl::StrJoin(reply.models(), ", ",
                    [](std::string* out, const v1::Model& model) { *out += model.version(); });
  if (Ask(absl::StrCat("delete ", reply.models_size(), " versions of ", name, " (", list, ")?"))) {
    return absl::OkStatus();
  }
  return absl::CancelledError("nothing was deleted");
}

absl::Status Delete(Context* context, const Options& options) {
  const ModelName model = ParseModelName(options.model);
  if (model.version.empty() && !options.yes) RETURN_IF_ERROR(Confirm(context, model.name));
  ASSIGN_OR_RETURN(v1::DeleteModelResponse reply,
                   context->client().DeleteModel(model.name, model.version, context->call()));
  for (const std::string& version : reply.versions()) {
    if (context->json) {
      context->out().Object({{"deleted", model.name}, {"version", version}});
    } else {
      context->out().Line(absl::StrCat("deleted ", model.name, "/", version));
    }
  }
  return absl::OkStatus();
}

absl::Status Status(Context* context) {
  Client& client = context->client();
  ASSIGN_OR_RETURN(inference::ServerMetadataResponse server, client.Metadata(context->call()));
  ASSIGN_OR_RETURN(bool ready, client.Ready(context->call()));
  ASSIGN_OR_RETURN(v1::ListModelsResponse models, client.ListModels("", context->call()));
  absl::StatusOr<v1::ListDevicesResponse> devices = client.ListDevices(context->call());
  // Older servers do not tell.
  if (absl::IsUnimplemented(devices.status())) devices.emplace();
  RETURN_IF_ERROR(devices.status());
  v1::ListCompileJobsRequest unfinished;
  unfinished.set_only_unfinished(true);
  ASSIGN_OR_RETURN(v1::ListCompileJobsResponse jobs,
                   client.ListCompileJobs(unfinished, context->call()));
  int serving = 0;
  for (const v1::Model& model : models.models()) serving += model.state() == v1::Model::READY;
  if (context->json) {
    nlohmann::json list = nlohmann::json::array();
    for (const v1::CompileJob& job : jobs.jobs()) list.push_back(JobJson(job));
    nlohmann::json used = nlohmann::json::array();
    for (const v1::Device& device : devices->devices()) used.push_back(DeviceJson(device));
    context->out().Object({{"server", server.name()},
                           {"version", server.version()},
                           {"ready", ready},
                           {"devices", used},
                           {"model_versions", models.models_size()},
                           {"ready_model_versions", serving},
                           {"jobs", list}});
    return absl::OkStatus();
  }
  context->out().Line(absl::StrCat(server.name(), " ", server.version(), " on ", context->address,
                                   ready ? ": ready, " : ": not ready, ", serving, " of ",
                                   models.models_size(), " model versions have a plan, ",
                                   jobs.jobs_size(), " compile jobs unfinished"));
  for (const v1::Device& device : devices->devices()) context->out().Line(DeviceText(device));
  for (const v1::CompileJob& job : jobs.jobs()) context->out().Job(job);
  return absl::OkStatus();
}

}  // namespace

void AddModels(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax command =
      root.Add("models", "Lists all versions of all models, or describes those of one");
  command.Option("MODEL", &options->model, "describe the versions of this model")
      .Offer(Offers::kModels);
  command.Flag("--names", &options->names, "print only the names of models, one per line");
  command.Then([=] { context->run = [=] { return Models(context, *options); }; });
}

void AddVersions(CommandSyntax root, Context* context) {
  auto name = std::make_shared<std::string>();
  CommandSyntax command = root.Add(
      "versions", "Lists the versions of a model: since when, which serves, by which plan");
  command.Option("MODEL", name.get(), "the model's name").Required().Offer(Offers::kModels);
  command.Then([=] { context->run = [=] { return ListVersions(context, *name); }; });
}

void AddDelete(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax command = root.Add(
      "delete",
      "Deletes a model, or one version of it; on a terminal asks before it deletes several");
  command.Option("MODEL", &options->model, "NAME or NAME/VERSION")
      .Required()
      .Offer(Offers::kModels);
  command.Flag("--yes", &options->yes, "do not ask");
  command.Then([=] { context->run = [=] { return Delete(context, *options); }; });
}

void AddStatus(CommandSyntax root, Context* context) {
  CommandSyntax command =
      root.Add("status", "Shows the server, its devices, its models and its jobs");
  command.Then([=] { context->run = [=] { return Status(context); }; });
}

}  // namespace athanor::client
