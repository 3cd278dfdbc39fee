#include "server/plans/bucket_grid.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

Graph TwoDims() {
  Graph graph;
  graph.dims = {{"b", 1, 64}, {"s", 0, 128}};
  GraphBuilder builder(&graph);
  const NodeId x =
      builder.Input("x", {DType::kF32, {Expr::Symbol("b"), Expr::Symbol("s")}}).value();
  builder.Output("y", x);
  return graph;
}

using Given = std::vector<std::pair<std::string, std::vector<DimSpan>>>;

BucketGrid::Ranges Ranges(const Given& given) {
  BucketGrid::Ranges ranges;
  for (const auto& [dim, spans] : given) {
    v1::DimBuckets* added = ranges.Add();
    added->set_dim(dim);
    for (const DimSpan& span : spans) {
      auto* range = added->add_ranges();
      range->set_min(span.min);
      range->set_max(span.max);
    }
  }
  return ranges;
}

absl::StatusOr<BucketGrid> Make(const Given& given, int64_t max_buckets = 64) {
  return BucketGrid::Create(TwoDims(), Ranges(given), max_buckets);
}

void ExpectRefused(const Given& given, const std::string& message,
                   absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = Make(given).status();
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(std::string(status.message()), message);
}

TEST(BucketGridTest, NoRangesAreTheFullRange) {
  for (const Given& given : {Given{}, Given{{"b", {{1, 64}}}}}) {
    const BucketGrid grid = Make(given).value();
    EXPECT_EQ(grid.size(), 1);
    EXPECT_EQ(grid.Find({1, 0}), BucketGrid::kFullRange);
    EXPECT_EQ(grid.box(0), (Box{{1, 64}, {0, 128}}));
    EXPECT_EQ(grid.Text(0), "b=1..64 s=0..128");
  }
}

TEST(BucketGridTest, BoxesAreTheProductsOfRanges) {
  const BucketGrid grid =
      Make({{"s", {{17, 128}, {0, 16}}}, {"b", {{1, 1}, {2, 8}, {9, 64}}}}).value();
  ASSERT_EQ(grid.size(), 7);
  EXPECT_EQ(grid.Text(0), "b=1..64 s=0..128");
  EXPECT_EQ(grid.Text(1), "b=1..1 s=0..16");
  EXPECT_EQ(grid.Text(2), "b=1..1 s=17..128");
  EXPECT_EQ(grid.Text(6), "b=9..64 s=17..128");
  EXPECT_EQ(grid.Find({8, 16}), 3);
  const std::vector<v1::DimRange> ranges = grid.ToProto(3);
  ASSERT_EQ(ranges.size(), 2);
  EXPECT_EQ(ranges[0].name(), "b");
  EXPECT_EQ(ranges[1].max(), 16);
}

// Every size lies in the box that is found for it, and in no other.
TEST(BucketGridTest, RandomGridsCoverEachSizeOnce) {
  std::mt19937 random(20);
  const auto cut = [&](int64_t min, int64_t max) {
    std::set<int64_t> ends = {max};
    for (int i = static_cast<int>(random() % 5); i > 0; --i) {
      ends.insert(min + static_cast<int64_t>(random() % (max - min + 1)));
    }
    std::vector<DimSpan> spans;
    for (const int64_t end : ends) {
      spans.push_back({spans.empty() ? min : spans.back().max + 1, end});
    }
    std::shuffle(spans.begin(), spans.end(), random);
    return spans;
  };
  for (int round = 0; round < 50; ++round) {
    const BucketGrid grid = Make({{"b", cut(1, 64)}, {"s", cut(0, 128)}}).value();
    for (int64_t b = 1; b <= 64; ++b) {
      for (int64_t s = 0; s <= 128; ++s) {
        const int found = grid.Find({b, s});
        int holding = 0;
        for (int i = 1; i < grid.size(); ++i) {
          const Box& box = grid.box(i);
          if (b < box[0].min || b > box[0].max || s < box[1].min || s > box[1].max) continue;
          ++holding;
          EXPECT_EQ(i, found);
        }
        EXPECT_EQ(holding, grid.size() > 1 ? 1 : 0);
        if (grid.size() == 1) EXPECT_EQ(found, BucketGrid::kFullRange);
      }
    }
  }
}

