#include "clients/bench/commands.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "clients/bench/store.h"
#include "clients/cpp/text_input.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr char kFooter[] =
    "Exit status: 0 done; 1 the server refused or was not there, or no call was answered; 2 the\n"
    "command line or a file is wrong; 3 a service level was missed.";

absl::StatusOr<Results> ReadStore(const std::string& path, int64_t id) {
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path, Access::kRead);
  if (!store.ok()) return store.status();
  Results results;
  if (id < 0) {
    absl::StatusOr<std::vector<json>> runs = (*store)->Runs();
    if (!runs.ok()) return runs.status();
    results.runs = *std::move(runs);
    absl::StatusOr<std::vector<json>> comparisons = (*store)->Comparisons();
    if (!comparisons.ok()) return comparisons.status();
    results.comparisons = *std::move(comparisons);
  } else {
    absl::StatusOr<json> run = (*store)->Run(id);
    if (!run.ok()) return run.status();
    results.runs.push_back(*std::move(run));
  }
  return results;
}

// Splits "results.db:3" into the path and the run's id; -1: all runs.
std::pair<std::string, int64_t> SplitId(const std::string& path) {
  const size_t colon = path.rfind(':');
  int64_t id = -1;
  if (colon == std::string::npos || !absl::SimpleAtoi(path.substr(colon + 1), &id) || id < 0) {
    return {path, -1};
  }
  return {path.substr(0, colon), id};
}

}  // namespace

absl::Status Usage(absl::Status status) {
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

absl::StatusOr<Results> ReadResults(const std::string& path) {
  const auto [file, id] = SplitId(path);
  if (IsStore(file)) return ReadStore(file, id);
  absl::StatusOr<std::string> bytes = client::ReadFile(file);
  if (!bytes.ok()) return bytes.status();
  json document = json::parse(*bytes, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": neither a results file (--db) nor a run's JSON (--out)"));
  }
  Results results;
  if (document.contains("runs") && document["runs"].is_array()) {
    for (const json& run : document["runs"]) results.runs.push_back(run);
    if (document.contains("comparison")) results.comparisons.push_back(document["comparison"]);
  } else if (document.contains("model_id")) {
    results.runs.push_back(std::move(document));
  }
  if (results.runs.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": JSON, but of no run"));
  }
  return results;
}

int RunBench(int argc, char** argv) {
  CLI::App app("Measures models on servers of the Open Inference Protocol v2.", "athanor-bench");
  app.require_subcommand(1);
  app.footer(kFooter);
  Command command;
  AddRun(&app, &command);
  AddReport(&app, &command);
  AddCompare(&app, &command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  const absl::StatusOr<ExitCode> code = command();
  if (code.ok()) return *code;
  std::fprintf(stderr, "athanor-bench: %s: %s\n",
               absl::StatusCodeToString(code.status().code()).c_str(),
               std::string(code.status().message()).c_str());
  return code.status().GetPayload(kUsagePayload).has_value() ? kUsage : kFailed;
}

}  // namespace athanor::bench
