// Tests which contractions are a call of a GPU's library.
#include "compiler/search/kernels/library_call.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

Graph Parsed(const std::string& body) {
  absl::StatusOr<Graph> graph = ParseGraph(absl::StrCat("graph \"\" { ", body, " }"));
  EXPECT_TRUE(graph.ok()) << graph.status() << body;
  return *std::move(graph);
}

std::string TextOf(const CallMatrix& m) {
  return absl::StrCat("%", m.node, "[", m.offset, "]/", m.stride,
                      m.batch_stride == 0 ? "" : absl::StrCat("/", m.batch_stride),
                      m.transposed ? "T" : "");
}

// Returns the call of the graph's contraction, with all that follows it, as text.
std::string CallOf(const std::string& body, bool swap = false) {
  const Graph graph = Parsed(body);
  KernelChoice choice{.root = graph.outputs[0].node, .kind = KernelKind::kContract};
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    if (graph.node(n).op == Op::kContract) choice.anchor = n;
  }
  const std::optional<ProductCall> c =
      FindLibraryCall(graph, MemoryOf(graph, {{choice}}), choice.root, choice.anchor, swap);
  if (!c) return "none";
  return absl::StrCat(TextOf(c->result), " = ", TextOf(c->left), " * ", TextOf(c->right), ": ",
                      c->rows.ToString(), " x ", c->columns, " x ", c->sums, " batch ", c->batch,
                      " ways ", absl::StrJoin(c->ways, " "));
}

// Returns the graph of `spec` of x by w.
std::string Product(const std::string& x, const std::string& w, const std::string& spec,
                    const std::string& then = R"(output "y" = %2)") {
  return absl::StrCat("dim d in [0, 4096] dim e in [10, 73] %0 = Input \"x\" : ", x,
                      " %1 = Input \"w\" : ", w, " %2 = Contract(%0, %1) {spec=\"", spec, "\"} ",
                      then);
}

TEST(LibraryCallTest, MatricesWhereTheyLie) {
  const char* const kF32 = "%2[0]/24 = %0[0]/20 * %1[0]/24: 64 x 24 x 20 batch 1 ways 64";
  EXPECT_EQ(CallOf(Product("f32[64, 20]", "f32[20, 24]", "mk,kn->mn")), kF32);
  for (const char* dtype : {"f64", "f16", "bf16"}) {
    const auto matrix = [&](const char* shape) { return absl::StrCat(dtype, shape); };
    EXPECT_EQ(CallOf(Product(matrix("[64, 20]"), matrix("[20, 24]"), "mk,kn->mn")), kF32);
  }
  EXPECT_EQ(CallOf(Product("f32[20, 64]", "f32[24, 20]", "km,nk->mn")),
            "%2[0]/24 = %0[0]/64T * %1[0]/20T: 64 x 24 x 20 batch 1 ways 64");
  // Several axes of a role, and one node as both operands.
  EXPECT_EQ(CallOf(Product("f32[4, 16, 20]", "f32[20, 24]", "amk,kn->amn")), kF32);
  EXPECT_EQ(CallOf(R"(%0 = Input "x" : f32[8, 8] %1 = Contract(%0, %0) {spec="mk,kn->mn"}
    output "y" = %1)"),
            "%1[0]/8 = %0[0]/8 * %0[0]/8: 8 x 8 x 8 batch 1 ways 8");
  // Part of an operand, and views of the result.
  EXPECT_EQ(
      CallOf(R"(%0 = Input "x" : f32[64, 50] %1 = IndexMap(%0) {map=map[60, 20]($0 + 2, $1 + 7)}
    %2 = Input "w" : f32[20, 24] %3 = Contract(%1, %2) {spec="mk,kn->mn"}
    %4 = IndexMap(%3) {map=map[5, 12, 24](12*$0 + $1, $2)} output "y" = %4)"),
      "%4[0]/24 = %0[107]/50 * %2[0]/24: 60 x 24 x 20 batch 1 ways 60");
}

TEST(LibraryCallTest, OneRowHasItsLengthAsStride) {
  EXPECT_EQ(CallOf(Product("f32[1, 20]", "f32[20, 24]", "mk,kn->mn")),
            "%2[0]/24 = %0[0]/20 * %1[0]/24: 1 x 24 x 20 batch 1 ways 1");
  EXPECT_EQ(CallOf(Product("f32[20]", "f32[20, 24]", "k,kn->n")),
            "%2[0]/24 = %0[0]/20 * %1[0]/24: 1 x 24 x 20 batch 1 ways 1");
  EXPECT_EQ(CallOf(Product("f32[64, 1]", "f32[1, 1]", "mk,kn->mn")),
            "%2[0]/1 = %0[0]/1 * %1[0]/1: 64 x 1 x 1 batch 1 ways 64");
}

