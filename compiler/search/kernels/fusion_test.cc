#include "compiler/search/kernels/fusion.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/task.h"
#include "compiler/search/kernels/task_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Target() {
  v1::Target t;
  t.set_vector_bytes(64);
  t.set_vector_registers(32);
  t.set_l2_bytes(1 << 20);
  return t;
}

std::string KindName(KernelKind kind) {
  switch (kind) {
    case KernelKind::kMap:
      return "map";
    case KernelKind::kRow:
      return "row";
    case KernelKind::kPoint:
      return "point";
    case KernelKind::kContract:
      return "contract";
    case KernelKind::kAttention:
      return "attention";
    case KernelKind::kPaged:
      return "paged";
    case KernelKind::kScatter:
      return "scatter";
    case KernelKind::kStateWrite:
      return "state_write";
    case KernelKind::kSort:
      return "sort";
    case KernelKind::kLoop:
      return "loop";
  }
  return "?";
}

// Returns the chosen kernels with their schedules.
std::string Text(const Genome& genome) {
  std::string text;
  for (const KernelChoice& k : genome.kernels) {
    absl::StrAppend(&text, k.root, " over ", k.anchor, " ", ScheduleText(k), "\n");
  }
  return text;
}

// Checks that a memo shared by all graphs of this file, which have the same dims, changes nothing:
// for the graph as it is, and with every other decision about a single node.
void ExpectRemembered(const Graph& g, const FusionRules& rules) {
  static auto& numbers = *new NodeNumbers;
  static auto& memo = *new FusionMemo;
  const TaskIndex index(g, &numbers);
  const FusionKnowledge known{&memo, &index.kinds()};
  const Genome genome = ChooseKernels(g, Target(), {.rules = rules});
  EXPECT_EQ(Text(ChooseKernels(g, Target(), {.rules = rules}, known)), Text(genome));
  for (const auto& flip : FusionFlips(g, genome, rules)) {
    const Fusion fusion{{flip}, rules};
    EXPECT_EQ(Text(ChooseKernels(g, Target(), fusion, known)),
              Text(ChooseKernels(g, Target(), fusion)))
        << flip.first;
  }
}

// Returns "map 5, contract 7 over 3": the kernels in order; roots and anchors are the text's nodes.
std::string Kernels(const std::string& text, bool epilogues = true) {
  absl::StatusOr<Graph> g =
      ParseGraph("graph \"\" {\n dim b in [1, 64]\n dim s in [1, 128]\n" + text + "}");
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return "";
  Genome genome = ChooseKernels(*g, Target(), {.rules = {.epilogues = epilogues}});
  ExpectRemembered(*g, {.epilogues = epilogues});
  PackWeights(&*g, &genome, Target());
  std::string kernels;
  for (const KernelChoice& k : genome.kernels) {
    if (!kernels.empty()) kernels += ", ";
    kernels += KindName(k.kind) + " " + std::to_string(k.root);
    if (k.anchor >= 0 && k.anchor != k.root) kernels += " over " + std::to_string(k.anchor);
    if (k.packed >= 0) kernels += " packed " + std::to_string(k.packed);
  }
  return kernels;
}

TEST(FusionTest, ChainsAndDiamondsAreOneMap) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 64]
    %1 = Exp(%0)
    %2 = Tanh(%1)
    %3 = Sqrt(%2)
    output "y" = %3
  )"),
            "map 3");
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 64]
    %1 = Exp(%0)
    %2 = Tanh(%1)
    %3 = Erf(%1)
    %4 = Add(%2, %3)
    output "y" = %4
  )"),
            "map 4");
}

TEST(FusionTest, InnerValuesThatAreOutputsHaveMemory) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 64]
    %1 = Exp(%0)
    %2 = Tanh(%1)
    output "e" = %1
    output "y" = %2
  )"),
            "map 1, map 2");
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 64]
    %1 = Constant {value=f32[] {2.0}}
    output "x" = %0
    output "c" = %1
  )"),
            "");
}

TEST(FusionTest, WithoutEpiloguesContractionsStandAlone) {
  const std::string text = R"(
    %0 = Input "x" : f32[b, 64]
    %1 = Input "w" : f32[64, 96]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"}
    %3 = Exp(%2)
    output "y" = %3
  )";
  EXPECT_EQ(Kernels(text), "contract 3 over 2");
  EXPECT_EQ(Kernels(text, /*epilogues=*/false), "contract 2, map 3");
}

// A padded window of an image read by two convolutions, or by another user.
std::string Windows(const std::string& other) {
  return Kernels(R"(
    %0 = Input "x" : f32[b, 8, s, 20]
    %1 = Parameter "w" : f32[16, 8, 3, 3]
    %2 = IndexMap(%0) {fill=f32[] {0}, map=map[b, 8, 3, 3, s, 20]($0, $1, $2 + $4 - 1, $3 + $5 - 1)}
    %3 = Contract(%2, %1) {spec="ncUVuv,mcUV->nmuv"}
    %4 = Exp(%3)
    )" + other + R"(
    output "y" = %4
    output "z" = %5
  )");
}

