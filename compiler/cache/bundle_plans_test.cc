// Tests of plans and ended searches in bundles.
#include <functional>
#include <string>

#include "compiler/cache/bundle_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

v1::CachedPlanKey PlanKeyMessage() {
  v1::CachedPlanKey key;
  key.set_graph_hash(std::string(64, 'c'));
  key.set_interface_hash(std::string(64, 'd'));
  key.set_dim_box("d0=1..64");
  key.set_device("cpu");
  key.set_triple("x86_64-pc-linux-gnu");
  key.set_cpu("znver4");
  key.set_compiler_version("19.1.7");
  key.set_threads(2);
  return key;
}

v1::CacheBundleRecord PlanRecord() {
  v1::CacheBundleRecord record;
  v1::CachedPlan& plan = *record.mutable_plan();
  *plan.mutable_key() = PlanKeyMessage();
  plan.mutable_plan()->set_plan_id("p-12ab");
  plan.mutable_plan()->set_kind("search");
  plan.mutable_plan()->add_kernels()->set_source("a kernel");
  plan.add_kernel_keys(std::string(32, 'k'));
  plan.set_share_of_baseline(0.5);
  plan.set_low(0.4);
  plan.set_high(0.6);
  return record;
}

v1::CacheBundleRecord SearchRecord() {
  v1::CacheBundleRecord record;
  *record.mutable_search()->mutable_key() = PlanKeyMessage();
  record.mutable_search()->set_options(std::string(32, 'o'));
  record.mutable_search()->set_seconds(1.5);
  return record;
}

// Reads a record in a bundle that is signed and trusted.
absl::Status ReadOne(const v1::CacheBundleRecord& record) {
  BundleWriter writer = BundleWriter::Create(HeaderOf(true), KeyOf(kSeed)).value();
  Chunks chunks = {writer.Header(), writer.Record(record).value()};
  chunks.push_back(writer.Trailer().value());
  return Read(chunks, Terms({kSeed}));
}

TEST(BundlePlansTest, PlansAndSearchesAreReadFieldByField) {
  EXPECT_EQ(ReadOne(PlanRecord()), absl::OkStatus());
  EXPECT_EQ(ReadOne(SearchRecord()), absl::OkStatus());
  struct Case {
    std::function<void(v1::CachedPlan*)> change;
    std::string says;
  };
  const Case plans[] = {
      {[](v1::CachedPlan* p) { p->clear_kernel_keys(); }, "kernel_keys: 0; the plan has 1 kernels"},
      {[](v1::CachedPlan* p) { p->set_kernel_keys(0, "short"); }, "kernel_keys: one has 5 bytes"},
      {[](v1::CachedPlan* p) { p->mutable_plan()->set_kind("guess"); }, "plan.kind: \"guess\""},
      {[](v1::CachedPlan* p) { p->mutable_plan()->clear_plan_id(); }, "plan.plan_id: is missing"},
      {[](v1::CachedPlan* p) { p->set_low(-1); }, "each must be finite and above 0"},
      {[](v1::CachedPlan* p) { p->mutable_key()->set_graph_hash("c"); }, "key.graph_hash: \"c\""},
      {[](v1::CachedPlan* p) { p->mutable_key()->set_dim_box("d0"); }, "dim_box: \"d0\""},
      {[](v1::CachedPlan* p) { p->mutable_key()->set_threads(0); }, "key.threads: 0; at least 1"},
      {[](v1::CachedPlan* p) { p->mutable_key()->set_approximate(2); }, "key.approximate: 2"},
      {[](v1::CachedPlan* p) { p->mutable_key()->clear_cpu(); }, "key.cpu: is missing"},
  };
  for (const Case& c : plans) {
    v1::CacheBundleRecord record = PlanRecord();
    c.change(record.mutable_plan());
    const absl::Status refused = ReadOne(record);
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(c.says));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("record 0 (plan "));
  }
  v1::CacheBundleRecord record = SearchRecord();
  record.mutable_search()->set_options("short");
  EXPECT_THAT(std::string(ReadOne(record).message()), HasSubstr("options: 5 bytes"));
  record = SearchRecord();
  record.mutable_search()->set_candidates(-1);
  EXPECT_THAT(std::string(ReadOne(record).message()), HasSubstr("neither is negative"));
}

// Plans hold code: kernels' sources.
TEST(BundlePlansTest, PlansTravelAsBinariesOnly) {
  BundleWriter writer = BundleWriter::Create(HeaderOf(false), std::nullopt).value();
  EXPECT_EQ(writer.Record(PlanRecord()).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(writer.Record(SearchRecord()).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace athanor
