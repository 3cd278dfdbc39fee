// Kernels as text: a graph through the baseline's choice and lowering, against testdata/<name>.kir.
// A change of these files is a change of kernels, for review. To rewrite them, run the test with
// ATHANOR_GOLDEN_DIR set to the folder.
#include "compiler/codegen/lower/lower.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/fusion.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Target Target() {
  v1::Target t;
  t.set_vector_bytes(32);
  t.set_vector_registers(16);
  t.set_l1_bytes(32 << 10);
  t.set_l2_bytes(1 << 20);
  t.set_threads(2);
  return t;
}

std::string Lowered(const std::string& text, const v1::Target& target = Target()) {
  absl::StatusOr<Graph> g = ParseGraph(text);
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return "";
  Genome genome = ChooseKernels(*g, target);
  PackWeights(&*g, &genome, target);
  const std::vector<bool> memory = MemoryOf(*g, genome);
  std::string kernels;
  for (const KernelChoice& choice : genome.kernels) {
    absl::StatusOr<LoweredKernel> k = LowerKernel({*g, memory, target}, choice);
    EXPECT_TRUE(k.ok()) << k.status();
    if (!k.ok()) return "";
    EXPECT_TRUE(kir::Verify(k->kernel).ok()) << kir::Verify(k->kernel);
    EXPECT_EQ(k->buffers[0], choice.root);
    std::string printed = kir::ToText(k->kernel);
    absl::StatusOr<kir::Kernel> parsed = kir::ParseKernel(printed);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (parsed.ok()) EXPECT_EQ(kir::KirHash(*parsed), kir::KirHash(k->kernel));
    kernels += printed + "\n";
  }
  return kernels;
}

void ExpectGolden(const std::string& name, const std::string& got,
                  const std::string& folder_of = "compiler/codegen/lower/testdata/") {
  if (const char* folder = std::getenv("ATHANOR_GOLDEN_DIR")) {
    std::ofstream(std::string(folder) + "/" + name + ".kir") << got;
    return;
  }
  std::ifstream file(folder_of + name + ".kir");
  std::stringstream want;
  want << file.rdbuf();
  EXPECT_TRUE(file.good() || file.eof()) << name;
  EXPECT_EQ(got, want.str()) << name;
}

TEST(LowerTest, MapAdd) {
  ExpectGolden("map_add", Lowered(R"(graph "" {
    dim n in [1, 100000]
    %0 = Input "x" : f32[n]
    %1 = Input "y" : f32[n]
    %2 = Add(%0, %1)
    output "z" = %2
  })"));
}

TEST(LowerTest, SoftmaxRow) {
  ExpectGolden("softmax_row", Lowered(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b, 100]
    %1 = MaxReduce(%0) {axes=[1]}
    %2 = IndexMap(%1) {map=map[b, 100]($0)}
    %3 = Constant {value=f32[] {-1.0}}
    %4 = IndexMap(%3) {map=map[b, 100]()}
    %5 = Mul(%2, %4)
    %6 = Add(%0, %5)
    %7 = Exp(%6)
    %8 = SumReduce(%7) {axes=[1]}
    %9 = IndexMap(%8) {map=map[b, 100]($0)}
    %10 = Div(%7, %9)
    output "y" = %10
  })"));
}

TEST(LowerTest, ContractWithBias) {
  ExpectGolden("contract_bias", Lowered(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b, 20]
    %1 = Parameter "w" : f32[20, 24]
    %2 = Parameter "bias" : f32[24]
    %3 = Contract(%0, %1) {spec="mk,kn->mn"}
    %4 = IndexMap(%2) {map=map[b, 24]($1)}
    %5 = Add(%3, %4)
    output "y" = %5
  })"));
}

// Takes a row an item, of a state that a step has written into; then rows of one sequence together.
TEST(LowerTest, PagedAttention) {
  const auto text = [](int most, const char* attributes) {
    return absl::StrCat("graph \"\" { dim t in [1, ", most, R"(] dim n in [1, 256] dim s in [1, 8]
      dim b in [1, 64]
      %0 = Input "q" : f32[t, 6, 16]
      %1 = StateRead "k" {role="keys"} : f32[16*n, 2, 16]
      %2 = StateRead "v" {role="values"} : f32[16*n, 2, 20]
      %3 = Input "table" : i32[s, b]
      %4 = Input "sequence" : i32[t]
      %5 = Input "position" : i32[t]
      %6 = Parameter "sink" : f32[6]
      %7 = PagedAttention(%0, %1, %2, %3, %4, %5, %6) {)",
                        attributes, R"(}
      %8 = IndexMap(%7) {map=map[t, 120]($0, floordiv($1, 20), mod($1, 20))}
      output "y" = %8 })");
  };
  ExpectGolden("paged_row", Lowered(text(16, "block=16")));
  ExpectGolden("paged_rows", Lowered(text(17, "block=32, softcap=30.0, window=100")));
}

// Few of many: elements that are not below the last of the best so far are skipped.
TEST(LowerTest, TopKOfMany) {
  ExpectGolden("top_k", Lowered(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b, 50000]
    %1 = TopK(%0) {axis=1, k=shape[10]}
    output "y" = %1
  })"));
}

// Two heads of 20: the update is computed where it is stored, each lane's element 16 behind the one
// before; what reads the write reads it so.
constexpr char kStateOfKeys[] = R"(graph "" {
  dim t in [0, 64]
  dim n in [1, 4096]
  %0 = Input "x" : f32[t, 2, 20]
  %1 = Input "scale" : f32[t]
  %2 = Input "slot" : i32[t]
  %3 = StateRead "k" {role="ROLE"} : f32[16*n, 2, 20]
  %4 = IndexMap(%1) {map=map[t, 2, 20]($0)}
  %5 = Mul(%0, %4)
  %6 = StateWrite(%3, %2, %5)
  %7 = Gather(%6, %2) {axis=0}
  %8 = Exp(%7)
  output "y" = %8
  update %6
})";