TEST(FusionTest, WindowsThatContractionsPackHaveNoMemory) {
  EXPECT_EQ(Windows(R"(%5 = Contract(%2, %2) {spec="ncUVuv,ncUVuw->nuvw"})"),
            "map 2, contract 4 over 3, contract 5");
  EXPECT_EQ(Windows(R"(%5 = Contract(%2, %1) {spec="ncUVuv,mcUV->nmuv"})"),
            "contract 4 over 3, contract 5");
  EXPECT_EQ(Windows(R"(%5 = Tanh(%2))"), "map 2, contract 4 over 3, map 5");
  EXPECT_EQ(Windows(R"(%5 = Tanh(%0))"), "contract 4 over 3, map 5");
}

TEST(FusionTest, EpiloguesJoinTheirContraction) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 64]
    %1 = Parameter "w" : f32[64, 96]
    %2 = Parameter "bias" : f32[96]
    %3 = Input "r" : f32[b, 96]
    %4 = Contract(%0, %1) {spec="mk,kn->mn"}
    %5 = IndexMap(%2) {map=map[b, 96]($1)}
    %6 = Add(%4, %5)
    %7 = Tanh(%6)
    %8 = Mul(%6, %7)
    %9 = Add(%8, %3)
    output "y" = %9
  )"),
            "map 10, contract 9 over 4 packed 10");
}

// Returns the kernels of a product by a weight stored in bf16, %3 as f32, with `other` behind.
std::string Stored(const std::string& other) {
  return Kernels(R"(
    %0 = Input "x" : f32[b, 64]
    %1 = Parameter "w" : bf16[64, 96]
    %2 = Parameter "scale" : f32[64]
    %3 = Cast(%1) {dtype=f32}
    %4 = Exp(%2)
    %5 = IndexMap(%4) {map=map[64, 96]($0)}
    %6 = Mul(%3, %5)
    %7 = Contract(%0, %6) {spec="mk,kn->mn"}
    )" + other + R"(
    output "y" = %7
  )");
}

// No copy of the weight but the packed one is made. The exponentials are few: they would be
// computed again for each column.
TEST(FusionTest, PacksComputeWhatIsStored) {
  EXPECT_EQ(Stored(""), "map 4, map 8, contract 7 packed 8");
  // Other products: by the same panels, and by others of the same values.
  EXPECT_EQ(Stored(R"(%8 = Input "z" : f32[s, 64]
                      %9 = Contract(%8, %6) {spec="mk,kn->mn"} output "z" = %9)"),
            "map 4, map 10, contract 7 packed 10, contract 9 packed 10");
  EXPECT_EQ(Stored(R"(%8 = Input "z" : f32[s, 96]
                      %9 = Contract(%8, %6) {spec="mk,nk->mn"} output "z" = %9)"),
            "map 4, map 10, contract 7 packed 10, map 11, contract 9 packed 11");
}

// A scale is in memory, since columns share it, and what it is put together of is not.
TEST(FusionTest, ChainsThatOneKernelOfWeightsReadsAreOneMap) {
  const auto kernels = [](const std::string& other) {
    return Kernels(R"(
      %0 = Input "x" : f32[b, 64]
      %1 = Parameter "w" : bf16[64, 96]
      %2 = Parameter "low" : u8[64]
      %3 = Parameter "high" : u8[64]
      %4 = Cast(%2) {dtype=f32}
      %5 = Cast(%3) {dtype=f32}
      %6 = Exp(%5)
      %7 = Add(%4, %6)
      %8 = IndexMap(%7) {map=map[64, 96]($0)}
      %9 = Cast(%1) {dtype=f32}
      %10 = Mul(%9, %8)
      %11 = Contract(%0, %10) {spec="mk,kn->mn"}
      )" + other + R"(
      output "y" = %11
    )");
  };
  EXPECT_EQ(kernels(""), "map 7, map 12, contract 11 packed 12");
  // %5 has two readers, and memory.
  EXPECT_EQ(kernels(R"(%12 = IndexMap(%5) {map=map[64](63 - $0)}
                       %13 = Mul(%12, %7)
                       %14 = IndexMap(%13) {map=map[64, 96]($0)}
                       %15 = Contract(%0, %14) {spec="mk,kn->mn"}
                       output "z" = %15)"),
            "map 5, map 7, map 16, contract 11 packed 16, map 13, map 17, contract 15 packed 17");
}

