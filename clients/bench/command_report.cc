// athanor-bench report FILE...: writes one HTML file about stored runs.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "clients/bench/commands.h"
#include "clients/bench/figures/compare.h"
#include "clients/bench/figures/report.h"
#include "clients/bench/figures/summary_text.h"
#include "clients/bench/outputs.h"
#include "clients/cpp/inputs/text_input.h"

namespace athanor::bench {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string html = "report.html";
  std::string out;
};

absl::StatusOr<ExitCode> Report(const Options& options) {
  Results all;
  for (const std::string& file : options.files) {
    absl::StatusOr<Results> results = ReadResults(file);
    if (!results.ok()) return Usage(results.status());
    for (nlohmann::json& run : results->runs) all.runs.push_back(std::move(run));
    // Stored comparisons refer to runs of their own file, so they are only used for a single file.
    if (options.files.size() == 1) all.comparisons = std::move(results->comparisons);
  }
  absl::Status s = client::WriteFile(options.html, ReportHtml(all.runs, all.comparisons));
  if (!s.ok()) return Usage(s);
  for (const nlohmann::json& run : all.runs) std::fputs(SummaryText(run).c_str(), stdout);
  for (const nlohmann::json& comparison : all.comparisons) {
    std::fputs(ComparisonText(comparison).c_str(), stdout);
  }
  return kOk;
}

absl::StatusOr<ExitCode> CompareFiles(const Options& options) {
  std::vector<nlohmann::json> runs;
  for (const std::string& file : options.files) {
    absl::StatusOr<Results> results = ReadResults(file);
    if (!results.ok()) return Usage(results.status());
    if (results->runs.size() != 1) {
      return Usage(absl::InvalidArgumentError(file + ": holds " +
                                              std::to_string(results->runs.size()) +
                                              " runs; name one of a results file as FILE:ID"));
    }
    runs.push_back(std::move(results->runs[0]));
  }
  const nlohmann::json comparison = CompareSummaries(runs[0], runs[1]);
  if (options.out != "-") {
    for (const nlohmann::json& run : runs) std::fputs(SummaryText(run).c_str(), stdout);
    std::fputs(ComparisonText(comparison).c_str(), stdout);
  }
  // Writes every output it can, even if one fails.
  absl::Status s;
  if (!options.html.empty()) {
    s.Update(client::WriteFile(options.html, ReportHtml(runs, {comparison})));
  }
  if (!options.out.empty()) {
    s.Update(WriteJson(options.out, {{"runs", runs}, {"comparison", comparison}}));
  }
  if (!s.ok()) return Usage(s);
  return kOk;
}

}  // namespace

void AddReport(client::CommandSyntax root, Command* command) {
  auto options = std::make_shared<Options>();
  client::CommandSyntax sub = root.Add("report", "Writes an HTML page about stored runs");
  sub.Option("FILE", &options->files,
             "files written by --db or --out; results.db:3 is one run of a file")
      .Required();
  sub.Option("--html", &options->html, "HTML file to write").ShowDefault();
  sub.Then([=] { *command = [=] { return Report(*options); }; });
}

void AddCompare(client::CommandSyntax root, Command* command) {
  auto options = std::make_shared<Options>();
  options->html.clear();
  client::CommandSyntax sub = root.Add(
      "compare", "Compares two stored runs; `run` with two servers compares them side by side");
  sub.Option("FILE", &options->files,
             "the first and the second run; results.db:3 is one run of a file")
      .Required()
      .Count(2);
  sub.Option("--out", &options->out, "file to write the comparison to as JSON; - is stdout");
  sub.Option("--html", &options->html, "HTML file to write the comparison to");
  sub.Then([=] { *command = [=] { return CompareFiles(*options); }; });
}

}  // namespace athanor::bench
