// Runs whole graphs through pipeline, Clang and executor against the reference evaluator.
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

// Builds graphs in a few words; every Add must succeed.
struct Build {
  Graph g;
  GraphBuilder b{&g};
  explicit Build(std::vector<Dim> dims = {}) {
    g.dims = std::move(dims);
    b = GraphBuilder(&g);
  }
  NodeId In(const std::string& name, DType t, Shape shape) {
    return b.Input(name, {t, std::move(shape)}).value();
  }
  NodeId Par(const std::string& name, DType t, Shape shape) {
    return b.Parameter(name, {t, std::move(shape)}).value();
  }
  NodeId Op_(Op op, std::vector<NodeId> in, Attrs attrs = {}) {
    auto n = b.Add(op, std::move(in), std::move(attrs));
    EXPECT_TRUE(n.ok()) << n.status();
    return n.value_or(0);
  }
  NodeId Map(NodeId n, Shape shape, std::vector<Expr> c) {
    return Op_(Op::kIndexMap, {n}, {{"map", IndexMap{std::move(shape), std::move(c)}}});
  }
  void Out(NodeId n) { b.Output("y" + std::to_string(g.outputs.size()), n); }
};

Expr S(const char* name) { return Expr::Symbol(name); }
Expr A(int i) { return Expr::Axis(i); }
Attrs Spec(const char* s) { return {{"spec", std::string(s)}}; }

TEST(PlanTest, AddOfAllSizes) {
  std::mt19937 rng(1);
  for (int64_t n : {0, 1, 2, 15, 16, 17, 1023, 20000}) {
    Build x({{"n", 0, 100000}});
    x.Out(x.Op_(Op::kAdd, {x.In("a", DType::kF32, {S("n")}), x.In("b", DType::kF32, {S("n")})}));
    ExpectMatchesReference(
        x.g, {RandomTensor(DType::kF32, {n}, rng), RandomTensor(DType::kF32, {n}, rng)});
  }
}

TEST(PlanTest, IdentityBitForBit) {
  std::mt19937 rng(2);
  for (const DTypeRow& row : kDTypes) {
    if (!row.computes) continue;
    Build x({{"n", 1, 64}});
    NodeId in = x.In("a", row.dtype, {S("n"), 3});
    x.Out(x.Map(in, {S("n"), 3}, {A(0), A(1)}));
    x.Out(in);
    ExpectMatchesReference(x.g, {RandomTensor(row.dtype, {5, 3}, rng)}, {}, 0);
  }
}

TEST(PlanTest, Contractions) {
  std::mt19937 rng(3);
  for (auto [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                         {7, 13, 5},
                         {8, 8, 8},
                         {13, 64, 33},
                         {1, 100, 70},
                         {70, 100, 1},
                         {3, 0, 4},
                         {97, 31, 65},
                         {25, 2500, 40}}) {
    for (bool weight : {false, true}) {
      Build x;
      NodeId a = x.In("a", DType::kF32, {m, k});
      NodeId w = weight ? x.Par("w", DType::kF32, {k, n}) : x.In("w", DType::kF32, {k, n});
      x.Out(x.Op_(Op::kContract, {a, w}, Spec("mk,kn->mn")));
      Tensor ta = RandomTensor(DType::kF32, {m, k}, rng),
             tw = RandomTensor(DType::kF32, {k, n}, rng);
      ExpectMatchesReference(x.g, weight ? std::vector{ta} : std::vector{ta, tw},
                             weight ? std::vector{tw} : std::vector<Tensor>{}, 10);
    }
  }
}

