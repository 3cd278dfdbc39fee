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
  absl::StatusOr<std::unique_ptr<Load>> made = Load::Create(std::move(load));
  if (!made.ok()) return made.status();
  side.load = *std::move(made);
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
  absl::StatusOr<Side> first = Connect(options, load);
  if (!first.ok()) return first.status();
  load.address = plan.second_server;
  absl::StatusOr<Side> second = Connect(options, load);
  if (!second.ok()) return second.status();
  Turns turns{plan.load.phases[0], Pairs(plan)};
  turns.slice.seconds = plan.slice_seconds;
  const Interleaved slices = RunInterleaved(first->load.get(), second->load.get(), turns);
  first->result = Join(slices.first);
  second->result = Join(slices.second);
  Phase whole = turns.slice;
  whole.seconds *= turns.pairs;
  const std::string label = options.label.empty() ? "" : options.label + " ";
  Finish(options, plan, label + "first", {whole}, &*first);
  Finish(options, plan, label + "second", {whole}, &*second);
  const json comparison =
      Compare(slices, first->load->options(), second->load->options(), plan.slos);
  return End(options, plan, {&*first, &*second}, comparison);
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
  absl::StatusOr<Side> side = Connect(options, plan->load);
  if (!side.ok()) return side.status();
  side->result = side->load->Run(plan->load.phases, plan->load.seed);
  Finish(options, *plan, options.label, plan->load.phases, &*side);
  return End(options, *plan, {&*side}, json());
}

void AddLoadFlags(CLI::App* sub, RunFlags* flags) {
  sub->add_option("--rate", flags->rate, "open loop: calls per second; 500..2500 is a ramp");
  sub->add_option("--arrival", flags->arrival,
                  "closed, fixed, poisson or gamma; poisson with a rate, else closed");
  sub->add_option("--burstiness", flags->burstiness,
                  "shape of --arrival gamma; below 1 burstier than poisson");
  sub->add_option("--concurrency", flags->concurrency, "closed loop: callers; 1");
  sub->add_option("--duration", flags->duration, "how long, for each server; 10s");
  sub->add_option("--phase", flags->phases,
                  "10s:rate=500..2500 or 10s:concurrency=64; several follow each other");
  sub->add_option("--warmup", flags->warmups, "calls before those that count")
      ->capture_default_str();
  sub->add_option("--timeout", flags->timeout,
                  "until a call is given up, from when it was due; 60s");
  sub->add_option("--connections", flags->connections)->capture_default_str();
  sub->add_option("--max_outstanding", flags->max_outstanding,
                  "open loop: further calls wait, and are late; 10000");
  sub->add_option("--seed", flags->seed, "of arrivals and values")->capture_default_str();
}

void AddInputFlags(CLI::App* sub, RunFlags* flags) {
  sub->add_option("--shape", flags->inputs.shapes, "x=1x64, or x=bx64 with --dims b=1..64");
  sub->add_option("--dims", flags->inputs.dims, "b=1..64: drawn for each request");
  sub->add_option("--input", flags->inputs.values,
                  "ids=0..30521: the values' range; x=@file.npy: the values");
  sub->add_option("--requests", flags->inputs.requests, "of different values, sent in turn")
      ->capture_default_str();
}

}  // namespace

void AddRun(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  RunFlags* flags = &options->flags;
  CLI::App* sub = app->add_subcommand("run", "Measures a model on one server, or on two in turns");
  sub->add_option("--server", flags->servers, "HOST:PORT; a second one is compared with the first")
      ->required();
  sub->add_option("--model", flags->model, "NAME or NAME/VERSION")->required();
  AddInputFlags(sub, flags);
  AddLoadFlags(sub, flags);
  sub->add_option("--slice", flags->slice, "two servers: how long a turn is, 50ms at least; 2s");
  sub->add_option("--slo", flags->slo, "service levels in milliseconds: e2el:5,queue:2");
  sub->add_option("--slo_share", flags->slo_share, "of the calls due, that must meet them")
      ->capture_default_str();
  sub->add_option("--label", options->label, "what this run is called in reports");
  sub->add_option("--metadata", flags->metadata, "KEY=VALUE, kept with the run: commit=1a2b3c");
  sub->add_option("--out", options->outputs.out, "JSON here, - for stdout");
  sub->add_flag("--detailed", options->outputs.detailed,
                "with --out: every call's times in the JSON too");
  sub->add_option("--html", options->outputs.html, "a page here");
  sub->add_option("--db", options->outputs.db, "added to this SQLite file");
  sub->add_flag("--save_calls", options->outputs.save_calls, "with --db: a row per call");
  sub->add_option("--tls_ca", options->tls_ca, "PEM file of the certificates to trust; uses TLS");
  sub->callback([=] {
    options->flags.inputs.seed = options->flags.seed;
    *command = [=] { return Run(*options); };
  });
}

}  // namespace athanor::bench
