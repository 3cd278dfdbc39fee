#include "compiler/codegen/kir/barriers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::kir {
namespace {

using ::testing::HasSubstr;

// A team of 32 with an input, two results and scratch.
constexpr char kHead[] =
    "kernel(s0, s1) team 32 grid s0\nb0: f32 in\nb1: f32 out\nb2: i64 out\nb3: f32 scratch 128\n"
    "b4: f32 scratch 128\n"
    "v0: f32 = const 0x0 (0)\nv1: f32x32 = broadcast(v0)\nv2: bool = const 1\nv3: i64 = const 1\n";

// A statement "barrier" of `expected` is a barrier that must be placed; there must be no others.
void ExpectBarriers(const std::string& expected) {
  std::string without, line;
  for (char c : expected) {
    line += c;
    if (c != '\n') continue;
    if (line.find("barrier") == std::string::npos) without += line;
    line.clear();
  }
  absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(kHead, without));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(Verify(*kernel).ok(), without == expected) << expected << Verify(*kernel);
  PlaceBarriers(&*kernel);
  EXPECT_EQ(ToText(*kernel), absl::StrCat(kHead, expected));
  EXPECT_TRUE(Verify(*kernel).ok()) << Verify(*kernel);
}

TEST(PlaceBarriers, ThreadsReadWhatOthersWrote) {
  // The scalar load of the last thread's element, and the next item's stores before it.
  ExpectBarriers(R"(barrier
store b3[lane] = v1: f32x32
barrier
v4: f32 = load b3[31]
store b1[g] = v4: f32
)");
  // Thread 0's scalar.
  ExpectBarriers(R"(store b1[g] = v0: f32
barrier
v4: f32 = load b1[g]
)");
  // Lanes shifted by one.
  ExpectBarriers(R"(barrier
store b3[lane] = v1: f32x32
barrier
v4: f32x32 = load b3[lane + 1]
)");
}

TEST(PlaceBarriers, ThreadsOverwriteWhatOthersRead) {
  ExpectBarriers(R"(v4: f32 = load b1[32*g + 5]
barrier
store b1[32*g + lane] = v1: f32x32
)");
  ExpectBarriers(R"(v4: f32 = load b1[g]
barrier
store b1[g] = v4: f32
)");
}

TEST(PlaceBarriers, ThreadsOverwriteWhatOthersWrote) {
  ExpectBarriers(R"(store b1[32*g + lane] = v1: f32x32
barrier
store b1[32*g + 7] = v0: f32
)");
  ExpectBarriers(R"(store b1[32*g + lane] = v1: f32x32
barrier
store b1[32*g - lane + 31] = v1: f32x32
)");
}

TEST(PlaceBarriers, ThreadsWithElementsOfTheirOwn) {
  ExpectBarriers(R"(store b3[lane] = v1: f32x32
for i0 in [0, 96) step 32 {
  v4: f32x32 = load b3[i0 + lane]
  store b3[i0 + lane + 32] = v4: f32x32
}
v5: i64 = index 64*g
for i1 in [v5, v5 + 64) step 32 {
  store b1[i1 + lane] = v1: f32x32
  v6: f32x32 = load b1[i1 + lane]
  store b1[i1 + lane - 32] = v6: f32x32
}
store b2[3*g] = v3: i64
store b2[3*g] = v3: i64
)");
}

TEST(PlaceBarriers, ElementsThatAreNeverTheSame) {
  ExpectBarriers(R"(store b3[lane] = v1: f32x32
v4: f32 = load b3[40]
v5: f32x32 = load b3[lane + 64]
store b1[2*g] = v0: f32
v6: f32 = load b1[2*g + 1]
store b4[0] = v0: f32
v7: f32x32 = load b4[lane] count 1
)");
}

TEST(PlaceBarriers, MultiplesThatPassOverEachOther) {
  // Thread 0's element is 8*s0; of each eight, the others touch 1 to 3.
  Kernel kernel = *ParseKernel(
      "kernel(s0, s1) team 4 grid 3\nb0: f32 scratch 99\nv0: f32x4 = load b0[8*s1 + lane]\n"
      "v1: f32 = reduce.Add(v0)\nstore b0[8*s0] = v1: f32\n");
  EXPECT_TRUE(Verify(kernel).ok()) << Verify(kernel);
  kernel.team = 8;
  kernel.body[0].type.lanes = 8;
  EXPECT_TRUE(Verify(kernel).ok()) << Verify(kernel);
  kernel.body[0].index += 1;
  EXPECT_FALSE(Verify(kernel).ok());  // lane 7's is the next eight's first
}

