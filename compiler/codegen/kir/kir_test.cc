#include "compiler/codegen/kir/kir.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::kir {
namespace {

using ::testing::HasSubstr;

// Every statement in every spelling.
constexpr char kEverything[] = R"(kernel(s0, s1) grid floordiv(s0 + 15, 16)
b0: f32 in
b1: bool out
b2: i64 in
b3: f8e4m3 in
b4: u32 out
b5: f32 scratch 64
b6: f32 scratch 8
b7: u32 scratch 16
b8: i64 scratch 8
b9: u32 scratch 16
b10: i64 scratch 8
v0: f32 = const 0x3fc00000 (1.5)
v1: f32x16 = const 0x7fc00000 (nan)
v2: i64 = const -9223372036854775808
v3: u64 = const 18446744073709551615
v4: bool = const 1
v5: i64x16 = index 16*g + lane
v6: f32x16 = load b0[16*g + lane] count -16*g + s0
v7: boolx16 = LessThan(v6, v1)
v8: f32x16 = load b0[min(s0, s1) + v5] count -16*g + s0 if v7
v9: f32x16 = broadcast(v0)
v10: f32x16 = fma(v6, v8, v9)
mut v11: f32x16 = v10
v12: boolx16 = lanes -16*g + s0
v13: boolx16 = check v5 below s1 count -16*g + s0 if v4
v14: f8e4m3 = load b3[0]
v15: f32 = Cast(v14)
v16: i64 = Shift.left(v2, v2)
v17: i64 = Shift(v2, v2)
for i0 in [max(0, g), floordiv(s0, 2)) step 4 unroll {
  v18: f32x16 = Max(v11, v6)
  v11 := v18
  if v4 {
    for i1 in [i0, v16) step 1 {
      store b5[i1] = v0: f32 if v4
    }
  }
}
prefetch b0[16*g + 4096]
gemm b5[0] stride 8 = b0[16*g] stride s0*s1 * b6[floordiv(s0, 2)] stride max(s1, 1) transposed: f32 rows min(s0, 8) columns 8 sums s1
sort b7[8], b8[0] by way of b9[0], b10[min(s0, 4)]: u32 elements min(s0, 4)
v19: f32 = reduce.Max(v11)
v20: u32 = randombits(v2, v3)
store b4[g] = v20: u32
store b1[16*g + lane] = v13: boolx16 count -16*g + s0 if v12
)";

TEST(KirText, RoundTrips) {
  absl::StatusOr<Kernel> kernel = ParseKernel(kEverything);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->vars, 21);
  EXPECT_TRUE(Verify(*kernel).ok()) << Verify(*kernel);
  EXPECT_EQ(ToText(*kernel), kEverything);
  EXPECT_TRUE(std::isnan(kernel->body[1].constant.f));
  EXPECT_EQ(kernel->ScratchBytes(), 320 + 4 * 64);
}

TEST(KirText, TeamsRoundTrip) {
  constexpr char kText[] =
      "kernel(s0) team 32 grid s0\nb0: f32 in\nb1: f32 out\nb2: f32 scratch 32\n"
      "v0: f32x32 = load b0[32*g + lane]\nbarrier\nstore b2[lane] = v0: f32x32\nbarrier\n"
      "v1: f32 = load b2[31]\nstore b1[g] = v1: f32\n";
  absl::StatusOr<Kernel> kernel = ParseKernel(kText);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->team, 32);
  EXPECT_EQ(ToText(*kernel), kText);
  EXPECT_TRUE(Verify(*kernel).ok()) << Verify(*kernel);
}

TEST(KirText, NarrowStatementsRoundTrip) {
  constexpr char kText[] =
      "kernel(s0) grid s0\nb0: f32 in\nb1: f32 out\ni32 v0: i64 = index 4*g\n"
      "i32 for i0 in [v0, v0 + 4) step 1 {\n  i32 v1: f32 = load b0[8*i0]\n"
      "  i32 store b1[8*i0] = v1: f32\n}\n";
  const absl::StatusOr<Kernel> kernel = ParseKernel(kText);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_TRUE(kernel->body[0].narrow);
  EXPECT_EQ(ToText(*kernel), kText);
  EXPECT_TRUE(Verify(*kernel).ok()) << Verify(*kernel);
}