TEST(LowerTest, StateOfKeys) {
  ExpectGolden("state_keys", Lowered(absl::StrReplaceAll(kStateOfKeys, {{"ROLE", "keys"}})));
}

TEST(LowerTest, StateOfValues) {
  ExpectGolden("state_values", Lowered(absl::StrReplaceAll(kStateOfKeys, {{"ROLE", "values"}})));
}

TEST(LowerTest, StateRowsOfOneElement) {
  EXPECT_THAT(Lowered(R"(graph "" {
    dim t in [0, 64]
    dim n in [1, 4096]
    %0 = Input "x" : f32[t]
    %1 = Input "slot" : i64[t]
    %2 = StateRead "s" {role=""} : f32[n]
    %3 = Exp(%0)
    %4 = StateWrite(%2, %1, %3)
    output "y" = %0
    update %4
  })"),
              HasSubstr("v0: i64 = load b1[g]\nv1: bool = check v0 below s1\n"
                        "if v1 {\n  v2: f32 = load b2[g]\n  v3: f32 = Exp(v2)\n"
                        "  store b0[v0] = v3: f32\n}\n"));
}

// A team writes a row together, each thread elements of its own.
TEST(LowerTest, StatesOfAGpu) {
  v1::Target gpu = Target();
  gpu.set_device("cuda");
  gpu.set_vector_bytes(1);
  for (const char* role : {"keys", "values", ""}) {
    const std::string text = Lowered(absl::StrReplaceAll(kStateOfKeys, {{"ROLE", role}}), gpu);
    EXPECT_THAT(text, HasSubstr("kernel(s0, s1) team 32 grid s0\n")) << role;
  }
}

TEST(LowerTest, OnlyAWriteHasItsKind) {
  const absl::StatusOr<Graph> g = ParseGraph(absl::StrReplaceAll(kStateOfKeys, {{"ROLE", "keys"}}));
  ASSERT_TRUE(g.ok()) << g.status();
  const v1::Target target = Target();
  for (const auto& [root, kind] :
       {std::pair<NodeId, KernelKind>{5, KernelKind::kStateWrite}, {6, KernelKind::kScatter}}) {
    const KernelChoice choice{.root = root, .kind = kind};
    const std::vector<bool> memory = MemoryOf(*g, {{choice}});
    const absl::Status status = LowerKernel({*g, memory, target}, choice).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << root << ": " << status;
  }
}

TEST(LowerTest, SortNeedsABound) {
  const absl::StatusOr<Graph> g = ParseGraph(R"(graph "" {
    dim n in [1, 100000000000]
    %0 = Input "x" : f64[n]
    %1 = Sort "order"(%0) {axis=0}
    %2 = TopK(%0) {axis=0, k=shape[1]}
    output "y" = %1
    output "z" = %2
  })");
  ASSERT_TRUE(g.ok()) << g.status();
  const v1::Target target = Target();
  KernelChoice choice{.root = 1, .kind = KernelKind::kSort};
  const std::vector<bool> memory = {true, true, true};
  const absl::Status status = LowerKernel({*g, memory, target}, choice).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("(Sort): axis 0 of n elements takes 32 bytes of scratch"),
            absl::string_view::npos)
      << status;
  // TopK of a single element needs little scratch.
  choice.root = 2;
  const absl::StatusOr<LoweredKernel> one = LowerKernel({*g, memory, target}, choice);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_LT(one->kernel.ScratchBytes(), 1 << 15);
  choice.root = 0;
  EXPECT_EQ(LowerKernel({*g, memory, target}, choice).status().code(), absl::StatusCode::kInternal);
}

// Two rows side by side; tests at borders only; weights read once.
TEST(LowerTest, WindowsInRows) {
  const absl::StatusOr<Graph> g = ParseGraph(R"(graph "" {
    dim w in [1, 500]
    %0 = Input "x" : f32[2, 20, w]
    %1 = Parameter "k" : f32[2, 3]
    %2 = IndexMap(%0) {fill=f32[] {0.0}, map=map[2, 20, w, 3]($0, $1 + $3 - 1, $2)}
    %3 = IndexMap(%1) {map=map[2, 20, w, 3]($0, $3)}
    %4 = Mul(%2, %3)
    %5 = SumReduce(%4) {axes=[3]}
    %6 = IndexMap(%5) {fill=f32[] {0.5}, map=map[2, 20, w]($0, $1, $2 - 1)}
    output "y" = %6
  })");
  ASSERT_TRUE(g.ok()) << g.status();
  KernelChoice choice{.root = 6};
  choice.walk.rows = 2;
  const absl::StatusOr<LoweredKernel> k =
      LowerKernel({*g, MemoryOf(*g, {{choice}}), Target()}, choice);
  ASSERT_TRUE(k.ok()) << k.status();
  EXPECT_TRUE(kir::Verify(k->kernel).ok()) << kir::Verify(k->kernel);
  ExpectGolden("map_windows", kir::ToText(k->kernel));
}

