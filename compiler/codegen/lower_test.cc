// Kernels as text: a graph through the baseline's choice and lowering, against testdata/<name>.kir.
// A change of these files is a change of kernels, for review. To write them anew run the test with
// ATHANOR_GOLDEN_DIR set to the folder.
#include "compiler/codegen/lower.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "compiler/search/fusion.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Target() {
  v1::Target t;
  t.set_vector_bytes(32);
  t.set_vector_registers(16);
  t.set_l1_bytes(32 << 10);
  t.set_l2_bytes(1 << 20);
  t.set_threads(2);
  return t;
}

std::string Lowered(const std::string& text) {
  absl::StatusOr<Graph> g = ParseGraph(text);
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return "";
  const v1::Target target = Target();
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

void ExpectGolden(const std::string& name, const std::string& got) {
  if (const char* folder = std::getenv("ATHANOR_GOLDEN_DIR")) {
    std::ofstream(std::string(folder) + "/" + name + ".kir") << got;
    return;
  }
  std::ifstream file("compiler/codegen/testdata/" + name + ".kir");
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
  choice.kind = KernelKind::kAttention;
  const std::vector<bool> memory = {true, true};
  const v1::Target target = Target();
  EXPECT_EQ(LowerKernel({*g, memory, target}, choice).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace athanor
