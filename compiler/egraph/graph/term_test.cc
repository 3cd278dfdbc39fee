#include "compiler/egraph/graph/term.h"

#include "compiler/egraph/math_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::HasSubstr;

std::string ParseError(const Math& math, const std::string& text) {
  const absl::StatusOr<Term> term = ParseTerm(math.language(), text);
  return term.ok() ? "" : std::string(term.status().message());
}

TEST(Term, TextRoundTrips) {
  const Math math;
  for (const std::string text : {"x", "-3", "(+ x 1)", "(* (+ a b) (- a b))",
                                 "(round[2] (pow x 10))", "list", "(list a b (list c) list)"}) {
    EXPECT_EQ(TermText(math.language(), math.Parse(text)), text);
  }
  EXPECT_EQ(TermText(math.language(), math.Parse(" ( +\n  num[1]   sym[x] ) ")), "(+ 1 x)");
}

TEST(Term, ErrorsNameWhatIsWrong) {
  const Math math;
  EXPECT_THAT(ParseError(math, "(+ x"), HasSubstr("expected ')'"));
  EXPECT_THAT(ParseError(math, ""), HasSubstr("at character 0"));
  EXPECT_THAT(ParseError(math, "()"), HasSubstr("expected an operator"));
  EXPECT_THAT(ParseError(math, "x y"), HasSubstr("the end"));
  EXPECT_THAT(ParseError(math, "(+ x)"), HasSubstr("takes 2 children"));
  EXPECT_THAT(ParseError(math, "(tan x)"), HasSubstr("\"tan\" is neither"));
  EXPECT_THAT(ParseError(math, "%"), HasSubstr("nor a literal"));
  EXPECT_THAT(ParseError(math, "(round x)"), HasSubstr("round needs a payload"));
  EXPECT_THAT(ParseError(math, "(round[a] x)"), HasSubstr("[a] is not a payload"));
  EXPECT_THAT(ParseError(math, "(sin[1] x)"), HasSubstr("sin takes no payload"));
  EXPECT_THAT(ParseError(math, "(round[1 x)"), HasSubstr("expected ']'"));
  EXPECT_THAT(ParseError(math, "?x"), HasSubstr("?x"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "(sin ";
  EXPECT_THAT(ParseError(math, deep), HasSubstr("500 levels"));
}

TEST(Term, PayloadsMayHoldBracketsAndQuotes) {
  std::string seen;
  const PayloadText text{[&](PayloadId) { return seen; },
                         [&](std::string_view t) {
                           seen = t;
                           return PayloadId{0};
                         }};
  const absl::StatusOr<Language> language = Language::Make({{"f", 0, text}});
  ASSERT_TRUE(language.ok());
  const std::string term = R"(f[[1, 2], "]"])";
  const absl::StatusOr<Term> parsed = ParseTerm(*language, term);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(seen, R"([1, 2], "]")");
  EXPECT_EQ(TermText(*language, *parsed), term);
}

TEST(Term, LongTextIsCut) {
  const Math math;
  EXPECT_EQ(TermText(math.language(), math.Parse("(+ (+ a b) (+ c e))"), 8), "(+ (+ a ...");
}

TEST(Term, AddAndLookup) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId c = math.Add(&graph, "(+ (* a b) (* a b))");
  EXPECT_EQ(graph.num_nodes(), 4u);
  graph.Rebuild();
  EXPECT_EQ(math.Lookup(graph, "(+ (* a b) (* a b))"), c);
  EXPECT_FALSE(math.Lookup(graph, "(* b a)").valid());
  EXPECT_FALSE(AddTerm(&graph, Term{}).ok());
  EXPECT_FALSE(LookupTerm(graph, Term{}).valid());
}

}  // namespace
}  // namespace athanor::egraph
