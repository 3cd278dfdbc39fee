// athanor-bench run: measures a model on one server, or on two servers in alternation.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/bench/commands.h"
#include "clients/bench/compare.h"
#include "clients/bench/environment.h"
#include "clients/bench/flags.h"
#include "clients/bench/outputs.h"
#include "clients/bench/summary.h"
#include "clients/bench/summary_text.h"
#include "clients/cpp/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

struct Options {
  RunFlags flags;
  Outputs outputs;
  std::string tls_ca, label;
};

// The part of a run that concerns one server.
struct Side {
  std::unique_ptr<Load> load;
  LoadResult result;
  json summary;
};

json OptionsJson(const RunFlags& flags, const LoadOptions& load) {
  json phases = json::array();
  for (const Phase& phase : load.phases) {
    json row = {{"seconds", phase.seconds}};
    if (load.arrival == Arrival::kClosed) {
      row["concurrency"] = phase.concurrency;
    } else {
      row["rate"] = phase.rate;
      row["rate_end"] = phase.rate_end;
    }
    phases.push_back(std::move(row));
  }
  return {{"server", load.address},
          {"arrival", std::string(ArrivalName(load.arrival))},
          {"phases", phases},
          {"shape", flags.inputs.shapes},
          {"dims", flags.inputs.dims},
          {"input", flags.inputs.values},
          {"requests", flags.inputs.requests},
          {"warmup", load.warmups},
          {"timeout_s", absl::ToDoubleSeconds(load.timeout)},
          {"connections", load.connections},
          {"max_outstanding", load.most_outstanding},
          {"seed", load.seed},
          {"slo_share", flags.slo_share}};
}

// Asks the server which inputs the model takes, and sends the warm-up calls.
absl::StatusOr<Side> Connect(const Options& options, LoadOptions load) {
  client::CallOptions call;
  call.timeout = load.timeout;
  Side side;
  {
    client::Client client(load.address, load.client);
    auto server = client.Metadata(call);
    if (!server.ok()) {
      return absl::Status(server.status().code(),
                          absl::StrCat(load.address, ": ", server.status().message()));
    }
    side.summary["server"] = absl::StrCat(server->name(), " ", server->version());
    auto model = client.ModelMetadata(load.model, load.version, call);
    if (!model.ok()) {
      return absl::Status(model.status().code(),
                          absl::StrCat(load.address, ": ", model.status().message()));
    }
    model->set_name(load.model);
    absl::StatusOr<std::vector<client::InferRequest>> requests =
        MakeRequests(*model, load.version, options.flags.inputs);
    if (!requests.ok()) return Usage(requests.status());
    load.requests = *std::move(requests);
  }
  ASSIGN_OR_RETURN(side.load, Load::Create(std::move(load)));
  return side;
}

// Makes a side's summary: its figures, label, server, environment and options.
void Finish(const Options& options, const RunPlan& plan, const std::string& label,
            const std::vector<Phase>& phases, Side* side) {
  LoadOptions load = side->load->options();
  load.phases = phases;
  json summary = Summarise(side->result, load, plan.slos);
  summary["date"] = NowText();
  summary["backend"] = "open-inference-grpc";
  summary["server"] = side->summary["server"];
  summary["label"] = label;
  summary["environment"] = Environment();
  summary["options"] = OptionsJson(options.flags, load);
  summary["metadata"] = plan.metadata;
  side->summary = std::move(summary);
}

// Returns kMissed when a service level was missed, kFailed when no call was answered.
ExitCode Judge(const RunPlan& plan, const std::vector<Side*>& sides) {
  ExitCode code = kOk;
  for (const Side* side : sides) {
    if (side->summary["completed"].get<int64_t>() == 0) return kFailed;
    const json& share = side->summary["slo_share"];
    if (share.is_number() && share.get<double>() < plan.slo_share) code = kMissed;
  }
  return code;
}

// With `figures`, prints them to stdout. Otherwise stdout is for a program: prints only the
// warnings, to stderr.
void Print(bool figures, const std::vector<Side*>& sides, const json& comparison) {
  if (figures) {
    for (const Side* side : sides) std::fputs(SummaryText(side->summary).c_str(), stdout);
    if (!comparison.is_null()) std::fputs(ComparisonText(comparison).c_str(), stdout);
    return;
  }
  std::vector<std::string> warnings;
  for (const Side* side : sides) {
    for (std::string& warning : Warnings(side->summary)) warnings.push_back(std::move(warning));
  }
  for (std::string& warning : ComparisonWarnings(comparison)) {
    warnings.push_back(std::move(warning));
  }
  for (const std::string& warning : warnings) {
    std::fprintf(stderr, "athanor-bench: %s\n", warning.c_str());
  }
}

absl::StatusOr<ExitCode> End(const Options& options, const RunPlan& plan,
                             const std::vector<Side*>& sides, const json& comparison) {
  const bool figures = options.outputs.out != "-";
  Print(figures, sides, comparison);
  std::vector<Measured> runs;
  for (const Side* side : sides) runs.push_back({&side->summary, &side->result});
  const Kept kept = Keep(options.outputs, runs, comparison);
  if (!kept.names.empty()) {
    std::fprintf(figures ? stdout : stderr, "kept as %s\n",
                 absl::StrJoin(kept.names, " and ").c_str());
  }
  if (!kept.status.ok()) return Usage(kept.status);
  return Judge(plan, sides);
}