TEST(PlaceBarriers, OneIndexInBothStatements) {
  ExpectBarriers(R"(v4: f32x32 = load b1[lane*s0 + g + lane]
store b1[lane*s0 + g + lane] = v4: f32x32
)");
  // A row of no elements: all lanes are at one.
  ExpectBarriers(R"(v4: f32x32 = load b1[lane*s0 + g]
barrier
store b1[lane*s0 + g] = v4: f32x32
)");
}

TEST(PlaceBarriers, NothingForOneThread) {
  Kernel kernel = *ParseKernel(
      "kernel() grid 9\nb0: f32 scratch 8\nb1: f32 out\nv0: f32 = load b0[3]\nstore b0[3] = v0: "
      "f32\nstore b1[g] = v0: f32\n");
  const std::string text = ToText(kernel);
  PlaceBarriers(&kernel);
  EXPECT_EQ(ToText(kernel), text);
}

TEST(PlaceBarriers, TheNextItemHasTheSameScratch) {
  // An item that is alone is followed by none.
  Kernel kernel = *ParseKernel(
      "kernel() team 4 grid 1\nb0: f32 scratch 4\nv0: f32x4 = load b0[-lane + 3]\n"
      "v1: f32 = reduce.Add(v0)\nv2: f32x4 = broadcast(v1)\nbarrier\nstore b0[lane] = v2: f32x4\n");
  EXPECT_TRUE(Verify(kernel).ok()) << Verify(kernel);
  kernel.grid = 2;
  EXPECT_THAT(std::string(Verify(kernel).message()),
              HasSubstr("b0: no barrier between \"store b0[lane]\" and \"v0 = load b0[-lane + 3]\" "
                        "of a later g; two threads of the team may touch one element"));
  // Global buffers' elements are one item's.
  ExpectBarriers(R"(store b1[g] = v0: f32
)");
}

TEST(PlaceBarriers, LoopsThatCarryARace) {
  ExpectBarriers(R"(for i0 in [0, s0) step 1 {
  barrier
  v4: f32x32 = load b3[-lane + 31]
  barrier
  store b3[lane] = v4: f32x32
}
)");
  // The outer one of two loops carries it: the barrier is outside the inner one.
  ExpectBarriers(R"(for i0 in [0, s0) step 1 {
  barrier
  for i1 in [0, s1) step 1 {
    v4: f32 = load b3[i1]
  }
  barrier
  for i2 in [0, 64) step 32 {
    store b3[i2 + lane] = v1: f32x32
  }
}
)");
  // The inner loop has its own barrier, which serves what comes before.
  ExpectBarriers(R"(store b3[lane] = v1: f32x32
for i0 in [0, s0) step 1 {
  barrier
  v4: f32 = load b3[7]
  barrier
  store b3[lane] = v1: f32x32
}
)");
}

TEST(PlaceBarriers, RowsOfOneResult) {
  // No row is a multiple of the team long: rows, their whole vectors and the rest do not overlap.
  ExpectBarriers(R"(v4: i64 = index floordiv(g, 3)
for i0 in [v4, v4 + 8) step 1 {
  for i1 in [0, 32*floordiv(s0, 32)) step 32 {
    store b1[i0*s0 + i1 + lane] = v1: f32x32
  }
  for i2 in [32*floordiv(s0, 32), s0) step 32 {
    store b1[i0*s0 + i2 + lane] = v1: f32x32 count -32*floordiv(s0, 32) + s0
  }
}
)");
  // Nor if a condition says that the last lane is inside the row.
  ExpectBarriers(R"(for i0 in [0, s1) step 1 {
  for i1 in [0, s0) step 32 {
    v4: i64 = index i1 + 31
    v5: i64 = index s0
    v6: bool = LessThan(v4, v5)
    if v6 {
      store b1[i0*s0 + i1 + lane] = v1: f32x32
    }
    v7: bool = Not(v6)
    if v7 {
      store b1[i0*s0 + i1 + lane] = v1: f32x32 count -i1 + s0
    }
  }
}
)");
}

