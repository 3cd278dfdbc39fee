// Tests which contractions are a call of a GPU's library, how these are schedules among others, and
// what they are predicted to cost.
#include "compiler/search/kernels/library_call.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/tuning.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Gpu(const std::string& blas = "cuBLASLt 13.1.0") {
  v1::Target t;
  t.set_device("cuda");
  t.set_cpu("sm_90a");
  t.set_vector_bytes(1);
  t.set_vector_registers(32);
  t.set_l1_bytes(228 << 10);
  t.set_l2_bytes(50 << 20);
  t.set_threads(132 * 2048);
  t.set_blas(blas);
  return t;
}

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
  return absl::StrCat(TextOf(c->result), " = ", TextOf(c->left), " * ", TextOf(c->right),
                      c->bias < 0 ? "" : absl::StrCat(" + %", c->bias), ": ", c->rows.ToString(),
                      " x ", c->columns, " x ", c->sums, " batch ", c->batch, " ways ",
                      absl::StrJoin(c->ways, " "));
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
  EXPECT_EQ(CallOf(R"(dim r in [0, 1] %0 = Input "x" : f32[r, 3, 20] %1 = Input "w" : f32[3, 20, 16]
    %2 = Contract(%0, %1) {spec="mbk,bkn->mbn"} output "y" = %2)"),
            "none");
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