// A kernel that would compute an element of the chain twice does not compute the chain: on two
// ways, or for twice as many elements of its own.
TEST(FusionTest, ChainsThatWouldBeComputedTwiceHaveMemory) {
  const auto kernels = [](const std::string& reader) {
    return Kernels(R"(
      %0 = Input "x" : f32[b, 64]
      %1 = Parameter "w" : bf16[64, 96]
      %2 = Parameter "low" : u8[64]
      %3 = Cast(%2) {dtype=f32}
      %4 = Exp(%3)
      )" + reader + R"(
      %8 = Cast(%1) {dtype=f32}
      %9 = Mul(%8, %7)
      %10 = Contract(%0, %9) {spec="mk,kn->mn"}
      output "y" = %10
    )");
  };
  const std::string kept = "map 4, map 6, map 11, contract 10 packed 11";
  EXPECT_EQ(kernels(R"(%5 = IndexMap(%4) {map=map[64](63 - $0)}
                       %6 = Add(%4, %5)
                       %7 = IndexMap(%6) {map=map[64, 96]($0)})"),
            kept);
  EXPECT_EQ(kernels(R"(%5 = IndexMap(%4) {map=map[2, 64]($1)}
                       %6 = Tanh(%5)
                       %7 = IndexMap(%6) {map=map[64, 96](mod($0, 2), $0)})"),
            kept);
}

TEST(FusionTest, WeightsThatOthersReadHaveMemory) {
  EXPECT_EQ(Stored(R"(output "w" = %6)"), "map 3, map 4, map 6, map 8, contract 7 packed 8");
  EXPECT_EQ(Stored(R"(output "w" = %3)"), "map 3, map 4, map 8, contract 7 packed 8");
  EXPECT_EQ(Stored(R"(%8 = Input "i" : i32[b] %9 = Gather(%6, %8) {axis=0} output "z" = %9)"),
            "map 4, map 6, map 10, contract 7 packed 10, map 9");
}

// A kernel of more nodes than lowering can take is none.
TEST(FusionTest, LongChainsOfWeightsAreSeveralKernels) {
  constexpr int kNodes = 450;
  std::string text = R"(%0 = Input "x" : f32[b, 64]
    %1 = Parameter "w" : f32[64, 96]
    )";
  for (int i = 0; i < kNodes; ++i) absl::StrAppend(&text, "%", i + 2, " = Tanh(%", i + 1, ")\n");
  absl::StrAppend(&text, "%", kNodes + 2, " = Contract(%0, %", kNodes + 1,
                  ") {spec=\"mk,kn->mn\"}\n output \"y\" = %", kNodes + 2);
  const std::string kernels = Kernels(text);
  // The last 199 are the pack's.
  EXPECT_THAT(kernels, testing::HasSubstr(absl::StrCat("map ", kNodes + 1 - 199, ", map ",
                                                       kNodes + 3, ", contract ")));
}

// The kernel that reads panels has as its operand the whole chain that the pack computes.
TEST(FusionTest, ChainsInPacksAreNoPartOfTheirReaders) {
  Graph g = *ParseGraph(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b, 64]
    %1 = Parameter "w" : u8[96, 64]
    %2 = Cast(%1) {dtype=f32}
    %3 = IndexMap(%2) {map=map[64, 96]($1, $0)}
    %4 = Contract(%0, %3) {spec="mk,kn->mn"}
    output "y" = %4
  })");
  Genome genome = ChooseKernels(g, Target());
  const KernelTask before = CutTask(g, MemoryOf(g, genome), WeightsOf(g), genome.kernels.back());
  PackWeights(&g, &genome, Target());
  ASSERT_EQ(genome.kernels.size(), 2);
  EXPECT_FALSE(MemoryOf(g, genome)[2]);
  const std::vector<bool> behind = MemoryBehindPanels(g, genome);
  EXPECT_TRUE(behind[2]);
  EXPECT_FALSE(behind[3]);
  EXPECT_EQ(CutTask(g, behind, WeightsOf(g), genome.kernels.back()).key, before.key);
}

// Other kernels compute coordinates themselves: no kernel writes them.
TEST(FusionTest, CoordinatesInPacksAreNoMemory) {
  Graph g = *ParseGraph(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[64, 64]
    %1 = Iota {shape=shape[64, 64], axis=1, dtype=f32}
    %2 = Contract(%0, %1) {spec="mk,kn->mn"}
    %3 = Add(%2, %1)
    output "y" = %3
  })");
  Genome genome = ChooseKernels(g, Target());
  PackWeights(&g, &genome, Target());
  ASSERT_GE(genome.kernels.back().packed, 0);
  EXPECT_EQ(MemoryBehindPanels(g, genome), MemoryOf(g, genome));
}

