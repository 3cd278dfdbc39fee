#include "tests/bench/plan_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Plan TwoKernels() {
  v1::Plan plan;
  plan.set_format(1);
  plan.set_plan_id("p-0123456789abcdef");
  plan.add_kernels()->set_source_hash("aa");
  plan.add_kernels()->set_source_hash("bb");
  return plan;
}

std::string Folder(const std::string& name) { return testing::TempDir() + "/plan_folder/" + name; }

TEST(PlanFolder, GivesBackWhatWasWritten) {
  const std::string zeros("\0object\0", 8);
  ASSERT_TRUE(WritePlan(Folder("both"), TwoKernels(), {zeros, "other"}).ok());
  auto saved = ReadPlan(Folder("both"));
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(saved->plan, TwoKernels()));
  EXPECT_EQ(saved->objects, (std::vector<std::string>{zeros, "other"}));
}

TEST(PlanFolder, LeavesMissingObjectsEmpty) {
  ASSERT_TRUE(WritePlan(Folder("one"), TwoKernels(), {"first", "second"}).ok());
  std::filesystem::remove(Folder("one") + "/aa.so");
  auto saved = ReadPlan(Folder("one"));
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->objects, (std::vector<std::string>{"", "second"}));
}

TEST(PlanFolder, NamesWhatIsWrong) {
  EXPECT_EQ(WritePlan(Folder("few"), TwoKernels(), {"first"}).code(),
            absl::StatusCode::kInvalidArgument);
  auto missing = ReadPlan(Folder("missing"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("missing/plan.pb"), std::string::npos);
  std::filesystem::create_directories(Folder("garbage"));
  std::ofstream(Folder("garbage") + "/plan.pb") << "no plan";
  EXPECT_EQ(ReadPlan(Folder("garbage")).status().code(), absl::StatusCode::kDataLoss);
  std::ofstream(Folder("file")) << "in the way";
  EXPECT_EQ(WritePlan(Folder("file") + "/below", TwoKernels(), {"a", "b"}).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace athanor
