#include "compiler/ir/graph/op_traits.h"

#include <algorithm>

#include "compiler/ir/graph/op.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

bool IsByPlace(OpForm form) {
  return form == OpForm::kCount || form == OpForm::kRandom || form == OpForm::kView ||
         form == OpForm::kLoop;
}

// A row states every trait that its op's class does not give.
TEST(OpTraits, EveryRowHasThem) {
  for (const OpRow& row : OpTable()) {
    const OpTraits& traits = row.traits;
    const bool bytes = traits.form == OpForm::kOperand || traits.form == OpForm::kLiteral;
    EXPECT_NE(traits.form, OpForm::kByClass) << row.name << " lacks .form";
    EXPECT_NE(traits.errors, ErrorRule::kByClass) << row.name << " lacks .errors";
    EXPECT_EQ(traits.sample == nullptr, bytes) << row.name << ": .sample";
    EXPECT_EQ(traits.rows.flow == nullptr, bytes || IsByPlace(traits.form))
        << row.name << ": .rows.flow";
    EXPECT_LE(traits.roles.size(), static_cast<size_t>(row.max_inputs)) << row.name;
    EXPECT_GE(traits.flops, 0) << row.name;
  }
}

TEST(OpTraits, FormsFitClasses) {
  for (const OpRow& row : OpTable()) {
    const OpForm form = row.traits.form;
    EXPECT_EQ(form == OpForm::kElementwise, row.op_class == OpClass::kElementwise) << row.name;
    EXPECT_EQ(form == OpForm::kReduce, row.op_class == OpClass::kReduction) << row.name;
    EXPECT_EQ(form == OpForm::kOperand, IsDeclared(row.op)) << row.name;
    EXPECT_EQ(form == OpForm::kLiteral, IsConstant(row.op)) << row.name;
    EXPECT_EQ(form == OpForm::kView, IsIndexMap(row.op)) << row.name;
    EXPECT_EQ(form == OpForm::kLoop, IsLoop(row.op)) << row.name;
    if (form == OpForm::kDecomposed) EXPECT_TRUE(row.composite()) << row.name;
    if (row.traits.errors == ErrorRule::kDecomposed) EXPECT_TRUE(row.composite()) << row.name;
  }
}

// An op that has a mode says which of its modes round.
TEST(OpTraits, ModesRoundOrChoose) {
  for (const OpRow& row : OpTable()) {
    const bool mode = std::any_of(row.attrs.begin(), row.attrs.end(),
                                  [](const AttrSpec& spec) { return spec.name == "mode"; });
    EXPECT_EQ(row.traits.rounding == Rounding::kByMode, mode) << row.name;
  }
  for (const char* mode : {"set", "max", "min"}) {
    EXPECT_TRUE(ModeChooses({{"mode", std::string(mode)}})) << mode;
  }
  EXPECT_TRUE(ModeChooses({}));
  for (const char* mode : {"add", "mul", "sum", "mean"}) {
    EXPECT_FALSE(ModeChooses({{"mode", std::string(mode)}})) << mode;
  }
}

TEST(OpTraits, SelectedAxisIsOfOpsThatSelectByIndex) {
  EXPECT_EQ(SelectedAxis(Op::kGather, {{"axis", int64_t{2}}}), 2);
  EXPECT_EQ(SelectedAxis(Op::kScatter, {{"axis", int64_t{1}}}), 1);
  EXPECT_EQ(SelectedAxis(Op::kEmbeddingBag, {{"mode", std::string("sum")}}), 0);
  EXPECT_EQ(SelectedAxis(Op::kAdd, {}), std::nullopt);
  EXPECT_EQ(SelectedAxis(Op::kStateWrite, {}), std::nullopt);
  EXPECT_EQ(SelectedAxis(Op::kSoftmax, {{"axis", int64_t{1}}}), std::nullopt);
}

}  // namespace
}  // namespace athanor
