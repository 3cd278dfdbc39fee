// The commands of `athanor-bench`: run, llm, report, compare.
//
//   return RunBench(argc, argv);
#ifndef ATHANOR_CLIENTS_BENCH_COMMANDS_H_
#define ATHANOR_CLIENTS_BENCH_COMMANDS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clients/cpp/syntax/command_syntax.h"
#include "clients/cpp/syntax/tool_commands.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

// Exit codes of the process. Scripts rely on them: never renumber.
enum ExitCode {
  kOk = 0,
  kFailed = 1,  // the server refused or did not answer, or no call was answered
  kUsage = 2,   // the command line or a file is wrong; no call was sent
  kMissed = 3,  // the run finished, and a service level was missed
};

// Set by a command's callback. An error marked by Usage ends the process with kUsage.
using Command = std::function<absl::StatusOr<ExitCode>()>;
using client::Usage;

void AddRun(client::CommandSyntax root, Command* command);
void AddLlm(client::CommandSyntax root, Command* command);
void AddReport(client::CommandSyntax root, Command* command);
void AddCompare(client::CommandSyntax root, Command* command);

// Runs and comparisons read from a file of --out or --db.
struct Results {
  std::vector<nlohmann::json> runs;
  std::vector<nlohmann::json> comparisons;
};
// Reads "run.json"; "results.db", all its runs; or "results.db:3", one run. Errors name the file.
absl::StatusOr<Results> ReadResults(const std::string& path);

int RunBench(int argc, char** argv);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_COMMANDS_H_