TEST(LibraryCallTest, ABiasOfEachRow) {
  // `how`: the bias as the sum reads it.
  const auto sum = [](const std::string& dtype, const std::string& o, const std::string& how,
                      const std::string& order = "%2, %4") {
    return Product(
        dtype + "[e, 20]", dtype + "[20, 24]", "mk,kn->mn",
        absl::StrCat("%3 = Input \"o\" : ", dtype, o, " %4 = IndexMap(%3) {map=map[e, 24]", how,
                     "} %5 = Add(", order, ") output \"y\" = %5"));
  };
  const std::string call = "%5[0]/24 = %0[0]/20 * %1[0]/24 + %3: e x 24 x 20 batch 1 ways 73";
  for (const char* dtype : {"f32", "f64"}) EXPECT_EQ(CallOf(sum(dtype, "[24]", "($1)")), call);
  EXPECT_EQ(CallOf(sum("f32", "[1, 24]", "(0, $1)", "%4, %2")), call);
  EXPECT_EQ(CallOf(sum("f32", "[30]", "($1)")), call);
  // The product would be rounded first.
  EXPECT_EQ(CallOf(sum("f16", "[24]", "($1)")), "none");
  // From elsewhere, by row, by element, the same everywhere.
  EXPECT_EQ(CallOf(sum("f32", "[30]", "($1 + 1)")), "none");
  EXPECT_EQ(CallOf(sum("f32", "[48]", "(2*$1)")), "none");
  EXPECT_EQ(CallOf(sum("f32", "[73]", "($0)")), "none");
  EXPECT_EQ(CallOf(sum("f32", "[e, 24]", "($0, $1)")), "none");
  EXPECT_EQ(CallOf(sum("f32", "[1]", "(0)")), "none");
  // Twice, and the product itself.
  EXPECT_EQ(CallOf(Product("f32[8, 20]", "f32[20, 24]", "mk,kn->mn",
                           R"(%3 = Add(%2, %2) output "y" = %3)")),
            "none");
  EXPECT_EQ(CallOf(Product("f32[8, 20]", "f32[20, 24]", "mk,kn->mn",
                           R"(%3 = Input "o" : f32[24] %4 = IndexMap(%3) {map=map[8, 24]($1)}
                           %5 = Add(%2, %4) %6 = Add(%5, %4) output "y" = %6)")),
            "none");
  // Views around it, a batch, and a swapped product.
  EXPECT_EQ(CallOf(Product("f32[3, 30, 20]", "f32[3, 20, 16]", "bmk,bkn->bmn",
                           R"(%3 = IndexMap(%2) {map=map[90, 16](floordiv($0, 30),
                           $0 - 30*floordiv($0, 30), $1)} %4 = Input "o" : f32[16]
                           %5 = IndexMap(%4) {map=map[90, 16]($1)} %6 = Add(%3, %5)
                           %7 = IndexMap(%6) {map=map[3, 30, 16](30*$0 + $1, $2)} output "y" = %7)")),
            "%7[0]/16/480 = %0[0]/20/600 * %1[0]/16/320 + %4: 30 x 16 x 20 batch 3 ways 30");
  const std::string swapped = Product("f32[64, 20]", "f32[20, 24]", "mk,kn->nm",
                                      R"(%3 = Input "o" : f32[64]
                                      %4 = IndexMap(%3) {map=map[24, 64]($1)} %5 = Add(%2, %4)
                                      output "y" = %5)");
  EXPECT_EQ(CallOf(swapped), "none");
  EXPECT_EQ(CallOf(swapped, /*swap=*/true),
            "%5[0]/64 = %1[0]/24T * %0[0]/20T + %3: 24 x 64 x 20 batch 1 ways 24");
  // A single column's bias is one element.
  EXPECT_EQ(CallOf(Product("f32[8, 20]", "f32[20, 1]", "mk,kn->mn",
                           R"(%3 = Input "o" : f32[1] %4 = IndexMap(%3) {map=map[8, 1]($1)}
                           %5 = Add(%2, %4) output "y" = %5)")),
            "%5[0]/1 = %0[0]/20 * %1[0]/1 + %3: 8 x 1 x 20 batch 1 ways 8");
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

// A random contraction with views of its operands and its result and, at times, a bias.
class RandomProduct {
 public:
  explicit RandomProduct(std::mt19937_64& random) : random_(random) {
    const std::string batch = Some("ab"), rows = Some("mp"), columns = Some("nq"),
                      sums = Some("kl");
    const std::string x = Order(batch + rows + sums), w = Order(batch + sums + columns);
    const std::string y = Order(batch + rows + columns);
    const int left = Operand("x", x), right = Operand("w", w);
    int root = Add(
        absl::StrCat("Contract(%", left, ", %", right, ") {spec=\"", x, ",", w, "->", y, "\"}"));
    anchor_ = root;
    if (Below(2) == 0) root = Bias(root, y, Below(4) == 0 ? Order(rows) : columns);
    if (Below(3) == 0 && y.size() > 1) {
      std::string turned = y;
      std::swap(turned[0], turned[1]);
      root = Add(absl::StrCat("IndexMap(%", root, ") {map=map[", SizesOf(turned), "](",
                              Places(y, turned), ")}"));
    }
    text_ += absl::StrCat("output \"y\" = %", root);
  }

  const std::string& text() const { return text_; }
  NodeId anchor() const { return anchor_; }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }

  // Returns none, one or both letters, with new sizes.
  std::string Some(const std::string& letters) {
    for (char c : letters) sizes_[c] = 1 + Below(3);
    return letters.substr(Below(3));
  }

  // Returns the letters in this order, at times in another.
  std::string Order(std::string letters) {
    if (Below(3) == 0) std::shuffle(letters.begin(), letters.end(), random_);
    return letters;
  }

  std::string SizesOf(const std::string& letters) {
    return absl::StrJoin(letters, ", ",
                         [&](std::string* out, char c) { absl::StrAppend(out, sizes_[c]); });
  }

  // Returns the coordinates of `letters` where an element has those of `at`.
  static std::string Places(const std::string& letters, const std::string& at) {
    return absl::StrJoin(letters, ", ",
                         [&](std::string* out, char c) { absl::StrAppend(out, "$", at.find(c)); });
  }

  int Add(const std::string& op) {
    absl::StrAppend(&text_, "%", nodes_, " = ", op, "\n");
    return nodes_++;
  }

  // Adds a tensor, or what is inside a larger one.
  int Operand(const std::string& name, const std::string& letters) {
    if (letters.empty() || Below(3) > 0) {
      return Add(absl::StrCat("Input \"", name, "\" : f64[", SizesOf(letters), "]"));
    }
    const std::string inner = SizesOf(letters), places = Places(letters, letters);
    const char last = letters.back();
    sizes_[last] += 2;
    const int whole = Add(absl::StrCat("Input \"", name, "\" : f64[", SizesOf(letters), "]"));
    sizes_[last] -= 2;
    return Add(absl::StrCat("IndexMap(%", whole, ") {map=map[", inner, "](", places, " + 1)}"));
  }

  int Bias(int sum, const std::string& result, const std::string& letters) {
    const int bias = Add(absl::StrCat("Input \"o\" : f64[", SizesOf(letters), "]"));
    const int wide = Add(absl::StrCat("IndexMap(%", bias, ") {map=map[", SizesOf(result), "](",
                                      Places(letters, result), ")}"));
    return Add(absl::StrCat("Add(%", sum, ", %", wide, ")"));
  }

  std::mt19937_64& random_;
  std::map<char, int> sizes_;
  std::string text_;
  int nodes_ = 0;
  NodeId anchor_ = -1;
};

// Computes the call on the nodes' values. Returns the result's memory.
std::vector<double> Called(const ProductCall& c, const std::vector<Tensor>& values) {
  std::vector<double> result(values[c.result.node].elements(), -1e9);
  const auto at = [](const CallMatrix& m, int64_t b, int64_t i, int64_t j) {
    return m.offset + b * m.batch_stride + (m.transposed ? j * m.stride + i : i * m.stride + j);
  };
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t i = 0; i < *c.rows.constant(); ++i) {
      for (int64_t j = 0; j < c.columns; ++j) {
        double sum = c.bias < 0 ? 0 : values[c.bias].data<double>()[j];
        for (int64_t k = 0; k < c.sums; ++k) {
          sum += values[c.left.node].data<double>()[at(c.left, b, i, k)] *
                 values[c.right.node].data<double>()[at(c.right, b, k, j)];
        }
        result.at(at(c.result, b, i, j)) = sum;
      }
    }
  }
  return result;
}

