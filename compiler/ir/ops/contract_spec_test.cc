#include "compiler/ir/graph/op.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(ContractSpec, ParsesAndPrints) {
  for (std::string_view spec : {"mk,kn->mn", "bmk,bkn->bmn", ",->", "a,b->", "aB,Ba->"}) {
    absl::StatusOr<ContractSpec> parsed = ContractSpec::Parse(spec);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->ToString(), spec);
  }
  for (std::string_view spec : {"", "mk", "mk,kn", "mk->m", "->,", "m k,kn->mn", "mk,kn->mn,x",
                                "mk,kn->mm", "m1,1n->mn", "\xff,a->a"}) {
    EXPECT_FALSE(ContractSpec::Parse(spec).ok()) << spec;
  }
}

}  // namespace
}  // namespace athanor
