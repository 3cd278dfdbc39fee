#include "clients/bench/commands.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "clients/bench/figures/store.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr char kFooter[] =
    "Exit status: 0 done; 1 the server refused or could not be reached, or no call was answered; "
    "2\n"
    "the command line or a file is wrong; 3 a service level was missed.";

absl::StatusOr<Results> ReadStore(const std::string& path, int64_t id) {
  ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::Open(path, Access::kRead));
  Results results;
  if (id < 0) {
    ASSIGN_OR_RETURN(results.runs, store->Runs());
    ASSIGN_OR_RETURN(results.comparisons, store->Comparisons());
  } else {
    ASSIGN_OR_RETURN(json run, store->Run(id));
    results.runs.push_back(std::move(run));
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

absl::StatusOr<Results> ReadResults(const std::string& path) {
  const auto [file, id] = SplitId(path);
  if (IsStore(file)) return ReadStore(file, id);
  ASSIGN_OR_RETURN(std::string bytes, client::ReadFile(file));
  json document = json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": neither a results file (--db) nor a run's JSON (--out)"));
  }
  Results results;
  if (document.contains("runs") && document["runs"].is_array()) {
    for (const json& run : document["runs"]) results.runs.push_back(run);
    if (document.contains("comparison")) results.comparisons.push_back(document["comparison"]);
    if (document.contains("comparisons") && document["comparisons"].is_array()) {
      for (const json& comparison : document["comparisons"]) {
        results.comparisons.push_back(comparison);
      }
    }
  } else if (document.contains("model_id")) {
    results.runs.push_back(std::move(document));
  }
  if (results.runs.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": JSON, but without a run"));
  }
  return results;
}

int RunBench(int argc, char** argv) {
  client::ToolSyntax tool(
      "athanor-bench",
      "Measures models on servers: tensors over the Open Inference Protocol v2, tokens "
      "over Athanor's or OpenAI's protocol.",
      kFooter);
  tool.root().RequireCommand();
  Command command;
  AddRun(tool.root(), &command);
  AddLlm(tool.root(), &command);
  AddReport(tool.root(), &command);
  AddCompare(tool.root(), &command);
  client::AddToolCommands(&tool, [&](std::function<absl::Status()> run) {
    command = [run = std::move(run)]() -> absl::StatusOr<ExitCode> {
      RETURN_IF_ERROR(run());
      return kOk;
    };
  });
  if (std::optional<bool> helped = tool.Parse(argc, argv)) return *helped ? kOk : kUsage;
  const absl::StatusOr<ExitCode> code = command();
  if (code.ok()) return *code;
  std::fprintf(stderr, "athanor-bench: %s\n", std::string(code.status().message()).c_str());
  return code.status().GetPayload(client::kUsagePayload).has_value() ? kUsage : kFailed;
}

}  // namespace athanor::bench
