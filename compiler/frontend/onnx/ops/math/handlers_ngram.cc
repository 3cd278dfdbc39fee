// Handler: TfIdfVectorizer over integers, the counts of n-grams of a vocabulary.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// The vocabulary's n-grams of one length.
struct Grams {
  int64_t n = 0, count = 0;
  std::vector<int64_t> items;    // [count, n]
  std::vector<int64_t> columns;  // column of the result for each n-gram
};

struct Vocabulary {
  std::vector<Grams> lengths;
  int64_t columns = 0;
};

// Reads the vocabulary; `ngram_counts` gives the start of each length's n-grams in the pool.
absl::StatusOr<Vocabulary> VocabularyOf(const HandlerContext& c) {
  if (c.Given("pool_strings")) {
    return Unimplemented("its vocabulary has strings, which are not supported, only integers");
  }
  const std::vector<int64_t> pool = c.Ints("pool_int64s"), begins = c.Ints("ngram_counts"),
                             columns = c.Ints("ngram_indexes");
  const auto end = static_cast<int64_t>(pool.size());
  Vocabulary vocabulary;
  size_t gram = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    Grams grams;
    grams.n = static_cast<int64_t>(i) + 1;
    const int64_t from = begins[i], to = i + 1 < begins.size() ? begins[i + 1] : end;
    if (from < 0 || from > to || to > end || (to - from) % grams.n != 0) {
      return Invalid("attribute ngram_counts puts the ", grams.n, "-grams at ", from, " to ", to,
                     " of ", end, " items; they must be whole and ascend");
    }
    grams.count = (to - from) / grams.n;
    grams.items.assign(pool.begin() + from, pool.begin() + to);
    for (int64_t k = 0; k < grams.count; ++k, ++gram) {
      if (gram >= columns.size() || columns[gram] < 0 || columns[gram] >= kMaxKnownElements) {
        return Invalid("attribute ngram_indexes must have a column from 0 to ",
                       kMaxKnownElements - 1, " for each n-gram; n-gram ", gram,
                       " has no valid column");
      }
      grams.columns.push_back(columns[gram]);
      vocabulary.columns = std::max(vocabulary.columns, columns[gram] + 1);
    }
    vocabulary.lengths.push_back(std::move(grams));
  }
  if (gram != columns.size()) {
    return Invalid("attribute ngram_indexes has ", columns.size(), " columns for ", gram,
                   " n-grams; the numbers must be equal");
  }
  return vocabulary;
}

// Returns the number of occurrences of each n-gram in a row of x, [rows, length], with its items
// `apart` positions from one another: [rows, count], i64.
Value Counts(OpBuilder& b, const Value& x, const Grams& grams, int64_t apart) {
  const Expr &rows = x.shape[0], &length = x.shape[1];
  const Value zero = b.Integer(Elem::kInt64, 0);
  // Starts near the end are excluded, since not all items fit behind them.
  const Value start = b.Iota(Elem::kInt64, {1, 1, length}, 2);
  const Value last = Size(b, Elem::kInt64, length - (grams.n - 1) * apart, {});
  Value hit = Less(b, start, last);
  for (int64_t t = 0; t < grams.n; ++t) {
    const Value item =
        MapOr(b, x, {rows, 1, length}, {Expr::Axis(0), Expr::Axis(2) + t * apart}, zero);
    std::vector<Expr> wanted;
    for (int64_t k = 0; k < grams.count; ++k) wanted.push_back(grams.items[k * grams.n + t]);
    hit =
        And(b, hit, Equal(b, item, b.Sizes(Elem::kInt64, std::move(wanted), {1, grams.count, 1})));
  }
  return Reduce(b, Op::kSumReduce, Cast(b, hit, Elem::kInt64), {2}, /*keepdims=*/false);
}