TEST(LibraryCallTest, AResultThatLiesTransposedIsSwapped) {
  const std::string body = Product("f32[64, 20]", "f32[20, 24]", "mk,kn->nm");
  EXPECT_EQ(CallOf(body), "none");
  EXPECT_EQ(CallOf(body, /*swap=*/true),
            "%2[0]/64 = %1[0]/24T * %0[0]/20T: 24 x 64 x 20 batch 1 ways 24");
}

TEST(LibraryCallTest, BatchesAreEvenlySpaced) {
  EXPECT_EQ(CallOf(Product("f32[3, 30, 20]", "f32[3, 16, 20]", "bmk,bnk->bmn")),
            "%2[0]/16/480 = %0[0]/20/600 * %1[0]/20/320T: 30 x 16 x 20 batch 3 ways 30");
  // Heads of attention: scores of two letters of batch, one operand's heads beside each other.
  EXPECT_EQ(CallOf(Product("f32[2, 3, 30, 20]", "f32[2, 3, 20, 16]", "abmk,abkn->abmn")),
            "%2[0]/16/480 = %0[0]/20/600 * %1[0]/16/320: 30 x 16 x 20 batch 6 ways 30");
  EXPECT_EQ(CallOf(Product("f32[1, 3, 30, 20]", "f32[1, 20, 3, 16]", "abmk,akbn->abmn")),
            "%2[0]/16/480 = %0[0]/20/600 * %1[0]/48/16: 30 x 16 x 20 batch 3 ways 30");
  EXPECT_EQ(CallOf(Product("f32[2, 3, 30, 20]", "f32[2, 20, 3, 16]", "abmk,akbn->abmn")), "none");
  // Results that lie among each other.
  EXPECT_EQ(CallOf(Product("f32[3, 30, 20]", "f32[3, 20, 16]", "bmk,bkn->mbn")), "none");
  EXPECT_EQ(CallOf(Product("f32[d, 30, 20]", "f32[d, 20, 16]", "bmk,bkn->bmn")), "none");
}

TEST(LibraryCallTest, RowsThatCallsChooseHaveWays) {
  EXPECT_EQ(CallOf(Product("f16[d, 20]", "f16[20, 24]", "mk,kn->mn")),
            "%2[0]/24 = %0[0]/20 * %1[0]/24: d x 24 x 20 batch 1 "
            "ways 32 64 128 256 512 1024 2048 4096");
  EXPECT_EQ(CallOf(Product("f16[e, 20]", "f16[20, 24]", "mk,kn->mn")),
            "%2[0]/24 = %0[0]/20 * %1[0]/24: e x 24 x 20 batch 1 ways 73");
  // Their batch would be apart by what calls choose, as would columns and sums be.
  EXPECT_EQ(CallOf(Product("f32[3, e, 20]", "f32[3, 20, 16]", "bmk,bkn->bmn")), "none");
  EXPECT_EQ(CallOf(Product("f32[64, 20]", "f32[20, e]", "mk,kn->mn")), "none");
  EXPECT_EQ(CallOf(Product("f32[64, e]", "f32[e, 24]", "mk,kn->mn")), "none");
  EXPECT_EQ(CallOf(Product("f32[20, e]", "f32[20, 24]", "km,kn->mn")), "none");
}

TEST(LibraryCallTest, WaysRiseToTheMost) {
  Bounds bounds;
  const Expr n = Expr::Symbol("n");
  for (const int64_t least : {0, 1, 31, 32, 33, 1000, 65536}) {
    for (const int64_t more : {0, 1, 63, 64, 65, 100, 4097, 1 << 20}) {
      bounds.Set("n", least, least + more);
      const std::vector<int64_t> ways = CallWays(n, bounds);
      if (least + more == 0) {
        EXPECT_TRUE(ways.empty());
        continue;
      }
      const std::string about = absl::StrCat(least, " + ", more, ": ", absl::StrJoin(ways, " "));
      EXPECT_EQ(ways.size(), more - std::max<int64_t>(1 - least, 0) < 64 ? 1 : 8) << about;
      EXPECT_EQ(ways.back(), least + more) << about;
      EXPECT_GE(ways.front(), 1) << about;
      EXPECT_GE(ways.front(), least) << about;
      EXPECT_EQ(std::set<int64_t>(ways.begin(), ways.end()).size(), ways.size()) << about;
      EXPECT_TRUE(std::is_sorted(ways.begin(), ways.end())) << about;
    }
  }
  EXPECT_TRUE(CallWays(Expr::Symbol("unbounded"), bounds).empty());
}

