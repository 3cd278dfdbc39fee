#include "compiler/rules/decompose/decompose.h"

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/sample/compare.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor Random(DType dtype, std::vector<int64_t> shape, std::mt19937& rng) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  std::normal_distribution<double> normal(0, 2);
  for (int64_t i = 0; i < t.elements(); ++i) {
    double v = normal(rng);
    if (dtype == DType::kBool) {
      StoreScalar(t, i, Scalar::Unsigned(dtype, v > -1));
    } else if (IsFloat(dtype)) {
      StoreScalar(t, i, Scalar::Float(dtype, v));
    } else if (IsSigned(dtype)) {
      StoreScalar(t, i, Scalar::Signed(dtype, std::llround(v)));
    } else {
      StoreScalar(t, i, Scalar::Unsigned(dtype, static_cast<uint64_t>(std::llround(std::abs(v)))));
    }
  }
  return t;
}

// Compares one composite of the table, on given inputs, with its decomposition.
void ExpectSame(Op op, const std::vector<Tensor>& inputs, const Attrs& attrs,
                double relative = 1e-5) {
  Graph g;
  GraphBuilder b(&g);
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Shape shape;
    for (int64_t e : inputs[i].shape) shape.push_back(e);
    nodes.push_back(b.Input("x" + std::to_string(i), {inputs[i].dtype, shape}).value());
  }
  absl::StatusOr<NodeId> y = b.Add(op, nodes, attrs);
  ASSERT_TRUE(y.ok()) << y.status();
  b.Output("y", *y);
  absl::StatusOr<Graph> d = Decompose(g, [&](const Node& n) { return n.op == op; });
  ASSERT_TRUE(d.ok()) << d.status();
  ASSERT_TRUE(Verify(*d).ok()) << Verify(*d);
  for (const Node& n : d->nodes) {
    EXPECT_FALSE(n.op == op) << OpName(op) << " is left";
  }
  auto want = Evaluate(g, inputs), got = Evaluate(*d, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(got.ok()) << got.status();
  DType dtype = (*want)[0].dtype;
  if (AccumulatorOf(dtype) != dtype) relative = dtype == DType::kBF16 ? 1e-2 : 2e-3;
  absl::Status same = CompareTensors((*got)[0], (*want)[0], relative, relative);
  EXPECT_TRUE(same.ok()) << OpName(op) << " " << DTypeName(dtype) << ": " << same;
}

// Tests TopK and, for numbers, Cumulate along each axis.
void ExpectOrders(const Tensor& x) {
  for (int64_t axis = 0; axis < static_cast<int64_t>(x.shape.size()); ++axis) {
    for (bool way : {false, true}) {
      for (int64_t k : {int64_t{0}, (x.shape[axis] + 1) / 2, x.shape[axis]}) {
        ExpectSame(Op::kTopK, {x}, {{"axis", axis}, {"k", Shape{k}}, {"largest", way}}, 0);
      }
      for (bool reverse : {false, true}) {
        if (x.dtype == DType::kBool) continue;
        for (const char* op : {"add", "mul"}) {
          ExpectSame(
              Op::kCumulate, {x},
              {{"axis", axis}, {"op", std::string(op)}, {"exclusive", way}, {"reverse", reverse}});
        }
      }
    }
  }
}

// Axes of one block, of several blocks, and of blocks of blocks.
TEST(DecomposeTest, CumulateInBlocks) {
  std::mt19937 rng(9);
  for (int64_t size : {0, 1, 32, 33, 48, 257, 600}) {
    for (DType t : {DType::kF32, DType::kI16, DType::kF16, DType::kF64, DType::kU8}) {
      for (const bool exclusive : {false, true}) {
        for (const bool reverse : {false, true}) {
          for (const auto& [shape, axis] :
               {std::pair<std::vector<int64_t>, int64_t>{{2, size}, 1}, {{size, 3}, 0}}) {
            const Attrs attrs = {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}};
            Attrs add = attrs, mul = attrs;
            add["op"] = std::string("add");
            mul["op"] = std::string("mul");
            ExpectSame(Op::kCumulate, {Random(t, shape, rng)}, add, 1e-4);
            if (!IsFloat(t)) ExpectSame(Op::kCumulate, {Random(t, shape, rng)}, mul);
          }
        }
      }
    }
  }
}

