// Runs a plan against one server or two and writes what came out: the part that all commands which
// measure have in common.
//
//   AddLoadFlags(sub, &options);  AddResultFlags(sub, &options);
//   absl::StatusOr<RunPlan> plan = PlanRun(&options);
//   return Measure(options, *plan, std::move(sides));
#ifndef ATHANOR_CLIENTS_BENCH_MEASURING_H_
#define ATHANOR_CLIENTS_BENCH_MEASURING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/bench/commands.h"
#include "clients/bench/flags.h"
#include "clients/bench/load/load.h"
#include "clients/bench/outputs.h"
#include "clients/cpp/inputs/tls_files.h"
#include "clients/cpp/syntax/command_syntax.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

struct RunOptions {
  RunFlags flags;
  Outputs outputs;
  client::TlsFiles tls;
  std::string token_file, label;
  bool json = false;  // stdout gets a line of JSON per run
};

// Adds --address; `about` says what it may be. UseDefaultAddress fills it in where neither it nor
// ATHANOR_ADDRESS is given.
void AddAddress(client::CommandSyntax sub, const std::string& about, RunFlags* flags);
void UseDefaultAddress(RunFlags* flags);
// Adds the flags that say when calls are due. `flags.answers` is set before.
void AddLoadFlags(client::CommandSyntax sub, RunOptions* options);
// Adds the flags that say how to compare and judge, and where to keep what comes out.
void AddResultFlags(client::CommandSyntax sub, RunOptions* options);

// Parses the flags and checks files, before anything is measured. Errors are of the command line.
absl::StatusOr<RunPlan> PlanRun(const RunOptions& options);

// Names a server of a run.
struct Side {
  std::unique_ptr<Load> load;
  // Added to its summaries: "backend", "server", and "options" beside those of the load.
  nlohmann::json about;
  std::vector<std::string> assumed;  // sentences about its requests, for people
};

// Runs the plan once, once per point of its sweep, or until its knee is found; two sides take
// turns. Prints figures and progress.
absl::StatusOr<ExitCode> Measure(const RunOptions& options, const RunPlan& plan,
                                 const std::vector<Side>& sides);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_MEASURING_H_