// Channels of two images side by side: rows of either are read in place, without test, mask or
// division, even if the size is a quotient of a dim.
TEST(LowerTest, PiecesOfAConcatAreRowsOfTheirOwn) {
  ExpectGolden("map_concat", Lowered(R"(graph "" {
    dim n in [1, 8]
    dim h in [1, 90]
    dim w in [1, 90]
    %0 = Input "x" : f32[n, 3, floordiv(h, 2), floordiv(w, 2)]
    %1 = Input "y" : f32[n, 5, floordiv(h, 2), floordiv(w, 2)]
    %2 = IndexMap(%0) {fill=f32[] {0.0},
      map=map[n, 8, floordiv(h, 2), floordiv(w, 2)]($0, $1, $2, $3)}
    %3 = IndexMap(%1) {fill=f32[] {0.0},
      map=map[n, 8, floordiv(h, 2), floordiv(w, 2)]($0, $1 - 3, $2, $3)}
    %4 = Iota {axis=1, dtype=i64, shape=shape[n, 8, floordiv(h, 2), floordiv(w, 2)]}
    %5 = Constant {value=i64[] {3}}
    %6 = IndexMap(%5) {map=map[n, 8, floordiv(h, 2), floordiv(w, 2)]()}
    %7 = LessThan(%4, %6)
    %8 = Select(%7, %2, %3)
    output "z" = %8
  })"));
}

// A group's mean at each of its elements: the position is divided once, and reads are proved
// inside.
TEST(LowerTest, PiecesOfLongRowsDivideOnce) {
  const std::string kernel = Lowered(R"(graph "" {
    dim n in [1, 4]
    dim p in [1, 65536]
    %0 = Input "x" : f32[n, 32, p]
    %1 = Input "mean" : f32[n, 8]
    %2 = IndexMap(%1) {fill=f32[] {0.0},
      map=map[n, 32, p]($0, floordiv($1*p + $2, 4*p))}
    %3 = Add(%0, %2)
    output "y" = %3
  })");
  EXPECT_NE(kernel.find("load b2"), std::string::npos) << kernel;
  EXPECT_LT(kernel.find("load b2"), kernel.find("for ")) << kernel;
  EXPECT_EQ(kernel.find("i64x"), std::string::npos) << kernel;
  EXPECT_EQ(kernel.find(" if "), std::string::npos) << kernel;
}

// Lowers a contraction by a library, in blocks of 32 rows and 2 vectors of columns.
absl::StatusOr<std::string> ByLibrary(const std::string& text, bool swap = false,
                                      const std::string& blas = "OpenBLAS 0.3.21") {
  absl::StatusOr<Graph> g = ParseGraph(absl::StrCat("graph \"\" {\n", text, "}"));
  if (!g.ok()) return g.status();
  v1::Target target = Target();
  target.set_blas(blas);
  KernelChoice choice{.root = g->outputs[0].node, .kind = KernelKind::kContract};
  choice.contract = LibrarySchedule{.swap = swap, .rows_per_item = 32, .panels_per_item = 2};
  for (NodeId n = 0; n < static_cast<NodeId>(g->nodes.size()); ++n) {
    if (g->node(n).op == Op::kContract) choice.anchor = n;
  }
  absl::StatusOr<LoweredKernel> k = LowerKernel({*g, MemoryOf(*g, {{choice}}), target}, choice);
  if (!k.ok()) return k.status();
  EXPECT_EQ(k->kernel.name.substr(0, 9), "openblas_");
  return kir::ToText(k->kernel);
}

TEST(LowerTest, LibraryIntoTheResult) {
  EXPECT_EQ(ByLibrary(R"(%0 = Input "x" : f32[64, 20] %1 = Input "w" : f32[20, 24]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)")
                .value(),
            R"(kernel() grid 4
b0: f32 out
b1: f32 in
b2: f32 in
gemm b0[-1520*floordiv(g, 2) + 768*g] stride 24 = b1[-1280*floordiv(g, 2) + 640*g] stride 20 * )"
            R"(b2[16*floordiv(g, 2)] stride 24: f32 rows 32 columns )"
            R"(-16*floordiv(g, 2) + min(16*floordiv(g, 2) + 16, 24) sums 20
)");
}

// Batches, a transposed operand, and a result that is transposed when it is written.
TEST(LowerTest, LibraryThroughViews) {
  EXPECT_EQ(ByLibrary(R"(%0 = Input "x" : f64[3, 30, 20] %1 = Input "w" : f64[3, 16, 20]
    %2 = Contract(%0, %1) {spec="bmk,bnk->bmn"}
    %3 = IndexMap(%2) {map=map[3, 16, 30]($0, $2, $1)} output "y" = %3)")
                .value(),
            R"(kernel() grid 6
b0: f64 out
b1: f64 in
b2: f64 in
gemm b0[240*g] stride 30 = b2[160*g] stride 20 * b1[600*floordiv(g, 2)] stride 20 transposed: )"
            "f64 rows 8 columns 30 sums 20\n");
}

TEST(LowerTest, LibraryBeforeAnEpilogue) {
  EXPECT_EQ(ByLibrary(R"(%0 = Input "x" : f32[40, 20] %1 = Input "w" : f32[20, 16]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"} %3 = Tanh(%2) output "y" = %3)")
                .value(),
            R"(kernel() grid 2
b0: f32 out
b1: f32 in
b2: f32 in
b3: f32 scratch 512
gemm b3[0] stride 16 = b1[640*g] stride 20 * b2[0] stride 16: f32 rows -32*g + min(32*g + 32, 40) )"
            R"(columns 16 sums 20
for i0 in [32*g, min(32*g + 32, 40)) step 1 {
  for i1 in [0, 16) step 8 {
    v0: f32x8 = load b3[-512*g + 16*i0 + i1 + lane]
    v1: f32x8 = Tanh(v0)
    store b0[16*i0 + i1 + lane] = v1: f32x8
  }
}
)");
}