TEST(DecomposeTest, EveryCompositeHasOneRow) {
  std::set<Op> rows;
  for (const DecompositionRow& r : DecompositionRows()) EXPECT_TRUE(rows.insert(r.op).second);
  for (const OpRow& op : OpTable()) EXPECT_EQ(rows.contains(op.op), op.composite()) << op.name;
}

// Operands of a PagedAttention of `rows` rows over 2 sequences of up to 3 blocks in a pool of 8.
// The keys up to each sequence's last position are numbers; all other slots hold NaN, and the
// entries of blocks behind it are no blocks.
std::vector<Tensor> PagedOperands(int64_t rows, DType t, std::mt19937& rng) {
  constexpr int64_t kPool = 8, kBlock = 16, kHeads = 4, kGroups = 2, kWidth = 5;
  std::vector<Tensor> in = {Random(t, {rows, kHeads, kWidth}, rng),
                            Tensor::Zeros(t, {kPool * kBlock, kGroups, kWidth}),
                            Tensor::Zeros(t, {kPool * kBlock, kGroups, 3}),
                            Tensor::Of<int32_t>(DType::kI32, {2, 3}, {6, 2, 0, 5, 7, 1}),
                            Tensor::Zeros(DType::kI32, {rows}),
                            Tensor::Zeros(DType::kI32, {rows}),
                            Random(t, {kHeads}, rng)};
  for (Tensor* pool : {&in[1], &in[2]}) {
    for (int64_t i = 0; i < pool->elements(); ++i) {
      StoreScalar(*pool, i, Scalar::Float(t, std::nan("")));
    }
  }
  const int64_t last[] = {static_cast<int64_t>(rng() % 32), static_cast<int64_t>(rng() % 48)};
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t s = static_cast<int64_t>(rng() % 2);
    in[4].data<int32_t>()[i] = static_cast<int32_t>(s);
    in[5].data<int32_t>()[i] = static_cast<int32_t>(rng() % (last[s] + 1));
  }
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t j = 0; j < 3 * kBlock; ++j) {
      int32_t& block = in[3].data<int32_t>()[s * 3 + j / kBlock];
      if (j > last[s] && j % kBlock == 0) block = s == 0 ? -1 : kPool;
      if (j > last[s]) continue;
      for (Tensor* pool : {&in[1], &in[2]}) {
        const Tensor row = Random(t, {pool->elements() / (kPool * kBlock)}, rng);
        const int64_t slot = block * kBlock + j % kBlock;
        pool->bytes.replace(slot * row.bytes.size(), row.bytes.size(), row.bytes);
      }
    }
  }
  return in;
}

TEST(DecomposeTest, PagedAttention) {
  std::mt19937 rng(8);
  for (DType t : {DType::kF32, DType::kF64}) {
    for (int64_t rows : {0, 1, 13}) {
      for (int64_t window : {0, 1, 16, 21}) {
        std::vector<Tensor> in = PagedOperands(rows, t, rng);
        Attrs attrs = {{"block", int64_t{16}}};
        if (window > 0) attrs["window"] = window;
        ExpectSame(Op::kPagedAttention, in, attrs);
        attrs["softcap"] = 1.5;
        attrs["scale"] = 0.25;
        in.pop_back();
        ExpectSame(Op::kPagedAttention, in, attrs);
      }
    }
  }
}

