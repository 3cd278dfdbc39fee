// athanor-bench report FILE...: writes one HTML file about stored runs.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "clients/bench/commands.h"
#include "clients/bench/compare.h"
#include "clients/bench/outputs.h"
#include "clients/bench/report.h"
#include "clients/bench/summary_text.h"
#include "clients/cpp/text_input.h"

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

void AddReport(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app->add_subcommand("report", "Writes a page about runs that were kept");
  sub->add_option("FILE", options->files, "of --db or --out; results.db:3 is one run")->required();
  sub->add_option("--html", options->html, "the file to write")->capture_default_str();
  sub->callback([=] { *command = [=] { return Report(*options); }; });
}

void AddCompare(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  options->html.clear();
  CLI::App* sub = app->add_subcommand(
      "compare", "Ratios of two runs that were kept; `run` with two servers compares in turns");
  sub->add_option("FILE", options->files, "first and second; results.db:3 is one run")
      ->required()
      ->expected(2);
  sub->add_option("--out", options->out, "JSON here, - for stdout");
  sub->add_option("--html", options->html, "a page here");
  sub->callback([=] { *command = [=] { return CompareFiles(*options); }; });
}

}  // namespace athanor::bench
