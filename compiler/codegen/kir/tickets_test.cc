#include "compiler/codegen/kir/tickets.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/codegen/kir/barriers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::kir {
namespace {

using ::testing::HasSubstr;

// Four items share each tile: each adds up a quarter of a row, and the last to be done all
// quarters.
constexpr char kSplit[] = R"(kernel(s0) team 128 grid 4*s0
b0: f32 in
b1: f32 out
b2: f32 launch 4096
b3: u32 launch 8 zeroed
b4: f32 scratch 128
v0: f32x128 = load b0[128*g + lane]
v1: f32x128 = load b0[128*g + lane + 4096]
store b2[256*g + lane] = v0: f32x128
store b2[256*g + lane + 128] = v1: f32x128
v2: i32 = ticket b3[floordiv(g, 4)] of 4
v3: i32 = const 2
v4: bool = LessThan(v3, v2)
if v4 {
  v5: f32 = const 0x0 (0)
  v6: f32x128 = broadcast(v5)
  mut v7: f32x128 = v6
  for i0 in [0, 4) step 1 {
    v8: f32x128 = load b2[1024*floordiv(g, 4) + 256*i0 - lane + 127]
    v9: f32x128 = Add(v7, v8)
    v7 := v9
  }
  store b1[128*floordiv(g, 4) + lane] = v7: f32x128
}
)";

std::string MessageOf(const std::string& text) {
  const absl::StatusOr<Kernel> kernel = ParseKernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status() << "\n" << text;
  return kernel.ok() ? std::string(Verify(*kernel).message()) : "";
}

TEST(CheckTickets, ItemsMayShareASum) {
  EXPECT_EQ(MessageOf(kSplit), "");
  // The ticket is a barrier: no other is needed, and none is placed.
  absl::StatusOr<Kernel> kernel = ParseKernel(kSplit);
  ASSERT_TRUE(kernel.ok());
  PlaceBarriers(&*kernel);
  EXPECT_EQ(ToText(*kernel), kSplit);
}

TEST(CheckTickets, RefusesTheRest) {
  const struct {
    const char *was, *is, *error;
  } cases[] = {
      // Stores.
      {"  store b1", "  store b2[256*g + lane] = v7: f32x128\n  store b1",
       "store to b2 behind the ticket v2: the last item may be reading"},
      {"256*g + lane + 128]", "256*g + lane + 129]", "b2: two items may be at one element in"},
      {"store b2[256*g + lane]", "store b2[lane]",
       "\"store b2[lane]\" and \"store b2[lane]\"; each item needs elements of its own"},
      {"store b2[256*g + lane]", "store b2[256*floordiv(g, 2) + lane]", "b2: two items may be"},
      {"store b2[256*g + lane + 128]", "store b2[128*g + lane]", "b2: two items may be"},
      {"v2: i32 = ticket b3[floordiv(g, 4)] of 4", "v2: i32 = const 3",
       "v8 = load b2[1024*floordiv(g, 4) + 256*i0 - lane + 127]: other items may not have stored "
       "it"},
      // Loads.
      {"v3: i32 = const 2", "v3: i32 = const 1", "it must stand in an if that the ticket is the"},
      {"v3: i32 = const 2", "v3: i32 = const 3", "it must stand in an if that the ticket is the"},
      {"LessThan(v3, v2)", "LessThan(v2, v3)", "it must stand in an if that the ticket is the"},
      {"v3: i32 = const 2", "v10: f32x128 = load b2[256*g + lane]\nv3: i32 = const 2",
       "v10 = load b2[256*g + lane]: other items may not have stored it"},
      {"  store b1", "  prefetch b2[256*g]\n  store b1",
       "b2 is memory of the launch, which is only loaded and stored"},
      // The ticket.
      {"v3: i32 = const 2", "v10: i32 = ticket b3[floordiv(g, 4)] of 4\nv3: i32 = const 2",
       "v10: a ticket after v2; a kernel draws at most one"},
      {"v3: i32 = const 2\n",
       "v3: i32 = const 2\nv10: bool = LessThan(v3, v3)\nif v10 {\n"
       "  v11: i32 = ticket b3[floordiv(g, 4)] of 4\n}\n",
       "v11: a ticket after v2"},
      {"grid 4*s0", "grid s0", "v2: of 4 teams; the grid s0 is not proved to be a multiple"},
      {"b3[floordiv(g, 4)]", "b3[floordiv(g, 8)]",
       "v2: counter floordiv(g, 8); 4 items draw each at floordiv(g, 4)"},
      {"b3[floordiv(g, 4)]", "b3[0]", "v2: counter 0; 4 items draw each"},
      {"v3: i32 = const 2", "v10: u32 = load b3[0]\nv3: i32 = const 2",
       "b3 holds counters, which only tickets touch"},
  };
  for (const auto& c : cases) {
    const std::string text = absl::StrReplaceAll(kSplit, {{c.was, c.is}});
    ASSERT_NE(text, kSplit) << c.was;
    EXPECT_THAT(MessageOf(text), HasSubstr(c.error)) << text;
  }
}