// The decomposition refuses what the reference refuses.
TEST(DecomposeTest, PagedAttentionOutside) {
  std::mt19937 rng(9);
  Graph g;
  GraphBuilder b(&g);
  const std::vector<Tensor> good = PagedOperands(3, DType::kF32, rng);
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < good.size(); ++i) {
    const Shape shape(good[i].shape.begin(), good[i].shape.end());
    nodes.push_back(b.Input("x" + std::to_string(i), {good[i].dtype, shape}).value());
  }
  b.Output("y", b.Add(Op::kPagedAttention, nodes, {{"block", int64_t{16}}}).value());
  const Graph d = Decompose(g, [](const Node&) { return true; }).value();
  EXPECT_EQ(Evaluate(d, good).status(), absl::OkStatus());
  const int first = good[4].data<int32_t>()[0];  // the sequence of row 0
  for (const auto& [operand, at, bad] : {std::tuple{3, 3 * first, -1},
                                         {3, 3 * first, 8},
                                         {4, 1, -1},
                                         {4, 1, 2},
                                         {5, 2, -1},
                                         {5, 2, 48},
                                         {5, 2, std::numeric_limits<int32_t>::max()}}) {
    std::vector<Tensor> in = good;
    in[operand].data<int32_t>()[at] = bad;
    for (const Graph* graph : {&std::as_const(g), &d}) {
      EXPECT_TRUE(absl::IsOutOfRange(Evaluate(*graph, in).status()))
          << operand << " " << bad << (graph == &d ? " decomposed" : "");
    }
  }
}

class DecomposeFloatTest : public testing::TestWithParam<DType> {};

TEST_P(DecomposeFloatTest, UnaryComposites) {
  std::mt19937 rng(1);
  for (Op op : {Op::kSigmoid, Op::kGelu, Op::kSilu, Op::kRelu}) {
    for (std::vector<int64_t> shape : {std::vector<int64_t>{}, {0}, {1}, {7, 13}}) {
      ExpectSame(op, {Random(GetParam(), shape, rng)}, {});
    }
    Tensor edges = Tensor::Zeros(GetParam(), {6});
    const double values[] = {kInf, -kInf, std::nan(""), 0.0, -30, 30};
    for (int i = 0; i < 6; ++i) StoreScalar(edges, i, Scalar::Float(GetParam(), values[i]));
    ExpectSame(op, {edges}, {});
  }
  ExpectSame(Op::kGelu, {Random(GetParam(), {33}, rng)}, {{"approximate", std::string("tanh")}});
}

TEST_P(DecomposeFloatTest, RowComposites) {
  std::mt19937 rng(2);
  DType t = GetParam();
  for (std::vector<int64_t> shape : {std::vector<int64_t>{1}, {3, 1}, {2, 5, 17}, {4, 64}}) {
    int64_t n = shape.back();
    for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
      ExpectSame(Op::kSoftmax, {Random(t, shape, rng)}, {{"axis", axis}});
    }
    Attrs epsilon = {{"epsilon", 1e-5}};
    ExpectSame(Op::kLayerNorm, {Random(t, shape, rng), Random(t, {n}, rng), Random(t, {n}, rng)},
               epsilon, 1e-4);
    ExpectSame(Op::kRmsNorm, {Random(t, shape, rng), Random(t, {n}, rng)}, epsilon);
  }
}

TEST_P(DecomposeFloatTest, ContractAndAttention) {
  std::mt19937 rng(3);
  DType t = GetParam();
  ExpectSame(Op::kContract, {Random(t, {3, 7}, rng), Random(t, {7, 5}, rng)},
             {{"spec", std::string("mk,kn->mn")}});
  ExpectSame(Op::kContract, {Random(t, {2, 3, 4}, rng), Random(t, {2, 5, 4}, rng)},
             {{"spec", std::string("bqd,bkd->bqk")}});
  ExpectSame(Op::kContract, {Random(t, {3, 0}, rng), Random(t, {0, 5}, rng)},
             {{"spec", std::string("mk,kn->mn")}});
  Tensor q = Random(t, {2, 3, 5, 4}, rng), k = Random(t, {2, 3, 7, 4}, rng),
         v = Random(t, {2, 3, 7, 6}, rng);
  ExpectSame(Op::kAttention, {q, k, v}, {});
  ExpectSame(Op::kAttention, {q, k, v}, {{"scale", 0.25}, {"causal", true}});
  ExpectSame(Op::kAttention, {q, k, v, Random(DType::kBool, {5, 7}, rng)}, {});
  Tensor hides = Random(t, {2, 1, 5, 7}, rng);
  for (int i = 0; i < 7; ++i) StoreScalar(hides, i, Scalar::Float(t, -kInf));
  ExpectSame(Op::kAttention, {q, k, v, hides}, {});
}