// A pack of all of them would compute the first one 2^20 times for each element.
TEST(FusionTest, PacksComputeWeightsFewTimes) {
  constexpr int kLevels = 20;
  const auto doubled = [](bool moved) {
    std::string text = R"(%0 = Input "x" : f32[b, 64]
      %1 = Parameter "w" : f32[64, 64]
      )";
    std::string w = "%1";
    int next = 2;
    for (int i = 1; i <= kLevels; ++i) {
      std::string other = w;
      if (moved) {
        absl::StrAppend(&text, "%", next, " = IndexMap(", w, ") {map=map[64, 64]($0 + ", i,
                        " - 64*floordiv($0 + ", i, ", 64), $1)}\n");
        other = absl::StrCat("%", next++);
      }
      absl::StrAppend(&text, "%", next, " = Add(", w, ", ", other, ")\n");
      w = absl::StrCat("%", next++);
    }
    absl::StrAppend(&text, "%", next, " = Contract(%0, ", w,
                    ") {spec=\"mk,kn->mn\"}\n output \"y\" = %", next);
    const std::string kernels = Kernels(text);
    return std::count(kernels.begin(), kernels.end(), ',') + 1;
  };
  // Those with 1, 2 and 4 moved copies of what they read are the pack's; it and the product are
  // two.
  EXPECT_EQ(doubled(/*moved=*/true), kLevels - 3 + 2);
  EXPECT_EQ(doubled(/*moved=*/false), 2);
}

TEST(FusionTest, TransposedAndMergedResultsAreEpilogues) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 8]
    %1 = Input "w" : f32[8, 6]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"}
    %3 = IndexMap(%2) {map=map[6, b]($1, $0)}
    output "y" = %3
  )"),
            "contract 3 over 2");
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, s, 8]
    %1 = Input "w" : f32[8, 6]
    %2 = Contract(%0, %1) {spec="bsk,kn->bsn"}
    %3 = IndexMap(%2) {map=map[b, 6*s]($0, floordiv($1, 6), $1 - 6*floordiv($1, 6))}
    %4 = Exp(%3)
    output "y" = %4
  )"),
            "contract 4 over 2");
}

TEST(FusionTest, SoftmaxAndNormsAreOneKernel) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, s]
    %1 = MaxReduce(%0) {axes=[1]}
    %2 = IndexMap(%1) {map=map[b, s]($0)}
    %3 = Constant {value=f32[] {-1.0}}
    %4 = IndexMap(%3) {map=map[b, s]()}
    %5 = Mul(%2, %4)
    %6 = Add(%0, %5)
    %7 = Exp(%6)
    %8 = SumReduce(%7) {axes=[1]}
    %9 = IndexMap(%8) {map=map[b, s]($0)}
    %10 = Div(%7, %9)
    output "y" = %10
  )"),
            "row 10");
  // x / sqrt(mean(x^2) + eps) * scale
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, s, 64]
    %1 = Parameter "scale" : f32[64]
    %2 = Mul(%0, %0)
    %3 = SumReduce(%2) {axes=[2]}
    %4 = Constant {value=f32[] {0.015625}}
    %5 = IndexMap(%4) {map=map[b, s]()}
    %6 = Mul(%3, %5)
    %7 = Sqrt(%6)
    %8 = Recip(%7)
    %9 = IndexMap(%8) {map=map[b, s, 64]($0, $1)}
    %10 = Mul(%0, %9)
    %11 = IndexMap(%1) {map=map[b, s, 64]($2)}
    %12 = Mul(%10, %11)
    output "y" = %12
  )"),
            "row 12");
}

TEST(FusionTest, ReductionsByTheirAxis) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, s]
    %1 = SumReduce(%0) {axes=[1]}
    output "y" = %1
  )"),
            "point 1");
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, s]
    %1 = Exp(%0)
    %2 = SumReduce(%1) {axes=[0]}
    %3 = Sqrt(%2)
    output "y" = %3
  )"),
            "map 3");
}

TEST(FusionTest, ReductionUsedByTwoKernelsIsComputedOnce) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, s]
    %1 = SumReduce(%0) {axes=[1]}
    %2 = Exp(%1)
    %3 = Tanh(%1)
    output "e" = %2
    output "t" = %3
  )"),
            "point 1, map 2, map 3");
}

constexpr const char* kUnaries[] = {"Sin", "Sqrt", "Exp", "Exp2", "Log2", "Recip"};
constexpr const char* kBinaries[] = {"Add", "Mul"};

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// Expects these kernels of `text` for every unary and binary op in place of UNARY and BINARY.
void ExpectOfEveryPair(const std::string& text, const std::string& kernels) {
  for (const char* unary : kUnaries) {
    for (const char* binary : kBinaries) {
      SCOPED_TRACE(std::string(unary) + " after " + binary);
      EXPECT_EQ(Kernels(Replaced(Replaced(text, "UNARY", unary), "BINARY", binary)), kernels);
    }
  }
}

