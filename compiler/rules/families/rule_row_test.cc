#include "compiler/rules/families/rule_row.h"

#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(RuleRowTest, EveryRowIsComplete) {
  std::set<std::string_view> names, families(RuleFamilies().begin(), RuleFamilies().end());
  for (const RuleRow& row : RuleRows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
    EXPECT_FALSE(families.contains(row.name)) << row.name << " is a family, too";
    EXPECT_TRUE(families.contains(row.family)) << row.name << ": " << row.family;
    EXPECT_FALSE(row.algebra.empty()) << row.name;
    EXPECT_LE((row.rewrites != nullptr) + (row.recognises != nullptr) + (row.decomposes != nullptr),
              1)
        << row.name;
    EXPECT_EQ(row.example == nullptr, row.is_switch()) << row.name;
    EXPECT_EQ(FindRule(row.name), &row);
  }
  EXPECT_EQ(FindRule("no_such_rule"), nullptr);
}

TEST(RuleRowTest, RewritesCompileUnderTheirRowsName) {
  TermLanguage language;
  FactsAnalysis facts(&language, {});
  for (const RuleRow& row : RuleRows()) {
    if (row.rewrites == nullptr) continue;
    std::vector<egraph::RuleSpec> specs = row.rewrites(language, facts);
    EXPECT_FALSE(specs.empty()) << row.name;
    for (egraph::RuleSpec& spec : specs) {
      if (&spec == &specs[0] && spec.name.empty()) spec.name = std::string(row.name);
      EXPECT_EQ(spec.name.substr(0, row.name.size()), row.name);
      const auto rule = egraph::MakeRule(language.operators(), spec);
      EXPECT_TRUE(rule.ok()) << rule.status();
    }
  }
}

TEST(RuleRowTest, EveryGraphRowIsInTheRegistry) {
  for (const RecognitionRow& row : RecognitionRows()) {
    const RuleRow* rule = FindRule("recognise_" + std::string(row.name));
    ASSERT_NE(rule, nullptr) << row.name;
    EXPECT_EQ(rule->recognises, &row);
  }
  for (const DecompositionRow& row : DecompositionRows()) {
    const RuleRow* rule = FindRule("decompose_" + std::string(row.name));
    ASSERT_NE(rule, nullptr) << row.name;
    EXPECT_EQ(rule->decomposes, &row);
  }
}

TEST(RuleRowTest, ChoicesSwitchRowsAndFamilies) {
  const RuleRow& attention = *FindRule("recognise_attention");
  const RuleRow& softmax = *FindRule("decompose_softmax");
  RuleChoice choice;
  EXPECT_TRUE(choice.Allows(attention));
  choice.disabled = {"recognise"};
  EXPECT_FALSE(choice.Allows(attention));
  EXPECT_TRUE(choice.Allows(softmax));
  choice.disabled = {"decompose_softmax"};
  EXPECT_TRUE(choice.Allows(attention));
  EXPECT_FALSE(choice.Allows(softmax));
  RuleRow coarse = softmax;
  coarse.name = "coarse";
  coarse.rule_class = RuleClass::kApproximate;
  EXPECT_FALSE(choice.Allows(coarse));
  choice.approximate = true;
  EXPECT_TRUE(choice.Allows(coarse));
}

TEST(RuleRowTest, ChoicesAsText) {
  EXPECT_EQ(RuleChoice{}.ToText(), "all");
  EXPECT_EQ((RuleChoice{{"recognise", "fuse_again"}, true}).ToText(),
            "-fuse_again -recognise +approximate");
  EXPECT_EQ((RuleChoice{{}, true}).ToText(), "+approximate");
}

TEST(RuleRowTest, UnknownNamesAreRefused) {
  EXPECT_TRUE(CheckRuleChoice({{"recognise", "fuse_again"}, false}).ok());
  const absl::Status status = CheckRuleChoice({{"fuse_never"}, false});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("fuse_never"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("layout"), absl::string_view::npos) << status;
  EXPECT_FALSE(CheckRuleChoice({{""}, false}).ok());
}

TEST(RuleExampleTest, TheSameSeedGivesTheSameGraph) {
  for (const RuleRow& row : RuleRows()) {
    if (row.is_switch()) continue;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      ExampleBuilder a(seed, DType::kF32), b(seed, DType::kF32);
      row.example(a);
      row.example(b);
      EXPECT_TRUE(a.status().ok()) << row.name << ": " << a.status();
      EXPECT_FALSE(a.graph().outputs.empty()) << row.name;
      EXPECT_TRUE(Verify(a.graph()).ok()) << row.name << ": " << Verify(a.graph());
      EXPECT_EQ(ToText(a.graph()), ToText(b.graph()));
      EXPECT_EQ(a.dims(), b.dims());
    }
  }
}

}  // namespace
}  // namespace athanor