constexpr char kCallText[] =
    "kernel(s0) grid 1\nb0: f16 out\nb1: f16 in\nb2: f16 in\nb3: f16 in\nb4: u8 launch 4194304\n"
    "call b0[0] stride 64 = b1[16] stride 32 transposed * b2[0] stride 64 batch_stride 2048 + b3: "
    "f16 rows 8*s0 columns 64 sums 32 batch 1 ways 64 128 proposal 2\n";

TEST(KirText, CallsRoundTrip) {
  const absl::StatusOr<Kernel> kernel = ParseKernel(kCallText);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(ToText(*kernel), kCallText);
  EXPECT_TRUE(Verify(*kernel).ok()) << Verify(*kernel);
  EXPECT_EQ(kernel->ScratchBytes(), 0);
  const Stmt* const call = CallOf(*kernel);
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->matrices[2].batch_stride, 2048);
  EXPECT_THAT(call->ways, ::testing::ElementsAre(64, 128));
  EXPECT_EQ(CallOf(*ParseKernel("kernel() grid 1\nb0: f32 in\nv0: f32 = load b0[0]\n")), nullptr);
}

TEST(KirVerify, RefusesCallsThatNoLibraryIsGiven) {
  for (const auto& [was, is, error] : std::vector<std::array<std::string, 3>>{
           {"grid 1", "grid s0", "all of its kernel"},
           {"grid 1", "team 32 grid 1", "all of its kernel"},
           {"proposal 2", "proposal 2\nv0: f16 = load b1[0]", "all of its kernel"},
           {"b0: f16 out", "b0: f16 in", "b0 is read only"},
           {"b2: f16 in", "b2: f32 in", "b2 holds f32"},
           {"b3: f16 in", "b3: f32 in", "b3 holds f32"},
           {"b4: u8 launch", "b4: u8 scratch", "b4: operands are global"},
           {"* b2", "* b1", "result, left, right"},
           {"+ b3", "+ b2", "result, left, right"},
           {"b1[16]", "b1[s0]", "index and stride must be constant"},
           {"b1[16] stride 32", "b1[16] stride s0", "index and stride must be constant"},
           {"b0[0] stride 64", "b0[0] stride 64 transposed", "the result is transposed"},
           {"rows 8*s0", "rows 8*s1", "symbol \"s1\""},
           {"columns 64", "columns s0", "only the rows"},
           {"ways 64 128", "ways", "ascending from 1"},
           {"ways 64 128", "ways 0 128", "ascending from 1"},
           {"ways 64 128", "ways 64 64", "ascending from 1"},
           {"proposal 2", "proposal -1", "proposal -1"}}) {
    const std::string text = absl::StrReplaceAll(kCallText, {{was, is}});
    ASSERT_NE(text, kCallText) << was;
    const absl::StatusOr<Kernel> kernel = ParseKernel(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status() << "\n" << text;
    EXPECT_THAT(std::string(Verify(*kernel).message()), HasSubstr(error)) << text;
  }
}

constexpr char kTicketText[] =
    "kernel() team 128 grid 8\nb0: f32 in\nb1: f32 out\nb2: u32 launch 2 zeroed\n"
    "v0: i32 = ticket b2[floordiv(g, 4)] of 4\n";

TEST(KirText, TicketsRoundTrip) {
  const absl::StatusOr<Kernel> kernel = ParseKernel(kTicketText);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(ToText(*kernel), kTicketText);
  EXPECT_TRUE(Verify(*kernel).ok()) << Verify(*kernel);
}

TEST(KirVerify, RefusesTicketsThatCountNothing) {
  for (const auto& [was, is, error] : std::vector<std::array<std::string, 3>>{
           {"team 128", "team 32", "it needs a block's 128 threads"},
           {"2 zeroed", "2", "b2 holds no counters"},
           {"b2: u32", "b2: i32", "b2 holds i32"},
           {"b2[floordiv(g, 4)]", "b2[lane]", "\"lane\" where all"},
           {"b2[floordiv(g, 4)]", "b9[g]", "no buffer b9"},
           {"of 4", "of 0", "of 0 teams"},
           {"v0: i32", "v0: u32", "it must be i32"},
           {"v0: i32 = ticket b2[floordiv(g, 4)] of 4", "v0: u32 = const 1\nstore b2[g] = v0: u32",
            "only tickets touch"}}) {
    const std::string text = absl::StrReplaceAll(kTicketText, {{was, is}});
    ASSERT_NE(text, kTicketText) << was;
    const absl::StatusOr<Kernel> kernel = ParseKernel(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status() << "\n" << text;
    EXPECT_THAT(std::string(Verify(*kernel).message()), HasSubstr(error)) << text;
  }
}

// A block that multiplies matrices of f16, and what a statement of it may look like otherwise.
constexpr char kMatrices[] = R"(kernel(s0) team 128 grid s0
b0: f16 in
b1: f32 out
b2: i8 in
b3: f16 scratch 5120
b4: f16 scratch 5120
b5: f32 scratch 128
b6: i8 scratch 2048
v0: f32 = const 0x0 (0)
v1: f32x128.sums = broadcast(v0)
mut v2: f32x128.sums = v1
v3: i64x128 = index 64*g + 8*lane
v4: i64x128 = index s0
v5: boolx128 = LessThan(v3, v4)
barrier
copy b3[8*floordiv(lane, 4) + 8*lane] = b0[v3] elements 8: f16x128 if v5
copy b4[8*lane] = b0[8*lane] elements 8: f16x128
commit
wait 0
barrier
for i0 in [0, 2) step 1 unroll {
  v6: f16x128.left = fragment b3[640*floordiv(lane, 64) + 16*i0] stride 40
  v7: f16x128.right = fragment b4[64*i0] stride 40 transposed
  v8: f32x128.sums = mma(v6, v7, v2)
  v2 := v8
}
v9: f32x128 = slot 3 of v2
store b5[lane] = v9: f32x128
)";

TEST(KirText, MatricesRoundTrip) {
  const absl::StatusOr<Kernel> kernel = ParseKernel(kMatrices);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(ToText(*kernel), kMatrices);
  EXPECT_TRUE(Verify(*kernel).ok()) << Verify(*kernel);
}

TEST(KirText, HashIsThatOfTheTextWithoutTheName) {
  Kernel a = *ParseKernel(kEverything), b = a;
  b.name = "other";
  EXPECT_EQ(KirHash(a), KirHash(b));
  EXPECT_EQ(KirHash(a).size(), 64u);
  b.body[0].constant.f = 1.25;
  EXPECT_NE(KirHash(a), KirHash(b));
}

struct Wrong {
  const char* text;
  const char* message;
};

constexpr char kHead[] =
    "kernel(s0) grid s0\nb0: f32 in\nb1: f32 out\nv0: f32 = const 0x0 (0)\nv1: i64 = const 1\n"
    "v2: bool = const 1\nv3: f32x8 = broadcast(v0)\nv4: i64x8 = index lane\n";

TEST(KirText, SyntaxErrorsNameTheLine) {
  for (const Wrong& w :
       {Wrong{"v5: f33 = const 0", "line 9: expected a type"},
        {"v5: f32 = Frob(v0)", "expected an op's name"},
        {"v5: f32 = load b0[g", "expected"},
        {"for i0 in [0, 5) step 1 {", "expected \"}\""},
        {"}", "no '}' outside a loop"},
        {"prefetch b0[g] count 3", "expected the end of the line"},
        {"v5: i64 = index 3 +", "expected an index expression"},
        {"v99999999999: i64 = index 3", "expected an integer"},
        {"gemm b1[0] stride 1 = b0[0] stride 1", "line 9: expected \" * \""},
        {"sort b1[0], b0[0]: u32 elements 3", "line 9: expected an index expression"},
        {"store b1[g] = v0: f32 trailing", "expected the end of the line"}}) {
    absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(kHead, w.text, "\n"));
    ASSERT_FALSE(kernel.ok()) << w.text;
    EXPECT_THAT(std::string(kernel.status().message()), HasSubstr(w.message)) << w.text;
  }
}

