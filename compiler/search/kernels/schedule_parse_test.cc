// Tests that every schedule's text parses back, and that other texts are refused.
#include <map>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/search/search_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target WithLibrary() {
  v1::Target target = Target();
  target.set_blas("OpenBLAS 0.3.21");
  return target;
}

// Parses the texts of all schedules of the graph's kernels; returns their numbers by kind.
std::map<KernelKind, int> ReadBackAll(const std::string& body, const FusionRules& rules) {
  const Graph graph = Parse(body);
  const Genome genome = ChooseKernels(graph, WithLibrary(), {.rules = rules});
  std::map<KernelKind, int> kinds;
  for (const KernelChoice& kernel : genome.kernels) {
    const KernelTask task = CutTask(graph, MemoryOf(graph, genome), WeightsOf(graph), kernel);
    for (const KernelChoice& c : Schedules(task, WithLibrary())) {
      ++kinds[c.kind];
      const std::string text = ScheduleText(c);
      const absl::StatusOr<KernelChoice> read = ParseSchedule(text);
      if (!read.ok()) {
        ADD_FAILURE() << read.status();
        continue;
      }
      EXPECT_EQ(ScheduleText(*read), text);
      EXPECT_EQ(read->kind, c.kind);
      if (c.kind == KernelKind::kContract) {
        EXPECT_EQ(read->contract, c.contract) << text;
      } else if (c.kind == KernelKind::kAttention || c.kind == KernelKind::kPaged) {
        EXPECT_EQ(read->attention, c.attention) << text;
      } else {
        EXPECT_EQ(read->walk.unroll, c.walk.unroll) << text;
        if (c.kind == KernelKind::kMap) {
          EXPECT_EQ(read->walk, c.walk) << text;
        }
      }
    }
  }
  return kinds;
}

TEST(ScheduleParseTest, ReadsEverySchedule) {
  std::map<KernelKind, int> all;
  for (const std::string& body : {
           // Contractions with a weight, packed ahead or not; with few rows, in place and as dot
           // products; by a library.
           R"(%0 = Input "x" : f32[b, 256] %1 = Parameter "w" : f32[256, 192]
              %2 = Contract(%0, %1) {spec="mk,kn->mn"} %3 = Tanh(%2) output "y" = %3)",
           R"(%0 = Input "x" : f32[b, 256] %1 = Input "w" : f32[192, 256]
              %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)",
           R"(%0 = Input "x" : f32[512, 256] %1 = Input "w" : f32[256, 192]
              %2 = Contract(%0, %1) {spec="mk,kn->nm"} output "y" = %2)",
           R"(%0 = Input "q" : f32[b, 64, 32] %1 = Attention(%0, %0, %0) output "y" = %1)",
           R"(%0 = Input "q" : f32[b, 6, 32] %1 = Input "k" : f32[64, 2, 32]
              %2 = Input "i" : i32[1, 4] %3 = Input "s" : i32[b]
              %4 = PagedAttention(%0, %1, %1, %2, %3, %3) {block=16} output "y" = %4)",
           R"(%0 = Input "x" : f32[b, 256] %1 = Exp(%0) output "y" = %1)",
           R"(%0 = Input "x" : f32[b, 256]
              %1 = IndexMap(%0) {map=map[b, 254, 3]($0, $1 + $2)} %2 = MaxReduce(%1) {axes=[2]}
              output "y" = %2)",
           R"(%0 = Input "x" : f32[b, 256] %1 = MaxReduce(%0) {axes=[1]}
              %2 = IndexMap(%1) {map=map[b, 256]($0)} %3 = Min(%0, %2) output "y" = %3)",
           R"(%0 = Input "x" : f32[256, b] %1 = SumReduce(%0) {axes=[0]} output "y" = %1)",
           R"(%0 = Input "x" : f32[b, 256] %1 = SumReduce(%0) {axes=[1]} output "y" = %1)",
           R"(%0 = Input "x" : f32[b, 8] %1 = Input "i" : i64[5] %2 = Input "v" : f32[5, 8]
              %3 = Scatter(%0, %1, %2) {axis=0, mode="add"} output "y" = %3)",
           R"(%0 = Input "x" : f32[b, 8] %1 = Input "i" : i64[b] %2 = StateRead "s" : f32[64, 8]
              %3 = StateWrite(%2, %1, %0) output "y" = %0 update %3)",
           R"(%0 = Input "x" : f32[b, 256] %1 = TopK(%0) {axis=1, k=shape[3]} output "y" = %1)",
       }) {
    for (const bool one_panel : {false, true}) {
      for (const auto& [kind, count] : ReadBackAll(body, {.one_panel = one_panel})) {
        all[kind] += count;
      }
    }
  }
  for (const KernelKind kind : {KernelKind::kMap, KernelKind::kRow, KernelKind::kPoint,
                                KernelKind::kContract, KernelKind::kAttention, KernelKind::kPaged,
                                KernelKind::kScatter, KernelKind::kStateWrite, KernelKind::kSort}) {
    EXPECT_GT(all[kind], 0) << "no schedule of kind " << static_cast<int>(kind);
  }
  EXPECT_GT(all[KernelKind::kContract], 1000);
}

TEST(ScheduleParseTest, PanelsAreNamedWhereTheyAreNotTheTiles) {
  const std::string text = "contract mr=12 nv=2 panel=4 rows=96 panels=1 kc=512 ahead";
  const absl::StatusOr<KernelChoice> read = ParseSchedule(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<PanelSchedule>(read->contract).panel, 4);
  EXPECT_EQ(ScheduleText(*read), text);
}

