// Tests of the e-graph's storage: lists in a pool, the hash-cons table, disjoint sets, payloads.
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compiler/egraph/graph/hash_cons.h"
#include "compiler/egraph/graph/interner.h"
#include "compiler/egraph/graph/list_pool.h"
#include "compiler/egraph/graph/union_find.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::ElementsAre;

TEST(ListPool, RandomOperationsAgainstVectors) {
  std::mt19937 random(1);
  ListPool<uint32_t> pool;
  std::vector<ListPool<uint32_t>::List> lists(20);
  std::vector<std::vector<uint32_t>> expected(20);
  for (uint32_t step = 0; step < 20000; ++step) {
    const size_t i = random() % 20, j = random() % 20;
    switch (random() % 8) {
      case 0:
        if (i == j) break;
        pool.Append(&lists[i], &lists[j]);
        expected[i].insert(expected[i].end(), expected[j].begin(), expected[j].end());
        expected[j].clear();
        break;
      case 1:
        pool.Free(&lists[i]);
        expected[i].clear();
        break;
      case 2:
        pool.Truncate(&lists[i], lists[i].size / 2);
        expected[i].resize(expected[i].size() / 2);
        break;
      default:
        pool.PushBack(&lists[i], step);
        expected[i].push_back(step);
    }
    ASSERT_EQ(pool.Get(lists[i]), absl::MakeConstSpan(expected[i])) << step;
    ASSERT_EQ(pool.Get(lists[j]), absl::MakeConstSpan(expected[j])) << step;
  }
}

TEST(ListPool, BlocksAreReused) {
  ListPool<uint32_t> pool;
  ListPool<uint32_t>::List list;
  for (int i = 0; i < 64; ++i) pool.PushBack(&list, 1);
  pool.Free(&list);
  const size_t bytes = pool.Bytes();
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 64; ++i) pool.PushBack(&list, 1);
    pool.Free(&list);
  }
  EXPECT_LE(pool.Bytes(), bytes + 64);  // the list of free blocks may have grown once
}

// Hashes from a small range, so that runs of slots are long, wrap around and are split by erasing.
TEST(HashCons, RandomOperationsAgainstAMap) {
  std::mt19937 random(2);
  HashCons table;
  std::map<uint32_t, uint32_t> expected;  // content to node
  std::map<uint32_t, uint32_t> content;   // node to content
  const auto hash = [](uint32_t c) { return c % 7 * 0x10000001u + (c % 3 == 0 ? 14 : 0); };
  for (uint32_t step = 0; step < 50000; ++step) {
    const uint32_t c = random() % 300;
    const NodeId found = table.Find(hash(c), [&](NodeId n) { return content.at(n.value) == c; });
    const auto it = expected.find(c);
    ASSERT_EQ(found.valid(), it != expected.end()) << step;
    if (!found.valid()) {
      table.Insert(hash(c), NodeId{step});
      expected[c] = step;
      content[step] = c;
      continue;
    }
    ASSERT_EQ(found.value, it->second);
    if (random() % 2 == 0) {
      table.Erase(hash(c), found);
      expected.erase(it);
    }
    ASSERT_EQ(table.size(), expected.size());
  }
  EXPECT_GT(expected.size(), 50u);
}

TEST(HashCons, ErasingWhatIsNotThereDoesNothing) {
  HashCons table;
  table.Insert(5, NodeId{1});
  table.Erase(5, NodeId{2});
  table.Erase(6, NodeId{1});
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.Find(5, [](NodeId) { return true; }), NodeId{1});
}

TEST(UnionFind, RepresentativesAreTheCallersChoice) {
  UnionFind sets;
  std::vector<ClassId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(sets.Make());
  sets.Union(ids[1], ids[0]);
  sets.Union(ids[2], ids[1]);
  sets.Union(ids[3], ids[2]);
  EXPECT_EQ(sets.Find(ids[0]), ids[3]);
  EXPECT_EQ(sets.FindAndCompress(ids[0]), ids[3]);
  EXPECT_EQ(sets.Find(ids[0]), ids[3]);
  EXPECT_EQ(sets.Find(ids[4]), ids[4]);
  EXPECT_EQ(sets.Find(ClassId{}), ClassId{});
  EXPECT_EQ(sets.Find(ClassId{77}), ClassId{77});
}

TEST(Interner, EqualValuesShareAnId) {
  Interner<std::vector<int>> shapes;
  const PayloadId a = shapes.Intern({1, 2}), b = shapes.Intern({3});
  for (int i = 0; i < 1000; ++i) shapes.Intern({i, i, i});
  EXPECT_EQ(shapes.Intern({1, 2}), a);
  EXPECT_EQ(shapes.Intern({3}), b);
  EXPECT_EQ(a.value, 0u);
  EXPECT_EQ(b.value, 1u);
  EXPECT_EQ(shapes.size(), 1002u);
  EXPECT_THAT(shapes.Get(a), ElementsAre(1, 2));
}

}  // namespace
}  // namespace athanor::egraph
