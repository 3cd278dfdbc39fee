// The commands of `athanor-bench`: run, report, compare.
//
//   return RunBench(argc, argv);
#ifndef ATHANOR_CLIENTS_BENCH_COMMANDS_H_
#define ATHANOR_CLIENTS_BENCH_COMMANDS_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

// What the process ends with; scripts may rely on it.
enum ExitCode {
  kOk = 0,
  kFailed = 1,  // the server refused or was not there, or no call was answered
  kUsage = 2,   // the command line or a file is wrong; nothing was sent
  kMissed = 3,  // measured, and a service level was missed
};

// A command's callback sets it; an error with the payload kUsagePayload ends with kUsage.
using Command = std::function<absl::StatusOr<ExitCode>()>;
inline constexpr char kUsagePayload[] = "usage";
absl::Status Usage(absl::Status status);

void AddRun(CLI::App* app, Command* command);
void AddReport(CLI::App* app, Command* command);
void AddCompare(CLI::App* app, Command* command);

// What was read of a file of --out or --db: the runs in it, and what is kept of comparisons.
struct Results {
  std::vector<nlohmann::json> runs;
  std::vector<nlohmann::json> comparisons;
};
// "run.json"; "results.db", all runs; "results.db:3", one. Errors name the file.
absl::StatusOr<Results> ReadResults(const std::string& path);

int RunBench(int argc, char** argv);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_COMMANDS_H_
