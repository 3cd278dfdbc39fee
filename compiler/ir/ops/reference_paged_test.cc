// The reference of PagedAttention against a computation that knows no blocks: each sequence's keys
// and values as they were written, one after another.
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr int64_t kBlock = 16;
constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

struct Trial {
  int64_t rows, heads, groups, width, value_width, sequences, blocks, pool;
  double scale = 0.5, softcap = 0;
  int64_t window = kNone;
  bool sink = false;
};

float Normal(std::mt19937& rng) { return std::normal_distribution<float>(0, 1)(rng); }

// A pool that holds NaN in every slot, the sequences' own keys aside, and the same keys in order.
class Paged {
 public:
  Paged(const Trial& t, std::mt19937& rng) : t_(t) {
    const auto nan = std::numeric_limits<float>::quiet_NaN();
    const auto pool = [&](int64_t width) {
      Tensor all = Tensor::Zeros(DType::kF32, {t.pool * kBlock, t.groups, width});
      for (int64_t i = 0; i < all.elements(); ++i) all.data<float>()[i] = nan;
      return all;
    };
    k_ = pool(t.width);
    v_ = pool(t.value_width);
    q_ = Tensor::Zeros(DType::kF32, {t.rows, t.heads, t.width});
    for (int64_t i = 0; i < q_.elements(); ++i) q_.data<float>()[i] = Normal(rng);
    sink_ = Tensor::Zeros(DType::kF32, {t.heads});
    for (int64_t i = 0; i < t.heads; ++i) sink_.data<float>()[i] = Normal(rng);
    PlaceRows(rng);
    PlaceKeys(rng);
  }

  absl::StatusOr<Tensor> Run() const {
    std::vector<Tensor> inputs = {q_, k_, v_, table_, sequence_, position_};
    if (t_.sink) inputs.push_back(sink_);
    Attrs attrs = {{"block", kBlock}, {"scale", t_.scale}};
    if (t_.softcap > 0) attrs["softcap"] = t_.softcap;
    if (t_.window != kNone) attrs["window"] = t_.window;
    return TryOp(Op::kPagedAttention, inputs, attrs);
  }

  // The element computed from the keys in order.
  double Expected(int64_t row, int64_t head, int64_t column) const {
    const int64_t s = sequence_.data<int32_t>()[row], p = position_.data<int32_t>()[row];
    const int64_t group = head / (t_.heads / t_.groups);
    double total = t_.sink ? std::exp(static_cast<double>(sink_.data<float>()[head])) : 0, sum = 0;
    for (int64_t j = 0; j <= p; ++j) {
      if (t_.window != kNone && j + t_.window <= p) continue;
      double score = 0;
      for (int64_t d = 0; d < t_.width; ++d) {
        score += static_cast<double>(q_.data<float>()[(row * t_.heads + head) * t_.width + d]) *
                 keys_[s][(j * t_.groups + group) * t_.width + d];
      }
      score *= t_.scale;
      if (t_.softcap > 0) score = std::tanh(score / t_.softcap) * t_.softcap;
      total += std::exp(score);
      sum += std::exp(score) * values_[s][(j * t_.groups + group) * t_.value_width + column];
    }
    return sum / total;
  }

  Tensor table_, sequence_, position_;

 private:
  void PlaceRows(std::mt19937& rng) {
    table_ = Tensor::Zeros(DType::kI32, {t_.sequences, t_.blocks});
    std::vector<int32_t> order(t_.pool);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    for (int64_t i = 0; i < table_.elements(); ++i) table_.data<int32_t>()[i] = order[i];
    sequence_ = Tensor::Zeros(DType::kI32, {t_.rows});
    position_ = Tensor::Zeros(DType::kI32, {t_.rows});
    for (int64_t i = 0; i < t_.rows; ++i) {
      sequence_.data<int32_t>()[i] = static_cast<int32_t>(rng() % t_.sequences);
      position_.data<int32_t>()[i] = static_cast<int32_t>(rng() % (t_.blocks * kBlock));
    }
  }

  // Writes each sequence's keys up to the last that a row of it sees.
  void PlaceKeys(std::mt19937& rng) {
    keys_.resize(t_.sequences);
    values_.resize(t_.sequences);
    for (int64_t s = 0; s < t_.sequences; ++s) {
      int64_t length = 0;
      for (int64_t i = 0; i < t_.rows; ++i) {
        if (sequence_.data<int32_t>()[i] != s) continue;
        length = std::max<int64_t>(length, position_.data<int32_t>()[i] + 1);
      }
      for (int64_t j = 0; j < length; ++j) {
        const int64_t slot =
            table_.data<int32_t>()[s * t_.blocks + j / kBlock] * kBlock + j % kBlock;
        Write(&k_, slot, t_.groups * t_.width, &keys_[s], rng);
        Write(&v_, slot, t_.groups * t_.value_width, &values_[s], rng);
      }
      // Blocks that no row sees may be listed as anything.
      for (int64_t b = (length + kBlock - 1) / kBlock; b < t_.blocks; ++b) {
        table_.data<int32_t>()[s * t_.blocks + b] = b % 2 == 0 ? -1 : 1 << 30;
      }
    }
  }