TEST(ScheduleParseTest, ReadsTeams) {
  for (const std::string& text :
       {std::string("row unroll=2 team=32"), std::string("map elements=1 unroll=1 team=128"),
        std::string("scatter team=2"), std::string("attention mr=4 nv=1 keys=16 team=32"),
        std::string("contract mr=12 nv=2 rows=96 panels=1 kc=512 ahead team=8"),
        std::string("contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor team=128"),
        std::string("contract mr=2 nv=4 rows=64 panels=1 kc=32 swap tensor stages=3 team=128")}) {
    const absl::StatusOr<KernelChoice> read = ParseSchedule(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_GT(read->team, 1) << text;
    EXPECT_EQ(ScheduleText(*read), text);
  }
}

TEST(ScheduleParseTest, ReadsCallsAndSplits) {
  for (const std::string& text :
       {std::string("contract cublaslt proposal=0 workspace=0"),
        std::string("contract mr=4 nv=4 rows=32 panels=1 kc=16 staged split=4 team=128"),
        std::string("contract cublaslt proposal=7 workspace=4194304 swap"),
        std::string("contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor split=4 team=128"),
        std::string(
            "contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor stages=3 split=4 team=128")}) {
    const absl::StatusOr<KernelChoice> read = ParseSchedule(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ScheduleText(*read), text);
  }
}

TEST(ScheduleParseTest, RefusesWhatIsNone) {
  const std::string good = "contract mr=12 nv=2 rows=96 panels=1 kc=512 ahead";
  EXPECT_TRUE(ParseSchedule(good).ok());
  for (const std::string& text : {
           std::string(),
           std::string("tile"),
           std::string("map"),
           std::string("scatter now"),
           absl::StrCat(good, " "),
           absl::StrCat(" ", good),
           absl::StrCat(good, " ahead"),
           absl::StrCat(good, " dots"),
           absl::StrCat(good, " openblas"),
           absl::StrCat(good, " unroll=2"),
           absl::StrCat(good, " nv=2"),
           std::string("contract mr=12 nv=2 rows=96 panels=1"),
           std::string("contract mr=12 nv=2 panel=0 rows=96 panels=1 kc=512 ahead"),
           std::string("contract mr=12 nv=2 panel=3 rows=96 panels=1 kc=512 ahead"),
           std::string("contract mr=12 nv=2 panel=1 rows=96 panels=1 kc=512 ahead"),
           std::string("contract mr=12 nv=2 panel=4 rows=96 panels=1 kc=512"),
           std::string("contract mr=12 nv=2 panel=4 rows=96 panels=1 kc=512 in_place"),
           std::string("contract nv=2 mr=12 rows=96 panels=1 kc=512"),
           std::string("contract mr=0 nv=2 rows=96 panels=1 kc=512"),
           std::string("contract mr=-12 nv=2 rows=96 panels=1 kc=512"),
           std::string("contract mr=012 nv=2 rows=96 panels=1 kc=512"),
           std::string("contract mr=99999999999 nv=2 rows=96 panels=1 kc=512"),
           std::string("contract mr= nv=2 rows=96 panels=1 kc=512"),
           std::string("contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor stages=1 team=128"),
           std::string("contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor stages=0 team=128"),
           std::string("contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor split=1 team=128"),
           std::string("contract mr=4 nv=4 rows=32 panels=1 kc=16 staged stages=2 team=128"),
           // An item is a tile.
           std::string("contract mr=8 nv=8 rows=128 panels=1 kc=16 staged team=128"),
           std::string("contract mr=8 nv=8 rows=64 panels=2 kc=16 staged team=128"),
           std::string("contract mr=8 nv=8 rows=64 panels=1 kc=16 staged copy team=128"),
           std::string("contract mr=2 nv=4 rows=32 panels=1 kc=32 tensor team=128"),
           std::string("contract mr=2 nv=4 rows=64 panels=2 kc=32 tensor team=128"),
           std::string("contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor prefetch team=128"),
           std::string("contract mr=12 nv=2 rows=96 panels=1 kc=512 stages=2"),
           std::string("contract mr=12 nv=2 rows=96 panels=1 kc=512 ahead split=4"),
           std::string("contract mr=4 nv=4 rows=4 panels=1 kc=512 in_place split=4 team=32"),
           std::string("contract openblas rows=64 panels=4 split=4"),
           std::string("contract cublaslt proposal=1 workspace=0 split=4"),
           std::string("row unroll=1 split=4"),
           std::string("contract cublaslt proposal=-1 workspace=0"),
           std::string("contract cublaslt workspace=0"),
           std::string("contract mr=12 nv=2 rows=96 panels=1 kc=512 ahead proposal=1"),
           std::string("row unroll=1 stages=2"),
           std::string("row unroll=1 elements=4096"),
           std::string("row mr=1"),
           std::string("row unroll=1 team=1"),
           std::string("row unroll=1 team=3"),
           std::string("row unroll=1 team=64"),
           std::string("row team=32 unroll=1"),
           std::string("sort team=32"),
           std::string("loop team=32"),
           std::string("row unroll=1\nrow unroll=2"),
       }) {
    const absl::Status refused = ParseSchedule(text).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(refused.message().find("schedule: "), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace athanor