TEST(PlanTest, ContractionsOfEveryDtypeAndLayout) {
  std::mt19937 rng(4);
  for (DType t : {DType::kI8, DType::kI32, DType::kI64, DType::kU16, DType::kF16, DType::kBF16,
                  DType::kF64}) {
    Build x;
    x.Out(x.Op_(Op::kContract, {x.In("a", t, {5, 9}), x.In("b", t, {9, 21})}, Spec("mk,kn->mn")));
    ExpectMatchesReference(x.g, {RandomTensor(t, {5, 9}, rng), RandomTensor(t, {9, 21}, rng)}, {},
                           10);
  }
  for (const char* spec : {"bmk,bkn->bmn", "bkm,bnk->bnm", "bmk,bnk->mbn"}) {
    Build x({{"b", 1, 8}});
    auto parsed = ContractSpec::Parse(spec).value();
    auto shape = [&](const std::string& l) {
      Shape s;
      for (char c : l)
        s.push_back(c == 'b' ? S("b") : c == 'm' ? Expr(6) : c == 'n' ? Expr(19) : Expr(11));
      return s;
    };
    auto sizes = [&](const std::string& l) {
      std::vector<int64_t> s;
      for (char c : l) s.push_back(c == 'b' ? 3 : c == 'm' ? 6 : c == 'n' ? 19 : 11);
      return s;
    };
    x.Out(x.Op_(
        Op::kContract,
        {x.In("p", DType::kF32, shape(parsed.lhs)), x.In("q", DType::kF32, shape(parsed.rhs))},
        Spec(spec)));
    ExpectMatchesReference(x.g,
                           {RandomTensor(DType::kF32, sizes(parsed.lhs), rng),
                            RandomTensor(DType::kF32, sizes(parsed.rhs), rng)},
                           {}, 10);
  }
}

TEST(PlanTest, ContractionWithEpilogue) {
  std::mt19937 rng(5);
  Build x({{"b", 1, 64}, {"s", 1, 64}});
  Shape rows = {S("b"), S("s"), 48};
  NodeId a = x.In("a", DType::kF32, {S("b"), S("s"), 40}), r = x.In("r", DType::kF32, rows);
  NodeId w = x.Par("w", DType::kF32, {40, 48}), bias = x.Par("bias", DType::kF32, {48});
  NodeId y = x.Op_(Op::kContract, {a, w}, Spec("bsk,kn->bsn"));
  y = x.Op_(Op::kGelu, {x.Op_(Op::kAdd, {y, x.Map(bias, rows, {A(2)})})});
  x.Out(x.Op_(Op::kAdd, {y, r}));
  for (auto [b, s] : {std::pair<int64_t, int64_t>{1, 1}, {2, 7}, {3, 13}}) {
    ExpectMatchesReference(
        x.g,
        {RandomTensor(DType::kF32, {b, s, 40}, rng), RandomTensor(DType::kF32, {b, s, 48}, rng)},
        {RandomTensor(DType::kF32, {40, 48}, rng), RandomTensor(DType::kF32, {48}, rng)}, 10);
  }
  auto compiled = Compile(
      x.g, {RandomTensor(DType::kF32, {40, 48}, rng), RandomTensor(DType::kF32, {48}, rng)});
  ASSERT_TRUE(compiled.ok());
  EXPECT_EQ(compiled->plan().run_size(), 1)
      << "bias, gelu and residual are the contraction's epilogue";
}

TEST(PlanTest, NormsAndSoftmax) {
  std::mt19937 rng(6);
  for (int64_t n : {1, 5, 16, 33, 384}) {
    Build x({{"b", 1, 64}});
    NodeId a = x.In("a", DType::kF32, {S("b"), 3, n});
    NodeId scale = x.Par("s", DType::kF32, {n}), bias = x.Par("t", DType::kF32, {n});
    x.Out(x.Op_(Op::kSoftmax, {a}, {{"axis", int64_t{2}}}));
    x.Out(x.Op_(Op::kLayerNorm, {a, scale, bias}, {{"epsilon", 1e-5}}));
    x.Out(x.Op_(Op::kRmsNorm, {a, scale}, {{"epsilon", 1e-5}}));
    x.Out(x.Op_(Op::kSoftmax, {a}, {{"axis", int64_t{1}}}));
    ExpectMatchesReference(
        x.g, {RandomTensor(DType::kF32, {2, 3, n}, rng)},
        {RandomTensor(DType::kF32, {n}, rng), RandomTensor(DType::kF32, {n}, rng)}, 10);
  }
}

