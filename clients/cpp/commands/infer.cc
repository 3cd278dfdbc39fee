// athanor infer MODEL: calls a model once.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "clients/cpp/client/npy.h"
#include "clients/cpp/commands/commands.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

struct Options {
  std::string model, wait, taps;
  std::vector<std::string> inputs, outputs;
};

// Fills in the names of the wanted outputs and, by name, the files to write outputs and taps to.
absl::Status ParseOutputs(const Options& options, InferRequest* request,
                          std::map<std::string, std::string>* files) {
  const std::vector<std::string> taps = absl::StrSplit(options.taps, ',');
  for (const std::string& text : options.outputs) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (!absl::c_linear_search(taps, parts.first)) request->outputs.push_back(parts.first);
    if (parts.second.empty() && text == parts.first) continue;
    absl::string_view file = parts.second;
    if (!absl::ConsumePrefix(&file, "@") || file.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--output ", text, ": must be NAME or NAME=@FILE.npy"));
    }
    (*files)[parts.first] = std::string(file);
  }
  return absl::OkStatus();
}

absl::Status Infer(Context* context, const Options& options) {
  const ModelName name = ParseModelName(options.model);
  ASSIGN_OR_RETURN(v1::Model model,
                   context->client().GetModel(name.name, name.version, context->call()));
  InferRequest request{name.name, name.version};
  for (const std::string& text : options.inputs) {
    absl::StatusOr<std::pair<std::string, Tensor>> input = ParseInput(text, model);
    if (!input.ok()) return Usage(input.status());
    if (!request.inputs.insert(*input).second) {
      return Usage(
          absl::InvalidArgumentError(absl::StrCat("--input ", input->first, " is given twice")));
    }
  }
  std::map<std::string, std::string> files;
  if (absl::Status s = ParseOutputs(options, &request, &files); !s.ok()) return Usage(s);
  if (!options.wait.empty()) request.parameters["wait"] = options.wait;
  if (!options.taps.empty()) request.parameters["taps"] = options.taps;
  ASSIGN_OR_RETURN(InferReply reply, context->client().Infer(request, context->call()));
  for (const auto& [output, tensor] : reply.outputs) {
    auto file = files.find(output);
    if (file == files.end()) {
      context->out().Output(output, tensor);
      continue;
    }
    if (absl::Status s = WriteFile(file->second, FormatNpy(tensor)); !s.ok()) return Usage(s);
  }
  if (context->json) {
    context->out().Object({{"plan_id", reply.plan_id},
                           {"bucket", reply.bucket},
                           {"compile_state", reply.compile_state},
                           {"queue_us", reply.queue_us},
                           {"exec_us", reply.exec_us},
                           {"batch_us", reply.batch_us},
                           {"batch_rows", reply.batch_rows}});
  }
  return absl::OkStatus();
}

}  // namespace

void AddInfer(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax command = root.Add("infer", "Calls a model once and prints its outputs");
  command.Option("MODEL", &options->model, "NAME or NAME/VERSION")
      .Required()
      .Offer(Offers::kModels);
  command.Option("--input", &options->inputs,
                 "an input's values: x=1,2,3 or x[2,2]=1,2,3,4 or x=@file.npy; once per input");
  command.Option("--output", &options->outputs,
                 "an output or tap to print (y) or to write to a file (y=@file.npy); repeatable; "
                 "default: print all");
  command
      .Option("--wait", &options->wait,
              "how to wait while no plan serves: baseline (wait for the first plan, the "
              "default) or none (fail at once)")
      .OneOf({"baseline", "none"});
  command.Option(
      "--taps", &options->taps,
      "also return the values of these nodes, separated by commas (\\, is a comma inside a "
      "name)");
  command.Then([=] { context->run = [=] { return Infer(context, *options); }; });
}

}  // namespace athanor::client
