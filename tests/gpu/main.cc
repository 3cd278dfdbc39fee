// athanor-gpu: asks a GPU what our decisions depend on. README.md says how.
#include <chrono>
#include <cstdio>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"
#include "tests/gpu/suites.h"

namespace athanor {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

enum Exit { kAnswered = 0, kUnanswered = 1, kNoGpu = 2, kWrongArguments = 3, kNoKernels = 4 };

struct Options {
  std::vector<std::string> parts;
  std::string output = "result.jsonl";
  std::string nvrtc;
  std::string seconds = absl::StrCat(kDefaultSeconds);
  std::string only;   // runs one part in this process
  std::string begin;  // nanoseconds of the steady clock at which the run began
  std::string child;  // runs a child's task
  std::string tests;
  std::string share = "0", files;  // of a child that runs a test
  std::string table;
  std::string compile;
};

struct Flag {
  absl::string_view name;
  std::string Options::* value;
  const char* help;  // nullptr: only this program uses it
};
constexpr Flag kFlags[] = {
    {"--seconds", &Options::seconds, "N: longest time for all parts together (480)"},
    {"--output", &Options::output, "FILE: rows are appended to it as they come (result.jsonl)"},
    {"--nvrtc", &Options::nvrtc,
     "FOLDER: where the compiler NVRTC lies; by default where ATHANOR_NVRTC says, the system's\n"
     "            loader finds it, or a toolkit or Python package has it"},
    {"--table", &Options::table, "FILE: prints the table of such rows again, and runs nothing"},
    {"--compile", &Options::compile,
     "FOLDER: writes the kernels' machine code, and runs nothing; a folder \"kernels\" beside\n"
     "            the program is used where there is no NVRTC"},
    {"--tests", &Options::tests,
     "PATTERN: of kernels, conformance and zoo runs the tests of these names, such as\n"
     "            'PlanTest.*'; by default all"},
    {"--only", &Options::only, nullptr},
    {"--begin", &Options::begin, nullptr},
    {"--child", &Options::child, nullptr},
    {"--share", &Options::share, nullptr},
    {"--files", &Options::files, nullptr},
};

void PrintHelp() {
  std::printf(
      "athanor-gpu [PART...] [--seconds N] [--tests PATTERN] [--output FILE] [--nvrtc FOLDER]\n\n"
      "Asks the GPU of this machine what Athanor's design predicted, and runs Athanor's own\n"
      "kernels there, part by part (all by default), each in a process of its own; prints a\n"
      "table at the end. Exits with 2 if there is no GPU to ask, with 4 if there is one but\n"
      "neither a compiler nor kernels for it, with 1 if a question has no answer. Kernels,\n"
      "conformance and zoo need the compiler, and run a process per test, 16 side by side.\n\n");
  for (const Part& part : Parts()) {
    std::printf("  %-12s %s\n", std::string(part.name).c_str(), std::string(part.answers).c_str());
  }
  std::printf("\n");
  for (const Flag& flag : kFlags) {
    if (flag.help != nullptr) std::printf("  %-9s %s\n", std::string(flag.name).c_str(), flag.help);
  }
}

const Part* FindPart(absl::string_view name) {
  for (const Part& part : Parts()) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

absl::StatusOr<Options> Parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    absl::string_view argument = arguments[i];
    const Flag* known = nullptr;
    for (const Flag& flag : kFlags) {
      if (argument == flag.name) known = &flag;
    }
    if (known != nullptr && i + 1 < count) {
      options.*known->value = arguments[++i];
    } else if (FindPart(argument) != nullptr) {
      options.parts.emplace_back(argument);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", argument, "\" is no part, or a flag without its value; see --help"));
    }
  }
  if (options.parts.empty()) {
    for (const Part& part : Parts()) options.parts.emplace_back(part.name);
  }
  return options;
}

int RunTask(const Options& options) {
  if (options.child == "test") {
    TestTask task = {options.tests};
    if (!absl::SimpleAtoi(options.share, &task.share)) return kWrongArguments;
    return RunTestTask(task, options.nvrtc, options.files);
  }
  for (const ChildTask& task : ChildTasks()) {
    if (task.name == options.child) return task.run(options.nvrtc);
  }
  std::fprintf(stderr, "athanor-gpu: no task \"%s\"\n", options.child.c_str());
  return kWrongArguments;
}

absl::Status RunOne(const Options& options, std::vector<Question> questions) {
  const Part* part = FindPart(options.only);
  if (part == nullptr) return absl::NotFoundError(absl::StrCat("no part \"", options.only, "\""));
  int64_t begin = 0;
  if (!absl::SimpleAtoi(options.begin, &begin)) {
    return absl::InvalidArgumentError("--only needs --begin");
  }
  ASSIGN_OR_RETURN(GpuReport report, GpuReport::Open(options.output, std::move(questions),
                                                     TimePoint(std::chrono::nanoseconds(begin))));
  double seconds = 0;
  if (!absl::SimpleAtod(options.seconds, &seconds)) {
    return absl::InvalidArgumentError("--only needs --seconds");
  }
  PartRun run(std::move(report), options.nvrtc, seconds, options.tests);
  const absl::Status status = part->run(run);
  run.End(part->name);
  if (!status.ok()) run.report().Failed(part->name, status.ToString());
  return status;
}