TEST(LibraryCallTest, ComputesWhatTheGraphDoes) {
  std::mt19937_64 random(7);
  int found = 0, biased = 0, batched = 0, swapped = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    const RandomProduct product(random);
    const Graph graph = Parsed(product.text());
    std::vector<Tensor> inputs;
    for (const Node& node : graph.nodes) {
      if (!IsInput(node.op)) continue;
      inputs.push_back(Tensor::Zeros(DType::kF64, ConcreteShape(node.type.shape, {}).value()));
      for (int64_t i = 0; i < inputs.back().elements(); ++i) {
        inputs.back().data<double>()[i] = static_cast<double>(random() % 1000);
      }
    }
    const std::vector<Tensor> values = EvaluateAll(graph, inputs).value();
    const KernelChoice choice{.root = graph.outputs[0].node, .anchor = product.anchor()};
    for (bool swap : {false, true}) {
      const std::optional<ProductCall> c =
          FindLibraryCall(graph, MemoryOf(graph, {{choice}}), choice.root, choice.anchor, swap);
      if (!c) continue;
      const Tensor& root = values[choice.root];
      ASSERT_EQ(Called(*c, values),
                std::vector<double>(root.data<double>(), root.data<double>() + root.elements()))
          << product.text() << (swap ? " swap" : "");
      ++found;
      biased += c->bias >= 0;
      batched += c->batch > 1;
      swapped += swap;
    }
  }
  EXPECT_GE(found, 500);
  EXPECT_GE(biased, 50);
  EXPECT_GE(batched, 50);
  EXPECT_GE(swapped, 50);
}

KernelTask Task(const std::string& body) {
  const Graph graph = Parsed(body);
  const Genome genome = ChooseKernels(graph, Gpu());
  return CutTask(graph, MemoryOf(graph, genome), WeightsOf(graph), genome.kernels.back());
}

std::vector<KernelChoice> CallsOf(const std::vector<KernelChoice>& all) {
  std::vector<KernelChoice> calls;
  std::copy_if(all.begin(), all.end(), std::back_inserter(calls), IsCall);
  return calls;
}

TEST(LibraryCallTest, AreSchedulesOfAGpuWithALibrary) {
  const KernelTask task = Task(Product("f16[512, 512]", "f16[512, 512]", "mk,kn->mn"));
  std::set<std::string> texts;
  for (const KernelChoice& call : CallsOf(Schedules(task, Gpu()))) {
    texts.insert(ScheduleText(call));
    EXPECT_EQ(call.team, 1);
  }
  EXPECT_EQ(texts.size(), 3 * 8);
  EXPECT_TRUE(texts.contains("contract cublaslt proposal=0 workspace=0"));
  EXPECT_TRUE(texts.contains("contract cublaslt proposal=7 workspace=33554432"));
  EXPECT_TRUE(CallsOf(Schedules(task, Gpu(""))).empty());
  // The CPU's library is none of theirs.
  for (const KernelChoice& c : Schedules(task, Gpu())) {
    EXPECT_FALSE(IsLibraryProduct(c)) << ScheduleText(c);
  }
  const KernelTask other =
      Task(Product("f32[64, 20]", "f32[20, 24]", "mk,kn->mn", R"(%3 = Tanh(%2) output "y" = %3)"));
  EXPECT_TRUE(CallsOf(Schedules(other, Gpu())).empty());
  const KernelTask swapped = Task(Product("f32[64, 20]", "f32[20, 24]", "mk,kn->nm"));
  for (const KernelChoice& c : CallsOf(Schedules(swapped, Gpu()))) EXPECT_TRUE(Swaps(c.contract));
  EXPECT_EQ(CallsOf(Schedules(swapped, Gpu())).size(), 3 * 8);
}

TEST(LibraryCallTest, AreNeighboursByRankAndWorkspace) {
  const KernelTask task = Task(Product("f16[512, 512]", "f16[512, 512]", "mk,kn->mn"));
  const std::vector<KernelChoice> all = Schedules(task, Gpu());
  KernelChoice at = CallsOf(all)[0];
  at.contract = CallSchedule{.proposal = 3, .workspace = 4 << 20};
  std::set<std::string> near;
  for (const KernelChoice& c : Neighbours(at, all)) near.insert(ScheduleText(c));
  EXPECT_EQ(near, std::set<std::string>({
                      "contract cublaslt proposal=2 workspace=4194304",
                      "contract cublaslt proposal=4 workspace=4194304",
                      "contract cublaslt proposal=3 workspace=0",
                      "contract cublaslt proposal=3 workspace=33554432",
                  }));
}