Attrs Window(std::vector<int64_t> strides, std::vector<int64_t> dilations, Shape begin, Shape out) {
  return {{"strides", strides}, {"dilations", dilations}, {"begin", begin}, {"out", out}};
}

TEST_P(DecomposeFloatTest, Convolutions) {
  std::mt19937 rng(6);
  const DType t = GetParam();
  struct Case {
    std::vector<int64_t> x, w;
    Attrs window;
    int64_t group = 1;
  };
  for (Case& c : std::vector<Case>{
           {{2, 3, 9}, {4, 3, 3}, Window({2}, {1}, {1}, {5})},
           {{2, 3, 9}, {4, 3, 3}, Window({1}, {2}, {-1}, {3})},
           {{1, 4, 5, 6}, {6, 4, 3, 1}, Window({1, 2}, {1, 3}, {1, 0}, {5, 3})},
           {{1, 4, 5, 6}, {6, 4, 1, 1}, Window({1, 1}, {1, 1}, {0, 0}, {5, 6})},
           {{2, 6, 5, 4}, {4, 3, 2, 3}, Window({1, 1}, {1, 1}, {0, 1}, {4, 4}), 2},
           {{2, 6, 5, 4}, {6, 1, 3, 3}, Window({2, 1}, {1, 1}, {1, 1}, {3, 4}), 6},
           {{2, 6, 5, 4}, {6, 1, 1, 1}, Window({1, 1}, {1, 1}, {0, 0}, {5, 4}), 6},
           {{2, 3, 5, 4}, {6, 1, 3, 3}, Window({1, 1}, {1, 1}, {1, 1}, {5, 4}), 3},
           {{1, 2, 3, 4, 5}, {3, 2, 2, 2, 2}, Window({1, 1, 2}, {1, 2, 1}, {0, 1, 1}, {2, 3, 3})},
           {{1, 2, 0}, {3, 2, 2}, Window({1}, {1}, {2}, {2})},
           {{1, 0, 3}, {3, 0, 2}, Window({1}, {1}, {0}, {2})},
           {{1, 2, 3}, {0, 2, 2}, Window({1}, {1}, {0}, {2})},
           {{1, 2, 3}, {0, 1, 2}, Window({1}, {1}, {0}, {2}), 2},
           {{1, 2, 3}, {2, 2, 0}, Window({1}, {1}, {0}, {2})},
           {{0, 2, 3}, {2, 1, 2}, Window({1}, {1}, {0}, {2}), 2}}) {
    c.window["group"] = c.group;
    ExpectSame(Op::kConv, {Random(t, c.x, rng), Random(t, c.w, rng)}, c.window);
  }
}

TEST_P(DecomposeFloatTest, Pools) {
  std::mt19937 rng(7);
  for (const char* mode : {"max", "sum", "mean"}) {
    for (Attrs window :
         {Window({2, 1}, {1, 2}, {1, 0}, {3, 2}), Window({1, 1}, {1, 1}, {0, 0}, {4, 3}),
          Window({1, 3}, {1, 1}, {9, -1}, {2, 5})}) {
      window["mode"] = std::string(mode);
      window["kernel"] = std::vector<int64_t>{2, 3};
      ExpectSame(Op::kPool, {Random(GetParam(), {2, 3, 5, 5}, rng)}, window);
      ExpectSame(Op::kPool, {Random(GetParam(), {2, 3, 5, 0}, rng)}, window);
      if (std::string(mode) != "mean") continue;
      for (Shape counted : {Shape{5, 5}, Shape{7, 6}, Shape{20, 20}, Shape{-3, 2}}) {
        window["counted"] = counted;
        ExpectSame(Op::kPool, {Random(GetParam(), {2, 3, 5, 5}, rng)}, window);
      }
    }
  }
}

