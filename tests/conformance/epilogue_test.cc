// Movement as the epilogue of contractions and attention: one kernel with the reference evaluator's
// values, for sizes that a vector divides or does not.
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

// Sizes of the dims b, s and t in one call.
struct Sizes {
  int64_t b, s, t;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {2, 7, 3}, {1, 16, 17}, {3, 33, 16}, {2, 40, 64}};

// Expects that `text`, which computes one value, becomes one kernel.
void ExpectOneKernel(const std::string& text) {
  absl::StatusOr<Graph> g = ParseGraph(
      "graph \"\" {\n  dim b in [1, 4]\n  dim s in [1, 64]\n"
      "  dim t in [1, 64]\n" +
      text + "}");
  ASSERT_TRUE(g.ok()) << g.status();
  std::mt19937 rng(1);
  auto random = [&](NodeId n, const Sizes& sizes) {
    const Expr::Env env = {{"b", sizes.b}, {"s", sizes.s}, {"t", sizes.t}};
    std::vector<int64_t> shape;
    for (const Expr& e : g->node(n).type.shape) shape.push_back(e.Evaluate(env).value());
    return RandomTensor(DType::kF32, shape, rng);
  };
  std::vector<Tensor> parameters;
  for (NodeId n : g->ParameterIds()) parameters.push_back(random(n, {1, 1, 1}));
  auto compiled = Compile(*g, parameters);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->plan().run_size(), 1) << text;
  for (const Sizes& sizes : kSizes) {
    std::vector<Tensor> inputs;
    for (NodeId n : g->InputIds()) inputs.push_back(random(n, sizes));
    ExpectMatchesReference(*g, inputs, parameters, 10);
  }
}

TEST(EpilogueTest, HeadsOfAProjection) {
  const std::string projection = R"(
    %0 = Input "x" : f32[b, s, 40]
    %1 = Parameter "w" : f32[40, N]
    %2 = Parameter "bias" : f32[N]
    %3 = Contract(%0, %1) {spec="bsk,kn->bsn"}
    %4 = IndexMap(%2) {map=map[b, s, N]($2)}
    %5 = Add(%3, %4)
  )";
  const std::string in_place = R"(
    %6 = IndexMap(%5) {map=map[b, s, 4, D]($0, $1, D*$2 + $3)}
    output "y" = %6
  )";
  const std::string in_front = R"(
    %6 = IndexMap(%5) {map=map[b, 4, s, D]($0, $2, D*$1 + $3)}
    %7 = Input "r" : f32[b, 4, s, D]
    %8 = Add(%6, %7)
    output "y" = %8
  )";
  const std::string turned = R"(
    %6 = IndexMap(%5) {map=map[b, 4, D, s]($0, $3, D*$1 + $2)}
    output "y" = %6
  )";
  // Covers heads that are a multiple of a vector, a divisor of it, and neither.
  for (int d : {32, 8, 12, 5}) {
    for (const std::string& split : {in_place, in_front, turned}) {
      ExpectOneKernel(absl::StrReplaceAll(
          projection + split, {{"N", std::to_string(4 * d)}, {"D", std::to_string(d)}}));
    }
  }
}

TEST(EpilogueTest, ColumnsMergedWithRows) {
  // Covers fewer columns than a vector has lanes, and any number of them.
  for (const char* columns : {"5", "t"}) {
    ExpectOneKernel(absl::StrReplaceAll(R"(
      %0 = Input "x" : f32[b, s, 12]
      %1 = Input "y" : f32[b, T, 12]
      %2 = Contract(%0, %1) {spec="bsk,btk->bst"}
      %3 = IndexMap(%2) {map=map[b, s*T]($0, floordiv($1, T), mod($1, T))}
      output "y" = %3
    )",
                                        {{"T", columns}}));
  }
}

TEST(EpilogueTest, QueriesMergedWithHeads) {
  for (const char* queries : {"5", "t"}) {
    ExpectOneKernel(absl::StrReplaceAll(R"(
      %0 = Input "q" : f32[b, 3, T, 8]
      %1 = Input "k" : f32[b, 3, s, 8]
      %2 = Input "v" : f32[b, 3, s, 6]
      %3 = Attention(%0, %1, %2)
      %4 = IndexMap(%3) {map=map[b, 3*T, 6]($0, floordiv($1, T), mod($1, T), $2)}
      output "y" = %4
    )",
                                        {{"T", queries}}));
  }
}

TEST(EpilogueTest, HeadsMergedAfterAttention) {
  ExpectOneKernel(R"(
    %0 = Input "q" : f32[b, 3, t, 8]
    %1 = Input "k" : f32[b, 3, s, 8]
    %2 = Input "v" : f32[b, 3, s, 6]
    %3 = Attention(%0, %1, %2)
    %4 = IndexMap(%3) {map=map[b, t, 18]($0, floordiv($2, 6), $1, mod($2, 6))}
    output "y" = %4
  )");
}

// Whole vectors that a cut-off panel has no column for: what all of a vector's lanes share lies
// behind its operand's end, at a page that may not be touched.
TEST(EpilogueTest, RowsSharedByVectorsThatAreAbsent) {
  for (const char* text : {R"(
    %0 = Input "x" : f32[1, 7, s, 16]
    %1 = Parameter "w" : f32[61, 7]
    %2 = Contract(%0, %1) {spec="ncuv,mc->nmuv"}
    %3 = Input "r" : f32[s]
    %4 = IndexMap(%3) {map=map[1, 61, s, 16]($2)}
    %5 = Add(%2, %4)
    output "y" = %5
  )",
                           R"(
    %0 = Input "x" : f32[s, 16, 7]
    %1 = Input "w" : f32[3, 7]
    %2 = Contract(%1, %0) {spec="mk,uvk->muv"}
    %3 = Input "r" : f32[s]
    %4 = IndexMap(%3) {map=map[3, s, 16]($1)}
    %5 = Add(%2, %4)
    output "y" = %5
  )"}) {
    ExpectOneKernel(text);
  }
}

}  // namespace
}  // namespace athanor