TEST(KirVerify, NamesWhatIsWrongWithASort) {
  const std::string head =
      "kernel(s0) grid s0\nb0: u32 in\nb1: u32 out\nb2: i32 scratch 8\nb3: u32 scratch 8\n"
      "b4: i32 scratch 8\nb5: i64 scratch 8\nb6: f32 scratch 8\nb7: f32 scratch 8\n";
  EXPECT_TRUE(
      Verify(*ParseKernel(head + "sort b1[g], b2[0] by way of b3[0], b4[0]: u32 elements s0\n"))
          .ok());
  for (const Wrong& w :
       {Wrong{"sort b0[0], b2[0] by way of b3[0], b4[0]: u32 elements 8", "b0 is read only"},
        {"sort b1[0], b2[0] by way of b3[0], b5[0]: u32 elements 8", "b5 holds i64"},
        {"sort b1[0], b6[0] by way of b3[0], b7[0]: u32 elements 8",
         "positions must be i32 or i64"},
        {"sort b6[0], b2[0] by way of b7[0], b4[0]: f32 elements 8",
         "by keys of f32; it must be u8"},
        {"sort b1[0], b2[0] by way of b3[0], b2[0]: u32 elements 8", "b2 is there twice"},
        {"sort b1[0], b2[0] by way of b9[0], b4[0]: u32 elements 8", "the kernel has no buffer b9"},
        {"sort b1[0], b2[0] by way of b3[0], b4[0]: u64 elements 8", "b1 holds u32"},
        {"sort b1[lane], b2[0] by way of b3[0], b4[0]: u32 elements 8", "\"lane\""},
        {"sort b1[0], b2[0] by way of b3[0], b4[0]: u32 elements s1", "symbol \"s1\""}}) {
    const absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(head, w.text, "\n"));
    ASSERT_TRUE(kernel.ok()) << w.text << ": " << kernel.status();
    const absl::Status status = Verify(*kernel);
    EXPECT_THAT(std::string(status.message()), HasSubstr("sort: ")) << w.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(w.message)) << w.text;
  }
}

