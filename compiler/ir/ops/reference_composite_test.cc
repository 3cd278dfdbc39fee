#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"
#include "compiler/ir/sample/compare.h"

namespace athanor {
namespace {

using Values = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Compares f64 with values computed by numpy in f64, and the narrower dtypes with those values
// rounded. The operands are exact in all of them.
void ExpectNear(const Tensor& got, const Values& want) {
  const double relative = got.dtype == DType::kF64 ? 1e-14 : 2 * UnitRoundoff(got.dtype);
  const absl::Status same = CompareTensors(got, Of(got.dtype, got.shape, want), relative, 1e-300);
  EXPECT_TRUE(same.ok()) << same;
}

constexpr DType kFloats[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
const Values kX = {1, 2, 4, -3, 0.5, 100, 101, 99, 100.5, -7};

TEST(ReferenceCompositeTest, SoftmaxAlongEitherAxis) {
  for (DType t : kFloats) {
    const Tensor x = Of(t, {2, 5}, kX);
    ExpectNear(RunOp(Op::kSoftmax, {x}, {{"axis", int64_t{1}}}),
               {0.04093551563063593, 0.11127426827735887, 0.8222118106688638, 0.0007497601220148614,
                0.02482864530112643, 0.17437148764032928, 0.47399084625407806, 0.06414768542935739,
                0.2874899806762354, 5.915152000358932e-48});
  }
  ExpectNear(RunOp(Op::kSoftmax, {Of(DType::kF64, {2, 5}, kX)}, {{"axis", int64_t{0}}}),
             {1.0112214926104486e-43, 1.0112214926104486e-43, 5.5210822770285325e-42,
              1.1233656060805691e-45, 0.9994472213630764, 1, 1, 1, 1, 0.0005527786369235996});
}

TEST(ReferenceCompositeTest, SoftmaxEdges) {
  const auto softmax = [](Values row) {
    const auto size = static_cast<int64_t>(row.size());
    return ValuesOf(RunOp(Op::kSoftmax, {Of(DType::kF32, {1, size}, row)}, {{"axis", int64_t{1}}}));
  };
  EXPECT_EQ(softmax({-kInf, 0, 0}), (Values{0, 0.5, 0.5}));
  EXPECT_EQ(softmax({1e30, 1e30}), (Values{0.5, 0.5}));
  EXPECT_EQ(softmax({}), Values{});
  for (const Values& row : {Values{-kInf, -kInf}, Values{kInf, 1}, Values{kNan, 1}}) {
    for (double value : softmax(row)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(ReferenceCompositeTest, Norms) {
  const Values scale = {1, 0.5, 2, -1, 1.5}, bias = {0, 1, -1, 0.25, 3};
  for (DType t : {DType::kF32, DType::kF64}) {
    const Tensor x = Of(t, {2, 5}, kX);
    const Tensor layer =
        RunOp(Op::kLayerNorm, {x, Of(t, {5}, scale), Of(t, {5}, bias)}, {{"epsilon", 1e-5}});
    const Values want = {0.04368516114875771,  1.2402683863181674,   1.7084799912229784,
                         1.9537212848015508,   2.7378890331074537,   0.49702363544407846,
                         1.2601790392113368,   -0.05262161506903362, -0.258690856933376,
                         0.0003573551015825238};
    // For f32, epsilon is rounded to f32, which moves the result by less than 1e-12.
    const absl::Status same =
        CompareTensors(layer, Of(t, {2, 5}, want), 2 * UnitRoundoff(t), 1e-12);
    EXPECT_TRUE(same.ok()) << same;
    ExpectNear(RunOp(Op::kRmsNorm, {x, Of(t, {5}, scale)}, {{"epsilon", 1e-6}}),
               {0.40655778049105573, 0.40655778049105573, 3.252462243928446, 1.219673341473167,
                0.3049183353682918, 1.115926181400124, 0.5635427216070625, 2.2095338391722454,
                -1.1215058123071246, -0.11717224904701301});
  }
  const Tensor empty = Of(DType::kF32, {3, 0}, {});
  const Tensor none = Of(DType::kF32, {0}, {});
  EXPECT_EQ(RunOp(Op::kLayerNorm, {empty, none, none}, {{"epsilon", 1e-5}}), empty);
  EXPECT_EQ(RunOp(Op::kRmsNorm, {empty, none}, {{"epsilon", 1e-5}}), empty);
}

struct AttentionCase {
  Tensor q, k, v;
};
AttentionCase Case(DType t) {
  return {Of(t, {3, 2}, {1, 0.5, -1, 2, 0.25, -0.75}),
          Of(t, {4, 2}, {0.5, 1, 2, -1, -0.5, 0.25, 1, 1}),
          Of(t, {4, 3}, {1, 2, 3, 4, 5, 6, -1, 0, 1, 0.5, -0.5, 2})};
}

// Expected values are numpy's.
TEST(ReferenceCompositeTest, Attention) {
  for (DType t : kFloats) {
    const auto [q, k, v] = Case(t);
    ExpectNear(RunOp(Op::kAttention, {q, k, v}),
               {1.6634042146718164, 1.9894980450197768, 3.4949276722588065, 0.3013648335568315,
                0.7222023266649263, 2.156574206833856, 2.1618725282726543, 2.854366907465594,
                4.084996123070889});
    ExpectNear(RunOp(Op::kAttention, {q, k, v}, {{"scale", 2.0}}),
               {2.0257453348170316, 2.1894141678953063, 3.8166625430866, 0.4701800703499841,
                1.0463010337357832, 2.364210311196434, 3.6392948539480634, 4.584273077115633,
                5.625539409739955});
    ExpectNear(RunOp(Op::kAttention, {q, k, v}, {{"causal", true}}),
               {2.7624370025188294, 3.7624370025188294, 4.76243700251883, 0.22039706524262354,
                1.2203970652426235, 2.2203970652426235, 2.1618725282726543, 2.854366907465594,
                4.084996123070889});
  }
}

TEST(ReferenceCompositeTest, AttentionMasks) {
  for (DType t : kFloats) {
    const auto [q, k, v] = Case(t);
    const Tensor mask = Of(DType::kBool, {3, 4}, {1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1});
    ExpectNear(RunOp(Op::kAttention, {q, k, v, mask}),
               {0.4511441777286836, 1.4511441777286835, 2.4511441777286835, -0.25, -0.25, 1.5,
                2.1618725282726543, 2.854366907465594, 4.084996123070889});
    const Tensor bias = Of(t, {3, 4}, {0, 1, -1, 0.5, -kInf, 0, 0, 2, 1, 1, 1, 1});
    ExpectNear(RunOp(Op::kAttention, {q, k, v, bias}),
               {2.3809222228491764, 2.742735665240417, 4.221375583446987, 0.333931369927029,
                -0.42156427530338547, 1.8950574586194255, 2.161872528272654, 2.854366907465594,
                4.084996123070889});
  }
}

Tensor Expanded(const Tensor& t, Shape leading) {
  IndexMap map{leading, {}};
  for (size_t i = 0; i < t.shape.size(); ++i) {
    map.coordinates.push_back(Expr::Axis(static_cast<int>(leading.size() + i)));
    map.shape.push_back(t.shape[i]);
  }
  return RunOp(Op::kIndexMap, {t}, {{"map", map}});
}

// A batch of two with three heads; the mask is shared by all, or given per batch or per head.
TEST(ReferenceCompositeTest, AttentionMaskBroadcastsItsLeadingAxes) {
  const auto [q, k, v] = Case(DType::kF64);
  const Tensor mask = Of(DType::kBool, {3, 4}, {1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1});
  const Tensor want = Expanded(RunOp(Op::kAttention, {q, k, v, mask}), {2, 3});
  const std::vector<Tensor> qkv = {Expanded(q, {2, 3}), Expanded(k, {2, 3}), Expanded(v, {2, 3})};
  for (const Tensor& m : {mask, Expanded(mask, {1, 1}), Expanded(mask, {2, 1}),
                          Expanded(mask, {1, 3}), Expanded(mask, {2, 3})}) {
    EXPECT_EQ(RunOp(Op::kAttention, {qkv[0], qkv[1], qkv[2], m}), want);
  }
}

TEST(ReferenceCompositeTest, HiddenKeysHaveNoInfluence) {
  auto [q, k, v] = Case(DType::kF32);
  StoreScalar(v, 3, Scalar::Float(DType::kF32, kNan));  // key 1
  StoreScalar(k, 2, Scalar::Float(DType::kF32, kInf));
  const Tensor mask = Of(DType::kBool, {3, 4}, {1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1});
  const Values y = ValuesOf(RunOp(Op::kAttention, {q, k, v, mask}));
  for (double value : y) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(Values(y.begin() + 3, y.begin() + 6), (Values{0, 0, 0}));  // a row wholly hidden
  const Tensor bias = Of(DType::kF32, {3, 4}, Values(12, -kInf));
  EXPECT_EQ(ValuesOf(RunOp(Op::kAttention, {q, k, v, bias})), Values(9, 0));
}

TEST(ReferenceCompositeTest, AttentionWithoutKeysOrWithMoreQueriesThanKeys) {
  const Tensor q = Of(DType::kF32, {3, 1}, {1, 2, 3});
  const Tensor none = Of(DType::kF32, {0, 1}, {});
  EXPECT_EQ(ValuesOf(RunOp(Op::kAttention, {q, none, none})), (Values{0, 0, 0}));
  const Tensor one = Of(DType::kF32, {1, 1}, {5});
  EXPECT_EQ(ValuesOf(RunOp(Op::kAttention, {q, one, one}, {{"causal", true}})), (Values{0, 0, 5}));
}

Tensor Bags(const Tensor& table, const Values& ids, const Values& offsets, const char* mode,
            DType index = DType::kI64) {
  return RunOp(Op::kEmbeddingBag,
               {table, Of(index, {static_cast<int64_t>(ids.size())}, ids),
                Of(index, {static_cast<int64_t>(offsets.size())}, offsets)},
               {{"mode", std::string(mode)}});
}

TEST(ReferenceCompositeTest, EmbeddingBagsOfEverySize) {
  for (DType t : kFloats) {
    const Tensor table = Of(t, {4, 2}, {1, -1, 2, -2, 4, -4, 8, -8});
    const Values ids = {3, 0, 1, 2, 2};
    EXPECT_EQ(ValuesOf(Bags(table, ids, {0, 0, 2, 3, 5}, "sum")),
              (Values{0, 0, 9, -9, 2, -2, 8, -8, 0, 0}));
    EXPECT_EQ(ValuesOf(Bags(table, ids, {0, 0, 2, 3, 5}, "mean", DType::kU8)),
              (Values{0, 0, 4.5, -4.5, 2, -2, 4, -4, 0, 0}));
    EXPECT_EQ(ValuesOf(Bags(table, ids, {0, 0, 2, 3, 5}, "max", DType::kI32)),
              (Values{0, 0, 8, -1, 2, -2, 4, -4, 0, 0}));
    EXPECT_EQ(ValuesOf(Bags(table, {}, {0, 0}, "max")), (Values{0, 0, 0, 0}));
    EXPECT_EQ(Bags(table, {}, {}, "sum").elements(), 0);
  }
  const Tensor nan = Of(DType::kF32, {2, 1}, {kNan, 1});
  EXPECT_TRUE(std::isnan(ValuesOf(Bags(nan, {1, 0, 1}, {0}, "max"))[0]));
}

TEST(ReferenceCompositeTest, EmbeddingBagNamesWhatIsOutside) {
  const Tensor table = Of(DType::kF32, {4, 2}, Values(8, 1));
  struct Bad {
    Values ids, offsets;
    std::string text;
  };
  for (const Bad& bad : std::vector<Bad>{{{0, 4}, {0}, "id 4 at position [1]"},
                                         {{0, -1}, {0}, "id -1 at position [1]"},
                                         {{0, 1}, {1}, "offset 1 at position [0]"},
                                         {{0, 1}, {0, 2, 1}, "offset 1 at position [2]"},
                                         {{0, 1}, {0, 3}, "offset 3 at position [1]"},
                                         {{0, 1}, {}, "2 ids but no offsets"}}) {
    const absl::StatusOr<Tensor> y =
        TryOp(Op::kEmbeddingBag,
              {table, Of(DType::kI64, {static_cast<int64_t>(bad.ids.size())}, bad.ids),
               Of(DType::kI64, {static_cast<int64_t>(bad.offsets.size())}, bad.offsets)},
              {{"mode", std::string("sum")}});
    EXPECT_EQ(y.status().code(), absl::StatusCode::kOutOfRange) << bad.text;
    EXPECT_NE(std::string(y.status().message()).find(bad.text), std::string::npos) << y.status();
  }
}

}  // namespace
}  // namespace athanor