TEST(LibraryCallTest, OperandsBehindCasts) {
  const auto casts = [](const std::string& from, const std::string& to, int sums = 20) {
    return absl::StrCat("%0 = Input \"x\" : ", from, "[64, ", sums, "] %1 = Input \"w\" : ", from,
                        "[", sums, ", 24] %2 = Cast(%0) {dtype=", to, "} %3 = Cast(%1) {dtype=", to,
                        "} %4 = Contract(%2, %3) {spec=\"mk,kn->mn\"} output \"y\" = %4");
  };
  const std::string call = "%4[0]/24 = %0[0]/20 * %1[0]/24: 64 x 24 x 20 batch 1 ways 64";
  EXPECT_EQ(CallOf(casts("f16", "f32")), call);
  EXPECT_EQ(CallOf(casts("bf16", "f32")), call);
  EXPECT_EQ(CallOf(casts("i8", "i32")), call);
  EXPECT_EQ(CallOf(casts("i8", "f32")), "none");
  EXPECT_EQ(CallOf(casts("u8", "i32")), "none");
  EXPECT_EQ(CallOf(casts("f32", "f64")), "none");
  EXPECT_EQ(CallOf(casts("f32", "f16")), "none");
  // More sums might leave an i32.
  EXPECT_NE(CallOf(casts("i8", "i32", 131071)), "none");
  EXPECT_EQ(CallOf(casts("i8", "i32", 131072)), "none");
  EXPECT_NE(CallOf(casts("f16", "f32", 131072)), "none");
}

TEST(LibraryCallTest, RefusesTheRest) {
  const char* const kRefused[] = {
      // Something is computed behind the product, or from an operand.
      R"(%0 = Input "x" : f32[8, 8] %1 = Contract(%0, %0) {spec="mk,kn->mn"} %2 = Tanh(%1)
         output "y" = %2)",
      R"(%0 = Input "x" : f32[8, 8] %1 = Exp(%0) %2 = Contract(%1, %0) {spec="mk,kn->mn"}
         output "y" = %2)",
      R"(%0 = Input "x" : f32[8, 8] %1 = IndexMap(%0) {fill=f32[] {0.0}, map=map[8, 8]($0, $1 - 2)}
         %2 = Contract(%1, %0) {spec="mk,kn->mn"} output "y" = %2)",
      // Windows, and rows that are all the same.
      R"(%0 = Input "x" : f32[40] %1 = IndexMap(%0) {map=map[8, 16]($0 + $1)}
         %2 = Input "w" : f32[16, 4] %3 = Contract(%1, %2) {spec="mk,kn->mn"} output "y" = %3)",
      R"(%0 = Input "x" : f32[16] %1 = IndexMap(%0) {map=map[8, 16]($1)}
         %2 = Input "w" : f32[16, 4] %3 = Contract(%1, %2) {spec="mk,kn->mn"} output "y" = %3)",
      // Dtypes.
      R"(%0 = Input "x" : i32[8, 8] %1 = Contract(%0, %0) {spec="mk,kn->mn"} output "y" = %1)",
      R"(%0 = Input "x" : i8[8, 8] %1 = Contract(%0, %0) {spec="mk,kn->mn"} output "y" = %1)",
      R"(%0 = Input "x" : f16[8, 8] %1 = Input "w" : f32[8, 8] %2 = Cast(%0) {dtype=f32}
         %3 = Contract(%2, %1) {spec="mk,kn->mn"} output "y" = %3)",
      // Empty, or of weights alone.
      R"(%0 = Input "x" : f32[8, 0] %1 = Input "w" : f32[0, 8]
         %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
      R"(%0 = Input "x" : f32[0, 8] %1 = Input "w" : f32[8, 8]
         %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
      R"(%0 = Parameter "x" : f32[8, 8] %1 = Contract(%0, %0) {spec="mk,kn->mn"} output "y" = %1)",
      // A slice whose place calls choose.
      R"(dim d in [8, 80] %0 = Input "x" : f32[d, 8] %1 = IndexMap(%0) {map=map[8, 8]($0 + d - 8, $1)}
         %2 = Input "w" : f32[8, 8] %3 = Contract(%1, %2) {spec="mk,kn->mn"} output "y" = %3)",
  };
  for (const char* body : kRefused) {
    EXPECT_EQ(CallOf(body), "none") << body;
    EXPECT_EQ(CallOf(body, /*swap=*/true), "none") << body;
  }
}

}  // namespace
}  // namespace athanor
