// Tests how kernels that write and read states are cut out as tasks.
#include <string>
#include <vector>

#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/task.h"
#include "compiler/search/kernels/task_index.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Two layers: each writes its state, and reads rows of it.
constexpr char kLayers[] = R"(graph "g" {
  dim t in [1, 8]
  dim n in [1, 4096]
  %0 = Input "x" : f32[t, 1, 4]
  %1 = Input "i" : i32[t]
  %2 = StateRead "a" {role="keys"} : f32[n, 1, 4]
  %3 = StateRead "b" {role="keys"} : f32[n, 1, 4]
  %4 = Exp(%0)
  %5 = StateWrite(%2, %1, %4)
  %6 = Gather(%5, %1) {axis=0}
  %7 = Exp(%6)
  %8 = StateWrite(%3, %1, %7)
  %9 = Gather(%8, %1) {axis=0}
  %10 = Exp(%9)
  output "y" = %10
  update %5
  update %8
})";

struct Cut {
  Graph graph = ParseGraph(kLayers).value();
  Genome genome{{{.root = 4}, {.root = 5}, {.root = 7}, {.root = 8}, {.root = 10}}};
  std::vector<bool> memory = MemoryOf(graph, genome), weights = WeightsOf(graph);

  KernelTask Task(size_t kernel) const {
    return CutTask(graph, memory, weights, genome.kernels[kernel]);
  }
};

TEST(StateTaskTest, LeavesStayStates) {
  const Cut cut;
  const KernelTask write = cut.Task(1), read = cut.Task(2);
  for (const KernelTask& task : {write, read}) {
    EXPECT_EQ(Verify(task.graph), absl::OkStatus());
    ASSERT_EQ(task.graph.StateIds().size(), 1u) << ToText(task.graph);
    const Node& state = task.graph.node(task.graph.StateIds()[0]);
    EXPECT_EQ(state.name, "s0");
    EXPECT_EQ(state.attrs, cut.graph.node(2).attrs);
    EXPECT_EQ(ToText(ParseGraph(ToText(task.graph)).value()), ToText(task.graph));
  }
  EXPECT_EQ(write.graph.updates, std::vector<NodeId>{write.choice.root});
  EXPECT_TRUE(read.graph.updates.empty());
  EXPECT_EQ(write.graph.InputIds().size(), 2u);
}

TEST(StateTaskTest, EqualLayersAreOneTask) {
  const Cut cut;
  EXPECT_EQ(cut.Task(1).key, cut.Task(3).key);
  EXPECT_EQ(cut.Task(2).key, cut.Task(4).key);
  NodeNumbers numbers;
  TaskIndex index(cut.graph, &numbers);
  const auto signature = [&](size_t kernel) {
    return index.Find(cut.memory, cut.genome.kernels[kernel]).signature;
  };
  EXPECT_EQ(signature(1), signature(3));
  EXPECT_EQ(signature(2), signature(4));
  EXPECT_NE(signature(1), signature(2));
  // A state's layout is part of the task.
  Cut other;
  other.graph.nodes[2].attrs["role"] = std::string("values");
  EXPECT_NE(other.Task(2).key, cut.Task(2).key);
  TaskIndex others(other.graph, &numbers);
  EXPECT_NE(others.Find(other.memory, other.genome.kernels[2]).signature, signature(2));
  EXPECT_EQ(others.Find(other.memory, other.genome.kernels[4]).signature, signature(4));
}

// A step moves the rows that it writes or reads, not the whole state.
TEST(StateTaskTest, MovesRowsOnly) {
  const Cut cut;
  const Expr t = Expr::Symbol("t"), n = Expr::Symbol("n");
  EXPECT_EQ(MovedBytes(cut.graph, cut.memory, 5), 2 * (t * 16) + t * 4);
  const std::map<NodeId, Expr> read = MovedElements(cut.graph, cut.memory, 7);
  EXPECT_EQ(read.at(5), MinOf(n * 4, t * 4));
  EXPECT_EQ(read.at(7), t * 4);
  EXPECT_EQ(read.at(6), Expr(0));
}

TEST(StateTaskTest, StatesAreNoWeights) {
  const Graph graph = ParseGraph(R"(graph "g" { %0 = StateRead "s" : f32[32] %1 = Exp(%0)
      %2 = Parameter "w" : f32[32] %3 = Add(%1, %2) output "y" = %3 })")
                          .value();
  EXPECT_EQ(WeightsOf(graph), (std::vector<bool>{false, false, true, false}));
}

}  // namespace
}  // namespace athanor