// Lowers a contraction to a call of a GPU's library.
absl::StatusOr<LoweredKernel> ByCall(const std::string& text, const CallSchedule& call,
                                     const std::string& blas = "cuBLASLt 13.1.0",
                                     const std::string& device = "cuda") {
  absl::StatusOr<Graph> g = ParseGraph(absl::StrCat("graph \"\" {\n", text, "}"));
  if (!g.ok()) return g.status();
  v1::Target target = Target();
  target.set_device(device);
  target.set_blas(blas);
  KernelChoice choice{.root = g->outputs[0].node, .kind = KernelKind::kContract};
  choice.contract = call;
  for (NodeId n = 0; n < static_cast<NodeId>(g->nodes.size()); ++n) {
    if (g->node(n).op == Op::kContract) choice.anchor = n;
  }
  return LowerKernel({*g, MemoryOf(*g, {{choice}}), target}, choice);
}

TEST(LowerTest, CallOfALibrary) {
  const absl::StatusOr<LoweredKernel> k =
      ByCall(R"(dim d in [1, 4096] %0 = Input "x" : f16[d, 20] %1 = Input "w" : f16[24, 20]
        %2 = Cast(%0) {dtype=f32} %3 = Cast(%1) {dtype=f32}
        %4 = Contract(%2, %3) {spec="mk,nk->mn"} output "y" = %4)",
             {.proposal = 2, .workspace = 4 << 20});
  ASSERT_TRUE(k.ok()) << k.status();
  EXPECT_EQ(kir::ToText(k->kernel), R"(kernel(s0) grid 1
b0: f32 out
b1: f16 in
b2: f16 in
b3: u8 launch 4194304
call b0[0] stride 24 = b1[0] stride 20 * b2[0] stride 20 transposed: f16 rows s0 columns 24 )"
                                    R"(sums 20 batch 1 ways 32 64 128 256 512 1024 2048 4096 )"
                                    "proposal 2\n");
  EXPECT_EQ(k->buffers, std::vector<NodeId>({4, 0, 1, -1}));
  EXPECT_EQ(k->kernel.name, "cublaslt_Contract");
  EXPECT_NE(kir::CallOf(k->kernel), nullptr);
  const absl::StatusOr<kir::Kernel> parsed = kir::ParseKernel(kir::ToText(k->kernel));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(kir::KirHash(*parsed), kir::KirHash(k->kernel));
}

// Both operands are one node, and have a buffer each; the batch's matrices lie apart.
TEST(LowerTest, CallOfALibraryForABatch) {
  const absl::StatusOr<LoweredKernel> k = ByCall(R"(%0 = Input "x" : bf16[3, 30, 20]
    %1 = Contract(%0, %0) {spec="bmk,bnk->bnm"} output "y" = %1)",
                                                 {.swap = true});
  ASSERT_TRUE(k.ok()) << k.status();
  EXPECT_EQ(kir::ToText(k->kernel), R"(kernel() grid 1
b0: bf16 out
b1: bf16 in
b2: bf16 in
call b0[0] stride 30 batch_stride 900 = b1[0] stride 20 batch_stride 600 * )"
                                    R"(b2[0] stride 20 batch_stride 600 transposed: bf16 rows 30 )"
                                    "columns 30 sums 20 batch 3 ways 30 proposal 0\n");
  EXPECT_EQ(k->buffers, std::vector<NodeId>({1, 0, 0}));
}

TEST(LowerTest, CallOfALibraryWithABias) {
  const absl::StatusOr<LoweredKernel> k = ByCall(R"(%0 = Input "x" : f32[8, 8]
    %1 = Input "o" : f32[8] %2 = Contract(%0, %0) {spec="mk,kn->mn"}
    %3 = IndexMap(%1) {map=map[8, 8]($1)} %4 = Add(%2, %3) output "y" = %4)",
                                                 {.workspace = 1});
  ASSERT_TRUE(k.ok()) << k.status();
  EXPECT_EQ(kir::ToText(k->kernel), R"(kernel() grid 1
b0: f32 out
b1: f32 in
b2: f32 in
b3: f32 in
b4: u8 launch 1
call b0[0] stride 8 = b1[0] stride 8 * b2[0] stride 8 + b3: f32 rows 8 columns 8 sums 8 batch 1 )"
                                    "ways 8 proposal 0\n");
  EXPECT_EQ(k->buffers, std::vector<NodeId>({4, 0, 0, 1, -1}));
}

TEST(LowerTest, CallsThatAreImpossible) {
  const std::string product = R"(%0 = Input "x" : f32[8, 8]
    %1 = Contract(%0, %0) {spec="mk,kn->mn"} output "y" = %1)";
  EXPECT_TRUE(ByCall(product, {}).ok());
  const absl::Status none = ByCall(product, {}, /*blas=*/"").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(none.message(), HasSubstr("has no library whose calls are steps"));
  EXPECT_THAT(ByCall(product, {}, "OpenBLAS 0.3.21", "cpu").status().message(),
              HasSubstr("(device \"cpu\") has no library whose calls are steps"));
  const absl::Status wrong = ByCall(product, {.swap = true}).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(wrong.message(), HasSubstr("not a product of matrices that one call of cuBLASLt"));
}