// Runs each part as a child; rows say what it does not answer. The run's time counts from `begin`.
absl::Status RunAll(const Options& options, const std::vector<Question>& questions,
                    TimePoint begin) {
  double seconds = 0;
  if (!absl::SimpleAtod(options.seconds, &seconds) || seconds <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seconds ", options.seconds, " is no number above 0"));
  }
  ASSIGN_OR_RETURN(GpuReport report, GpuReport::Open(options.output, questions, begin));
  report.Fact("run", "begin",
              {{"time", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone())},
               {"parts", options.parts},
               {"seconds", seconds}});
  const std::string since =
      absl::StrCat(std::chrono::nanoseconds(begin.time_since_epoch()).count());
  for (const std::string& name : options.parts) {
    const double left = seconds - MsSince(begin) / 1e3;
    if (left <= 1) {
      report.Failed(name, "not run: --seconds are over");
      continue;
    }
    std::fprintf(stderr, "%s ...\n", name.c_str());
    // Alone it has all the time.
    const double most = options.parts.size() == 1 ? left : std::min(left, FindPart(name)->seconds);
    std::vector<std::string> arguments = {"--only",  name,  "--output",  options.output,
                                          "--begin", since, "--seconds", absl::StrCat(most)};
    if (!options.nvrtc.empty()) arguments.insert(arguments.end(), {"--nvrtc", options.nvrtc});
    if (!options.tests.empty()) arguments.insert(arguments.end(), {"--tests", options.tests});
    const Child child = RunChild(arguments, most);
    report.Fact(name, "process", {{"end", child.End()}, {"seconds", child.seconds}});
    // A child that ended by itself has said why.
    if (child.exit < 0) report.Failed(name, absl::StrCat("its process ended by ", child.End()));
  }
  return absl::OkStatus();
}

// The rows of the last run in a file that may hold several.
std::vector<Json> LastRun(const std::string& path) {
  std::vector<Json> rows = ReadRows(path);
  for (size_t i = rows.size(); i-- > 0;) {
    if (rows[i].contains("part") && rows[i]["part"] == "run") {
      rows.erase(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(i));
      break;
    }
  }
  return rows;
}

// Looks for a GPU and for kernels to ask it with; says what is missing.
Exit Look(const Options& options) {
  std::vector<std::string> arguments = {"--child", "present"};
  if (!options.nvrtc.empty()) arguments.insert(arguments.end(), {"--nvrtc", options.nvrtc});
  const Child child = RunChild(arguments, kLookSeconds);
  if (child.exit == 0) return kAnswered;
  const Json printed = Printed(child);
  const bool device = printed.is_object() && printed.value("device", false);
  std::fprintf(
      stderr, "athanor-gpu: %s: %s\n",
      device ? "there is a GPU, but neither a compiler nor kernels for it" : "no GPU to ask",
      printed.is_object() ? printed.value("error", "").c_str()
                          : ("looking for one: " + child.End()).c_str());
  return device ? kNoKernels : kNoGpu;
}

int Main(int count, char** arguments) {
  if (count == 2 &&
      (std::string_view(arguments[1]) == "--help" || std::string_view(arguments[1]) == "-h")) {
    PrintHelp();
    return kAnswered;
  }
  const auto wrong = [](const absl::Status& status) {
    std::fprintf(stderr, "athanor-gpu: %s\n", std::string(status.message()).c_str());
    return kWrongArguments;
  };
  const absl::StatusOr<Options> options = Parse(count, arguments);
  if (!options.ok()) return wrong(options.status());
  if (!options->child.empty() || !options->only.empty()) DieWithParent();
  if (!options->child.empty()) return RunTask(*options);
  if (!options->compile.empty()) {
    const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Load(options->nvrtc);
    const absl::Status written =
        nvrtc.ok() ? WriteMachineCode(**nvrtc, options->compile) : nvrtc.status();
    return written.ok() ? static_cast<int>(kAnswered) : wrong(written);
  }
  absl::StatusOr<std::vector<Question>> questions = ParseQuestions(ExpectJson());
  if (!questions.ok()) return wrong(questions.status());
  if (!options->only.empty()) {
    return RunOne(*options, *std::move(questions)).ok() ? kAnswered : kUnanswered;
  }
  if (options->table.empty()) {
    const auto begin = std::chrono::steady_clock::now();
    if (const Exit missing = Look(*options); missing != kAnswered) return missing;
    if (absl::Status ran = RunAll(*options, *questions, begin); !ran.ok()) return wrong(ran);
  }
  std::vector<Question> asked;
  for (Question& question : *questions) {
    if (absl::c_linear_search(options->parts, question.part())) asked.push_back(question);
  }
  const std::vector<Json> rows = LastRun(options->table.empty() ? options->output : options->table);
  std::fputs(Table(asked, rows).c_str(), stdout);
  const bool all = absl::c_all_of(
      asked, [&](const Question& question) { return FindAnswer(question, rows) != nullptr; });
  return all ? kAnswered : kUnanswered;
}

}  // namespace
}  // namespace athanor

int main(int count, char** arguments) { return athanor::Main(count, arguments); }
