// athanor models, athanor delete, athanor status: shows and deletes models, shows the server's
// status and its devices.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "clients/cpp/commands/commands.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

absl::Status Models(Context* context, const std::string& name) {
  ASSIGN_OR_RETURN(v1::ListModelsResponse reply,
                   context->client().ListModels(name, context->call()));
  if (reply.models().empty() && !name.empty()) {
    return absl::NotFoundError(
        absl::StrCat("model \"", name, "\" does not exist; athanor models lists those that do"));
  }
  for (const v1::Model& model : reply.models()) context->out().Model(model);
  if (reply.models().empty() && !context->json) context->out().Line("no models");
  return absl::OkStatus();
}

absl::Status Delete(Context* context, const ModelName& model) {
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
  auto name = std::make_shared<std::string>();
  CommandSyntax command = root.Add("models", "Lists all versions of all models, or of one");
  command.Option("MODEL", name.get(), "list only the versions of this model");
  command.Then([=] { context->run = [=] { return Models(context, *name); }; });
}

void AddDelete(CommandSyntax root, Context* context) {
  auto name = std::make_shared<std::string>();
  CommandSyntax command = root.Add("delete", "Deletes a model, or one version of it");
  command.Option("MODEL", name.get(), "NAME or NAME/VERSION").Required();
  command.Then([=] { context->run = [=] { return Delete(context, ParseModelName(*name)); }; });
}

void AddStatus(CommandSyntax root, Context* context) {
  CommandSyntax command =
      root.Add("status", "Shows the server, its devices, its models and its jobs");
  command.Then([=] { context->run = [=] { return Status(context); }; });
}

}  // namespace athanor::client