absl::StatusOr<ExitCode> CompareServers(const Options& options, const RunPlan& plan) {
  LoadOptions load = plan.load;
  ASSIGN_OR_RETURN(Side first, Connect(options, load));
  load.address = plan.second_server;
  ASSIGN_OR_RETURN(Side second, Connect(options, load));
  Turns turns{plan.load.phases[0], Pairs(plan)};
  turns.slice.seconds = plan.slice_seconds;
  const Interleaved slices = RunInterleaved(first.load.get(), second.load.get(), turns);
  first.result = Join(slices.first);
  second.result = Join(slices.second);
  Phase whole = turns.slice;
  whole.seconds *= turns.pairs;
  const std::string label = options.label.empty() ? "" : options.label + " ";
  Finish(options, plan, label + "first", {whole}, &first);
  Finish(options, plan, label + "second", {whole}, &second);
  const json comparison = Compare(slices, first.load->options(), second.load->options(), plan.slos);
  return End(options, plan, {&first, &second}, comparison);
}

absl::StatusOr<ExitCode> Run(const Options& options) {
  absl::StatusOr<RunPlan> plan = ParseRunFlags(options.flags);
  if (!plan.ok()) return Usage(plan.status());
  if (absl::Status s = CheckOutputs(options.outputs); !s.ok()) return Usage(s);
  if (!options.tls_ca.empty()) {
    absl::StatusOr<std::string> certificates = client::ReadFile(options.tls_ca);
    if (!certificates.ok()) return Usage(certificates.status());
    plan->load.client.tls = true;
    plan->load.client.root_certificates = *std::move(certificates);
  }
  if (!plan->second_server.empty()) return CompareServers(options, *plan);
  ASSIGN_OR_RETURN(Side side, Connect(options, plan->load));
  side.result = side.load->Run(plan->load.phases, plan->load.seed);
  Finish(options, *plan, options.label, plan->load.phases, &side);
  return End(options, *plan, {&side}, json());
}

void AddLoadFlags(client::CommandSyntax sub, RunFlags* flags) {
  sub.Option("--rate", &flags->rate,
             "open loop: calls per second (500), or a ramp (500..2500); default: closed loop");
  sub.Option("--arrival", &flags->arrival,
             "distribution of the times at which calls are due: closed, fixed, poisson or "
             "gamma; default: poisson with --rate, else closed");
  sub.Option("--burstiness", &flags->burstiness,
             "shape of the gaps of --arrival gamma; below 1 they are burstier than poisson");
  sub.Option("--concurrency", &flags->concurrency, "closed loop: number of callers; default 1");
  sub.Option("--duration", &flags->duration, "how long to measure each server; default 10s");
  sub.Option("--phase", &flags->phases,
             "one phase of a load that changes: 10s:rate=500..2500 or 10s:concurrency=64; "
             "repeatable, phases run in order");
  sub.Option("--warmup", &flags->warmups, "number of calls to make before measuring").ShowDefault();
  sub.Option("--timeout", &flags->timeout,
             "time from when a call is due until it is given up; default 60s");
  sub.Option("--connections", &flags->connections,
             "number of connections to each server, used in rotation")
      .ShowDefault();
  sub.Option("--max_outstanding", &flags->max_outstanding,
             "open loop: most calls in progress at once; further calls wait, and count as "
             "late; default 10000");
  sub.Option("--seed", &flags->seed, "seed of arrivals and input values").ShowDefault();
}

void AddInputFlags(client::CommandSyntax sub, RunFlags* flags) {
  sub.Option("--shape", &flags->inputs.shapes,
             "shape of an input: x=1x64, or x=bx64 with --dims b=1..64; repeatable");
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
  auto options = std::make_shared<Options>();
  RunFlags* flags = &options->flags;
  client::CommandSyntax sub =
      root.Add("run", "Measures a model on one server, or on two servers in alternation");
  sub.Option("--server", &flags->servers,
             "address of a server, as HOST:PORT; give a second one to compare it with the "
             "first")
      .Required();
  sub.Option("--model", &flags->model, "NAME or NAME/VERSION").Required();
  AddInputFlags(sub, flags);
  AddLoadFlags(sub, flags);
  sub.Option("--slice", &flags->slice,
             "two servers: time to measure one before switching to the other, at least 50ms; "
             "default 2s");
  sub.Option("--slo", &flags->slo,
             "service levels, as most milliseconds per metric: e2el:5,queue:2");
  sub.Option("--slo_share", &flags->slo_share,
             "share of the due calls that must meet the service levels")
      .ShowDefault();
  sub.Option("--label", &options->label, "name of this run in reports");
  sub.Option("--metadata", &flags->metadata,
             "KEY=VALUE to store with the run, such as commit=1a2b3c; repeatable");
  sub.Option("--out", &options->outputs.out, "file to write the figures to as JSON; - is stdout");
  sub.Flag("--detailed", &options->outputs.detailed,
           "with --out: also write the times of every call");
  sub.Option("--html", &options->outputs.html, "file to write an HTML page to");
  sub.Option("--db", &options->outputs.db, "SQLite file to add the run to");
  sub.Flag("--save_calls", &options->outputs.save_calls, "with --db: also store a row per call");
  sub.Option("--tls_ca", &options->tls_ca,
             "file with the root certificates to trust (PEM); connects with TLS; default: no "
             "TLS");
  sub.Then([=] {
    options->flags.inputs.seed = options->flags.seed;
    *command = [=] { return Run(*options); };
  });
}

}  // namespace athanor::bench
