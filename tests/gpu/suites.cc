#include "tests/gpu/suites.h"

#include <fnmatch.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gtest/gtest.h"
#include "tests/gpu/parts.h"
#include "tests/gpu/this_gpu.h"

namespace athanor {
namespace {

// Each process compiles with one thread, so there are as many as a GPU's machine has cores.
constexpr unsigned kMostProcesses = 16;
// Messages of failed tests may hold whole graphs and kernels.
constexpr size_t kLongestWhy = 2000;

// Tests that draw their cases: each share draws others.
struct RandomTest {
  absl::string_view test;
  int shares, cases;
  const char *count, *first;  // variables that its program reads
};
constexpr RandomTest kRandomTests[] = {
    {"RandomMapsTest.ComputeWhatTheReferenceDoes", 16, 60, "ATHANOR_RANDOM_MAPS",
     "ATHANOR_RANDOM_MAPS_SEED"},
    {"GenomesOnGpuTest.AreRight", 16, 15, "ATHANOR_GENOMES", "ATHANOR_GENOMES_FIRST"},
};
constexpr int kBetweenShares = 1000;  // first cases of neighbours

const RandomTest* FindRandom(absl::string_view test) {
  for (const RandomTest& random : kRandomTests) {
    if (random.test == test) return &random;
  }
  return nullptr;
}

// {path, text} of the files that tests read.
struct TestFile {
  const char *path, *text;
};
constexpr TestFile kTestFiles[] = {
#include "tests/gpu/test_files.inc"
};

absl::Status WriteTestFiles(const std::filesystem::path& folder) {
  for (const TestFile& file : kTestFiles) {
    const std::filesystem::path path = folder / file.path;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (!(std::ofstream(path) << file.text).flush()) {
      return absl::FailedPreconditionError(absl::StrCat(path.string(), " cannot be written"));
    }
  }
  return absl::OkStatus();
}

absl::string_view PartOf(absl::string_view test) {
  if (absl::StrContains(test, "PrintedKernels")) return "kernels";
  if (absl::StrContains(test, "ModelsTest")) return "zoo";
  return "conformance";
}

void StartGoogletest() {
  int count = 1;
  char name[] = "athanor-gpu";
  char* arguments[] = {name, nullptr};
  ::testing::InitGoogleTest(&count, arguments);
}

// Collects what fails; prints nothing.
class Listener : public ::testing::EmptyTestEventListener {
 public:
  explicit Listener(Json* object) : object_(*object) {}

  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed() || object_.contains("why")) return;
    object_["why"] = absl::StrCat(result.file_name() != nullptr ? result.file_name() : "", ":",
                                  result.line_number(), ": ", result.summary())
                         .substr(0, kLongestWhy);
  }

 private:
  Json& object_;
};

enum class Fate { kUnreached, kRight, kWrong };
struct Outcome {
  Fate fate = Fate::kUnreached;
  std::string why;  // of a wrong one
  double seconds = 0;
  int64_t kernels = 0, spilling = 0;
  double compile_seconds = 0;
};

Outcome OutcomeOf(const Child& child) {
  Outcome outcome;
  outcome.seconds = child.seconds;
  const Json printed = Printed(child);
  if (printed.is_object()) {
    outcome.kernels = printed.value("kernels", int64_t{0});
    outcome.spilling = printed.value("spilling", int64_t{0});
    outcome.compile_seconds = printed.value("compile_seconds", 0.0);
  }
  if (child.exit == 0 && printed.is_object()) {
    outcome.fate = Fate::kRight;
  } else if (!child.timed_out) {
    outcome.fate = Fate::kWrong;
    outcome.why = printed.is_object() ? printed.value("why", child.End()) : child.End();
  }
  return outcome;
}