TEST(CheckTickets, EachItemDrawsOnce) {
  constexpr char kHead[] = "kernel(s0) team 128 grid 4*s0\nb0: u32 launch 8 zeroed\n";
  for (const char* around : {"for i0 in [0, 2) step 1 {\n", "v0: bool = const 1\nif v0 {\n"}) {
    EXPECT_THAT(
        MessageOf(absl::StrCat(kHead, around, "  v1: i32 = ticket b0[floordiv(g, 4)] of 4\n}\n")),
        HasSubstr("v1: a ticket in a loop or under a condition; each item draws one, once"));
  }
}

TEST(CheckTickets, StoresWithoutATicketAreForNobody) {
  EXPECT_THAT(MessageOf("kernel() team 128 grid 8\nb0: f32 launch 1024\nv0: f32 = const 0x0 (0)\n"
                        "v1: f32x128 = broadcast(v0)\nstore b0[128*g + lane] = v1: f32x128\n"),
              HasSubstr("b0: no ticket is drawn behind its stores"));
}

TEST(CheckTickets, OneTileHasOneCounter) {
  const std::string one = absl::StrReplaceAll(
      kSplit, {{"grid 4*s0", "grid 4"}, {"(s0)", "()"}, {"b3[floordiv(g, 4)]", "b3[0]"}});
  EXPECT_EQ(MessageOf(one), "");
  // One item alone may store what it likes.
  EXPECT_EQ(MessageOf("kernel() team 128 grid 1\nb0: f32 launch 128\nb1: u32 launch 1 zeroed\n"
                      "v0: f32 = const 0x0 (0)\nv1: f32x128 = broadcast(v0)\n"
                      "store b0[lane] = v1: f32x128\nv2: i32 = ticket b1[0] of 1\n"),
            "");
}

// What other threads wrote to scratch is seen behind the ticket, and what it did not order races.
TEST(CheckTickets, ATicketIsABarrier) {
  const std::string scratch = absl::StrReplaceAll(
      kSplit, {{"v2: i32", "store b4[lane] = v0: f32x128\nv2: i32"},
               {"v3: i32", "v10: f32 = load b4[127]\nv3: i32"},
               {"  store b1[128*floordiv(g, 4) + lane] = v7: f32x128\n}\n",
                "  store b1[128*floordiv(g, 4) + lane] = v7: f32x128\n}\nbarrier\n"}});
  EXPECT_EQ(MessageOf(scratch), "");
  EXPECT_THAT(MessageOf(absl::StrReplaceAll(scratch, {{"}\nbarrier\n", "}\n"}})),
              HasSubstr("b4: no barrier between \"v10 = load b4[127]\" and \"store b4[lane]\" of a "
                        "later g"));
}

}  // namespace
}  // namespace athanor::kir