// Sums `counts`, f32 [rows, grams], by column: [rows, width]. A column without an n-gram is 0.
Value ByColumn(OpBuilder& b, const Value& counts, const std::vector<int64_t>& columns,
               int64_t width) {
  const Value none = Splat(b, b.Scalar(Elem::kFloat, 0), {counts.shape[0], 1});
  const Value all = Concat(b, {counts, none}, 1);
  std::vector<std::vector<int64_t>> by_column(width);
  size_t most = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    std::vector<int64_t>& list = by_column[columns[i]];
    list.push_back(static_cast<int64_t>(i));
    most = std::max(most, list.size());
  }
  Value sum = Splat(b, b.Scalar(Elem::kFloat, 0), {counts.shape[0], width});
  for (size_t round = 0; round < most; ++round) {
    std::vector<Expr> at;
    for (const std::vector<int64_t>& list : by_column) {
      at.push_back(round < list.size() ? list[round] : static_cast<int64_t>(columns.size()));
    }
    sum = Add(b, sum, Gather(b, all, b.Sizes(Elem::kInt64, std::move(at), {width}), 1));
  }
  return sum;
}

// Returns counts [rows, grams] weighted by the node's mode, in f32; `which` gives their n-grams in
// the vocabulary.
absl::StatusOr<Value> Weighted(HandlerContext& c, const Value& counts,
                               const std::vector<int64_t>& which) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const std::string mode, c.OneOf("mode", {"TF", "IDF", "TFIDF"}));
  Value y = counts;
  if (mode == "IDF") y = Min(b, y, b.Integer(Elem::kInt64, 1));
  y = Cast(b, y, Elem::kFloat);
  if (mode == "TF" || !c.Given("weights")) return y;
  const std::vector<double> weights = c.Floats("weights");
  const std::vector<int64_t> all = c.Ints("ngram_indexes");
  if (weights.size() != all.size()) {
    return Invalid("attribute weights has ", weights.size(), " values for ", all.size(),
                   " n-grams; the numbers must be equal");
  }
  Tensor row = Tensor::Zeros(DType::kF32, {static_cast<int64_t>(which.size())});
  for (size_t i = 0; i < which.size(); ++i) {
    StoreScalar(row, static_cast<int64_t>(i), Scalar::Float(DType::kF32, weights[which[i]]));
  }
  return Mul(b, y, b.Literal(Elem::kFloat, std::move(row)));
}

absl::Status TfIdfVectorizer(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& given = c.In(0);
  if (given.rank() != 1 && given.rank() != 2) {
    return Invalid("X has rank ", given.rank(), "; it must be 1 or 2");
  }
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, VocabularyOf(c));
  const int64_t least = c.Int("min_gram_length"), most = c.Int("max_gram_length"),
                skips = c.Int("max_skip_count");
  if (least < 1 || most < least || skips < 0 || skips > 1024) {
    return Invalid("attributes min_gram_length ", least, ", max_gram_length ", most,
                   " and max_skip_count ", skips,
                   " must be from 1, at least as much, and 0 to 1024");
  }
  Value x = Cast(b, given, Elem::kInt64);
  if (given.rank() == 1) x = Unsqueeze(b, x, {0});
  std::vector<Value> parts;
  std::vector<int64_t> columns, which;
  int64_t before = 0;
  for (const Grams& grams : vocabulary.lengths) {
    const int64_t first = before;
    before += grams.count;
    if (grams.count == 0 || grams.n < least || grams.n > most) continue;
    // An n-gram of one item has no distance between items.
    const int64_t ways = grams.n == 1 ? 1 : skips + 1;
    Value sum = Counts(b, x, grams, 1);
    for (int64_t apart = 2; apart <= ways && b.status().ok(); ++apart) {
      sum = Add(b, sum, Counts(b, x, grams, apart));
    }
    parts.push_back(sum);
    columns.insert(columns.end(), grams.columns.begin(), grams.columns.end());
    for (int64_t k = 0; k < grams.count; ++k) which.push_back(first + k);
  }
  if (!b.status().ok()) return absl::OkStatus();
  const int64_t width = vocabulary.columns;
  Value y = Splat(b, b.Scalar(Elem::kFloat, 0), {x.shape[0], width});
  if (!parts.empty()) {
    ASSIGN_OR_RETURN(Value weighted, Weighted(c, Concat(b, parts, 1), which));
    y = ByColumn(b, weighted, columns, width);
  }
  c.Set(0, given.rank() == 1 ? Squeeze(b, y, {0}) : y);
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {{"", "TfIdfVectorizer", 9, TfIdfVectorizer}};

}  // namespace

absl::Span<const HandlerRow> NgramRows() { return kRows; }

}  // namespace athanor::onnx
