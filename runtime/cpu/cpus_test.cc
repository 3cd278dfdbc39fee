#include "runtime/cpu/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CpusTest, AThreadKeepsToWhatItWasGivenAndItsThreadsToo) {
  const std::vector<int> all = UsableCpus();
  ASSERT_FALSE(all.empty());
  std::vector<int> own, inherited, process;
  std::thread([&] {
    ASSERT_TRUE(UseCpus({all.back()}));
    own = UsableCpus();
    std::thread([&] { inherited = UsableCpus(); }).join();
    process = UsableCpus(getpid());
  }).join();
  EXPECT_THAT(own, ElementsAre(all.back()));
  EXPECT_THAT(inherited, ElementsAre(all.back()));
  EXPECT_EQ(process, all);
  EXPECT_EQ(UsableCpus(), all);
}

TEST(CpusTest, ARefusalChangesNothing) {
  const std::vector<int> all = UsableCpus();
  EXPECT_FALSE(UseCpus({}));
  EXPECT_FALSE(UseCpus({-1}));
  EXPECT_FALSE(UseCpus({CPU_SETSIZE}));
  EXPECT_EQ(UsableCpus(), all);
  EXPECT_THAT(UsableCpus(/*thread=*/-1), IsEmpty());
}

}  // namespace
}  // namespace athanor