// The first tile of 64 columns is there only if a row is as long; so are its 4 rows.
TEST(PlaceBarriers, LoopsThatRunSayHowLongRowsAre) {
  ExpectBarriers(R"(for i0 in [0, min(floordiv(s0, 64), 1)) step 1 {
  for i1 in [8*g, 4*floordiv(min(8*g + 8, s1), 4)) step 4 {
    store b1[i1*s0 + 64*i0 + lane] = v1: f32x32
    store b1[i1*s0 + 64*i0 + lane + 32] = v1: f32x32
    store b1[i1*s0 + 64*i0 + lane + s0] = v1: f32x32
    store b1[i1*s0 + 64*i0 + lane + s0 + 32] = v1: f32x32
    store b1[i1*s0 + 64*i0 + lane + 3*s0] = v1: f32x32
  }
}
)");
  // Lanes along the columns, each with its rows.
  ExpectBarriers(R"(for i0 in [8*g, 4*floordiv(min(8*g + 8, s1), 4)) step 4 {
  store b1[lane*s1 + i0] = v1: f32x32
  store b1[lane*s1 + i0 + 1] = v1: f32x32
  store b1[lane*s1 + i0 + 3] = v1: f32x32
}
)");
  // The fifth row may be another lane's first.
  ExpectBarriers(R"(for i0 in [8*g, 4*floordiv(min(8*g + 8, s1), 4)) step 4 {
  store b1[lane*s1 + i0] = v1: f32x32
  barrier
  store b1[lane*s1 + i0 + 4] = v1: f32x32
}
)");
}

TEST(PlaceBarriers, ConditionsAndCountsLimitIndices) {
  ExpectBarriers(R"(v4: i64 = index s0 - 4*s1
v5: i64 = const 31
v6: bool = LessThan(v5, v4)
if v6 {
  store b1[lane] = v1: f32x32
  store b1[lane + s0 - 4*s1] = v1: f32x32
}
)");
  ExpectBarriers(R"(for i0 in [0, s0) step 1 {
  store b1[48*i0 + lane] = v1: f32x32
  store b1[48*i0 + lane + 32] = v1: f32x32 count 16
}
)");
  // Thread 0 alone, as with a scalar.
  ExpectBarriers(R"(store b1[g] = v0: f32
v4: f32x32 = load b1[g + lane] count 1
store b1[g + lane] = v4: f32x32 count 1
v5: f32x32 = load b1[g + lane] count 2
barrier
v6: f32 = load b1[g]
)");
}

TEST(PlaceBarriers, PathsAroundABarrier) {
  // The loop may not run, and the condition may be false.
  ExpectBarriers(R"(store b1[g] = v0: f32
for i0 in [0, s0) step 1 {
  barrier
  v4: f32 = load b1[g]
  barrier
  store b1[g] = v4: f32
}
barrier
v5: f32 = load b1[g]
)");
  ExpectBarriers(R"(store b1[g] = v0: f32
if v2 {
  barrier
  v4: f32 = load b1[g]
}
barrier
v5: f32 = load b1[g]
)");
  // A loop that runs has its barriers on every path.
  for (const auto& [end, after] : {std::pair{"4", ""}, {"s0", "barrier\n"}}) {
    ExpectBarriers(absl::StrCat("barrier\nstore b3[lane] = v1: f32x32\nfor i0 in [0, ", end,
                                ") step 1 {\n  barrier\n  v4: f32 = load b1[g]\n  barrier\n"
                                "  store b1[g] = v4: f32\n}\n",
                                after, "v5: f32 = load b3[31]\n"));
  }
}

TEST(PlaceBarriers, RegistersThatChange) {
  // The loop begins at the old v4 + 1, so that the first load is of element 0.
  ExpectBarriers(R"(mut v4: i64 = v3
v5: i64 = index v4 + 1
barrier
store b3[0] = v0: f32
barrier
for i0 in [v4 + 1, v4 + 5) step 1 {
  v4 := v5
  v6: f32 = load b3[i0 - v4]
}
)");
  ExpectBarriers(R"(mut v4: i64 = v3
barrier
store b3[lane + v4] = v1: f32x32
v4 := v3
barrier
v5: f32x32 = load b3[lane + v4]
)");
  // The same elements in one iteration; perhaps others in the next.
  ExpectBarriers(R"(for i0 in [0, 4) step 1 {
  v4: i64 = load b2[g]
  barrier
  v5: f32x32 = load b3[lane + v4]
  store b3[lane + v4] = v5: f32x32
}
)");
}

// A block that copies 1024 elements to scratch and loads a fragment of them.
constexpr char kCopies[] =
    "kernel(s0) team 128 grid s0\nb0: f16 in\nb1: f16 scratch 2560\nb2: f16 scratch 2560\n";

std::string MessageOf(const std::string& body) {
  absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(kCopies, body));
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return std::string(Verify(*kernel).message());
}

TEST(PlaceBarriers, FragmentsAndCopiesOfOneStage) {
  // The next item's copies, and those of the next step, before which other waves have loaded.
  constexpr char kBody[] = R"(for i0 in [0, s0) step 1 {
  barrier
  copy b1[8*lane] = b0[1024*i0 + 8*lane] elements 8: f16x128
  commit
  wait 0
  barrier
  v0: f16x128.left = fragment b1[0] stride 16
}
)";
  EXPECT_EQ(MessageOf(kBody), "");
  for (const char* barrier : {"  barrier\n  copy", "  barrier\n  v0"}) {
    const std::string without = absl::StrReplaceAll(kBody, {{barrier, barrier + 10}});
    ASSERT_NE(without, kBody);
    EXPECT_THAT(MessageOf(without), HasSubstr("b1: no barrier between")) << barrier;
    absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(kCopies, without));
    PlaceBarriers(&*kernel);
    EXPECT_EQ(ToText(*kernel), absl::StrCat(kCopies, kBody)) << barrier;
  }
}

