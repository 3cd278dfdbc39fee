#include "server/batch/batching.h"

#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Graph GraphOf(const std::string& body, const std::string& bounds = "[1, 64]") {
  return ParseGraph("graph \"g\" {\n dim b in " + bounds + "\n dim s in [1, 8]\n" + body + "}")
      .value();
}

// A graph with an input and an output that have rows, and others that have none.
Graph Scaled(const std::string& bounds = "[1, 64]") {
  return GraphOf(
      R"(%0 = Input "x" : f32[b, s] %1 = Input "f" : f32[s] %2 = IndexMap(%1) {map=map[b, s]($1)}
                    %3 = Mul(%0, %2) %4 = Exp(%1) output "e" = %4 output "y" = %3)",
      bounds);
}

TEST(BatchingTest, RowsOfEachInputAndOutput) {
  const VersionBatching found = BatchingOf(Scaled(), {"b"}, {.delay = microseconds(100)});
  ASSERT_NE(found.shared, nullptr) << found.reason;
  EXPECT_EQ(found.shared->dim, 0);
  EXPECT_EQ(found.shared->most_rows, 64);
  EXPECT_THAT(found.shared->input_rows, ElementsAre(true, false));
  EXPECT_THAT(found.shared->output_rows, ElementsAre(false, true));
  const v1::Batching message = found.ToProto();
  EXPECT_EQ(message.dim(), "b");
  EXPECT_TRUE(message.on());
  EXPECT_EQ(message.reason(), "");
  EXPECT_EQ(message.max_rows(), 64);
  EXPECT_EQ(message.max_delay_us(), 100);
}

TEST(BatchingTest, NoDimNoBatchingAndNoReason) {
  const VersionBatching found = BatchingOf(Scaled(), {}, {});
  EXPECT_EQ(found.shared, nullptr);
  EXPECT_EQ(found.ToProto().ByteSizeLong(), 0u);
}

TEST(BatchingTest, WhyNot) {
  const auto why = [](const Graph& graph, const BatchWish& wish, const BatchLimits& limits = {}) {
    const VersionBatching found = BatchingOf(graph, wish, limits);
    EXPECT_EQ(found.shared, nullptr);
    EXPECT_FALSE(found.ToProto().on());
    EXPECT_EQ(found.ToProto().dim(), wish.dim);
    return found.ToProto().reason();
  };
  EXPECT_THAT(
      why(GraphOf(R"(%0 = Input "x" : f32[b, 4] %1 = Softmax "p"(%0) {axis=0} output "y" = %1)"),
          {"b"}),
      HasSubstr("\"p\" (Softmax): normalises across the rows of dim b"));
  EXPECT_THAT(why(Scaled(), {"s"}), HasSubstr("dim s"));
  EXPECT_THAT(why(Scaled(), {"c"}), HasSubstr("\"c\" is not a dim of the graph"));
  EXPECT_THAT(why(Scaled(), {.dim = "b", .deterministic = true}), HasSubstr("is deterministic"));
  EXPECT_THAT(why(Scaled(), {"b"}, {.max_rows = 1}), HasSubstr("at most 1 row (--max_batch_rows)"));
  EXPECT_THAT(why(Scaled("[1, 1]"), {"b"}), HasSubstr("at most 1 row of dim b"));
  EXPECT_THAT(why(Scaled("[3, 5]"), {"b"}), HasSubstr("at most 5 rows of dim b"));
}

TEST(BatchingTest, MostRowsOfACall) {
  const auto most = [](const std::string& bounds, int64_t max_rows) {
    return BatchingOf(Scaled(bounds), {"b"}, {.max_rows = max_rows}).shared->most_rows;
  };
  EXPECT_EQ(most("[1, 64]", 0), 64);
  EXPECT_EQ(most("[1, 64]", 32), 32);
  EXPECT_EQ(most("[1, 64]", 1000), 64);
  EXPECT_EQ(most("[0, 2]", 0), 2);
  EXPECT_EQ(most("[2, 5]", 4), 4);
}

TEST(BatchingTest, OfOneGroupIsWhatDiffersInItsRowsOnly) {
  const VersionBatching found = BatchingOf(Scaled(), {"b"}, {});
  const auto group = [&](int64_t b, int64_t s, const std::string& x, const std::string& f) {
    return GroupOf(*found.shared, {b, s}, {x, f});
  };
  const std::string one = group(1, 2, "xxxxxxxx", "ffffffff");
  EXPECT_NE(one, "");
  EXPECT_EQ(one, group(2, 2, "yyyyyyyyyyyyyyyy", "ffffffff"));
  EXPECT_NE(one, group(1, 2, "xxxxxxxx", "fffffffg"));
  EXPECT_NE(one, group(1, 3, "xxxxxxxx", "ffffffff"));
  EXPECT_EQ(group(1, 2, "x", std::string(kMostSameBytes + 1, 'f')), "") << "runs alone";
  EXPECT_NE(group(1, 2, "x", std::string(kMostSameBytes, 'f')), "");
  // Without inputs that lack rows there is a group too.
  const Graph plain = ParseGraph(R"(graph "g" { dim b in [1, 4]
                                    %0 = Input "x" : f32[b] %1 = Exp(%0) output "y" = %1 })")
                          .value();
  EXPECT_NE(GroupOf(*BatchingOf(plain, {"b"}, {}).shared, {1}, {std::string_view("xxxx")}), "");
}

}  // namespace
}  // namespace athanor