TEST(KirVerify, NamesWhatIsWrongWithATeam) {
  for (const Wrong& w :
       {Wrong{"kernel() team 3 grid 1\n",
              "a team of 3 threads; it must be a power of two up to 32"},
        {"kernel() team 0 grid 1\n", "a team of 0 threads"},
        {"kernel() team 64 grid 1\n", "a team of 64 threads"},
        {"kernel() grid 1\nbarrier\n", "barrier: in a kernel of teams of one"},
        {"kernel() team 32 grid 1\nv0: i64x16 = index lane\n",
         "v0: 16 lanes; a team of 32 has 1 or as many"},
        {"kernel() team 4 grid 9\nb0: f32 out\nv0: f32x4 = load b0[4*g + lane]\nstore b0[4*g] = "
         "v0: f32x4\n",
         "b0: two threads of the team may be at one element in \"store b0[4*g]\"; each lane needs"},
        {"kernel() team 32 grid 1\nb0: f32 in\nb1: f32 out\ngemm b1[0] stride 1 = b0[0] stride 1 * "
         "b0[0] stride 1: f32 rows 1 columns 1 sums 1\n",
         "gemm: in a kernel of teams of 32"}}) {
    const absl::StatusOr<Kernel> kernel = ParseKernel(w.text);
    ASSERT_TRUE(kernel.ok()) << w.text << ": " << kernel.status();
    EXPECT_THAT(std::string(Verify(*kernel).message()), HasSubstr(w.message)) << w.text;
  }
}

