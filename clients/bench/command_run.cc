// athanor-bench run: measures a model on one server, or on two servers in alternation.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/bench/commands.h"
#include "clients/bench/load/inputs.h"
#include "clients/bench/measuring.h"
#include "clients/bench/run_options.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

// Asks the server which inputs the model takes, and sends the warm-up calls.
absl::StatusOr<Side> Connect(const RunOptions& options, LoadOptions load) {
  client::CallOptions call;
  call.timeout = load.timeout;
  const InputFlags& inputs = options.flags.inputs;
  Side side;
  {
    client::Client client(load.address, load.client);
    auto server = client.Metadata(call);
    if (!server.ok()) {
      return absl::Status(server.status().code(),
                          absl::StrCat(load.address, ": ", server.status().message()));
    }
    auto model = client.ModelMetadata(load.model, load.version, call);
    if (!model.ok()) {
      return absl::Status(model.status().code(),
                          absl::StrCat(load.address, ": ", model.status().message()));
    }
    model->set_name(load.model);
    absl::StatusOr<std::vector<client::InferRequest>> requests =
        MakeRequests(*model, load.version, inputs);
    if (!requests.ok()) return Usage(requests.status());
    load.requests = *std::move(requests);
    side.assumed = AssumedSizes(*model, inputs);
    side.about = {{"backend", "open-inference-grpc"},
                  {"server", absl::StrCat(server->name(), " ", server->version())},
                  {"options",
                   {{"shape", inputs.shapes},
                    {"dims", inputs.dims},
                    {"input", inputs.values},
                    {"requests", inputs.requests}}}};
  }
  ASSIGN_OR_RETURN(side.load, Load::Create(std::move(load)));
  return side;
}

absl::StatusOr<ExitCode> Run(const RunOptions& options) {
  ASSIGN_OR_RETURN(RunPlan plan, PlanRun(options));
  std::vector<Side> sides(1);
  ASSIGN_OR_RETURN(sides[0], Connect(options, plan.load));
  for (const std::string& sentence : sides[0].assumed) {
    std::fprintf(stderr, "athanor-bench: %s\n", sentence.c_str());
  }
  if (!plan.second_server.empty()) {
    LoadOptions load = plan.load;
    load.address = plan.second_server;
    ASSIGN_OR_RETURN(Side second, Connect(options, std::move(load)));
    sides.push_back(std::move(second));
  }
  return Measure(options, plan, sides);
}

void AddInputFlags(client::CommandSyntax sub, RunFlags* flags) {
  sub.Option("--shape", &flags->inputs.shapes,
             "shape of an input: x=1x64, or x=bx64 with --dims b=1..64; repeatable; default: the "
             "model's, with 1 for each size that it does not fix");
  sub.Option("--dims", &flags->inputs.dims,
             "range of a name in --shape (b=1..64), drawn from anew for each request; "
             "repeatable");
  sub.Option("--input", &flags->inputs.values,
             "range of an input's values (ids=0..30521), or a file with the values "
             "(x=@file.npy); repeatable");
  sub.Option("--requests", &flags->inputs.requests,
             "number of requests with different values to send in rotation")
      .ShowDefault();
}

}  // namespace

void AddRun(client::CommandSyntax root, Command* command) {
  auto options = std::make_shared<RunOptions>();
  RunFlags* flags = &options->flags;
  client::CommandSyntax sub =
      root.Add("run", "Measures a model on one server, or on two servers in alternation");
  AddAddress(sub, "address of a server, as HOST:PORT; ", flags);
  sub.Option("--model", &flags->model, "NAME or NAME/VERSION").Required();
  AddInputFlags(sub, flags);
  AddLoadFlags(sub, options.get());
  AddResultFlags(sub, options.get());
  sub.Then([=] {
    UseDefaultAddress(flags);
    options->flags.inputs.seed = options->flags.seed;
    *command = [=] { return Run(*options); };
  });
}

}  // namespace athanor::bench