TEST(BucketGridTest, WrongRangesAreNamed) {
  ExpectRefused({{"c", {{1, 2}}}}, R"(dim "c": the graph has no such dim; it has "b", "s")");
  ExpectRefused({{"b", {{1, 64}}}, {"b", {{1, 64}}}},
                R"(dim "b": given twice; give all its ranges in one list)");
  ExpectRefused({{"b", {}}},
                R"(dim "b": has no ranges; leave the dim out, or cut [1, 64] into some)");
  ExpectRefused({{"b", {{1, 2}, {64, 3}}}},
                R"(dim "b": range [64, 3] is inverted; [3, 64] is not)");
  ExpectRefused({{"b", {{1, 65}}}},
                R"(dim "b": range [1, 65] is not inside the dim's bounds [1, 64])");
  ExpectRefused({{"b", {{0, 64}}}},
                R"(dim "b": range [0, 64] is not inside the dim's bounds [1, 64])");
  ExpectRefused({{"b", {{8, 64}, {1, 8}}}},
                R"(dim "b": ranges [1, 8] and [8, 64] overlap; the second may begin at 9)");
  ExpectRefused({{"b", {{1, 64}, {2, 8}}}},
                R"(dim "b": ranges [1, 64] and [2, 8] overlap; the second lies inside the first, )"
                "leave one of them out");
  ExpectRefused(
      {{"b", {{1, 8}, {10, 64}}}},
      R"(dim "b": sizes [9, 9] are in no range; add it or let a neighbour reach over it)");
  ExpectRefused({{"s", {{1, 1}, {16, 100}}}},
                R"(dim "s": sizes [0, 0], [2, 15], [101, 128] are in no range; add them or let a )"
                "neighbour reach over them");
}

TEST(BucketGridTest, AtMostSoMany) {
  Given many = {{"b", {}}, {"s", {}}};
  for (int64_t i = 1; i <= 64; ++i) many[0].second.push_back({i, i});
  many[1].second = {{0, 1}, {2, 128}};
  ExpectRefused(many,
                "ranges 64 of b times 2 of s make 128 buckets; at most 64 are taken "
                "(--max_buckets): give fewer ranges",
                absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Make(many, 128)->size(), 129);
  many.pop_back();
  EXPECT_EQ(Make(many)->size(), 65);
  // However many dims: the product does not overflow.
  Graph graph;
  Given wide;
  for (int d = 0; d < 64; ++d) {
    const std::string name = "d" + std::to_string(d);
    graph.dims.push_back({name, 1, 2});
    wide.push_back({name, {{1, 1}, {2, 2}}});
  }
  EXPECT_THAT(std::string(BucketGrid::Create(graph, Ranges(wide), 64).status().message()),
              HasSubstr("make 9223372036854775807 buckets"));
}

TEST(BucketGridTest, NarrowedGraphsHaveTheSameHash) {
  const Graph graph = TwoDims();
  const BucketGrid grid = Make({{"b", {{1, 1}, {2, 64}}}}).value();
  const Graph part = NarrowedTo(graph, grid.box(1));
  EXPECT_TRUE(Verify(part).ok());
  EXPECT_EQ(part.dims[0], (Dim{"b", 1, 1}));
  EXPECT_EQ(part.dims[1], graph.dims[1]);
  EXPECT_EQ(CanonicalHash(part), CanonicalHash(graph));
}

