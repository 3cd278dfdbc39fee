#include "clients/cpp/terminal/progress.h"

#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::CompileJob Job(v1::CompileJob::Phase phase) {
  v1::CompileJob job;
  job.set_id("c1");
  job.set_model("m");
  job.set_version("2");
  job.set_phase(phase);
  if (phase == v1::CompileJob::SEARCHING) job.mutable_search()->set_seconds(12.34);
  return job;
}

TEST(Progress, ASearchIsShownAgainstItsBudget) {
  v1::SearchProgress search;
  search.set_seconds(12.34);
  search.set_candidates(98);
  EXPECT_EQ(SearchExtentText(search, "30s"), "12.3 of 30 s of search");
  EXPECT_EQ(SearchExtentText(search, "exhaust:5m"), "12.3 of 300 s of search");
  EXPECT_EQ(SearchExtentText(search, "200c"), "98 of 200 candidates, 12.3 s of search");
  EXPECT_EQ(SearchExtentText(search, "fast:10c"), "98 of 10 candidates, 12.3 s of search");
  for (const char* endless : {"", "exhaust", "fast", "0", "c", "x:y"}) {
    EXPECT_EQ(SearchExtentText(search, endless), "12.3 s of search") << endless;
  }
}

TEST(Progress, TheBarTellsTheTimeSinceItBegan) {
  v1::CompileJob job = Job(v1::CompileJob::COMPILING_KERNELS);
  job.set_percent(50);
  job.set_kernels_done(3);
  job.set_kernels_total(12);
  EXPECT_EQ(ProgressLines(job, absl::Seconds(4), 200, 24)[0],
            "[###############...............]  50 %  COMPILING_KERNELS, kernel 3 of 12, 4 s");
  job = Job(v1::CompileJob::SEARCHING);
  job.mutable_search_options()->set_budget("30s");
  EXPECT_THAT(ProgressLines(job, absl::Seconds(20), 200, 24)[0],
              HasSubstr("SEARCHING, 12.3 of 30 s of search"));
}

// Returns the lines that a pipe gets for these states, one after the other.
std::string Lines(std::initializer_list<v1::CompileJob> states) {
  std::FILE* file = std::tmpfile();
  {
    Printer out(file, /*json=*/false);
    JobProgress progress(&out);
    for (const v1::CompileJob& job : states) progress.Show(job);
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Progress, SaysWhenTheFirstPlanServes) {
  const auto queued = Job(v1::CompileJob::QUEUED), searching = Job(v1::CompileJob::SEARCHING),
             done = Job(v1::CompileJob::DONE), failed = Job(v1::CompileJob::FAILED);
  const std::string text = Lines({queued, searching, searching, done});
  EXPECT_THAT(text,
              HasSubstr("m/2 serves after 0.0 s, by its baseline plan; the search goes on\n"));
  EXPECT_EQ(text.find("serves after"), text.rfind("serves after"));
  EXPECT_THAT(Lines({queued, done}), HasSubstr("m/2 serves after 0.0 s\n"));
  EXPECT_THAT(Lines({searching, done}), Not(HasSubstr("serves after")));
  EXPECT_THAT(Lines({queued, failed}), Not(HasSubstr("serves after")));
  v1::CompileJob tapped = queued;
  tapped.add_taps("w");
  EXPECT_THAT(Lines({tapped, done}), Not(HasSubstr("serves after")));
}

}  // namespace
}  // namespace athanor::client
