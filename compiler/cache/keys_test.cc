#include "compiler/cache/keys.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "compiler/cache/cache_testing.h"
#include "compiler/cache/rows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(KeysTest, EveryFieldThatGatesIsPartOfAPlansKeyAndNoOther) {
  const PlanKey base = TestPlanKey(0);
  struct Change {
    bool gates;
    std::function<void(PlanKey&)> make;
  };
  const std::vector<Change> changes = {
      {true, [](PlanKey& k) { k.semantics_version = 2; }},
      {true, [](PlanKey& k) { k.plan_format = 2; }},
      {true, [](PlanKey& k) { k.codegen_version = 99; }},
      {true, [](PlanKey& k) { k.graph_hash = "x"; }},
      {true, [](PlanKey& k) { k.interface_hash = "x"; }},
      {true, [](PlanKey& k) { k.dim_box = "d0=1..65"; }},
      {true, [](PlanKey& k) { k.approximate = true; }},
      {true, [](PlanKey& k) { k.made_under.target.set_device("cuda"); }},
      {true, [](PlanKey& k) { k.made_under.target.set_triple("aarch64"); }},
      {true, [](PlanKey& k) { k.made_under.target.set_cpu("znver5"); }},
      {true, [](PlanKey& k) { k.made_under.target.add_features("+avx"); }},
      {false, [](PlanKey& k) { k.made_under.rule_set = "x"; }},
      {false, [](PlanKey& k) { k.disabled_rules = {"fuse"}; }},
      {false, [](PlanKey& k) { k.made_under.compiler_version = "20"; }},
      {false, [](PlanKey& k) { k.made_under.libraries = "x"; }},
      {false, [](PlanKey& k) { k.made_under.driver = "580.1"; }},
      {false, [](PlanKey& k) { k.made_under.target.set_threads(3); }},
      {false, [](PlanKey& k) { k.made_under.clocks = "x"; }},
  };
  EXPECT_EQ(changes.size(), base.Fields().size());
  std::set<std::string> gates, conditions;
  for (size_t i = 0; i < changes.size(); ++i) {
    PlanKey key = base;
    changes[i].make(key);
    const std::vector<KeyDifference> found = Differences(key.Fields(), base.Fields());
    ASSERT_EQ(found.size(), 1u) << i;
    EXPECT_EQ(found[0].gates, changes[i].gates) << found[0].column;
    EXPECT_EQ(GateHash(key.Fields()) != GateHash(base.Fields()), changes[i].gates) << i;
    EXPECT_EQ(ConditionHash(key.Fields()) == ConditionHash(base.Fields()), changes[i].gates) << i;
    gates.insert(GateHash(key.Fields()));
    conditions.insert(ConditionHash(key.Fields()));
  }
  EXPECT_EQ(gates.size(), 12u);
  EXPECT_EQ(conditions.size(), 8u);
}

TEST(KeysTest, DisabledRulesAreASet) {
  PlanKey a = TestPlanKey(0), b = a;
  a.disabled_rules = {"x", "y"};
  b.disabled_rules = {"y", "x"};
  EXPECT_EQ(ConditionHash(a.Fields()), ConditionHash(b.Fields()));
}

TEST(KeysTest, EveryComponentIsPartOfAKernelsKey) {
  const KernelKey base = TestKernelKey(0);
  std::vector<KernelKey> keys(8, base);
  keys[1].source_hash = std::string(64, '0');
  keys[2].flags = "-O2";
  keys[3].triple = "aarch64-linux-gnu";
  keys[4].cpu = "znver5";
  keys[5].features = "+avx512f";
  keys[6].compiler_version = "clang 19.1.8";
  keys[7].codegen_version = 99;
  std::set<std::string> hashes;
  for (const KernelKey& key : keys) hashes.insert(key.Hash());
  EXPECT_EQ(hashes.size(), keys.size());
  // The border between two components matters.
  KernelKey moved = base;
  moved.flags = base.flags + base.triple[0];
  moved.triple = base.triple.substr(1);
  EXPECT_NE(moved.Hash(), base.Hash());
  EXPECT_EQ(TestKernelKey(0).Hash(), base.Hash());
  EXPECT_EQ(base.Hash().size(), 32u);
}

TEST(KeysTest, EveryFieldOfATimingGates) {
  const KeyFields fields = TestTimingKey(0).Fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    EXPECT_TRUE(fields[i].gates) << fields[i].column;
    KeyFields changed = fields;
    changed[i].value += "x";
    EXPECT_NE(GateHash(changed), GateHash(fields)) << fields[i].column;
  }
}

TEST(KeysTest, FieldsHaveColumnsOfTheirNames) {
  const std::vector<std::pair<Tier, KeyFields>> tiers = {
      {Tier::kPlans, TestPlanKey(0).Fields()},
      {Tier::kRecipes, TestRecipeKey(0).Fields()},
      {Tier::kTimings, TestTimingKey(0).Fields()},
      {Tier::kKernels, TestKernelKey(0).Fields()}};
  for (const auto& [tier, fields] : tiers) {
    for (const KeyField& field : fields) {
      EXPECT_THAT(TableOf(tier).columns, ::testing::Contains(field.column)) << TierName(tier);
    }
  }
}

TEST(KeysTest, ADifferenceNamesColumnAndBothValues) {
  const KeyFields wanted = {{"driver", "580.2", false}, {"cpu", "znver4"}, {"new", "1"}};
  const KeyFields found = {{"cpu", "znver4"}, {"driver", "580.1", false}};
  EXPECT_THAT(Differences(wanted, found),
              ElementsAre(KeyDifference{"driver", "580.2", "580.1", false},
                          KeyDifference{"new", "1", "", true}));
  EXPECT_THAT(Differences(found, wanted),
              ElementsAre(KeyDifference{"driver", "580.1", "580.2", false}));
  EXPECT_THAT(Differences(wanted, wanted), IsEmpty());
}

TEST(KeysTest, ACheckIsKnownByItsWholeRequestAndWhatChecksMean) {
  internal::CheckRequest request;
  request.set_graph_text("graph");
  request.add_objects("object");
  const std::string key = CheckKey(request, 1);
  EXPECT_EQ(key.size(), 32u);
  EXPECT_EQ(CheckKey(request, 1), key);
  EXPECT_NE(CheckKey(request, 2), key);
  request.set_objects(0, "another");
  EXPECT_NE(CheckKey(request, 1), key);
}

TEST(KeysTest, AnInterfaceIsItsNamesByPlace) {
  const std::vector<std::string> a = {"a"}, b = {"b"}, ab = {"a", "b"}, none;
  const std::string hash = InterfaceHash(a, b, none, none);
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_EQ(InterfaceHash(a, b, none, none), hash);
  EXPECT_NE(InterfaceHash(b, a, none, none), hash);
  EXPECT_NE(InterfaceHash(ab, none, none, none), hash);
  EXPECT_NE(InterfaceHash(a, none, b, none), hash);
  EXPECT_NE(InterfaceHash(none, none, ab, none), InterfaceHash(none, none, a, b));
}

}  // namespace
}  // namespace athanor