// A team's lanes are threads, which store in any order.
// Expects the message of `kMatrices` with one line in place of another.
TEST(KirVerify, NamesWhatIsWrongWithMatrices) {
  struct {
    const char *line, *wrong, *message;
  } cases[] = {
      {"b3[640*floordiv(lane, 64) + 16*i0] stride 40",
       "b3[640*floordiv(lane, 64) + 4*i0] stride 40",
       "v6: index 640*floordiv(lane, 64) + 4*i0 is not proved to be a multiple of 8, the elements"},
      {"+ 16*i0] stride 40", "+ 16*i0] stride 36", "index 36 is not proved to be a multiple of 8"},
      {"640*floordiv(lane, 64)", "640*floordiv(lane, 16)", "differs by thread of a wave"},
      {"fragment b3[640*floordiv(lane, 64)", "fragment b0[640*floordiv(lane, 64)",
       "v6: b0 is global; it must be scratch"},
      {"v6: f16x128.left", "v6: f16x128.sums", "only operands are loaded, .left and .right"},
      {"v6: f16x128.left", "v6: f16x128", "only operands are loaded"},
      {"v6: f16x128.left", "v6: bf16x128.left", "b3 holds f16"},
      {"v7: f16x128.right = fragment b4[64*i0] stride 40 transposed",
       "v7: f16x128.right = fragment b4[64*i0] stride 40 transposed\n"
       "v10: i8x128.left = fragment b6[0] stride 48 transposed",
       "v10: elements of one byte must lie side by side along the sums: a left operand is not"},
      {"v7: f16x128.right = fragment b4[64*i0] stride 40 transposed",
       "v7: f16x128.right = fragment b4[64*i0] stride 40 transposed\n"
       "v10: i8x128.right = fragment b6[0] stride 48",
       "a right operand is transposed"},
      {"v8: f32x128.sums = mma(v6, v7, v2)", "v8: f32x128.sums = mma(v7, v6, v2)",
       "v8: operand v7 is a f16x128.right; it must be f16x128.left"},
      {"v8: f32x128.sums = mma(v6, v7, v2)", "v8: f32x128.sums = mma(v6, v7)",
       "v8: 2 operands; it must have 3"},
      {"v8: f32x128.sums = mma(v6, v7, v2)", "v8: f32x128.sums = mma(v0, v7, v2)",
       "no matrix instruction multiplies f32"},
      {"v8: f32x128.sums = mma(v6, v7, v2)", "v8: i32x128.sums = mma(v6, v7, v2)",
       "is a i32x128.sums; it must be f32x128.sums"},
      {"v8: f32x128.sums = mma(v6, v7, v2)", "v8: f32x128.sums = Add(v2, v2)",
       "v8: operand v2 is a f32x128.sums; it must be no fragment"},
      {"v8: f32x128.sums = mma(v6, v7, v2)", "v8: f32x128.sums = Add(v0, v0)",
       "v8: is a f32x128.sums, a fragment"},
      {"slot 3 of v2", "slot 4 of v2", "slot 4; a thread has slots 0 to 3"},
      {"slot 3 of v2", "slot 3 of v0", "operand v0 is a f32; it must be f32x128.sums"},
      {"= v9: f32x128", "= v2: f32x128.sums", "store to b5: operand v2 is a f32x128.sums"},
      {"copy b4[8*lane]", "copy b4[4*lane]", "copy to b4: index 4*lane is not proved"},
      {"copy b4[8*lane] = b0[8*lane] elements 8", "copy b4[8*lane] = b0[8*lane] elements 4",
       "of 4 elements of f16; it must be 16 bytes"},
      {"copy b4[8*lane] = b0[8*lane]", "copy b4[8*lane] = b3[8*lane]",
       "from b3; it must be a global buffer that is only read"},
      {"copy b4[8*lane] = b0[8*lane]", "copy b0[8*lane] = b0[8*lane]", "b0 is global"},
      {"copy b4[8*lane] = b0[8*lane]", "copy b4[8*lane] = b2[8*lane]", "b2 holds i8"},
      {"8: f16x128 if v5", "8: f16x128 if v0", "predicate v0 is a f32"},
      {"8: f16x128 if v5", "8: f16x128 count s0 if v5", "a predicate says which lanes copy"},
      {"8: f16x128 if v5", "8: f16 if v5", "of f16; each of 128 threads copies"},
      {"wait 0", "wait 8", "wait: for all but 8 groups; it must be 0 to 7"},
  };
  for (const auto& c : cases) {
    const std::string text = absl::StrReplaceAll(kMatrices, {{c.line, c.wrong}});
    ASSERT_NE(text, kMatrices) << c.line;
    const absl::StatusOr<Kernel> kernel = ParseKernel(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_THAT(std::string(Verify(*kernel).message()), HasSubstr(c.message)) << c.wrong;
  }
}

TEST(KirVerify, OnlyABlockHasCopiesAndFragments) {
  constexpr char kWave[] = "kernel() team 32 grid 1\nb0: f16 in\nb1: f16 scratch 512\n";
  for (const char* line : {"commit", "wait 0", "copy b1[8*lane] = b0[8*lane] elements 8: f16x32",
                           "v0: f16x32.left = fragment b1[0] stride 16"}) {
    const absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(kWave, line, "\n"));
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_THAT(std::string(Verify(*kernel).message()),
                HasSubstr("in a kernel of teams of 32; it needs a block's 128 threads"))
        << line;
  }
}