// A decoder's rows T, wanted R, sequences S, blocks B of each and N of all.
Graph Decoder(int64_t most_rows) {
  return ParseGraph(R"(graph "g" { dim T in [1, )" + std::to_string(most_rows) +
                    R"(] dim R in [0, 512] dim S in [1, 64] dim B in [1, 512] dim N in [1, 40000]
      %0 = Input "q" : f32[T, 2, 4] %1 = StateRead "k" {role="keys"} : f32[16*N, 1, 4]
      %2 = StateRead "v" {role="values"} : f32[16*N, 1, 4] %3 = Input "table" : i32[S, B]
      %4 = Input "sequence" : i32[T] %5 = Input "position" : i32[T] %6 = Input "wanted" : i32[R]
      %7 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} %8 = Gather(%7, %6) {axis=0}
      output "y" = %8 })")
      .value();
}

TEST(DecoderRangesTest, WantedRowsAndSequencesFollowRows) {
  const Graph graph = Decoder(512);
  const BucketGrid grid = BucketGrid::Create(graph, DecoderRanges(graph, 8), 8).value();
  ASSERT_EQ(grid.size(), 6);
  EXPECT_EQ(grid.Text(0), "T=1..512 R=0..512 S=1..64 B=1..512 N=1..40000");
  EXPECT_EQ(grid.Text(1), "T=1..1 R=0..1 S=1..1 B=1..512 N=1..40000");
  EXPECT_EQ(grid.Text(2), "T=2..4 R=0..4 S=1..4 B=1..512 N=1..40000");
  EXPECT_EQ(grid.Text(3), "T=5..16 R=0..16 S=1..16 B=1..512 N=1..40000");
  EXPECT_EQ(grid.Text(4), "T=17..64 R=0..64 S=1..64 B=1..512 N=1..40000");
  EXPECT_EQ(grid.Text(5), "T=65..512 R=0..512 S=1..64 B=1..512 N=1..40000");
  for (int box = 1; box < grid.size(); ++box) {
    const Box& span = grid.box(box);
    for (int64_t rows : {span[0].min, span[0].max}) {
      for (int64_t wanted : {int64_t{0}, rows}) {
        EXPECT_EQ(grid.Find({rows, wanted, std::min<int64_t>(rows, 64), 512, 7}), box);
      }
    }
    EXPECT_TRUE(Verify(NarrowedTo(graph, span)).ok());
  }
}

TEST(DecoderRangesTest, EndWithTheRows) {
  const auto boxes = [](int64_t most_rows, int64_t most = 8) {
    const Graph graph = Decoder(most_rows);
    const BucketGrid grid = BucketGrid::Create(graph, DecoderRanges(graph, most), most).value();
    std::string text;
    for (int box = 1; box < grid.size(); ++box) {
      text +=
          std::to_string(grid.box(box)[0].min) + "-" + std::to_string(grid.box(box)[0].max) + " ";
    }
    return text;
  };
  EXPECT_EQ(boxes(1), "");
  EXPECT_EQ(boxes(2), "1-1 2-2 ");
  EXPECT_EQ(boxes(16), "1-1 2-4 5-16 ");
  EXPECT_EQ(boxes(17), "1-1 2-4 5-16 17-17 ");
  EXPECT_EQ(boxes(2048, 3), "1-16 17-64 65-2048 ");
  EXPECT_EQ(boxes(2048, 1), "");
  EXPECT_TRUE(DecoderRanges(TwoDims(), 8).empty());
}