TEST(LowerTest, LibrariesRefuseWhatTheyCannotRead) {
  const struct {
    const char* text;
    const char* message;
  } kWrong[] = {
      {R"(%0 = Input "x" : bf16[4, 4] %1 = Contract(%0, %0) {spec="mk,kn->mn"} output "y" = %1)",
       "not a product of matrices"},
      {R"(%0 = Input "x" : i32[4, 4] %1 = Contract(%0, %0) {spec="mk,kn->mn"} output "y" = %1)",
       "not a product of matrices"},
      // An operand is computed when it is read.
      {R"(%0 = Input "x" : f32[4, 4] %1 = Exp(%0) %2 = Contract(%1, %0) {spec="mk,kn->mn"}
         output "y" = %2)",
       "not a product of matrices"},
      // An operand is padded when it is read.
      {R"(%0 = Input "x" : f32[4, 4] %1 = IndexMap(%0) {fill=f32[] {0.5}, map=map[4, 4]($0, $1 - 2)}
         %2 = Contract(%1, %0) {spec="mk,kn->mn"} output "y" = %2)",
       "not a product of matrices"},
      // No axis has adjacent elements.
      {R"(%0 = Input "x" : f32[4, 4, 2] %1 = IndexMap(%0) {map=map[4, 4]($0, $1, 1)}
         %2 = Input "w" : f32[4, 4] %3 = Contract(%1, %2) {spec="mk,kn->mn"} output "y" = %3)",
       "not a product of matrices"},
      // Rows overlap, or are all the same.
      {R"(%0 = Input "x" : f32[40] %1 = IndexMap(%0) {map=map[8, 16]($0 + $1)}
         %2 = Input "w" : f32[16, 4] %3 = Contract(%1, %2) {spec="mk,kn->mn"} output "y" = %3)",
       "not a product of matrices"},
      {R"(%0 = Input "x" : f32[16] %1 = IndexMap(%0) {map=map[8, 16]($1)}
         %2 = Input "w" : f32[16, 4] %3 = Contract(%1, %2) {spec="mk,kn->mn"} output "y" = %3)",
       "not a product of matrices"},
      // An extent exceeds 32 bits.
      {R"(%0 = Input "x" : f32[1, 3000000000] %1 = Input "w" : f32[3000000000, 4]
         %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
       "not a product of matrices"},
  };
  for (const auto& wrong : kWrong) {
    const absl::Status status = ByLibrary(wrong.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << wrong.text;
    EXPECT_NE(status.message().find(wrong.message), absl::string_view::npos) << status;
  }
  const absl::Status none =
      ByLibrary(R"(%0 = Input "x" : f32[4, 4] %1 = Contract(%0, %0) {spec="mk,kn->mn"}
        output "y" = %1)",
                /*swap=*/false, /*blas=*/"")
          .status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInternal);
  EXPECT_NE(none.message().find("has no library"), absl::string_view::npos) << none;
}

// The largest index of the bucket decides. The CPU's kernels say nothing of it.
TEST(LowerTest, GpusComputeSmallIndicesIn32Bits) {
  v1::Target gpu = Target();
  gpu.set_device("cuda");
  gpu.set_vector_bytes(1);
  for (const auto& [rows, narrow] : {std::pair{2147483, true}, {2147484, false}}) {
    const std::string graph = absl::StrCat("graph \"\" {\n  dim b in [1, ", rows, R"(]
      %0 = Input "x" : f32[b, 1000]
      %1 = MaxReduce(%0) {axes=[1]}
      output "y" = %1
    })");
    EXPECT_THAT(Lowered(graph), Not(HasSubstr("i32 v")));
    EXPECT_THAT(Lowered(graph, gpu), ContainsRegex(narrow ? " i32 v[0-9]+: f32x32 = load b1.1000.g"
                                                          : "  v[0-9]+: f32x32 = load b1.1000.g"));
  }
}

v1::Target Gpu() {
  v1::Target gpu = Target();
  gpu.set_device("cuda");
  gpu.set_vector_bytes(1);
  return gpu;
}

// Lowers the last node of a graph, a contraction and its epilogue, by a schedule of kStaged or,
// with a chip, of kTensor.
absl::StatusOr<LoweredKernel> Staged(const std::string& body, NodeId anchor,
                                     const std::string& schedule, const std::string& chip = "") {
  const absl::StatusOr<Graph> g = ParseGraph("graph \"\" {\n" + body + "}");
  EXPECT_TRUE(g.ok()) << g.status();
  absl::StatusOr<KernelChoice> choice = ParseSchedule(schedule);
  EXPECT_TRUE(choice.ok()) << choice.status();
  choice->root = static_cast<NodeId>(g->nodes.size()) - 1;
  choice->anchor = anchor;
  v1::Target gpu = Gpu();
  gpu.set_cpu(chip);
  return LowerKernel({*g, MemoryOf(*g, {{*choice}}), gpu}, *choice);
}

int Count(const std::string& text, const std::string& word) {
  int n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

struct StagedCase {
  const char* name;
  const char* body;
  NodeId anchor;
  const char* schedule;
  int barriers;
};
constexpr StagedCase kStaged[] = {
    {"staged_f32", R"(%0 = Input "x" : f32[1024, 512] %1 = Input "w" : f32[512, 768]
       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
     2, "contract mr=8 nv=8 rows=64 panels=1 kc=16 staged team=128", 3},
    {"staged_edges", R"(dim b in [0, 100000] dim s in [0, 5000] dim t in [0, 5000]
       %0 = Input "x" : f32[b, s] %1 = Input "w" : f32[t, s] %2 = Input "o" : f32[t]
       %3 = Contract(%0, %1) {spec="mk,nk->mn"} %4 = IndexMap(%2) {map=map[b, t]($1)}
       %5 = Add(%3, %4) %6 = Tanh(%5) output "y" = %6)",
     3, "contract mr=8 nv=8 rows=64 panels=1 kc=16 staged team=128", 4},
    {"staged_f64", R"(dim b in [0, 4000] %0 = Input "x" : f64[3, b, 200]
       %1 = Input "w" : f64[3, 200, 300]
       %2 = Contract(%0, %1) {spec="amk,akn->amn"} output "y" = %2)",
     2, "contract mr=8 nv=4 rows=64 panels=1 kc=8 staged team=128", 3},
    {"staged_f16", R"(%0 = Input "x" : f16[300, 500] %1 = Input "w" : f16[500, 200]
       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
     2, "contract mr=4 nv=8 rows=32 panels=1 kc=32 staged team=128", 3},
};

