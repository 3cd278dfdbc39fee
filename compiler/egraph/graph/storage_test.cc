// Tests of the e-graph's storage: lists in a pool, the hash-cons table, disjoint sets, payloads,
// and the tables of nodes, classes, changes and refusals.
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compiler/egraph/graph/change_log.h"
#include "compiler/egraph/graph/class_lists.h"
#include "compiler/egraph/graph/hash_cons.h"
#include "compiler/egraph/graph/interner.h"
#include "compiler/egraph/graph/list_pool.h"
#include "compiler/egraph/graph/node_table.h"
#include "compiler/egraph/graph/refusal.h"
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

// Adds a live node of a new class to the tables, as EGraph does.
NodeId AddTo(NodeTable* nodes, ClassLists* lists, UnionFind* sets, OpId op,
             const std::vector<ClassId>& children) {
  const NodeId n = nodes->Push({op, PayloadId{}, children}, Cause::kUser);
  nodes->Enter(n);
  (*nodes)[n].cls = sets->Make();
  lists->AddClass(n);
  for (const ClassId child : children) lists->AddParent(child, n);
  return n;
}

TEST(NodeTable, FindsLiveNodesByContent) {
  NodeTable nodes;
  const std::vector<ClassId> children = {ClassId{4}, ClassId{2}};
  const NodeContent content(OpId{1}, PayloadId{7}, children);
  EXPECT_FALSE(nodes.Find(content).valid());
  const NodeId n = nodes.Push(content, Cause{3});
  EXPECT_FALSE(nodes.Find(content).valid());  // not entered yet
  nodes.Enter(n);
  EXPECT_EQ(nodes.Find(content), n);
  EXPECT_EQ(nodes.num_live(), 1u);
  EXPECT_EQ(nodes[n].added_by, Cause{3});
  EXPECT_THAT(nodes.children(n), ElementsAre(ClassId{4}, ClassId{2}));
  const std::vector<ClassId> turned = {ClassId{2}, ClassId{4}};
  EXPECT_FALSE(nodes.Find({OpId{1}, PayloadId{7}, turned}).valid());
  EXPECT_FALSE(nodes.Find({OpId{2}, PayloadId{7}, children}).valid());
  EXPECT_FALSE(nodes.Find({OpId{1}, PayloadId{8}, children}).valid());
  // A pushed node that is popped leaves no trace.
  nodes.Push({OpId{2}, PayloadId{7}, children}, Cause::kUser);
  nodes.Pop();
  EXPECT_EQ(nodes.size(), 1u);
  EXPECT_FALSE(nodes.HasRoomFor(size_t{1} << 24));
  EXPECT_TRUE(nodes.HasRoomFor(1000));
}

TEST(NodeTable, CanonicalChildrenGiveANewContent) {
  NodeTable nodes;
  UnionFind sets;
  const ClassId a = sets.Make(), b = sets.Make();
  const std::vector<ClassId> of_b = {b};
  const NodeId n = nodes.Push({OpId{0}, PayloadId{}, of_b}, Cause::kUser);
  nodes.Enter(n);
  sets.Union(a, b);
  const NodeContent content = nodes.Canonicalize(n, &sets);
  EXPECT_THAT(content.children, ElementsAre(a));
  EXPECT_EQ(nodes.num_live(), 0u);
  EXPECT_FALSE(nodes.Find(content).valid());
  nodes.Enter(n);
  EXPECT_EQ(nodes.Find(nodes.Content(n)), n);
  EXPECT_FALSE(nodes.Find({OpId{0}, PayloadId{}, of_b}).valid());
}

