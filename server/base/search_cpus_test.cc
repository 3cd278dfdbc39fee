#include "server/base/search_cpus.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cpu/cpus.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(SearchCpusTest, NoneSetAsideAreAll) {
  const std::vector<int> all = UsableCpus();
  auto cpus = SetSearchCpusAside(0);
  ASSERT_TRUE(cpus.ok()) << cpus.status();
  EXPECT_EQ(*cpus, all);
  EXPECT_EQ(UsableCpus(), all);
}

TEST(SearchCpusTest, TheFirstAreSetAsideForThisThreadAndItsOwn) {
  const std::vector<int> all = UsableCpus();
  if (all.size() < 2) GTEST_SKIP() << "needs two cores";
  std::thread([&] {
    auto cpus = SetSearchCpusAside(1);
    ASSERT_TRUE(cpus.ok()) << cpus.status();
    EXPECT_EQ(*cpus, std::vector<int>{all.front()});
    std::thread([&] {
      EXPECT_EQ(UsableCpus(), std::vector<int>(all.begin() + 1, all.end()));
    }).join();
  }).join();
  EXPECT_EQ(UsableCpus(), all);
}

TEST(SearchCpusTest, RequestsNeedOne) {
  const std::vector<int> all = UsableCpus();
  auto cpus = SetSearchCpusAside(all.size());
  EXPECT_THAT(cpus.status().message(), HasSubstr("give at most " + std::to_string(all.size() - 1)));
  EXPECT_EQ(UsableCpus(), all);
}

}  // namespace
}  // namespace athanor