TEST(PlanTest, Attention) {
  std::mt19937 rng(7);
  for (bool causal : {false, true}) {
    for (auto [q, k] :
         {std::pair<int64_t, int64_t>{1, 1}, {5, 7}, {33, 33}, {100, 130}, {1, 250}}) {
      Build x({{"b", 1, 4}, {"q", 1, 512}, {"k", 1, 512}});
      NodeId nq = x.In("nq", DType::kF32, {S("b"), S("q"), 24}),
             nk = x.In("nk", DType::kF32, {S("b"), S("k"), 24});
      auto heads = [&](NodeId n, const char* s) {
        return x.Map(n, {S("b"), 3, S(s), 8}, {A(0), A(2), A(1) * 8 + A(3)});
      };
      NodeId y = x.Op_(Op::kAttention, {heads(nq, "q"), heads(nk, "k"), heads(nk, "k")},
                       {{"causal", causal}});
      x.Out(x.Map(y, {S("b"), S("q"), 24}, {A(0), FloorDiv(A(2), 8), A(1), Mod(A(2), 8)}));
      ExpectMatchesReference(
          x.g,
          {RandomTensor(DType::kF32, {2, q, 24}, rng), RandomTensor(DType::kF32, {2, k, 24}, rng)},
          {}, 10);
    }
  }
}

TEST(PlanTest, AttentionMasks) {
  std::mt19937 rng(8);
  for (DType mask : {DType::kBool, DType::kF32}) {
    for (Shape shape : {Shape{5, 7}, Shape{2, 1, 5, 7}, Shape{1, 3, 5, 7}}) {
      Build x;
      NodeId q = x.In("q", DType::kF32, {2, 3, 5, 8}), k = x.In("k", DType::kF32, {2, 3, 7, 8});
      NodeId v = x.In("v", DType::kF32, {2, 3, 7, 6}), m = x.In("m", mask, shape);
      x.Out(x.Op_(Op::kAttention, {q, k, v, m}));
      std::vector<int64_t> sizes;
      for (const Expr& e : shape) sizes.push_back(*e.constant());
      Tensor hides = RandomTensor(mask, sizes, rng);
      for (int i = 0; i < 7; ++i) {  // the first query sees nothing
        StoreScalar(
            hides, i,
            mask == DType::kBool ? Scalar::Unsigned(mask, 0) : Scalar::Float(mask, -INFINITY));
      }
      ExpectMatchesReference(x.g,
                             {RandomTensor(DType::kF32, {2, 3, 5, 8}, rng),
                              RandomTensor(DType::kF32, {2, 3, 7, 8}, rng),
                              RandomTensor(DType::kF32, {2, 3, 7, 6}, rng), hides},
                             {}, 10);
    }
  }
}

TEST(PlanTest, GatherScatterBags) {
  std::mt19937 rng(9);
  for (DType ids : {DType::kI32, DType::kI64, DType::kU8}) {
    Build x({{"n", 0, 100}});
    NodeId table = x.Par("t", DType::kF32, {11, 20}), i = x.In("i", ids, {S("n"), 2});
    x.Out(x.Op_(Op::kGather, {table, i}, {{"axis", int64_t{0}}}));
    x.Out(x.Op_(Op::kGather, {table, i}, {{"axis", int64_t{1}}}));
    for (int64_t n : {0, 1, 9}) {
      ExpectMatchesReference(x.g, {RandomIndices(ids, {n, 2}, 11, rng)},
                             {RandomTensor(DType::kF32, {11, 20}, rng)});
    }
  }
  for (const char* mode : {"set", "add", "mul", "max", "min"}) {
    for (int64_t axis : {0, 1}) {
      for (DType t : {DType::kF32, DType::kBF16, DType::kI64}) {
        for (int64_t width : {19, 1}) {
          const std::vector<int64_t> sizes =
              axis == 0 ? std::vector<int64_t>{6, width} : std::vector<int64_t>{7, 6};
          const int64_t rows = axis == 0 ? 7 : width;
          Build x;
          NodeId d = x.In("d", t, {7, width}), i = x.In("i", DType::kI64, {6}),
                 u = x.In("u", t, {sizes[0], sizes[1]});
          x.Out(x.Op_(Op::kScatter, {d, i, u}, {{"axis", axis}, {"mode", std::string(mode)}}));
          ExpectMatchesReference(
              x.g, {RandomTensor(t, {7, width}, rng), RandomIndices(DType::kI64, {6}, rows, rng),
                    RandomTensor(t, sizes, rng)});
        }
      }
    }
  }
  for (const char* mode : {"sum", "mean", "max"}) {
    Build x({{"n", 0, 100}});
    NodeId table = x.Par("t", DType::kF32, {11, 20}), i = x.In("i", DType::kI64, {S("n")}),
           o = x.In("o", DType::kI64, {4});
    x.Out(x.Op_(Op::kEmbeddingBag, {table, i, o}, {{"mode", std::string(mode)}}));
    const int64_t offsets[] = {0, 0, 2, 5};
    ExpectMatchesReference(
        x.g,
        {RandomIndices(DType::kI64, {6}, 11, rng), Tensor::Of<int64_t>(DType::kI64, {4}, offsets)},
        {RandomTensor(DType::kF32, {11, 20}, rng)});
  }
}