double Price(const KernelTask& task, int proposal, const SizePoint& sizes = {}) {
  KernelChoice call = task.choice;
  call.team = 1;
  call.contract = CallSchedule{.proposal = proposal};
  return PredictSeconds(task, call, sizes, Gpu(), Machine::Typical(Gpu()));
}

TEST(LibraryCallTest, CostMoreOfLargerProductsAndLaterProposals) {
  const KernelTask small = Task(Product("f16[1024, 1024]", "f16[1024, 1024]", "mk,kn->mn"));
  const KernelTask large = Task(Product("f16[8192, 8192]", "f16[8192, 8192]", "mk,kn->mn"));
  const KernelTask f32 = Task(Product("f32[8192, 8192]", "f32[8192, 8192]", "mk,kn->mn"));
  EXPECT_LT(Price(small, 0), Price(large, 0));
  EXPECT_LT(8 * Price(large, 0), Price(f32, 0));
  EXPECT_NEAR(Price(large, 7) / Price(large, 0), 1.07, 0.001);
  // 4,096 tiles in 32 waves, at 0.8 of the peak.
  const double flops = 2.0 * 8192 * 8192 * 8192 * (32.0 * 132 / 4096);
  const double peak = 16 * Machine::Typical(Gpu()).f32_flops_per_second;
  EXPECT_NEAR(Price(large, 0) / (flops / peak / 0.8), 1, 0.01);
}

TEST(LibraryCallTest, CostWhatTheirWayDoes) {
  const KernelTask task = Task(Product("f16[d, 8192]", "f16[8192, 8192]", "mk,kn->mn"));
  // Ways of 1024 and 2048 rows.
  EXPECT_LT(Price(task, 0, {1024, 10}), Price(task, 0, {1025, 10}));
  EXPECT_EQ(Price(task, 0, {1025, 10}), Price(task, 0, {2048, 10}));
}

// Without a workspace the library has proposals 0 and 1.
TEST(LibraryCallTest, BehindAMissingProposalNoneIsAskedFor) {
  TuningContext context{Gpu(), Machine::Typical(Gpu()), {SizePoint()}, {1}};
  Tuning tuning(Task(Product("f16[512, 4096]", "f16[4096, 4096]", "mk,kn->mn")), &context);
  std::mt19937_64 random(1);
  std::map<int64_t, std::set<int>> asked;  // by workspace
  size_t others = 0;
  for (; const std::optional<size_t> pick = tuning.Pick(random);) {
    const bool call = IsCall(tuning.schedule(*pick));
    const CallSchedule s =
        call ? std::get<CallSchedule>(tuning.schedule(*pick).contract) : CallSchedule();
    tuning.Ask(*pick);
    if (call) {
      asked[s.workspace].insert(s.proposal);
    } else {
      ++others;
    }
    if (call && s.workspace == 0 && s.proposal >= 2) {
      tuning.Tell(*pick, absl::OutOfRangeError("there is none"));
    } else if (call && s.workspace == 32 << 20) {
      tuning.Tell(*pick, absl::ResourceExhaustedError("poor"));
    } else {
      tuning.Tell(*pick, Seconds{call ? 1.0 + s.proposal : 100.0});
    }
  }
  EXPECT_GT(others, 0u);
  EXPECT_EQ(asked[0], std::set<int>({0, 1, 2}));
  EXPECT_EQ(asked[4 << 20].size(), 8u);
  EXPECT_EQ(asked[32 << 20].size(), 8u);
}

TEST(LibraryCallTest, TheBestIsMeasuredSecond) {
  for (const char* rows : {"8", "512"}) {
    const auto matrix = [](const std::string& m) { return absl::StrCat("f16[", m, ", 4096]"); };
    TuningContext context{Gpu(), Machine::Typical(Gpu()), {SizePoint()}, {1}};
    Tuning tuning(Task(Product(matrix(rows), matrix("4096"), "mk,kn->mn")), &context);
    std::mt19937_64 random(1);
    int first = -1;
    for (int asked = 0; asked < 4 && first < 0; ++asked) {
      const std::optional<size_t> pick = tuning.Pick(random);
      ASSERT_TRUE(pick.has_value());
      if (IsCall(tuning.schedule(*pick))) first = asked;
      tuning.Ask(*pick);
    }
    // Behind the one that it starts with and the best.
    EXPECT_GE(first, 1) << rows;
    EXPECT_LE(first, 2) << rows;
  }
}

}  // namespace
}  // namespace athanor
