#include "server/plans/plan_way.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(PlanWayTest, OnlyWhatIsWrongTurnsPlainAndOnce) {
  for (const absl::Status& error :
       {absl::OkStatus(), absl::UnavailableError("the tuner was ended by SIGKILL"),
        absl::DeadlineExceededError("late"), absl::ResourceExhaustedError("memory"),
        absl::CancelledError("stopped"), absl::AbortedError("the time is up"),
        absl::UnimplementedError("no f64")}) {
    PlanWay way;
    EXPECT_FALSE(way.TurnPlain(error)) << error;
    EXPECT_FALSE(way.plain());
    EXPECT_EQ(way.Explained(error), error);
  }
  for (const absl::Status& error :
       {absl::DataLossError("y is 3"), absl::InternalError("was ended by SIGSEGV")}) {
    PlanWay way;
    EXPECT_TRUE(way.TurnPlain(error)) << error;
    EXPECT_TRUE(way.plain());
    EXPECT_FALSE(way.TurnPlain(error)) << "there is no third way";
    EXPECT_EQ(way.Explained(absl::UnavailableError("killed")), absl::UnavailableError("killed"));
    const absl::Status neither = way.Explained(absl::DataLossError("y is 4"));
    EXPECT_EQ(neither.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(neither.message()), HasSubstr(std::string(error.message())));
  }
}

}  // namespace
}  // namespace athanor