TEST(FusionTest, EveryUnaryAfterEveryBinaryIsOneMap) {
  ExpectOfEveryPair(R"(
    %0 = Input "x" : f32[b, s]
    %1 = Input "z" : f32[b, s]
    %2 = BINARY(%0, %1)
    %3 = UNARY(%2)
    output "y" = %3
  )",
                    "map 3");
  // The operand is permuted, repeated along either axis, has one element, or is the same twice.
  for (const char* operand : {R"(f32[s, b] %2 = IndexMap(%1) {map=map[b, s]($1, $0)})",
                              R"(f32[b] %2 = IndexMap(%1) {map=map[b, s]($0)})",
                              R"(f32[s] %2 = IndexMap(%1) {map=map[b, s]($1)})",
                              R"(f32[1, s] %2 = IndexMap(%1) {map=map[b, s](0, $1)})",
                              R"(f32[] %2 = IndexMap(%1) {map=map[b, s]()})"}) {
    SCOPED_TRACE(operand);
    ExpectOfEveryPair(std::string(R"(
    %0 = Input "x" : f32[b, s]
    %1 = Input "z" : )") + operand +
                          R"(
    %3 = BINARY(%0, %2)
    %4 = UNARY(%3)
    output "y" = %4
  )",
                      "map 4");
  }
  // The result is permuted.
  ExpectOfEveryPair(R"(
    %0 = Input "x" : f32[b, s]
    %1 = Input "z" : f32[b, s]
    %2 = BINARY(%0, %1)
    %3 = IndexMap(%2) {map=map[s, b]($1, $0)}
    %4 = UNARY(%3)
    output "y" = %4
  )",
                    "map 4");
}

TEST(FusionTest, AReductionBetweenBinaryAndUnary) {
  // Reduces the last axis: the unary follows the reduction in its kernel.
  ExpectOfEveryPair(R"(
    %0 = Input "x" : f32[b, s]
    %1 = Input "z" : f32[b, s]
    %2 = BINARY(%0, %1)
    %3 = SumReduce(%2) {axes=[1]}
    %4 = UNARY(%3)
    output "y" = %4
  )",
                    "point 4");
  // Reduces the first axis.
  ExpectOfEveryPair(R"(
    %0 = Input "x" : f32[b, s]
    %1 = Input "z" : f32[b, s]
    %2 = BINARY(%0, %1)
    %3 = MaxReduce(%2) {axes=[0]}
    %4 = UNARY(%3)
    output "y" = %4
  )",
                    "map 4");
  // Reduces rows and repeats the result: a kernel passes over each row.
  ExpectOfEveryPair(R"(
    %0 = Input "x" : f32[b, s]
    %1 = SumReduce(%0) {axes=[1]}
    %2 = IndexMap(%1) {map=map[b, s]($0)}
    %3 = BINARY(%0, %2)
    %4 = UNARY(%3)
    output "y" = %4
  )",
                    "row 4");
  // Reduces columns and repeats the result: every row reads each sum, so the sums have memory.
  ExpectOfEveryPair(R"(
    %0 = Input "x" : f32[b, s]
    %1 = SumReduce(%0) {axes=[0]}
    %2 = IndexMap(%1) {map=map[b, s]($1)}
    %3 = BINARY(%0, %2)
    %4 = UNARY(%3)
    output "y" = %4
  )",
                    "map 1, map 4");
}

TEST(FusionTest, ALoneOpStaysAlone) {
  for (const char* unary : kUnaries) {
    EXPECT_EQ(Kernels(std::string("%0 = Input \"x\" : f32[b, s] %1 = ") + unary +
                      "(%0) output \"y\" = %1"),
              "map 1");
  }
}

TEST(FusionTest, ReciprocalsOfRootsAndPowersAreOneKernel) {
  for (const char* unary : {"Sqrt", "Exp2"}) {
    EXPECT_EQ(Kernels(std::string("%0 = Input \"x\" : f32[b, s] %1 = ") + unary +
                      "(%0) %2 = Recip(%1) output \"y\" = %2"),
              "map 2");
  }
}

// Powers as exponentials of logarithms, layer after layer: the first is a map, the others are
// epilogues of the contraction before them.
TEST(FusionTest, RepeatedExponentialsAreOneKernelEach) {
  std::string text = R"(%0 = Input "x" : f32[b, 64] %1 = Constant {value=f32[] {1.25}}
    %2 = IndexMap(%1) {map=map[b, 64]()} %3 = Parameter "w" : f32[64, 64] )";
  std::string x = "%0";
  for (int n = 4; n < 28; n += 6) {
    const auto id = [&](int i) { return "%" + std::to_string(n + i); };
    text += id(0) + " = Log2(" + x + ") " + id(1) + " = Mul(" + id(0) + ", %2) " + id(2) +
            " = Mul(" + id(1) + ", %2) " + id(3) + " = Mul(" + id(2) + ", %2) " + id(4) +
            " = Exp2(" + id(3) + ") " + id(5) + " = Contract(" + id(4) +
            ", %3) {spec=\"mk,kn->mn\"} ";
    x = id(5);
  }
  EXPECT_EQ(Kernels(text + "output \"y\" = " + x),
            "map 8, map 28, contract 14 over 9 packed 28, contract 20 over 15 packed 28, "
            "contract 26 over 21 packed 28, contract 27 packed 28");
}

