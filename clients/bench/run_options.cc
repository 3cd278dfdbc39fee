#include "clients/bench/run_options.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "clients/bench/commands.h"
#include "clients/cpp/inputs/token.h"

namespace athanor::bench {
namespace {

constexpr char kDefaultAddress[] = "127.0.0.1:50051";

}  // namespace

void AddAddress(client::CommandSyntax sub, const std::string& about, RunFlags* flags) {
  sub.Option("--address", &flags->servers,
             absl::StrCat(about, "give a second one to compare it with the first; default: ",
                          kDefaultAddress))
      .FromEnvironment("ATHANOR_ADDRESS");
}

void UseDefaultAddress(RunFlags* flags) {
  if (flags->servers.empty()) flags->servers = {kDefaultAddress};
}

void AddLoadFlags(client::CommandSyntax sub, RunOptions* options) {
  RunFlags* flags = &options->flags;
  sub.Option("--rate", &flags->rate,
             "open loop: calls per second (500), or a ramp (500..2500); default: closed loop");
  sub.Option("--arrival", &flags->arrival,
             "distribution of the times at which calls are due: closed, fixed, poisson or "
             "gamma; default: poisson with --rate or --knee, else closed");
  sub.Flag("--knee", &flags->knee,
           "look for the highest rate that meets --slo, and show the goodput of each rate on the "
           "way: it doubles, from --rate or 1 on, until --slo_share is missed, then halves what "
           "is between to 5 %");
  sub.Option("--burstiness", &flags->burstiness,
             "shape of the gaps of --arrival gamma; below 1 they are burstier than poisson");
  sub.Option("--concurrency", &flags->concurrency,
             "closed loop: number of callers, or a sweep of them, a run each: 1,4,16 or 1:64:x2 "
             "or 4:16:+4; default 1");
  sub.Option("--think", &flags->think,
             "closed loop: time that a caller waits between an answer and its next call; default: "
             "none");
  sub.Option("--duration", &flags->duration,
             flags->answers == Answers::kTokens
                 ? "how long to send calls to each server; default 10s, all of --trace, or no end "
                   "with --num_prompts"
                 : "how long to measure each server; default 10s");
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
  sub.Option("--seed", &flags->seed, "seed of arrivals and requests").ShowDefault();
}

void AddResultFlags(client::CommandSyntax sub, RunOptions* options) {
  RunFlags* flags = &options->flags;
  Outputs* outputs = &options->outputs;
  sub.Option("--slice", &flags->slice,
             "two servers: time to measure one before switching to the other, at least 50ms; "
             "default 2s");
  sub.Option(
      "--slo,--goodput", &flags->slo,
      flags->answers == Answers::kTokens
          ? "service levels, as most milliseconds per metric: ttft:200,tpot:30,e2el:5000. ttft = "
            "first chunk with tokens - due; e2el = last one - due; tpot = (e2el - ttft) / "
            "(output tokens - 1), none for one token, which meets it; itl (no level) = each "
            "gap between chunks; throughput = tokens or answered calls / duration; goodput = "
            "calls that meet every level / duration"
          : "service levels, as most milliseconds per metric: e2el:5,queue:2");
  sub.Option("--slo_share", &flags->slo_share,
             "share of the due calls that must meet the service levels")
      .ShowDefault();
  sub.Option("--label", &options->label, "name of this run in reports");
  sub.Option("--metadata", &flags->metadata,
             "KEY=VALUE to store with the run, such as commit=1a2b3c; repeatable");
  sub.Option("--out", &outputs->out, "file to write the figures to as JSON; - is stdout")
      .Offer(client::Offers::kFiles);
  sub.Flag("--json", &options->json,
           "print one JSON object per line instead of text: each run's figures when it ends, then "
           "{\"comparison\": ...} of two servers, at last {\"sweep\": [...]}, the curve");
  sub.Flag("--detailed", &outputs->detailed, "with --out: also write the times of every call");
  sub.Option("--html", &outputs->html, "file to write an HTML page to");
  sub.Option("--db", &outputs->db, "SQLite file to add the run to");
  sub.Flag("--save_calls", &outputs->save_calls, "with --db: also store a row per call");
  sub.Option("--tls_ca", &options->tls.ca, client::kTlsCaHelp).Offer(client::Offers::kFiles);
  sub.Option("--tls_cert", &options->tls.cert, client::kTlsCertHelp).Offer(client::Offers::kFiles);
  sub.Option("--tls_key", &options->tls.key, client::kTlsKeyHelp).Offer(client::Offers::kFiles);
  sub.Option("--token_file", &options->token_file, client::kTokenFileHelp)
      .Offer(client::Offers::kFiles);
}

absl::StatusOr<RunPlan> PlanRun(const RunOptions& options) {
  absl::StatusOr<RunPlan> plan = ParseRunFlags(options.flags);
  if (!plan.ok()) return Usage(plan.status());
  if (absl::Status s = CheckOutputs(options.outputs); !s.ok()) return Usage(s);
  if (options.json && options.outputs.out == "-") {
    return Usage(absl::InvalidArgumentError(
        "--json and --out - both print to standard output; give one of them"));
  }
  absl::StatusOr<std::string> token = client::ReadToken(options.token_file);
  if (!token.ok()) return Usage(token.status());
  plan->load.client.token = *std::move(token);
  if (absl::Status s = client::ReadTls(options.tls, &plan->load.client); !s.ok()) return Usage(s);
  return plan;
}

}  // namespace athanor::bench