TEST(PlaceBarriers, PartsOfOneStageDoNotMeet) {
  // Two chunks of each thread, rows of 32 elements that lie 40 apart.
  EXPECT_EQ(MessageOf(R"(for i0 in [0, 2) step 1 {
  copy b1[8*floordiv(lane, 4) + 1280*i0 + 8*lane] = b0[8*lane] elements 8: f16x128
}
commit
wait 0
barrier
)"),
            "");
  // Rows of 32 that overlap those of the next part.
  EXPECT_THAT(
      MessageOf(R"(for i0 in [0, 2) step 1 {
  copy b1[8*floordiv(lane, 4) + 1264*i0 + 8*lane] = b0[8*lane] elements 8: f16x128
}
commit
wait 0
barrier
)"),
      HasSubstr("b1: no wait between \"copy b1[8*floordiv(lane, 4) + 1264*i0 + 8*lane]\" and"));
}

// Copies run a step ahead: at each wait but one group is done, in another stage.
TEST(CheckBarriers, StagesAhead) {
  constexpr char kBody[] = R"(copy b1[8*lane] = b0[8*lane] elements 8: f16x128
commit
for i0 in [0, s0) step 2 {
  wait 0
  barrier
  copy b2[8*lane] = b0[1024*i0 + 8*lane + 1024] elements 8: f16x128
  commit
  v0: f16x128.left = fragment b1[0] stride 16
  wait 0
  barrier
  copy b1[8*lane] = b0[1024*i0 + 8*lane + 2048] elements 8: f16x128
  commit
  v1: f16x128.left = fragment b2[0] stride 16
}
wait 0
barrier
)";
  EXPECT_EQ(MessageOf(kBody), "");
  struct {
    const char *line, *wrong, *message;
  } cases[] = {
      // Used before the copy's wait.
      {"  wait 0\n  barrier\n  copy b2", "  wait 1\n  barrier\n  copy b2",
       "b1: no wait between \"copy b1[8*lane]\" and \"v0 = fragment b1[0]\"; the copy may be"},
      {"  wait 0\n  barrier\n  copy b1", "  barrier\n  copy b1",
       "b2: no wait between \"copy b2[8*lane]\" and \"v1 = fragment b2[0]\"; the copy may be"},
      // Other threads' copies are only there behind a barrier.
      {"  wait 0\n  barrier\n  copy b2", "  barrier\n  wait 0\n  copy b2",
       "b1: no barrier between \"copy b1[8*lane]\" and \"v0 = fragment b1[0]\""},
      // The stage is filled while others may load it.
      {"  copy b1[8*lane] = b0[1024*i0 + 8*lane + 2048]",
       "  copy b2[8*lane] = b0[1024*i0 + 8*lane + 2048]",
       "b2: no wait between \"copy b2[8*lane]\" and \"v1 = fragment b2[0]\""},
      // A group that is never made is never done.
      {"  commit\n  v0", "  v0", "b2: no wait between \"copy b2[8*lane]\" and"},
      // The next item's copies meet the last ones.
      {"}\nwait 0\nbarrier\n", "}\n", "b1: no wait between \"copy b1[8*lane]\""},
  };
  for (const auto& c : cases) {
    const std::string text = absl::StrReplaceAll(kBody, {{c.line, c.wrong}});
    ASSERT_NE(text, kBody) << c.line;
    EXPECT_THAT(MessageOf(text), HasSubstr(c.message)) << c.wrong;
  }
}

TEST(CheckBarriers, NamesBothStatements) {
  for (const auto& [text, message] :
       {std::pair{"store b1[32*g + lane] = v1: f32x32\nv4: f32 = load b1[32*g]\n",
                  "b1: no barrier between \"store b1[32*g + lane]\" and \"v4 = load b1[32*g]\";"},
        {"for i0 in [0, s0) step 1 {\nv4: f32 = load b1[g]\nbarrier\nstore b1[g] = v4: f32\n}\n",
         "b1: no barrier between \"store b1[g]\" and \"v4 = load b1[g]\" of a later i0;"}}) {
    const absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(kHead, text));
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_THAT(std::string(Verify(*kernel).message()), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace athanor::kir