TEST_P(DecomposeFloatTest, EmbeddingBags) {
  std::mt19937 rng(4);
  Tensor table = Random(GetParam(), {10, 3}, rng);
  const int64_t ids[] = {1, 9, 0, 3, 3}, offsets[] = {0, 0, 2, 5};
  for (const char* mode : {"sum", "mean", "max"}) {
    ExpectSame(Op::kEmbeddingBag,
               {table, Tensor::Of<int64_t>(DType::kI64, {5}, ids),
                Tensor::Of<int64_t>(DType::kI64, {4}, offsets)},
               {{"mode", std::string(mode)}});
  }
}

INSTANTIATE_TEST_SUITE_P(Floats, DecomposeFloatTest,
                         testing::Values(DType::kF16, DType::kBF16, DType::kF32, DType::kF64),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(DecomposeFloatTest, OrderAndCumulation) {
  std::mt19937 rng(6);
  DType t = GetParam();
  Tensor edges = Tensor::Zeros(t, {3, 4});
  const double values[] = {kInf, -0.0, std::nan(""), 0.0, -kInf, -30, -std::nan(""), 2, 2, 0, 1, 1};
  for (int i = 0; i < 12; ++i) StoreScalar(edges, i, Scalar::Float(t, values[i]));
  ExpectOrders(edges);
  for (std::vector<int64_t> shape :
       {std::vector<int64_t>{0}, {1}, {17}, {3, 0}, {0, 3}, {5, 7}, {2, 5, 3}, {2, 3, 4, 1}}) {
    ExpectOrders(Random(t, shape, rng));
  }
}

// Windows that are inside for every size of the dims are read without a mask. A mean that always
// counts its whole window divides by a number.
TEST(DecomposeTest, WindowsThatStayInsideNeedNoFill) {
  for (const auto& [begin, out, fills] :
       {std::tuple{"0", "floordiv(s - 3, 2) + 1", 0}, {"1", "floordiv(s - 1, 2) + 1", 1}}) {
    const absl::StatusOr<Graph> g = ParseGraph(absl::StrCat(
        R"(graph "g" { dim s in [3, 90] %0 = Input "x" : f32[2, 4, s] %1 = Parameter "w" : f32[4, 1, 3]
           %2 = Conv(%0, %1) {strides=[2], dilations=[1], group=4, begin=shape[)",
        begin, "], out=shape[", out, R"(]} %3 = Pool(%0) {mode="mean", kernel=[3], strides=[2],
           dilations=[1], begin=shape[)",
        begin, "], out=shape[", out, R"(]} output "y" = %2 output "z" = %3 })"));
    ASSERT_TRUE(g.ok()) << g.status();
    const absl::StatusOr<Graph> d = Decompose(*g, [](const Node&) { return true; });
    ASSERT_TRUE(d.ok()) << d.status();
    int filled = 0, sums = 0;
    for (const Node& node : d->nodes) {
      filled += node.attrs.contains("fill");
      sums += node.op == Op::kSumReduce;
    }
    EXPECT_EQ(filled, 3 * fills) << ToText(*d);  // the count is filled too
    EXPECT_EQ(sums, 2 + fills) << ToText(*d);
  }
}

TEST_P(DecomposeFloatTest, Rotary) {
  std::mt19937 rng(7);
  DType t = GetParam();
  for (bool interleaved : {false, true}) {
    const Attrs attrs = {{"interleaved", interleaved}};
    for (int64_t half : {0, 1, 3}) {
      for (int64_t width : {2 * half, 2 * half + 1, int64_t{9}}) {
        const Tensor x = Random(t, {2, 3, 5, width}, rng);
        for (std::vector<int64_t> shape :
             {std::vector<int64_t>{5, half}, {1, 3, 5, half}, {2, 1, 5, half}}) {
          const Tensor cos = Random(t, shape, rng), sin = Random(t, shape, rng);
          ExpectSame(Op::kRotary, {x, cos, sin}, attrs);
        }
      }
    }
  }
}

TEST_P(DecomposeFloatTest, Dequantize) {
  std::mt19937 rng(8);
  DType t = GetParam();
  const auto attrs = [&](int64_t bits, int64_t axis = 0, int64_t block = 0) {
    return Attrs{{"dtype", t}, {"bits", bits}, {"axis", axis}, {"block", block}};
  };
  for (DType q : {DType::kU8, DType::kI8}) {
    Tensor packed = Tensor::Zeros(q, {3, 8});
    for (char& byte : packed.bytes) byte = static_cast<char>(rng());
    for (int64_t bits : {2, 4, 8}) {
      const int64_t columns = 8 * 8 / bits;
      ExpectSame(Op::kDequantize, {packed, Random(t, {}, rng)}, attrs(bits));
      ExpectSame(Op::kDequantize, {packed, Random(t, {3}, rng), Random(q, {3}, rng)}, attrs(bits));
      ExpectSame(Op::kDequantize,
                 {packed, Random(DType::kF32, {columns}, rng), Random(q, {columns}, rng)},
                 attrs(bits, 1));
      const int64_t blocks = (columns + 4) / 5;
      Attrs cut = attrs(bits, 1, 5);
      ExpectSame(Op::kDequantize,
                 {packed, Random(t, {3, blocks}, rng), Random(q, {3, blocks}, rng)}, cut);
      if (bits == 8) continue;
      cut["size"] = Shape{columns - 1};
      ExpectSame(Op::kDequantize, {packed, Random(t, {3, (columns + 3) / 5}, rng)}, cut);
    }
  }
  for (DType q : {DType::kI16, DType::kU16, DType::kI32, DType::kU32}) {
    Tensor wide = Tensor::Zeros(q, {7});
    for (char& byte : wide.bytes) byte = static_cast<char>(rng());
    ExpectSame(Op::kDequantize, {wide, Random(t, {}, rng), Random(q, {}, rng)}, {{"dtype", t}});
  }
}

TEST(DecomposeTest, IntegersToo) {
  std::mt19937 rng(5);
  for (DType t : {DType::kBool, DType::kI8, DType::kI32, DType::kI64, DType::kU8, DType::kU64}) {
    ExpectOrders(Random(t, {3, 11}, rng));
  }
  for (DType t : {DType::kI8, DType::kI32, DType::kI64, DType::kU8}) {
    ExpectSame(Op::kRelu, {Random(t, {17}, rng)}, {});
    Attrs window = Window({1, 2}, {1, 1}, {1, 0}, {4, 2});
    window["group"] = int64_t{2};
    ExpectSame(Op::kConv, {Random(t, {2, 4, 4, 5}, rng), Random(t, {6, 2, 2, 3}, rng)}, window);
    ExpectSame(Op::kConv, {Random(t, {2, 2, 4, 5}, rng), Random(t, {2, 1, 2, 3}, rng)}, window);
    window.erase("group");
    window["kernel"] = std::vector<int64_t>{2, 3};
    for (const char* mode : {"max", "sum"}) {
      window["mode"] = std::string(mode);
      ExpectSame(Op::kPool, {Random(t, {2, 4, 4, 5}, rng)}, window);
    }
    ExpectSame(Op::kContract, {Random(t, {3, 7}, rng), Random(t, {7, 5}, rng)},
               {{"spec", std::string("mk,kn->mn")}});
  }
}

}  // namespace
}  // namespace athanor