// Counts barriers: two in each step of the sums, and one before the epilogue. Where calls choose
// the size of rows, nothing proves that they do not overlap, and each row of the epilogue has one.
TEST(LowerTest, Staged) {
  for (const StagedCase& c : kStaged) {
    SCOPED_TRACE(c.name);
    const absl::StatusOr<LoweredKernel> k = Staged(c.body, c.anchor, c.schedule);
    ASSERT_TRUE(k.ok()) << k.status();
    const std::string text = kir::ToText(k->kernel);
    const absl::StatusOr<kir::Kernel> parsed = kir::ParseKernel(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(kir::KirHash(*parsed), kir::KirHash(k->kernel));
    EXPECT_EQ(Count(text, "barrier\n"), c.barriers) << text;
    EXPECT_LE(k->kernel.ScratchBytes(), (48 << 10) - 64);
    ExpectGolden(c.name, text, "compiler/codegen/cuda/testdata/");
  }
}

TEST(LowerTest, StagedNeedsABlockAndATileItKnows) {
  const char* body = kStaged[0].body;
  for (const char* schedule : {"contract mr=8 nv=8 rows=64 panels=1 kc=16 staged",
                               "contract mr=8 nv=8 rows=64 panels=1 kc=16 staged team=32",
                               "contract mr=8 nv=8 rows=64 panels=1 kc=32 staged team=128",
                               "contract mr=5 nv=8 rows=40 panels=1 kc=16 staged team=128"}) {
    EXPECT_EQ(Staged(body, 2, schedule).status().code(), absl::StatusCode::kInternal) << schedule;
  }
}

// The sums of a tile among items: a share has fewer steps than others, or none; and a grid and sums
// that calls choose.
constexpr StagedCase kSplit[] = {
    {"split_staged", R"(%0 = Input "x" : f32[64, 80] %1 = Input "w" : f32[80, 96]
       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
     2, "contract mr=4 nv=4 rows=32 panels=1 kc=16 staged split=4 team=128", 3},
    {"split_staged_edges", R"(dim b in [0, 1000] dim s in [0, 5000]
       %0 = Input "x" : f64[3, b, s] %1 = Input "w" : f64[3, s, 72] %2 = Input "o" : f64[72]
       %3 = Contract(%0, %1) {spec="amk,akn->amn"} %4 = IndexMap(%2) {map=map[3, b, 72]($2)}
       %5 = Add(%3, %4) output "y" = %5)",
     3, "contract mr=4 nv=4 rows=32 panels=1 kc=8 staged split=2 team=128", 3},
    {"split_tensor_ahead", R"(dim b in [0, 256]
       %0 = Input "x" : f16[b, 1024] %1 = Input "w" : f16[64, 1024]
       %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)",
     2, "contract mr=1 nv=4 rows=32 panels=1 kc=32 tensor stages=3 split=8 team=128", 6},
    {"split_tensor_i8", R"(dim b in [0, 100] dim s in [0, 4096]
       %0 = Input "x" : i8[b, s] %1 = Input "w" : i8[s, 64]
       %2 = Cast(%0) {dtype=i32} %3 = Cast(%1) {dtype=i32}
       %4 = Contract(%2, %3) {spec="mk,kn->mn"} output "y" = %4)",
     4, "contract mr=1 nv=4 rows=32 panels=1 kc=64 tensor split=4 team=128", 5},
};

// Counts barriers as Staged and Tensor do; a ticket orders what is around it.
TEST(LowerTest, SplitSums) {
  for (const StagedCase& c : kSplit) {
    SCOPED_TRACE(c.name);
    const absl::StatusOr<LoweredKernel> k = Staged(c.body, c.anchor, c.schedule, "sm_80");
    ASSERT_TRUE(k.ok()) << k.status();
    const std::string text = kir::ToText(k->kernel);
    const absl::StatusOr<kir::Kernel> parsed = kir::ParseKernel(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(kir::KirHash(*parsed), kir::KirHash(k->kernel));
    EXPECT_EQ(Count(text, "barrier\n"), c.barriers) << text;
    EXPECT_EQ(Count(text, " = ticket "), 1);
    const std::vector<NodeId> last(k->buffers.end() - 2, k->buffers.end());
    EXPECT_THAT(last, ::testing::ElementsAre(-1, -1));
    ExpectGolden(c.name, text, "compiler/codegen/cuda/testdata/");
  }
}

// Covers no tile and one, tiles along one axis, and a batch that calls choose.
TEST(LowerTest, SplitsThatASearchMakesAreLowered) {
  v1::Target gpu = Gpu();
  gpu.set_cpu("sm_80");
  gpu.set_threads(132 * 2048);
  int splits = 0, lowered = 0;
  for (const char* rows : {"b", "c", "2*b + 5", "64"}) {
    for (const char* batch : {"", "b, "}) {
      const std::string a = batch[0] == 0 ? "" : "a";
      const absl::StatusOr<Graph> g = ParseGraph(absl::StrCat(
          "graph \"\" { dim b in [0, 30] dim c in [1, 200] %0 = Input \"x\" : f16[", batch, rows,
          ", 1000] %1 = Input \"w\" : f16[", batch, "1000, 64] %2 = Contract(%0, %1) {spec=\"", a,
          "mk,", a, "kn->", a, "mn\"} output \"y\" = %2 }"));
      ASSERT_TRUE(g.ok()) << g.status();
      KernelChoice choice{.root = 2, .kind = KernelKind::kContract, .anchor = 2, .team = 128};
      for (const bool swap : {false, true}) {
        for (const TileSchedule& s : TileSchedules(*g, 2, swap, gpu)) {
          if (s.split == 1 || splits++ % 23 != 0) continue;
          choice.contract = s;
          const auto k = LowerKernel({*g, MemoryOf(*g, {{choice}}), gpu}, choice);
          EXPECT_TRUE(k.ok()) << batch << rows << ": " << ScheduleText(choice) << k.status();
          ++lowered;
        }
      }
    }
  }
  EXPECT_GT(lowered, 12);
}

TEST(LowerTest, SplitSumsNeedABoundOfTheGrid) {
  absl::StatusOr<Graph> g = ParseGraph(R"(graph "" { dim b in [0, 9] %0 = Input "x" : f32[b, 80]
      %1 = Input "w" : f32[80, 96] %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2 })");
  ASSERT_TRUE(g.ok()) << g.status();
  absl::StatusOr<KernelChoice> choice = ParseSchedule(kSplit[0].schedule);
  ASSERT_TRUE(choice.ok()) << choice.status();
  choice->root = choice->anchor = 2;
  const std::vector<bool> memory = MemoryOf(*g, {{*choice}});
  EXPECT_TRUE(LowerKernel({*g, memory, Gpu()}, *choice).ok());
  g->dims[0].max = INT64_MAX - 100;
  const absl::Status unbounded = LowerKernel({*g, memory, Gpu()}, *choice).status();
  EXPECT_EQ(unbounded.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(unbounded.message()), HasSubstr("its sums are split, and its "));
}

