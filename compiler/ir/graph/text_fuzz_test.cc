// Mutates valid graph texts. Each result is refused with a status or is a graph that every function
// of this folder handles.
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr std::string_view kSeeds[] = {
    R"(graph "mlp" {
  dim b in [1, 64]
  %0 = Input "x" : f32[b, 64]
  %1 = Parameter "w" : f32[64, 10]
  %2 = Contract(%0, %1) {spec="mk,kn->mn"}
  %3 = Constant {value=f32[10] {1.0, -0.0, inf, nan(0x7fc00000), 1e-9, 2.0, 3.0, 4.0, 5.0, 6.0}}
  %4 = IndexMap(%3) {map=map[b, 10]($1)}
  %5 = Add(%2, %4)
  %6 = Softmax(%5) {axis=1}
  output "y" = %6
})",
    R"(graph "maps" {
  dim b in [0, 9]
  dim s in [1, 512]
  %0 = Input "x" : f16[b, s, 8]
  %1 = IndexMap(%0) {map=map[b*s, 8](floordiv($0, s), mod($0, s), $1)}
  %2 = IndexMap(%0) {map=map[b + 2, s, 4]($0 - 1, min($1, s - 1), 2*$2), fill=f16[] {0.5}}
  %3 = Input "i" : i32[b]
  %4 = Gather(%0, %3) {axis=1}
  %5 = Iota {axis=0, dtype=i64, shape=shape[max(b, 3)]}
  %6 = SumReduce(%4) {axes=[0, 2]}
  %7 = Attention(%0, %0, %0) {causal=true, scale=0.25}
  output "a" = %1
  output "b" = %2
  output "c" = %6
  output "d" = %7
  output "e" = %5
})",
    R"(graph "bag" {
  dim n in [0, 4096]
  dim b in [1, 64]
  %0 = Parameter "table" : bf16[1000, 16]
  %1 = Input "ids" : i64[n]
  %2 = Input "offsets" : i32[b]
  %3 = EmbeddingBag(%0, %1, %2) {mode="mean"}
  %4 = Cast(%3) {dtype=f32}
  %5 = Gelu(%4) {approximate="tanh"}
  %6 = Constant {value=bool[2] {true, false}}
  output "y" = %5
  output "z" = %6
})"};

constexpr std::string_view kPieces[] = {"(",
                                        ")",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        ",",
                                        "%0",
                                        "%9",
                                        "=",
                                        ":",
                                        "\"",
                                        "-1",
                                        "0",
                                        "9223372036854775807",
                                        "b",
                                        "s",
                                        "n",
                                        "$0",
                                        "$1",
                                        "*",
                                        "+",
                                        "floordiv(",
                                        "min(",
                                        "max(",
                                        "mod(",
                                        "f8e4m3",
                                        "bool",
                                        "shape[",
                                        "map[",
                                        "nan(0x",
                                        "inf",
                                        "1e999",
                                        "graph",
                                        "output",
                                        "dim",
                                        "Input",
                                        "Add",
                                        "\\",
                                        "#",
                                        "\xff",
                                        "axis=",
                                        "b*b*b*b",
                                        "floordiv(b, s)",
                                        "(b + s)"};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string Next() {
    std::string text(kSeeds[Below(std::size(kSeeds))]);
    for (size_t i = 1 + Below(6); i > 0; --i) Mutate(&text);
    return text;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }

  void Mutate(std::string* text) {
    const size_t at = Below(text->size() + 1);
    const size_t length = std::min(Below(12), text->size() - at);
    const std::string_view piece = kPieces[Below(std::size(kPieces))];
    switch (Below(5)) {
      case 0:
        text->replace(at, length, piece);
        break;
      case 1:
        text->insert(at, piece);
        break;
      case 2:
        text->erase(at, length);
        break;
      case 3:
        text->insert(at, text->substr(Below(text->size() + 1), Below(40)));
        break;
      default:
        if (at < text->size()) (*text)[at] = static_cast<char>(Below(256));
    }
  }

  std::mt19937_64 random_;
};

void Exercise(const Graph& graph) {
  const std::string text = ToText(graph);
  const absl::StatusOr<Graph> again = ParseGraph(text);
  ASSERT_TRUE(again.ok()) << text << again.status();
  ASSERT_EQ(ToText(*again), text);
  const std::string hash = CanonicalHash(graph);
  ASSERT_EQ(CanonicalHash(*again), hash) << text;
  const Graph canonical = Canonicalize(graph);
  ASSERT_TRUE(Verify(canonical).ok()) << text << ToText(canonical) << Verify(canonical);
  ASSERT_EQ(CanonicalHash(canonical), hash) << text << ToText(canonical);
  const absl::Status bindable = VerifyBindable(graph);
  std::vector<std::vector<int64_t>> shapes;
  for (NodeId id : graph.InputIds()) {
    shapes.emplace_back(graph.nodes[id].type.shape.size(), 1);
  }
  const absl::StatusOr<Expr::Env> dims = BindDims(graph, shapes);
  if (dims.ok() && bindable.ok()) {
    for (const auto& [name, size] : *dims) ASSERT_GE(size, 0) << name;
  }
}

TEST(TextFuzz, MutatedGraphsAreRefusedOrHandled) {
  const char* seconds = std::getenv("ATHANOR_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(seconds == nullptr ? 2 : std::atoi(seconds));
  Mutator mutator(seconds == nullptr ? 1 : std::random_device()());
  int accepted = 0, refused = 0;
  while (std::chrono::steady_clock::now() < end) {
    const std::string text = mutator.Next();
    const auto begin = std::chrono::steady_clock::now();
    const absl::StatusOr<Graph> graph = ParseGraph(text);
    if (graph.ok()) {
      ++accepted;
      Exercise(*graph);
      if (HasFatalFailure()) return;
    } else {
      ++refused;
      ASSERT_TRUE(absl::IsInvalidArgument(graph.status()) || absl::IsUnimplemented(graph.status()))
          << text << graph.status();
    }
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << text;
  }
  EXPECT_GT(accepted, 10);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace athanor