// Runs tasks side by side until `seconds` are over. Outcomes are in their order.
std::vector<Outcome> RunTasks(const PartRun& run, const std::vector<TestTask>& tasks,
                              const std::string& folder, double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Outcome> outcomes(tasks.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  const unsigned processes = std::clamp(std::thread::hardware_concurrency(), 1u, kMostProcesses);
  for (unsigned i = 0; i < processes; ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < tasks.size(); at = next++) {
        const double left = seconds - MsSince(begin) / 1e3;
        if (left <= 0) return;
        outcomes[at] = OutcomeOf(run.RunTask("test", left, std::numeric_limits<double>::infinity(),
                                             {"--tests", tasks[at].test, "--share",
                                              absl::StrCat(tasks[at].share), "--files", folder}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void Report(absl::string_view part, const std::vector<TestTask>& tasks,
            const std::vector<Outcome>& outcomes, GpuReport& report) {
  Json wrong = Json::array(), unreached = Json::array();
  int right = 0;
  struct Count {
    int right = 0, all = 0;
  };
  std::map<std::string, Count> suites;
  Outcome sum;
  double longest = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Outcome& one = outcomes[i];
    const std::string name = tasks[i].name();
    sum.kernels += one.kernels;
    sum.spilling += one.spilling;
    sum.compile_seconds += one.compile_seconds;
    longest = std::max(longest, one.seconds);
    right += one.fate == Fate::kRight;
    Count& suite = suites[tasks[i].test.substr(0, tasks[i].test.find('.'))];
    suite.right += one.fate == Fate::kRight;
    ++suite.all;
    if (one.fate == Fate::kUnreached) unreached.push_back(name);
    if (one.fate != Fate::kWrong) continue;
    wrong.push_back(name);
    report.Fact(part, "wrong", {{"test", name}, {"why", one.why}});
  }
  Json by_suite = Json::object();
  for (const auto& [name, count] : suites) {
    by_suite[name] = absl::StrCat(count.right, " of ", count.all);
  }
  report.Answer(absl::StrCat(part, ".wrong"), static_cast<double>(wrong.size()),
                {{"right", right},
                 {"wrong", wrong},
                 {"suites", by_suite},
                 {"kernels", sum.kernels},
                 {"spilling_kernels", sum.spilling},
                 {"compile_seconds", sum.compile_seconds},
                 {"longest_seconds", longest}});
  report.Answer(absl::StrCat(part, ".unreached"), static_cast<double>(unreached.size()),
                {{"tests", unreached}});
}

absl::Status RunSuites(absl::string_view part, PartRun& run) {
  {
    ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
    RETURN_IF_ERROR(gpu->nvrtc().status());
  }
  const std::vector<TestTask> tasks = TasksOf(part, run.tests());
  if (tasks.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no test matches --tests ", run.tests()));
  }
  std::string folder = (std::filesystem::temp_directory_path() / "athanor-gpu.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " cannot be made"));
  }
  absl::Cleanup remove = [&] {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
  };
  RETURN_IF_ERROR(WriteTestFiles(folder));
  // A process that is killed may take a while to be gone.
  const double seconds = std::max(run.seconds() - kReapSeconds - 2, run.seconds() / 2);
  Report(part, tasks, RunTasks(run, tasks, folder, seconds), run.report());
  return absl::OkStatus();
}

}  // namespace

std::string TestTask::name() const {
  return shares == 1 ? test : absl::StrCat(test, ", share ", share);
}

std::vector<TestTask> TasksOf(absl::string_view part, const std::string& pattern) {
  StartGoogletest();
  std::vector<TestTask> tasks, random;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string name = absl::StrCat(suite.name(), ".", suite.GetTestInfo(t)->name());
      if (PartOf(name) != part) continue;
      if (!pattern.empty() && fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      if (const RandomTest* draws = FindRandom(name)) {
        for (int i = 0; i < draws->shares; ++i) random.push_back({name, i, draws->shares});
      } else {
        tasks.push_back({name});
      }
    }
  }
  // What is drawn at random comes last: there is always more of it.
  tasks.insert(tasks.end(), random.begin(), random.end());
  return tasks;
}

int RunTestTask(const TestTask& task, const std::string& nvrtc, const std::string& folder) {
  Json object = Json::object();
  // Libraries may be named relative to this folder.
  if (const absl::Status opened = OpenThisGpu(nvrtc); !opened.ok()) {
    return PrintFindings(opened, {{"why", std::string(opened.message())}});
  }
  std::error_code error;
  std::filesystem::current_path(folder, error);
  if (const RandomTest* random = FindRandom(task.test)) {
    setenv(random->count, absl::StrCat(random->cases).c_str(), 1);
    setenv(random->first, absl::StrCat(1 + task.share * kBetweenShares).c_str(), 1);
  }
  StartGoogletest();
  GTEST_FLAG_SET(filter, task.test);
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Listener(&object));
  const int failed = RUN_ALL_TESTS();
  const ::testing::UnitTest& ran = *::testing::UnitTest::GetInstance();
  const bool one = ran.test_to_run_count() == 1 && ran.skipped_test_count() == 0;
  if (!one && failed == 0) object["why"] = absl::StrCat(task.test, " did not run");
  object["kernels"] = Compilations().kernels;
  object["spilling"] = Compilations().spilling;
  object["compile_seconds"] = Compilations().seconds;
  PrintObject(object);
  return failed != 0 || !one ? 1 : 0;
}

absl::Status RunKernels(PartRun& run) { return RunSuites("kernels", run); }
absl::Status RunConformance(PartRun& run) { return RunSuites("conformance", run); }
absl::Status RunZoo(PartRun& run) { return RunSuites("zoo", run); }

}  // namespace athanor