TEST(PlanTest, IndexOutsideIsAnErrorNotARead) {
  Build x;
  NodeId table = x.Par("t", DType::kF32, {11, 20}), i = x.In("i", DType::kI64, {2});
  x.Out(x.Op_(Op::kGather, {table, i}, {{"axis", int64_t{0}}}));
  std::mt19937 rng(10);
  auto compiled = Compile(x.g, {RandomTensor(DType::kF32, {11, 20}, rng)});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (int64_t bad : {int64_t{-1}, int64_t{11}, int64_t{1} << 62}) {
    const int64_t ids[] = {3, bad};
    auto y = compiled->Run({Tensor::Of<int64_t>(DType::kI64, {2}, ids)});
    EXPECT_EQ(y.status().code(), absl::StatusCode::kInvalidArgument) << y.status();
    EXPECT_NE(y.status().message().find(std::to_string(bad)), std::string::npos) << y.status();
  }
}

TEST(PlanTest, Movement) {
  std::mt19937 rng(11);
  Build x({{"b", 1, 16}});
  NodeId a = x.In("a", DType::kF32, {S("b"), 6, 35});
  x.Out(x.Map(a, {35, S("b"), 6}, {A(1), A(2), A(0)}));
  x.Out(
      x.Map(a, {S("b") * 210}, {FloorDiv(A(0), 210), FloorDiv(Mod(A(0), 210), 35), Mod(A(0), 35)}));
  x.Out(x.Map(a, {S("b"), 3, 20}, {A(0), 2 * A(1) + 1, 34 - A(2)}));
  Tensor fill = Tensor::Zeros(DType::kF32, {});
  StoreScalar(fill, 0, Scalar::Float(DType::kF32, -7));
  x.Out(x.Op_(Op::kIndexMap, {a},
              {{"map", IndexMap{{S("b"), 8, 37}, {A(0), A(1) - 1, A(2) - 1}}}, {"fill", fill}}));
  ExpectMatchesReference(x.g, {RandomTensor(DType::kF32, {3, 6, 35}, rng)});
}

TEST(PlanTest, ReductionsOverAnyAxes) {
  std::mt19937 rng(12);
  for (DType t : {DType::kF32, DType::kF64, DType::kI64, DType::kF16, DType::kBF16, DType::kU8}) {
    for (std::vector<int64_t> axes :
         {std::vector<int64_t>{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {}}) {
      Build x({{"b", 0, 16}});
      NodeId a = x.In("a", t, {S("b"), 6, 35});
      x.Out(x.Op_(Op::kSumReduce, {a}, {{"axes", axes}}));
      x.Out(x.Op_(Op::kMaxReduce, {a}, {{"axes", axes}}));
      for (int64_t b : {0, 1, 5})
        ExpectMatchesReference(x.g, {RandomTensor(t, {b, 6, 35}, rng)}, {}, 10);
    }
  }
}

// Values near 1 keep the products in range.
TEST(PlanTest, ProductsOverAnyAxes) {
  std::mt19937 rng(12);
  for (DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kU64}) {
    for (std::vector<int64_t> axes : {std::vector<int64_t>{0}, {1}, {0, 2}, {0, 1, 2}, {}}) {
      Build x({{"b", 0, 16}});
      NodeId a = x.In("a", t, {S("b"), 6, 35});
      x.Out(x.Op_(Op::kMulReduce, {a}, {{"axes", axes}}));
      x.Out(x.Op_(Op::kMulReduce, {x.Op_(Op::kMul, {a, a})}, {{"axes", axes}}));
      for (int64_t b : {0, 1, 5}) {
        Tensor v = RandomTensor(t, {b, 6, 35}, rng);
        for (int64_t i = 0; i < v.elements() && IsFloat(t); ++i) {
          const double near = (i % 5 == 0 ? -1 : 1) * (1 + LoadScalar(v, i).f / 128);
          StoreScalar(v, i, Scalar::Float(t, near));
        }
        ExpectMatchesReference(x.g, {v}, {}, 10);
      }
    }
  }
}