constexpr StagedCase kTensor[] = {
    {"tensor_f16", R"(%0 = Input "x" : f16[64, 72] %1 = Input "w" : f16[64, 136]
       %2 = Contract(%0, %1) {spec="km,kn->mn"} output "y" = %2)",
     2, "contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor team=128", 9},
    {"tensor_bf16_ahead", R"(dim b in [0, 100000]
       %0 = Input "x" : bf16[b, 520] %1 = Input "w" : bf16[768, 520]
       %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)",
     2, "contract mr=1 nv=4 rows=32 panels=1 kc=32 tensor stages=3 team=128", 6},
    {"tensor_i8_epilogue", R"(dim b in [0, 5000] dim s in [0, 5000]
       %0 = Input "x" : i8[b, 64] %1 = Input "w" : i8[64, s] %2 = Input "o" : i32[s]
       %3 = Cast(%0) {dtype=i32} %4 = Cast(%1) {dtype=i32}
       %5 = Contract(%3, %4) {spec="mk,kn->mn"} %6 = IndexMap(%2) {map=map[b, s]($1)}
       %7 = Add(%5, %6) output "y" = %7)",
     5, "contract mr=1 nv=4 rows=32 panels=1 kc=64 tensor stages=2 team=128", 6},
};

// Counts barriers: of one stage two in each step of the sums, of several one for each; then two for
// each half of a row of fragments, but for the first one's; where calls choose the size of rows,
// one is in each row of the epilogue.
TEST(LowerTest, Tensor) {
  for (const StagedCase& c : kTensor) {
    SCOPED_TRACE(c.name);
    const absl::StatusOr<LoweredKernel> k = Staged(c.body, c.anchor, c.schedule, "sm_80");
    ASSERT_TRUE(k.ok()) << k.status();
    const std::string text = kir::ToText(k->kernel);
    const absl::StatusOr<kir::Kernel> parsed = kir::ParseKernel(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(kir::KirHash(*parsed), kir::KirHash(k->kernel));
    EXPECT_EQ(Count(text, "barrier\n"), c.barriers) << text;
    EXPECT_LE(k->kernel.ScratchBytes(), (48 << 10) - 64);
    ExpectGolden(c.name, text, "compiler/codegen/cuda/testdata/");
  }
}

// Checks waits that come too late, and none: nothing else tells of them.
TEST(LowerTest, TensorsCopiesAreWaitedFor) {
  absl::StatusOr<LoweredKernel> k =
      Staged(kTensor[1].body, kTensor[1].anchor, kTensor[1].schedule, "sm_80");
  ASSERT_TRUE(k.ok()) << k.status();
  const std::string text = kir::ToText(k->kernel);
  ASSERT_EQ(Count(text, "wait 1\n"), 3);
  for (const char* wait : {"  wait 2\n", ""}) {
    const absl::StatusOr<kir::Kernel> wrong =
        kir::ParseKernel(absl::StrReplaceAll(text, {{"  wait 1\n", wait}}));
    ASSERT_TRUE(wrong.ok()) << wrong.status();
    EXPECT_THAT(std::string(kir::Verify(*wrong).message()), HasSubstr("the copy may be under way"));
  }
}

// Neighbours of a view that has memory are those of its own elements, not of those it views.
TEST(LowerTest, TensorCopiesAViewThatHasMemoryAsItIs) {
  const auto text = [](const std::string& operand) {
    const absl::StatusOr<Graph> g = ParseGraph(absl::StrCat(
        R"(graph "" { %0 = Input "x" : f16[64, 72] )", operand,
        R"( %3 = Contract(%0, %2) {spec="mk,nk->mn"} output "y" = %3 output "v" = %2 })"));
    EXPECT_TRUE(g.ok()) << g.status();
    absl::StatusOr<KernelChoice> choice = ParseSchedule(kTensor[0].schedule);
    EXPECT_TRUE(choice.ok()) << choice.status();
    choice->root = choice->anchor = static_cast<NodeId>(g->nodes.size()) - 1;
    std::vector<bool> memory = MemoryOf(*g, {{*choice}});
    memory[choice->root - 1] = true;
    v1::Target gpu = Gpu();
    gpu.set_cpu("sm_80");
    const absl::StatusOr<LoweredKernel> k = LowerKernel({*g, memory, gpu}, *choice);
    EXPECT_TRUE(k.ok()) << k.status();
    return k.ok() ? kir::ToText(k->kernel) : "";
  };
  EXPECT_EQ(text(R"(%1 = Input "w" : f16[72, 136]
                    %2 = IndexMap(%1) {map=map[136, 72]($1, $0)})"),
            text(R"(%1 = Input "unread" : f16[1] %2 = Input "w" : f16[136, 72])"));
}

TEST(LowerTest, TensorNeedsItsInstructionAndATileItKnows) {
  const std::string f16 = kTensor[0].body, good = kTensor[0].schedule;
  const auto expect_refused = [](const std::string& body, const std::string& schedule,
                                 const char* chip, const char* message) {
    const absl::Status status = Staged(body, 2, schedule, chip).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << schedule;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << schedule;
  };
  expect_refused(f16, good, "sm_75", "device 'cuda', sm_75, has no mma.m16n8k16 of f16");
  expect_refused(f16, good, "", "has no mma.m16n8k16 of f16");
  expect_refused(kStaged[0].body, good, "sm_80", "no matrix instruction multiplies its operands");
  for (const char* schedule :
       {"contract mr=3 nv=4 rows=96 panels=1 kc=32 tensor team=128",
        "contract mr=2 nv=4 rows=64 panels=1 kc=48 tensor team=128",
        "contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor stages=5 team=128",
        "contract mr=4 nv=8 rows=128 panels=1 kc=64 tensor stages=2 team=128",
        "contract mr=1 nv=4 rows=32 panels=1 kc=16 tensor team=128"}) {
    expect_refused(f16, schedule, "sm_80", "no tile of matrix instructions is \"contract mr=");
  }
  for (const char* team : {"", " team=32"}) {
    expect_refused(f16, absl::StrReplaceAll(good, {{" team=128", team}}), "sm_80", "has a team of");
  }
}

TEST(LowerTest, ImpossibleChoicesAreInternal) {
  absl::StatusOr<Graph> g = ParseGraph(R"(graph "" {
    %0 = Input "x" : f32[4]
    %1 = Exp(%0)
    output "y" = %1
  })");
  ASSERT_TRUE(g.ok());
  KernelChoice choice;
  choice.root = 1;
  choice.anchor = 1;
  const std::vector<bool> memory = {true, true};
  const v1::Target target = Target();
  for (const KernelKind kind : {KernelKind::kAttention, KernelKind::kPaged}) {
    choice.kind = kind;
    EXPECT_EQ(LowerKernel({*g, memory, target}, choice).status().code(),
              absl::StatusCode::kInternal);
  }
}