// w = exp2(a + b) * a + sin(a + b), and a later node uses `a` again.
TEST(FusionTest, ADiamondIsOneKernel) {
  const std::string diamond = R"(
    %0 = Input "x" : f32[b, s]
    %1 = Input "z" : f32[b, s]
    %2 = Add(%0, %1)
    %3 = Exp2(%2)
    %4 = Mul(%3, %0)
    %5 = Sin(%2)
    %6 = Add(%4, %5)
  )";
  EXPECT_EQ(Kernels(diamond + "output \"w\" = %6"), "map 6");
  EXPECT_EQ(Kernels(diamond + R"(%7 = Mul(%6, %0) output "y" = %7)"), "map 7");
  EXPECT_EQ(Kernels(diamond + R"(%7 = SumReduce(%0) {axes=[1]} output "w" = %6 output "s" = %7)"),
            "map 6, point 7");
}

TEST(FusionTest, GatherThenAdd) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "ids" : i32[b, s]
    %1 = Parameter "table" : f32[100, 64]
    %2 = Input "p" : f32[b, s, 64]
    %3 = Gather(%1, %0) {axis=0}
    %4 = Add(%3, %2)
    output "y" = %4
  )"),
            "map 4");
}

TEST(FusionTest, OperandsOfContractionsAreInMemory) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 8]
    %1 = Input "w" : f32[8, 6]
    %2 = Exp(%0)
    %3 = Contract(%2, %1) {spec="mk,kn->mn"}
    output "y" = %3
  )"),
            "map 2, contract 3");
}

TEST(FusionTest, EqualWeightsArePackedOnce) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 64]
    %1 = Parameter "w" : f32[64, 64]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"}
    %3 = Contract(%2, %1) {spec="mk,kn->mn"}
    output "y" = %3
  )"),
            "map 4, contract 2 packed 4, contract 3 packed 4");
}

TEST(FusionTest, EqualLayersAreLookedAtOnce) {
  size_t known[2];
  for (int layers : {2, 9}) {
    std::string text = "graph \"\" { dim b in [1, 64]\n %0 = Input \"x\" : f32[b, 256]\n";
    int next = 1, x = 0;
    for (int i = 0; i < layers; ++i) {
      absl::StrAppend(&text, "%", next, " = Parameter \"w", i, "\" : f32[256, 256]\n");
      absl::StrAppend(&text, "%", next + 1, " = Contract(%", x, ", %", next,
                      ") {spec=\"mk,kn->mn\"}\n%", next + 2, " = Tanh(%", next + 1, ")\n%",
                      next + 3, " = SumReduce(%", next + 2, ") {axes=[1]}\n%", next + 4,
                      " = IndexMap(%", next + 3, ") {map=map[b, 256]($0)}\n%", next + 5, " = Mul(%",
                      next + 2, ", %", next + 4, ")\n");
      x = next + 5;
      next += 6;
    }
    absl::StatusOr<Graph> g = ParseGraph(absl::StrCat(text, "output \"y\" = %", x, "}"));
    ASSERT_TRUE(g.ok()) << g.status();
    NodeNumbers numbers;
    FusionMemo memo;
    const TaskIndex index(*g, &numbers);
    ChooseKernels(*g, Target(), {}, FusionKnowledge{&memo, &index.kinds()});
    EXPECT_FALSE(memo.reductions.empty());
    EXPECT_FALSE(memo.contracts.empty());
    known[layers == 9] = memo.reductions.size() + memo.epilogues.size() + memo.contracts.size();
  }
  EXPECT_EQ(known[0], known[1]);
}

v1::Target Gpu(const std::string& chip = "sm_80") {
  v1::Target t = Target();
  t.set_device("cuda");
  t.set_cpu(chip);
  t.set_vector_bytes(1);
  t.set_l1_bytes(228 << 10);
  t.set_threads(132 * 2048);
  return t;
}

// Returns "map 1, tensor 4": as Kernels does, of a GPU; with the way of reading operands of
// contractions. `memory` are nodes that a search gives memory.
std::string OnGpu(const std::string& body, const v1::Target& target = Gpu(),
                  const std::vector<NodeId>& memory = {}) {
  const absl::StatusOr<Graph> g = ParseGraph("graph \"\" { dim b in [1, 640] " + body + "}");
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return "";
  Fusion fusion;
  for (const NodeId n : memory) fusion.nodes[n] = Fuse::kMemory;
  const Genome genome = ChooseKernels(*g, target, fusion);
  NodeNumbers numbers;
  FusionMemo memo;
  const TaskIndex index(*g, &numbers);
  const FusionKnowledge known{&memo, &index.kinds()};
  EXPECT_EQ(Text(ChooseKernels(*g, target, fusion, known)), Text(genome));
  std::string kernels;
  for (const KernelChoice& k : genome.kernels) {
    const bool tensor = IsTensor(k.contract);
    absl::StrAppend(&kernels, kernels.empty() ? "" : ", ", tensor ? "tensor" : KindName(k.kind),
                    " ", k.root);
  }
  return kernels;
}