TEST(KirVerify, LanesOfATeamStoreToElementsOfTheirOwn) {
  const auto verify = [](const char* team, const std::string& text) {
    const absl::StatusOr<Kernel> kernel = ParseKernel(
        absl::StrCat("kernel(s0, s1)", team,
                     " grid 1\nb0: i64 in\nb1: f32 out\nv0: f32 = const 0x0 (0)\n"
                     "v1: i64 = const 1\nv2: f32x32 = broadcast(v0)\nv3: i64 = load b0[g]\n",
                     text, " = v2: f32x32\n"));
    EXPECT_TRUE(kernel.ok()) << text << ": " << kernel.status();
    return Verify(*kernel);
  };
  for (const char* text :
       {"v4: i64x32 = broadcast(v1)\nstore b1[v4]", "v4: i64x32 = index g\nstore b1[v4]",
        "store b1[floordiv(lane, 2)]", "v4: i64x32 = load b0[lane]\nstore b1[v4]",
        "v4: i64x32 = load b0[lane]\nv5: i64x32 = index v4 + lane\nstore b1[v5]",
        "v4: i64x32 = index 2*lane\nv5: i64x32 = index lane\nstore b1[v4 - 2*v5]",
        "store b1[lane*v3]", "store b1[s0*lane - lane]", "store b1[s0*lane - s1*lane]",
        "for i0 in [0, 4) step 1 {\n  store b1[i0*lane] = v2: f32x32\n}\nstore b1[lane]",
        "mut v4: i64 = v1\nstore b1[v4]"}) {
    EXPECT_THAT(std::string(verify(" team 32", text).message()),
                HasSubstr("b1: two threads of the team may be at one element in \"store b1["))
        << text;
    EXPECT_TRUE(verify("", text).ok()) << text << ": " << verify("", text);
  }
  for (const char* text :
       {"store b1[lane + v3]", "store b1[-lane + 31]", "v4: i64x32 = index 4*lane\nstore b1[v4]",
        "v4: i64x32 = index lane\nv5: i64x32 = index 3*v4 + v3\nstore b1[v5 + s1]",
        "store b1[8*s1*floordiv(lane + v3, 8) + mod(lane + v3, 8)]",
        "store b1[s0*lane + s0*s1*lane]", "store b1[lane*floordiv(s0, 2)]",
        "v4: i64 = index s0*s1\nstore b1[lane*v4]", "mut v4: i64 = v1\nstore b1[lane + v4]"}) {
    EXPECT_TRUE(verify(" team 32", text).ok()) << text << ": " << verify(" team 32", text);
  }
}

