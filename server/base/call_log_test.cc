#include "server/base/call_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/log.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(CallLogTest, KeepsIdsThatAreFit) {
  EXPECT_EQ(RequestIdFor("abc-1"), "abc-1");
  EXPECT_EQ(RequestIdFor(std::string(128, 'a')), std::string(128, 'a'));
  for (const std::string& unfit :
       {std::string(), std::string(129, 'a'), std::string("a b"), std::string("a\r\nb: c"),
        std::string("a\0b", 3), std::string("\xc3\xa9")}) {
    EXPECT_THAT(RequestIdFor(unfit), StartsWith("r-"));
  }
  EXPECT_NE(RequestIdFor(""), RequestIdFor(""));
}

TEST(CallLogTest, LogsOneLineForACall) {
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  LogFailedCall({"r-1", "ModelInfer", "ipv4:10.0.0.7:1", "team-a"},
                absl::NotFoundError("no \"m\""));
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr("call failed"));
  EXPECT_THAT(line, HasSubstr("request=r-1 method=ModelInfer peer=ipv4:10.0.0.7:1 client=team-a"));
  EXPECT_THAT(line, HasSubstr("code=NOT_FOUND"));
}

TEST(CallLogTest, AClientThatLeavesIsNoFailure) {
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  LogFailedCall({"r-1", "WatchCompileJob", "ipv4:10.0.0.7:1"}, absl::CancelledError("it left"));
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr("call cancelled"));
  EXPECT_THAT(line, Not(HasSubstr("failed")));
}

TEST(CallLogTest, RefusalsHideNoOtherFailures) {
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 1'000; ++i) LogFailedCall({"r", "m", "p"}, absl::UnavailableError("full"));
  LogFailedCall({"r", "m", "p"}, absl::InternalError("defect"));
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("defect"));
  EXPECT_LT(lines.size(), 60'000u) << "lines of one code are limited";
}

TEST(CallLogTest, OneCallerHidesNoOther) {
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 1'000; ++i) {
    LogFailedCall({"r", "m", "p", "loud"}, absl::PermissionDeniedError("no"));
  }
  LogFailedCall({"r", "m", "p", "quiet"}, absl::PermissionDeniedError("no"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("client=quiet"));
}

TEST(CallLogTest, AdministratorsAreAllAudited) {
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 1'000; ++i) {
    LogAuditedCall({"r", "PinPlan", "p", "team"}, "m", /*always=*/false);
  }
  for (int i = 0; i < 100; ++i) {
    LogAuditedCall({"r", "DeleteModel", "p", "ops"}, absl::StrCat("m", i), /*always=*/true);
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  for (int i = 0; i < 100; ++i) EXPECT_THAT(lines, HasSubstr(absl::StrCat("model=m", i, " ")));
  EXPECT_LT(lines.size(), 60'000u);
}

}  // namespace
}  // namespace athanor