// Returns the text of a product of casts of two operands.
std::string OfCasts(const std::string& operands, const std::string& sums) {
  return absl::StrCat("%0 = Input \"x\" : ", operands, "[b, 64] %1 = Input \"w\" : ", operands,
                      "[64, 96] %2 = Cast(%0) {dtype=", sums, "} %3 = Cast(%1) {dtype=", sums,
                      "} %4 = Contract(%2, %3) {spec=\"mk,kn->mn\"} ");
}

TEST(FusionTest, MatrixInstructionsTakeOperandsFromBehindTheirCasts) {
  for (const auto& [operands, sums] :
       {std::pair("f16", "f32"), {"bf16", "f32"}, {"i8", "i32"}, {"u8", "i32"}}) {
    const std::string body = OfCasts(operands, sums) + "output \"y\" = %4";
    EXPECT_EQ(OnGpu(body), "tensor 4") << operands;
    // Elsewhere each has memory.
    EXPECT_EQ(OnGpu(body, Gpu("sm_75")), "map 2, map 3, contract 4") << operands;
    EXPECT_EQ(OnGpu(body, Target()), "map 2, map 3, contract 4") << operands;
    // Neither is of use without the other.
    EXPECT_EQ(OnGpu(body, Gpu(), {2}), "map 2, map 3, contract 4") << operands;
  }
  EXPECT_EQ(OnGpu(OfCasts("i8", "f32") + "output \"y\" = %4"), "map 2, map 3, contract 4");
  // What is before a cast has memory; what follows the sums is their epilogue.
  EXPECT_EQ(OnGpu(R"(%0 = Input "x" : f16[b, 64] %1 = Parameter "w" : f16[64, 96] %2 = Exp(%0)
                     %3 = Cast(%2) {dtype=f32} %4 = Cast(%1) {dtype=f32}
                     %5 = Contract(%3, %4) {spec="mk,kn->mn"} %6 = Tanh(%5) output "y" = %6)"),
            "map 2, tensor 6");
  // An instruction takes what this cast makes.
  EXPECT_EQ(OnGpu(R"(%0 = Input "x" : f32[b, 64] %1 = Input "w" : f16[64, 96]
                     %2 = Cast(%0) {dtype=f16} %3 = Contract(%2, %1) {spec="mk,kn->mn"}
                     output "y" = %3)"),
            "map 2, tensor 3");
}

TEST(FusionTest, CastsThatOthersReadHaveMemory) {
  const std::string body = OfCasts("i8", "i32");
  EXPECT_EQ(OnGpu(body + "output \"y\" = %4 output \"z\" = %2"), "map 2, map 3, contract 4");
  EXPECT_EQ(OnGpu(body + "%5 = Mul(%2, %2) output \"y\" = %4 output \"z\" = %5"),
            "map 2, map 3, contract 4, map 5");
  // The other operand of this one is no cast.
  EXPECT_EQ(OnGpu(body + R"(%5 = Input "v" : i32[64, 128]
                            %6 = Contract(%2, %5) {spec="mk,kn->mn"} output "y" = %4
                            output "z" = %6)"),
            "map 2, map 3, contract 4, contract 6");
  // Several products are each a tile of matrix instructions.
  const std::string second = R"(%5 = Input "v" : i8[64, 128] %6 = Cast(%5) {dtype=i32}
                                %7 = Contract(%2, %6) {spec="mk,kn->mn"} output "y" = %4 )";
  EXPECT_EQ(OnGpu(body + second + "output \"z\" = %7"), "tensor 4, tensor 7");
  // One product is none of those, so its operands have memory, and then the others' have too.
  const std::string small = R"(%8 = Input "u" : i8[64, 3] %9 = Cast(%8) {dtype=i32}
                               %10 = Contract(%2, %9) {spec="mk,kn->mn"} output "z" = %7 )";
  EXPECT_EQ(OnGpu(body + second + small + "output \"t\" = %10"),
            "map 2, map 3, contract 4, map 6, contract 7, map 9, contract 10");
}

