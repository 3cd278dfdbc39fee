#include "compiler/search/kernels/paged_schedule.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/task.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Target(int vector_bytes, int registers) {
  v1::Target t;
  t.set_device("cpu");
  t.set_vector_bytes(vector_bytes);
  t.set_vector_registers(registers);
  t.set_l2_bytes(1 << 20);
  t.set_threads(2);
  return t;
}

// Dims are t rows, n groups of slots and b blocks of each of 4 sequences.
Graph Paged(int group, int most_rows = 4096) {
  return ParseGraph(absl::StrCat("graph \"\" { dim t in [1, ", most_rows,
                                 "] dim n in [1, 100000] dim b in [1, 1024]\n",
                                 "%0 = Input \"q\" : f32[t, ", 3 * group, ", 64]\n",
                                 R"(%1 = StateRead "k" {role="keys"} : f32[16*n, 3, 64]
      %2 = StateRead "v" {role="values"} : f32[16*n, 3, 64] %3 = Input "table" : i32[4, b]
      %4 = Input "s" : i32[t] %5 = Input "p" : i32[t]
      %6 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} output "y" = %6 })"))
      .value();
}

std::string RuleOfThumb(int group, int most_rows, const v1::Target& target) {
  const AttentionSchedule s = SchedulePaged(Paged(group, most_rows), 6, target);
  return absl::StrCat(s.mr, " x ", s.nv, ", ", s.row_tile);
}

TEST(PagedScheduleTest, TheRuleOfThumbFillsTheRegisters) {
  const v1::Target avx512 = Target(64, 32), avx2 = Target(32, 16), sse = Target(16, 16);
  EXPECT_EQ(RuleOfThumb(3, 16, avx512), "3 x 4, 1");
  EXPECT_EQ(RuleOfThumb(8, 16, avx512), "8 x 2, 1");
  EXPECT_EQ(RuleOfThumb(1, 1, avx512), "1 x 4, 1");
  EXPECT_EQ(RuleOfThumb(3, 17, avx512), "12 x 2, 16");
  EXPECT_EQ(RuleOfThumb(3, 17, avx2), "6 x 1, 16");
  EXPECT_EQ(RuleOfThumb(3, 16, sse), "2 x 1, 1");
  EXPECT_TRUE(HasPagedKernel(avx2));
  EXPECT_FALSE(HasPagedKernel(Target(1, 16)));
  v1::Target gpu = Target(1, 32);
  gpu.set_device("cuda");
  EXPECT_FALSE(HasPagedKernel(gpu));
}

TEST(PagedScheduleTest, SchedulesAreDistinctAndHaveTheRuleOfThumbs) {
  for (const int group : {1, 3, 8}) {
    const Graph graph = Paged(group);
    const v1::Target target = Target(64, 32);
    const Genome genome = ChooseKernels(graph, target);
    ASSERT_EQ(genome.kernels.size(), 1u);
    const KernelTask task =
        CutTask(graph, MemoryOf(graph, genome), WeightsOf(graph), genome.kernels[0]);
    std::set<std::string> texts;
    const std::vector<KernelChoice> all = Schedules(task, target);
    for (const KernelChoice& c : all) {
      EXPECT_TRUE(texts.insert(ScheduleText(c)).second) << ScheduleText(c);
      EXPECT_LE(c.attention.mr, group * c.attention.row_tile);
    }
    EXPECT_TRUE(texts.contains(ScheduleText(task.choice)));
    EXPECT_FALSE(Neighbours(task.choice, all).empty());
  }
}

TEST(PagedScheduleTest, IsPredictedByRowsAndTableNotByThePool) {
  const Graph graph = Paged(3);
  const v1::Target target = Target(64, 32);
  const Genome genome = ChooseKernels(graph, target);
  const KernelTask task =
      CutTask(graph, MemoryOf(graph, genome), WeightsOf(graph), genome.kernels[0]);
  const auto seconds = [&](int row_tile, int64_t rows, int64_t groups, int64_t blocks) {
    KernelChoice choice = task.choice;
    choice.attention.mr = 3;
    choice.attention.row_tile = row_tile;
    return PredictSeconds(task, choice, {rows, groups, blocks}, target, Machine::Typical(target));
  };
  EXPECT_LT(seconds(16, 512, 4096, 64), seconds(1, 512, 4096, 64));
  EXPECT_LT(seconds(1, 1, 100000, 8), seconds(1, 1, 100000, 64));
  EXPECT_EQ(seconds(1, 1, 4096, 64), seconds(1, 1, 100000, 64));
  EXPECT_GT(seconds(1, 1, 4096, 0), 0);
}

}  // namespace
}  // namespace athanor
