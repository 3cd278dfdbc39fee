// Options that all commands which measure have in common: where, how often, what to judge by, what
// to keep.
//
//   AddLoadFlags(sub, &options);  AddResultFlags(sub, &options);
//   absl::StatusOr<RunPlan> plan = PlanRun(options);
#ifndef ATHANOR_CLIENTS_BENCH_RUN_OPTIONS_H_
#define ATHANOR_CLIENTS_BENCH_RUN_OPTIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "clients/bench/flags.h"
#include "clients/bench/outputs.h"
#include "clients/cpp/inputs/tls_files.h"
#include "clients/cpp/syntax/command_syntax.h"

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

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_RUN_OPTIONS_H_