// A search may give each of these casts memory, and takes it back.
TEST(FusionTest, CastsInsideProductsAreFlips) {
  const Graph g =
      ParseGraph("graph \"\" { dim b in [1, 640] " + OfCasts("f16", "f32") + "output \"y\" = %4}")
          .value();
  using Flips = std::vector<std::pair<NodeId, Fuse>>;
  EXPECT_EQ(FusionFlips(g, ChooseKernels(g, Gpu())),
            (Flips{{2, Fuse::kMemory}, {3, Fuse::kMemory}}));
  const Genome apart = ChooseKernels(g, Gpu(), {.nodes = {{2, Fuse::kMemory}}});
  EXPECT_EQ(FusionFlips(g, apart), (Flips{{2, Fuse::kInline}, {3, Fuse::kInline}}));
  const Genome together = ChooseKernels(g, Gpu(), {.nodes = {{2, Fuse::kInline}}});
  EXPECT_EQ(Text(together), Text(ChooseKernels(g, Gpu())));
  EXPECT_EQ(ChooseKernels(g, Gpu(), {.rules = {.producers = false}}).kernels.size(), 3u);
  EXPECT_EQ(ChooseKernels(g, Gpu(), {.rules = {.tiles = false}}).kernels.size(), 3u);
}

TEST(FusionTest, ScatterIsItsOwnKernel) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[10, 4]
    %1 = Input "i" : i32[b]
    %2 = Input "u" : f32[b, 4]
    %3 = Exp(%2)
    %4 = Scatter(%0, %1, %3) {axis=0, mode="add"}
    %5 = Tanh(%4)
    output "y" = %5
  )"),
            "map 3, scatter 4, map 5");
}

// Merging the heads is an epilogue; a bucket of few rows has an item each.
TEST(FusionTest, PagedAttentionIsTheAnchorOfItsEpilogue) {
  const auto text = [](int most) {
    const absl::StatusOr<Graph> g = ParseGraph(absl::StrCat("graph \"\" { dim t in [1, ", most, R"(]
        %0 = Input "x" : f32[t, 96] %1 = IndexMap(%0) {map=map[t, 6, 16]($0, 16*$1 + $2)}
        %2 = StateRead "k" {role="keys"} : f32[64, 2, 16]
        %3 = StateRead "v" {role="values"} : f32[64, 2, 16]
        %4 = Input "table" : i32[1, 4] %5 = Input "s" : i32[t] %6 = Input "p" : i32[t]
        %7 = PagedAttention(%1, %2, %3, %4, %5, %6) {block=16}
        %8 = IndexMap(%7) {map=map[t, 96]($0, floordiv($1, 16), mod($1, 16))}
        output "y" = %8 })"));
    EXPECT_TRUE(g.ok()) << g.status();
    return g.ok() ? Text(ChooseKernels(*g, Target())) : "";
  };
  EXPECT_EQ(text(16), "8 over 7 paged mr=3 nv=4 rows=1\n");
  EXPECT_EQ(text(17), "8 over 7 paged mr=12 nv=2 rows=16\n");
}

// A write turns its key as it stores it; values that several writes need are computed once, ahead.
TEST(FusionTest, UpdatesAreComputedInTheirWrites) {
  const std::string inputs = R"(
    %0 = Input "k" : f32[b, 2, 8] %1 = Input "cos" : f32[b, 8] %2 = Input "i" : i32[b]
    %3 = StateRead "s" {role="keys"} : f32[64, 2, 8]
    %4 = StateRead "t" {role="values"} : f32[64, 2, 8]
    %5 = IndexMap(%1) {map=map[b, 2, 8]($0, $2)} %6 = Mul(%0, %5)
    %7 = IndexMap(%6) {map=map[b, 2, 8]($0, $1, 7 - $2)} %8 = Add(%6, %7)
    %9 = Add(%2, %2) )";
  EXPECT_EQ(Kernels(inputs + R"(
    %10 = StateWrite(%3, %9, %8) %11 = Gather(%10, %2) {axis=0} %12 = Exp(%11)
    output "y" = %12 update %10)"),
            "state_write 10, map 12");
  EXPECT_EQ(Kernels(inputs + R"(
    %10 = StateWrite(%3, %9, %0) %11 = Exp(%0) %12 = StateWrite(%4, %9, %11)
    %13 = Gather(%12, %2) {axis=0} output "y" = %13 update %10 update %12)"),
            "map 9, state_write 10, state_write 12, map 13");
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 16] %1 = Input "w" : f32[16, 8] %2 = Input "i" : i32[b]
    %3 = StateRead "s" : f32[64, 8] %4 = Contract(%0, %1) {spec="mk,kn->mn"} %5 = Exp(%4)
    %6 = StateWrite(%3, %2, %5) output "y" = %0 update %6)"),
            "contract 4, state_write 6");
}

TEST(FusionTest, OrderIsItsOwnKernelThatReadsViews) {
  EXPECT_EQ(Kernels(R"(
    %0 = Input "x" : f32[b, 64] %1 = Exp(%0) %2 = IndexMap(%1) {map=map[64, b]($1, $0)}
    %3 = Sort(%2) {axis=0} %4 = TopK(%1) {axis=1, k=shape[3]} %5 = Cast(%4) {dtype=f32}
    output "y" = %3 output "z" = %5)"),
            "map 1, sort 3, sort 4, map 5");
}

}  // namespace
}  // namespace athanor