TEST(PlanTest, DiamondIsOneKernel) {
  std::mt19937 rng(13);
  Build x({{"n", 1, 1000}});
  NodeId a = x.In("a", DType::kF32, {S("n")}), b = x.In("b", DType::kF32, {S("n")});
  NodeId sum = x.Op_(Op::kAdd, {a, b});
  x.Out(x.Op_(Op::kAdd, {x.Op_(Op::kMul, {x.Op_(Op::kExp2, {sum}), a}), x.Op_(Op::kSin, {sum})}));
  ExpectMatchesReference(
      x.g, {RandomTensor(DType::kF32, {77}, rng), RandomTensor(DType::kF32, {77}, rng)}, {}, 5);
  auto compiled = Compile(x.g);
  ASSERT_TRUE(compiled.ok());
  EXPECT_EQ(compiled->plan().run_size(), 1);
}

TEST(PlanTest, OutputsOfEveryKind) {
  std::mt19937 rng(14);
  Build x({{"n", 1, 100}});
  NodeId a = x.In("a", DType::kF32, {S("n")}), w = x.Par("w", DType::kF32, {3});
  NodeId c = x.b.Constant(Tensor::Zeros(DType::kI64, {2})).value();
  NodeId scalar = x.b.Constant(Tensor::Zeros(DType::kF32, {})).value();
  NodeId e = x.Op_(Op::kExp, {a});
  for (NodeId n : {a, e, c, e, w, scalar, x.Op_(Op::kLog, {e}), x.Op_(Op::kExp, {w})}) x.Out(n);
  ExpectMatchesReference(x.g, {RandomTensor(DType::kF32, {17}, rng)},
                         {RandomTensor(DType::kF32, {3}, rng)}, 5);
}

TEST(PlanTest, EqualKernelsOverDifferentDimsAreOne) {
  std::mt19937 rng(12);
  Build x({{"n", 1, 64}, {"m", 1, 64}, {"k", 1, 64}});
  auto scores = [&](const char* a, const char* b) {
    NodeId v = x.In(std::string(a) + b, DType::kF32, {S(a), S(b), 8});
    NodeId turned = x.Map(v, {S(b), S(a), 8}, {A(1), A(0), A(2)});
    x.Out(x.Op_(Op::kExp, {turned}));
  };
  scores("n", "m");
  scores("m", "k");
  scores("k", "n");
  ExpectMatchesReference(
      x.g, {RandomTensor(DType::kF32, {3, 5, 8}, rng), RandomTensor(DType::kF32, {5, 7, 8}, rng),
            RandomTensor(DType::kF32, {7, 3, 8}, rng)});
  auto compiled = Compile(x.g);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->plan().run_size(), 3);
  EXPECT_EQ(compiled->plan().kernels_size(), 1);
}

TEST(PlanTest, ManyCallsWithSizesUpAndDown) {
  std::mt19937 rng(15);
  Build x({{"b", 1, 50}});
  NodeId w = x.Par("w", DType::kF32, {20, 30});
  x.Out(x.Op_(Op::kRelu, {x.Op_(Op::kContract, {x.In("a", DType::kF32, {S("b"), 20}), w},
                                Spec("mk,kn->mn"))}));
  Tensor tw = RandomTensor(DType::kF32, {20, 30}, rng);
  auto compiled = Compile(x.g, {tw});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (int64_t b : {50, 1, 12, 13, 49, 2}) {
    Tensor a = RandomTensor(DType::kF32, {b, 20}, rng);
    auto got = compiled->Run({a}), want = Evaluate(x.g, std::vector{a, tw});
    ASSERT_TRUE(got.ok()) << got.status();
    for (int64_t i = 0; i < b * 30; ++i) {
      ASSERT_NEAR((*got)[0].data<float>()[i], (*want)[0].data<float>()[i], 1e-4);
    }
  }
}

}  // namespace
}  // namespace athanor