TEST(KirVerify, NamesWhatIsWrong) {
  for (const Wrong& w :
       {Wrong{"v5: f32 = Add(v0, v6)", "v5: v6 is used before it is defined"},
        {"if v2 {\n v5: f32 = Add(v0, v0)\n}\nstore b1[g] = v5: f32",
         "v5 is used outside its scope"},
        {"v0: f32 = const 0x0 (0)", "v0: defined twice"},
        {"v5: f32 = Add(v0, v1)", "v5: Add:"},
        {"v5: f32x8 = Add(v3, v0)", "operand v0 has 1 lanes, the result 8"},
        {"v5: bool = Add(v0, v0)", "Add gives f32, the register is a bool"},
        {"v5: f32 = Softmax(v0)", "Softmax is not elementwise"},
        {"v5: f32 = Add(v0)", "Add of 1 operands; it must have 2"},
        {"v5: f32x8 = fma(v3, v3, v0)", "operand v0 is a f32; it must be f32x8"},
        {"v0 := v0", "assigned but not a mutable register"},
        {"mut v5: f32 = v0\nv5 := v3", "operand v3 is a f32x8"},
        {"v5: f32 = load b7[g]", "the kernel has no buffer b7"},
        {"v5: i64 = load b0[g]", "b0 holds f32"},
        {"store b0[g] = v0: f32", "store to b0: b0 is read only"},
        {"store b1[lane] = v0: f32", "\"lane\" where all lanes share"},
        {"store b1[v4] = v0: f32", "v4 differs by lane"},
        {"store b1[v9] = v0: f32", "symbol \"v9\""},
        {"store b1[s1] = v0: f32", "symbol \"s1\""},
        {"store b1[v0] = v0: f32", "symbol \"v0\""},
        {"store b1[g] = v0: f32 if v0", "predicate v0 is a f32"},
        {"prefetch b7[g]", "prefetch of b7: the kernel has no buffer b7"},
        {"prefetch b0[lane]", "\"lane\" where all lanes share"},
        {"store b1[8*g + lane] = v3: f32x8 count lane", "\"lane\""},
        {"for i0 in [0, 5) step 0 {\n}", "loop i0: step 0"},
        {"for i0 in [0, i0) step 1 {\n}", "symbol \"i0\""},
        {"for i0 in [0, 4) step 1 {\nfor i0 in [0, 4) step 1 {\n}\n}",
         "taken by an enclosing loop"},
        {"for s0 in [0, 4) step 1 {\n}", "loop variables are named"},
        {"if v0 {\n}", "operand v0 is a f32; it must be bool"},
        {"v5: f32x3 = broadcast(v0)", "3 lanes; it must be a power of two"},
        {"v5: f32 = reduce.Xor(v3)", "no reduction by Xor"},
        {"v5: f32 = reduce.And(v3)", "And:"},
        {"v5: u32 = randombits(v1, v1)", "operand v1 is a i64; it must be u64"},
        {"gemm b1[0] stride 1 = b0[0] stride 1 * b7[0] stride 1: f32 rows 1 columns 1 "
         "sums 1",
         "gemm: the kernel has no buffer b7"},
        {"gemm b0[0] stride 1 = b1[0] stride 1 * b1[0] stride 1: f32 rows 1 columns 1 "
         "sums 1",
         "gemm: b0 is read only"},
        {"gemm b1[0] stride 1 = b0[0] stride 1 * b1[0] stride 1: f32 rows 1 columns 1 "
         "sums 1",
         "gemm: b1 is the result and an operand"},
        {"gemm b1[0] stride 1 = b0[lane] stride 1 * b0[0] stride 1: f32 rows 1 "
         "columns 1 sums 1",
         "gemm: \"lane\" where all lanes share"},
        {"gemm b1[0] stride 1 = b0[0] stride s3 * b0[0] stride 1: f32 rows 1 "
         "columns 1 sums 1",
         "gemm: symbol \"s3\""},
        {"gemm b1[0] stride 1 = b0[0] stride 1 * b0[0] stride 1: f64 rows 1 "
         "columns 1 sums 1",
         "gemm: b1 holds f32"},
        {"gemm b1[0] stride 1 = b0[0] stride 1 * b0[0] stride 1: bf16 rows 1 "
         "columns 1 sums 1",
         "gemm: of bf16; it must be f32 or f64"},
        {"gemm b1[0] stride 1 transposed = b0[0] stride 1 * b0[0] stride 1: f32 rows "
         "1 columns 1 sums 1",
         "gemm: the result is transposed"},
        {"v5: f32 = lanes s0", "is a f32; it must be bool"}}) {
    absl::StatusOr<Kernel> kernel = ParseKernel(absl::StrCat(kHead, w.text, "\n"));
    ASSERT_TRUE(kernel.ok()) << w.text << ": " << kernel.status();
    const absl::Status status = Verify(*kernel);
    EXPECT_FALSE(status.ok()) << w.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(w.message)) << w.text;
  }
}

}  // namespace
}  // namespace athanor::kir