TEST(ClassLists, TidySortsByOperatorAndDropsTheDead) {
  NodeTable nodes;
  ClassLists lists;
  UnionFind sets;
  const NodeId leaf = AddTo(&nodes, &lists, &sets, OpId{5}, {});
  const ClassId c = nodes[leaf].cls;
  std::vector<NodeId> parents;
  for (const uint32_t op : {9, 2, 9, 4, 2}) {
    parents.push_back(AddTo(&nodes, &lists, &sets, OpId{op}, {c}));
  }
  lists.AddParent(c, parents[1]);  // once more
  nodes[parents[3]].state = ENode::State::kDead;
  lists.Tidy(nodes, sets);
  EXPECT_THAT(lists.parents(c), ElementsAre(parents[1], parents[4], parents[0], parents[2]));
  EXPECT_THAT(ClassLists::WithOp(lists.parents(c), OpId{9}, nodes),
              ElementsAre(parents[0], parents[2]));
  EXPECT_THAT(ClassLists::WithOp(lists.parents(c), OpId{4}, nodes), ElementsAre());
}

TEST(ClassLists, VerifyFindsWhatTidyWasNotToldOf) {
  NodeTable nodes;
  ClassLists lists;
  UnionFind sets;
  const NodeId a = AddTo(&nodes, &lists, &sets, OpId{1}, {});
  const NodeId b = AddTo(&nodes, &lists, &sets, OpId{0}, {});
  lists.Tidy(nodes, sets);
  EXPECT_TRUE(lists.Verify(nodes, sets).ok());
  lists.Merge(nodes[a].cls, nodes[b].cls);
  EXPECT_FALSE(lists.Verify(nodes, sets).ok());  // the sets do not say so yet
  sets.Union(nodes[a].cls, nodes[b].cls);
  lists.Tidy(nodes, sets);
  EXPECT_TRUE(lists.Verify(nodes, sets).ok());
  EXPECT_THAT(lists.nodes(nodes[a].cls), ElementsAre(b, a));
  nodes[b].state = ENode::State::kDead;
  EXPECT_EQ(lists.Verify(nodes, sets).message(), "class 0: its list of nodes is wrong");
}

TEST(ChangeLog, ANodeCountsOnceAndOldEntriesGo) {
  const std::vector<ClassId> none;
  NodeTable nodes;
  ChangeLog log(2);
  const NodeId n = nodes.Push({OpId{1}, PayloadId{}, none}, Cause::kUser);
  log.Add(OpId{1});
  for (int epoch = 0; epoch < 500; ++epoch) {
    EXPECT_EQ(log.epoch(), static_cast<uint32_t>(epoch));
    log.Touch(n, &nodes[n]);
    log.Touch(n, &nodes[n]);
    log.TouchValue(n, &nodes[n]);
    EXPECT_EQ(log.changes(OpId{1}).back().stamp, nodes[n].stamp);
    EXPECT_GT(nodes[n].stamp, log.epoch());
    log.EndEpoch(nodes);
  }
  EXPECT_EQ(log.num_nodes(OpId{1}), 1u);
  EXPECT_LT(log.changes(OpId{1}).size(), 100u);
  EXPECT_LT(log.value_changes(OpId{1}).size(), 100u);
  EXPECT_TRUE(log.changes(OpId{0}).empty());
}

TEST(Refusals, KeepsTheFirstAndCountsAll) {
  Refusals refusals;
  const absl::Status why = absl::InvalidArgumentError("no");
  EXPECT_EQ(refusals.Add(Refusal::Kind::kNode, Cause{1}, {}, {}, why), why);
  for (int i = 0; i < 100; ++i) {
    const absl::Status apart =
        refusals.Add(Refusal::Kind::kUnion, Cause{2}, ClassId{3}, ClassId{4}, why);
    EXPECT_EQ(apart, absl::FailedPreconditionError("classes 3 and 4 stay apart: no"));
  }
  EXPECT_EQ(refusals.first().size(), Refusals::kMost);
  EXPECT_EQ(refusals.first()[1].b, ClassId{4});
  EXPECT_EQ(refusals.Count(Cause{1}), 1u);
  EXPECT_EQ(refusals.Count(Cause{2}), 100u);
  EXPECT_EQ(refusals.Count(Cause{3}), 0u);
}

}  // namespace
}  // namespace athanor::egraph
