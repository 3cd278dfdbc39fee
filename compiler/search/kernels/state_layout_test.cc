#include "compiler/search/kernels/state_layout.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/graph/text.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

const Expr kGroups = Expr::Symbol("n");

// The memory of two groups, three heads and width five, written as the nested loops of the layout.
std::vector<std::vector<int64_t>> ElementsInOrder(const std::string& layout) {
  std::vector<std::vector<int64_t>> order;
  for (int64_t group = 0; group < 2; ++group) {
    for (int64_t head = 0; head < 3; ++head) {
      const int64_t outer = layout == "keys16" ? 5 : 16, inner = layout == "keys16" ? 16 : 5;
      for (int64_t i = 0; i < outer; ++i) {
        for (int64_t j = 0; j < inner; ++j) {
          const int64_t place = layout == "keys16" ? j : i, d = layout == "keys16" ? i : j;
          order.push_back({group * 16 + place, head, d});
        }
      }
    }
  }
  return order;
}

TEST(StateLayoutTest, KeysAndValuesLieInGroups) {
  const Shape shape = {16 * kGroups, 3, 5};
  for (const std::string role : {"keys", "values"}) {
    const std::string layout = StateLayout(role, shape);
    EXPECT_EQ(layout, role + "16");
    const std::vector<std::vector<int64_t>> order = ElementsInOrder(layout);
    ASSERT_EQ(order.size(), 32u * 3 * 5);
    for (size_t offset = 0; offset < order.size(); ++offset) {
      const int64_t slot = order[offset][0], head = order[offset][1], d = order[offset][2];
      EXPECT_EQ(StateOffset(role, shape, {slot, head, d}), Expr(static_cast<int64_t>(offset)));
      EXPECT_EQ(StatePlace(layout, {32, 3, 5}, (slot * 3 + head) * 5 + d),
                static_cast<int64_t>(offset));
    }
  }
}

// One head and width one: the groups are the state itself.
TEST(StateLayoutTest, OneElementASlotIsRowMajor) {
  for (const char* role : {"keys", "values"}) {
    const Expr slot = Expr::Symbol("s");
    EXPECT_EQ(StateOffset(role, {32, 1, 1}, {slot, 0, 0}), slot);
  }
}

TEST(StateLayoutTest, OtherStatesAreRowMajor) {
  const Expr slot = Expr::Symbol("s"), d = Expr::Symbol("d");
  EXPECT_EQ(StateLayout("", {16 * kGroups, 2, 4}), "");
  EXPECT_EQ(StateOffset("", {16 * kGroups, 4}, {slot, d}), slot * 4 + d);
  EXPECT_EQ(StateOffset("", {16}, {slot}), slot);
  EXPECT_EQ(StatePlace("", {7, 4}, 27), 27);
  // The last group of 24 slots would lie beyond the state's end.
  EXPECT_EQ(StateLayout("keys", {24, 2, 4}), "");
  EXPECT_EQ(StateLayout("values", {kGroups, 2, 4}), "");
  EXPECT_EQ(StateOffset("keys", {kGroups, 1, 4}, {slot, 0, d}), slot * 4 + d);
  EXPECT_EQ(StateLayout("keys", {32 * kGroups + 16, 2, 4}), "keys16");
}

TEST(StateLayoutTest, NodesHaveTheirStatesLayout) {
  const Graph graph = ParseGraph(R"(graph "g" {
    dim n in [1, 8]
    %0 = Input "x" : f32[3, 2, 4]
    %1 = Input "i" : i32[3]
    %2 = StateRead "k" {role="keys"} : f32[16*n, 2, 4]
    %3 = StateWrite(%2, %1, %0)
    %4 = Gather(%3, %1) {axis=0}
    output "y" = %4
    update %3
  })")
                          .value();
  const Expr slot = Expr::Symbol("s");
  const std::vector<Expr> at = {slot, 1, 2};
  const Expr want = FloorDiv(slot, 16) * 128 + 96 + Mod(slot, 16);
  EXPECT_EQ(MemoryOffset(graph, 2, at), want);
  EXPECT_EQ(MemoryOffset(graph, 3, at), want);
  EXPECT_EQ(MemoryOffset(graph, 0, at), slot * 8 + 6);
  EXPECT_EQ(MemoryOffset(graph, 4, at), slot * 8 + 6);
}

}  // namespace
}  // namespace athanor
