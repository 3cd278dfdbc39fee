// TfIdfVectorizer: counts made by hand after the definition, and those of ONNX Runtime 1.31.
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

using Integers = std::vector<int64_t>;

// The vocabulary: 2 and 3 as single items; 5 4, 5 5 and 5 6 as pairs.
OneNode Counted(const std::string& mode, int64_t least, int64_t most, int64_t skips) {
  return OneNode("TfIdfVectorizer", 9)
      .Attr("mode", mode)
      .Attr("min_gram_length", least)
      .Attr("max_gram_length", most)
      .Attr("max_skip_count", skips)
      .Attr("ngram_counts", Integers{0, 2})
      .Attr("ngram_indexes", Integers{0, 1, 4, 3, 2})
      .Attr("pool_int64s", Integers{2, 3, 5, 4, 5, 5, 5, 6});
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr Elem kI32 = Elem::kInt32, kI64 = Elem::kInt64, kF = Elem::kFloat;
// Contains 5 4 once and 5 5 with a skip of one; then 5 5 twice and with a skip of one, 5 6 with
// skips of 0, 1 and 2.
const Numbers kRows = {5, 2, 5, 4, 3, 2, 5, 5, 5, 6, 2, 2};

TEST(NgramTest, Counts) {
  const auto rows = [&](int64_t least, int64_t most, int64_t skips) {
    return Counted("TF", least, most, skips).InDynamic(kI64, {2, 6}, kRows).Out(kF).Values();
  };
  EXPECT_EQ(rows(1, 1, 3), (Numbers{2, 1, 0, 0, 0, 2, 0, 0, 0, 0}));
  EXPECT_EQ(rows(2, 2, 0), (Numbers{0, 0, 0, 0, 1, 0, 0, 1, 2, 0}));
  EXPECT_EQ(rows(1, 2, 2), (Numbers{2, 1, 0, 1, 2, 2, 0, 3, 3, 0}));
  EXPECT_EQ(Counted("TF", 1, 2, 0).In(kI32, {3}, {2, 5, 4}).Out(kF).Result(),
            Of(DType::kF32, {5}, {1, 0, 0, 0, 1}));
  EXPECT_EQ(Counted("TF", 1, 2, 0).In(kI32, {0}, {}).Out(kF).Values(), Numbers(5, 0));
}

TEST(NgramTest, Weights) {
  const auto weighted = [&](const std::string& mode) {
    return Counted(mode, 1, 2, 0)
        .In(kI64, {2, 6}, kRows)
        .Attr("weights", std::vector<float>{0.5F, 2, 3, 4, 5})
        .Out(kF)
        .Values();
  };
  EXPECT_EQ(weighted("TF"), (Numbers{2, 1, 0, 0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(weighted("IDF"), (Numbers{0.5, 2, 0, 0, 3, 0.5, 0, 5, 4, 0}));
  EXPECT_EQ(weighted("TFIDF"), (Numbers{1, 2, 0, 0, 3, 1, 0, 5, 8, 0}));
}

TEST(NgramTest, WhatIsWrongIsNamed) {
  const auto node = [] {
    return OneNode("TfIdfVectorizer", 9)
        .Attr("mode", std::string("TF"))
        .Attr("min_gram_length", int64_t{1})
        .Attr("max_gram_length", int64_t{2})
        .Attr("max_skip_count", int64_t{0})
        .In(kI64, {3}, {1, 2, 3})
        .Out(kF);
  };
  const auto counts = [&](Integers begins, Integers columns) {
    return node()
        .Attr("pool_int64s", Integers{1, 2, 3})
        .Attr("ngram_counts", std::move(begins))
        .Attr("ngram_indexes", std::move(columns))
        .Error();
  };
  EXPECT_TRUE(Has(counts({0, 2}, {0, 1}), "the 2-grams at 2 to 3 of 3 items"));
  EXPECT_TRUE(Has(counts({0, 1}, {0}), "n-gram 1 has no valid column"));
  EXPECT_TRUE(Has(counts({0, 1}, {0, -1}), "a column from 0"));
  EXPECT_TRUE(Has(counts({0, 1}, {0, 1, 2}), "has 3 columns for 2 n-grams"));
  EXPECT_TRUE(Has(node()
                      .Attr("pool_strings", std::vector<std::string>{"a"})
                      .Attr("ngram_counts", Integers{0})
                      .Attr("ngram_indexes", Integers{0})
                      .Error(),
                  "strings"));
}

}  // namespace
}  // namespace athanor::onnx