  static void Write(Tensor* pool, int64_t slot, int64_t count, std::vector<float>* in_order,
                    std::mt19937& rng) {
    for (int64_t i = 0; i < count; ++i) {
      in_order->push_back(Normal(rng));
      pool->data<float>()[slot * count + i] = in_order->back();
    }
  }

  const Trial t_;
  Tensor q_, k_, v_, sink_;
  std::vector<std::vector<float>> keys_, values_;
};

TEST(ReferencePagedTest, IsAttentionOfEachSequence) {
  std::mt19937 rng(1);
  int elements = 0;
  for (Trial t : {Trial{7, 1, 1, 4, 4, 1, 1, 1}, Trial{11, 6, 2, 5, 3, 3, 4, 13},
                  Trial{5, 4, 4, 1, 1, 5, 2, 10}, Trial{23, 9, 3, 8, 7, 2, 7, 14}}) {
    for (int64_t window : {kNone, int64_t{1}, int64_t{13}, int64_t{16}, int64_t{17}}) {
      for (bool sink : {false, true}) {
        t.window = window;
        t.sink = sink;
        t.softcap = sink == (window > 13) ? 2 : 0;
        const Paged paged(t, rng);
        const absl::StatusOr<Tensor> y = paged.Run();
        ASSERT_TRUE(y.ok()) << y.status();
        int64_t at = 0;
        for (int64_t row = 0; row < t.rows; ++row) {
          for (int64_t head = 0; head < t.heads; ++head) {
            for (int64_t e = 0; e < t.value_width; ++e, ++at, ++elements) {
              ASSERT_NEAR(y->data<float>()[at], paged.Expected(row, head, e), 2e-6)
                  << "row " << row << " head " << head << " window " << window;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(elements, 5000);
}

TEST(ReferencePagedTest, EmptyAndOutside) {
  std::mt19937 rng(2);
  const Trial t{3, 2, 1, 4, 4, 2, 2, 4};
  Paged paged(t, rng);
  const auto error = [&] { return std::string(paged.Run().status().message()); };
  EXPECT_EQ(error(), "");
  Tensor good = paged.sequence_;
  for (int32_t bad : {-1, 2}) {
    paged.sequence_.data<int32_t>()[1] = bad;
    EXPECT_TRUE(absl::IsOutOfRange(paged.Run().status()));
    EXPECT_NE(error().find("of row 1 is outside the table, which has 2 rows"), std::string::npos);
  }
  paged.sequence_ = good;
  good = paged.position_;
  for (int32_t bad : {-1, 32}) {
    paged.position_.data<int32_t>()[2] = bad;
    EXPECT_TRUE(absl::IsOutOfRange(paged.Run().status()));
    EXPECT_NE(error().find("of row 2 is outside the table's 2 blocks of 16"), std::string::npos);
  }
  paged.position_ = good;
  for (int32_t bad : {-1, 4, std::numeric_limits<int32_t>::max()}) {
    paged.table_.data<int32_t>()[good.data<int32_t>()[0] / kBlock +
                                 2 * paged.sequence_.data<int32_t>()[0]] = bad;
    EXPECT_TRUE(absl::IsOutOfRange(paged.Run().status())) << bad;
  }
  // No rows need no sequences, no slots and no blocks; rows do.
  const auto run = [](int64_t rows, int64_t slots, int64_t sequences, int64_t blocks) {
    return TryOp(
        Op::kPagedAttention,
        {Tensor::Zeros(DType::kF32, {rows, 2, 4}), Tensor::Zeros(DType::kF32, {slots, 1, 4}),
         Tensor::Zeros(DType::kF32, {slots, 1, 3}), Tensor::Zeros(DType::kI32, {sequences, blocks}),
         Tensor::Zeros(DType::kI32, {rows}), Tensor::Zeros(DType::kI32, {rows})},
        {{"block", kBlock}});
  };
  EXPECT_EQ(run(0, 0, 0, 0).value().shape, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_TRUE(absl::IsOutOfRange(run(1, 16, 0, 1).status()));
  EXPECT_TRUE(absl::IsOutOfRange(run(1, 16, 1, 0).status()));
  EXPECT_TRUE(absl::IsOutOfRange(run(1, 0, 1, 1).status()));
  EXPECT_TRUE(run(1, 16, 1, 1).ok());
  EXPECT_TRUE(run(1, 1, 1, 1).ok());  // a pool that is not whole blocks
}

TEST(ReferencePagedTest, WritesRows) {
  const Tensor state = Of(DType::kF32, {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto write = [&](std::vector<int64_t> shape, const std::vector<double>& index,
                         const std::vector<double>& update) {
    return TryOp(Op::kStateWrite,
                 {state, Of(DType::kI64, {shape[0]}, index), Of(DType::kF32, shape, update)});
  };
  EXPECT_EQ(ValuesOf(write({2, 2}, {3, 0}, {8, 9, 10, 11}).value()),
            (std::vector<double>{10, 11, 2, 3, 4, 5, 8, 9}));
  EXPECT_EQ(write({0, 2}, {}, {}).value().bytes, state.bytes);
  for (double bad : {-1, 4}) {
    EXPECT_TRUE(absl::IsOutOfRange(write({1, 2}, {bad}, {0, 0}).status())) << bad;
  }
}

}  // namespace
}  // namespace athanor