TEST(BucketGridTest, RefusesFollowersThatCannotFollow) {
  const auto refused = [](const Given& given, const std::string& dim,
                          const std::vector<std::string>& followers) {
    BucketGrid::Ranges ranges = Ranges(given);
    for (v1::DimBuckets& of_dim : ranges) {
      if (of_dim.dim() != dim) continue;
      for (const std::string& follower : followers) of_dim.add_followers(follower);
    }
    const absl::Status status = BucketGrid::Create(TwoDims(), ranges, 64).status();
    return std::string(status.message());
  };
  const Given kB = {{"b", {{1, 1}, {2, 64}}}};
  EXPECT_EQ(refused(kB, "b", {"s"}), "");
  EXPECT_EQ(refused(kB, "b", {"x"}), "dim \"b\": follower \"x\" is no dim of the graph");
  EXPECT_EQ(refused(kB, "b", {"b"}), "dim \"b\": follower \"b\" is the dim itself");
  EXPECT_EQ(refused(kB, "b", {"s", "s"}), "dim \"b\": follower \"s\" is given twice");
  const Given kBoth = {{"b", {{1, 1}, {2, 64}}}, {"s", {{0, 1}, {2, 128}}}};
  EXPECT_EQ(refused(kBoth, "b", {"s"}),
            "dim \"s\": follows dim \"b\", and has ranges of its own; give one");
  EXPECT_EQ(refused({{"s", {{0, 0}, {1, 128}}}}, "s", {"b"}),
            "dim \"s\": follower \"b\" is at least 1, and so never in range [0, 0]");
}

// "b=1-1,2-4 s=..." of the ranges chosen for dims of these bounds, in the order chosen.
std::string Chosen(const std::vector<Dim>& dims, int64_t most = 8) {
  Graph graph;
  graph.dims = dims;
  const BucketGrid::Ranges ranges = DefaultRanges(graph, most);
  EXPECT_TRUE(BucketGrid::Create(graph, ranges, most).ok());
  std::string text;
  for (const v1::DimBuckets& of_dim : ranges) {
    text += (text.empty() ? "" : " ") + of_dim.dim() + "=";
    for (const auto& range : of_dim.ranges()) {
      text += (text.back() == '=' ? "" : ",") + std::to_string(range.min()) + "-" +
              std::to_string(range.max());
    }
  }
  return text;
}

TEST(DefaultRangesTest, AreGeometric) {
  EXPECT_EQ(Chosen({{"b", 1, 64}}), "b=1-1,2-4,5-16,17-64");
  EXPECT_EQ(Chosen({{"b", 1, 5}}), "b=1-1,2-4,5-5");
  EXPECT_EQ(Chosen({{"b", 0, 17}}), "b=0-1,2-4,5-16,17-17");
  EXPECT_EQ(Chosen({{"b", 3, 100}}), "b=3-4,5-16,17-64,65-100");
  EXPECT_EQ(Chosen({{"b", 16, 100}}), "b=16-16,17-64,65-100");
}

TEST(DefaultRangesTest, NarrowDimsHaveOne) {
  EXPECT_EQ(Chosen({{"b", 1, 4}}), "");
  EXPECT_EQ(Chosen({{"b", 32, 128}}), "");
  EXPECT_EQ(Chosen({}), "");
}

TEST(DefaultRangesTest, TheWidestDimsComeFirst) {
  EXPECT_EQ(Chosen({{"b", 1, 5}, {"s", 1, 512}}), "s=1-1,2-4,5-16,17-64,65-256,257-512");
  EXPECT_EQ(Chosen({{"b", 1, 5}, {"s", 1, 16}}, 9), "s=1-1,2-4,5-16 b=1-1,2-4,5-5");
  EXPECT_EQ(Chosen({{"b", 1, 64}, {"s", 1, 64}}), "b=1-1,2-4,5-16,17-64");
}

TEST(DefaultRangesTest, OneVeryWideDimHasWiderRanges) {
  EXPECT_EQ(Chosen({{"n", 1, 100'000}}), "n=1-1,2-8,9-64,65-512,513-4096,4097-32768,32769-100000");
  EXPECT_EQ(Chosen({{"n", 1, 64}}, 2), "n=1-1,2-64");
  EXPECT_EQ(Chosen({{"n", 1, 64}}, 1), "");
  EXPECT_NE(Chosen({{"n", 1, int64_t{1} << 62}}), "");
}

}  // namespace
}  // namespace athanor
