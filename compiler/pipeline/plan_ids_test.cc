// Pins the ids of the golden plans: testdata/plan_ids.txt has a line "NAME ID" for each
// testdata/NAME.graph. Plans are cached and pinned by their ids, so a changed line belongs into
// review. To write the file anew, run with ATHANOR_GOLDEN_DIR set to this folder's testdata.
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/pipeline/golden_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr char kFile[] = "plan_ids.txt";

TEST(PlanIdsTest, AreThoseOfTheFile) {
  std::string got;
  std::set<std::string> ids;
  for (const std::string& name : GoldenNames()) {
    const absl::StatusOr<v1::Plan> plan = GoldenPlan(name);
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status();
    EXPECT_TRUE(ids.insert(plan->plan_id()).second) << name << " has the id of another plan";
    absl::StrAppend(&got, name, " ", plan->plan_id(), "\n");
  }
  if (const char* folder = std::getenv("ATHANOR_GOLDEN_DIR")) {
    std::ofstream(absl::StrCat(folder, "/", kFile)) << got;
    return;
  }
  EXPECT_EQ(got, ReadGolden(kFile));
}

}  // namespace
}  // namespace athanor