// GPUs compute the decomposition, and other attention has another kernel.
TEST(LowerTest, PagedAttentionNeedsItsKind) {
  const absl::StatusOr<Graph> g = ParseGraph(R"(graph "" { dim t in [1, 8]
    %0 = Input "q" : f32[t, 2, 16] %1 = Input "k" : f32[64, 2, 16] %2 = Input "i" : i32[1, 4]
    %3 = Input "s" : i32[t] %4 = PagedAttention(%0, %1, %1, %2, %3, %3) {block=16}
    output "y" = %4 })");
  ASSERT_TRUE(g.ok()) << g.status();
  const std::vector<bool> memory(5, true);
  v1::Target target = Target();
  KernelChoice choice{.root = 4, .kind = KernelKind::kPaged, .anchor = 4};
  EXPECT_TRUE(LowerKernel({*g, memory, target}, choice).ok());
  choice.kind = KernelKind::kAttention;
  EXPECT_THAT(std::string(LowerKernel({*g, memory, target}, choice).status().message()),
              HasSubstr("has a kernel kind that cannot compute this op"));
  choice.kind = KernelKind::kPaged;
  target.set_device("cuda");
  target.set_vector_bytes(1);
  EXPECT_THAT(std::string(LowerKernel({*g, memory, target}, choice).status().message()),
              HasSubstr("device 'cuda' has no kernel of PagedAttention"));
}

// Neither a device with vectors nor a sort has teams of several threads.
TEST(LowerTest, ATeamNeedsAGpu) {
  const absl::StatusOr<Graph> g = ParseGraph(R"(graph "" {
    %0 = Input "x" : f32[40]
    %1 = Exp(%0)
    %2 = Sort "order"(%0) {axis=0}
    output "y" = %1
    output "z" = %2
  })");
  ASSERT_TRUE(g.ok()) << g.status();
  const std::vector<bool> memory = {true, true, true};
  v1::Target gpu = Target();
  gpu.set_device("cuda");
  gpu.set_vector_bytes(1);
  KernelChoice choice{.root = 1, .walk = {.elements = 32}, .team = 32};
  const absl::StatusOr<LoweredKernel> lowered = LowerKernel({*g, memory, gpu}, choice);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernel.team, 32);
  EXPECT_EQ(kir::ToText(lowered->kernel),
            "kernel() team 32 grid 1\nb0: f32 out\nb1: f32 in\n"
            "for i0 in [0, 32) step 32 {\n  v0: f32x32 = load b1[i0 + lane]\n"
            "  v1: f32x32 = Exp(v0)\n  store b0[i0 + lane] = v1: f32x32\n}\n"
            "for i1 in [32, 40) step 32 {\n  v2: f32x32 = load b1[i1 + lane] count 8\n"
            "  v3: f32x32 = Exp(v2)\n  store b0[i1 + lane] = v3: f32x32 count 8\n}\n");
  const auto expect_refused = [&](const v1::Target& target) {
    const absl::Status status = LowerKernel({*g, memory, target}, choice).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("has a team of"), absl::string_view::npos) << status;
  };
  expect_refused(Target());
  choice.team = 48;
  expect_refused(gpu);
  choice = {.root = 2, .kind = KernelKind::kSort, .team = 32};
  expect_refused(gpu);
}

}  // namespace
}  // namespace athanor
