// Runs scans, which are loops in plans, through pipeline, Clang and executor against the reference
// evaluator.
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/plan/plan_text.h"
#include "compiler/plan/plan_verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// Parses a graph; T stands for the dtype.
Graph Parsed(DType dtype, absl::string_view text) {
  absl::StatusOr<Graph> graph = ParseGraph(
      absl::StrReplaceAll(text, {{"T[", absl::StrCat(std::string(DTypeName(dtype)), "[")},
                                 {"=T}", absl::StrCat("=", std::string(DTypeName(dtype)), "}")}}));
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << text;
  return graph.ok() ? *std::move(graph) : Graph();
}

// Two states that swap, a stack of each, and the first state of the step before: h' = c * w + x, c'
// = h.
constexpr char kSwapping[] = R"(graph "g" { dim n in [0, 40] dim b in [1, 9]
  %0 = Input "h" : T[b, 3] %1 = Input "c" : T[b, 3] %2 = Input "x" : T[n, b, 3] %3 = Input "w" : T[b, 3]
  %4 = Scan(%0, %1, %2, %3) {body=BODY, length=shape[n], result=0, scanned=1, states=2}
  %5 = Scan(%0, %1, %2, %3) {body=BODY, length=shape[n], result=1, scanned=1, states=2}
  %6 = Scan(%0, %1, %2, %3) {body=BODY, length=shape[n], result=2, scanned=1, states=2}
  %7 = Scan(%0, %1, %2, %3) {body=BODY, length=shape[n], result=3, scanned=1, states=2}
  %8 = Scan(%0, %1, %2, %3) {body=BODY, length=shape[n], result=3, scanned=1, states=2, reverse=true}
  %9 = Add(%4, %5)
  output "h" = %4 output "c" = %5 output "y" = %6 output "z" = %7 output "r" = %8 output "s" = %9 })";
constexpr char kSwappingBody[] = R"(graph "body" {%0 = Input "step" : i64[] %1 = Input "h" : T[b, 3]
  %2 = Input "c" : T[b, 3] %3 = Input "x" : T[b, 3] %4 = Input "w" : T[b, 3] %5 = Mul(%2, %4) : T[b, 3]
  %6 = Add(%5, %3) : T[b, 3] %7 = Cast(%0) {dtype=T} : T[] %8 = IndexMap(%7) {map=map[b, 3]()} : T[b, 3]
  %9 = Add(%6, %8) : T[b, 3] output "h" = %6 output "c" = %1 output "y" = %9 output "z" = %3})";

TEST(LoopsTest, StatesStacksAndDTypesAtManyLengths) {
  std::mt19937 rng(1);
  const std::string text = absl::StrReplaceAll(kSwapping, {{"BODY", kSwappingBody}});
  for (DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI64, DType::kI32}) {
    const Graph graph = Parsed(t, text);
    for (int64_t n : {0, 1, 2, 7, 40}) {
      for (int64_t b : {1, 9}) {
        ExpectMatchesReference(graph,
                               {RandomTensor(t, {b, 3}, rng), RandomTensor(t, {b, 3}, rng),
                                RandomTensor(t, {n, b, 3}, rng), RandomTensor(t, {b, 3}, rng, 0.4)},
                               {}, /*slack=*/8);
      }
    }
  }
}

TEST(LoopsTest, ResultsOfOneLoopAreOneLoop) {
  const Graph graph =
      Parsed(DType::kF32, absl::StrReplaceAll(kSwapping, {{"BODY", kSwappingBody}}));
  const Compiled compiled = Compile(graph).value();
  EXPECT_EQ(compiled.plan().loops_size(), 2);  // forward and in reverse
  EXPECT_EQ(compiled.plan().format(), 2u);
}

// A recurrent layer: weights inside the body, ops before and after the loop, a carried state.
constexpr char kLayer[] = R"(graph "g" { dim n in [0, 64] dim b in [1, 8]
  %0 = Input "x" : T[n, b, 5] %1 = Parameter "w" : T[5, 16] %2 = Parameter "r" : T[16, 16]
  %3 = Parameter "h" : T[16] %4 = IndexMap(%3) {map=map[b, 16]($1)}
  %5 = Contract(%0, %1) {spec="nbi,ig->nbg"}
  %6 = Scan(%4, %5, %2) {body=BODY, length=shape[n], result=1, scanned=1, states=1REVERSE}
  %7 = Scan(%4, %5, %2) {body=BODY, length=shape[n], result=0, scanned=1, states=1REVERSE}
  %8 = Tanh(%6) output "y" = %8 output "h" = %7 })";
constexpr char kLayerBody[] = R"(graph "body" {%0 = Input "step" : i64[] %1 = Input "h" : T[b, 16]
  %2 = Input "x" : T[b, 16] %3 = Input "r" : T[16, 16]
  %4 = Contract(%1, %3) {spec="bk,kn->bn"} : T[b, 16] %5 = Add(%4, %2) : T[b, 16]
  %6 = Tanh(%5) : T[b, 16] %7 = Mul(%6, %6) : T[b, 16] output "h" = %6 output "y" = %7})";

TEST(LoopsTest, ARecurrentLayerWithWeights) {
  std::mt19937 rng(2);
  for (const char* reverse : {"", ", reverse=true"}) {
    for (DType t : {DType::kF32, DType::kF64, DType::kF16}) {
      const Graph graph =
          Parsed(t, absl::StrReplaceAll(kLayer, {{"BODY", kLayerBody}, {"REVERSE", reverse}}));
      const std::vector<Tensor> weights = {RandomTensor(t, {5, 16}, rng, 0.3),
                                           RandomTensor(t, {16, 16}, rng, 0.2),
                                           RandomTensor(t, {16}, rng)};
      for (int64_t n : {0, 1, 5, 31, 64}) {
        for (int64_t b : {1, 3, 8}) {
          ExpectMatchesReference(graph, {RandomTensor(t, {n, b, 5}, rng)}, weights, /*slack=*/8);
        }
      }
    }
  }
}

TEST(LoopsTest, WeightsInsideArePreparedOnce) {
  const Graph graph =
      Parsed(DType::kF32, absl::StrReplaceAll(kLayer, {{"BODY", kLayerBody}, {"REVERSE", ""}}));
  std::mt19937 rng(3);
  const Compiled compiled = Compile(graph, {RandomTensor(DType::kF32, {5, 16}, rng),
                                            RandomTensor(DType::kF32, {16, 16}, rng),
                                            RandomTensor(DType::kF32, {16}, rng)})
                                .value();
  ASSERT_EQ(compiled.plan().loops_size(), 1);
  const v1::Loop& loop = compiled.plan().loops(0);
  for (uint32_t i = loop.first(); i < loop.first() + loop.steps(); ++i) {
    EXPECT_EQ(compiled.plan().run(static_cast<int>(i)).label().find("IndexMap"), std::string::npos)
        << compiled.plan().DebugString();
  }
}

// Running sums of rows, each continuing the one before, and a count of elements.
TEST(LoopsTest, OneLoopInsideAnother) {
  const char* const inner = R"(graph "i" {%0 = Input "step" : i64[] %1 = Input "h" : T[2]
    %2 = Input "x" : T[2] %3 = Input "k" : T[2] %4 = Add(%1, %2) : T[2] %5 = Mul(%4, %3) : T[2]
    output "h" = %5 output "y" = %4})";
  const std::string outer =
      absl::StrCat(R"(graph "o" {%0 = Input "step" : i64[] %1 = Input "h" : T[2]
    %2 = Input "x" : T[m, 2] %3 = Input "k" : T[2]
    %4 = Scan(%1, %2, %3) {body=)",
                   inner, R"(, length=shape[m], result=0, scanned=1, states=1} : T[2]
    %5 = Scan(%1, %2, %3) {body=)",
                   inner, R"(, length=shape[m], result=1, scanned=1, states=1} : T[m, 2]
    %6 = Add(%4, %3) : T[2] output "h" = %6 output "y" = %5})");
  const Graph graph =
      Parsed(DType::kF32, absl::StrCat(R"(graph "g" { dim n in [0, 9] dim m in [0, 9]
    %0 = Input "h" : T[2] %1 = Input "x" : T[n, m, 2] %2 = Input "k" : T[2]
    %3 = Scan(%0, %1, %2) {body=)",
                                       outer, R"(, length=shape[n], result=0, scanned=1, states=1}
    %4 = Scan(%0, %1, %2) {body=)",
                                       outer, R"(, length=shape[n], result=1, scanned=1, states=1}
    output "h" = %3 output "y" = %4 })"));
  std::mt19937 rng(4);
  for (int64_t n : {0, 1, 2, 5}) {
    for (int64_t m : {0, 1, 3}) {
      ExpectMatchesReference(
          graph,
          {RandomTensor(DType::kF32, {2}, rng), RandomTensor(DType::kF32, {n, m, 2}, rng),
           RandomTensor(DType::kF32, {2}, rng, 0.5)},
          {}, /*slack=*/8);
    }
  }
}

// Outputs that are captured, constant, the step or another output; a state that never changes.
TEST(LoopsTest, OutputsThatNoStepComputes) {
  const char* const body = R"(graph "b" {%0 = Input "step" : i64[] %1 = Input "h" : T[2]
    %2 = Input "k" : T[2] %3 = Constant {value=T[2] {1.0, 2.0}} : T[2] %4 = Add(%2, %1) : T[2]
    output "h" = %1 output "a" = %2 output "b" = %3 output "c" = %0 output "d" = %4 output "e" = %4})";
  std::string text =
      "graph \"g\" { dim n in [0, 9] %0 = Input \"h\" : T[2] %1 = Input \"k\" : T[2]\n"
      "%2 = Input \"z\" : T[n]\n";
  std::string outputs;
  for (int result = 0; result < 6; ++result) {
    absl::StrAppend(&text, "%", result + 3, " = Scan(%0, %1) {body=", body,
                    ", length=shape[n], result=", result, ", scanned=0, states=1}\n");
    absl::StrAppend(&outputs, "output \"y", result, "\" = %", result + 3, "\n");
  }
  const Graph graph = Parsed(DType::kF32, absl::StrCat(text, outputs, "}"));
  std::mt19937 rng(5);
  for (int64_t n : {0, 1, 4}) {
    ExpectMatchesReference(
        graph, {RandomTensor(DType::kF32, {2}, rng), RandomTensor(DType::kF32, {2}, rng),
                RandomTensor(DType::kF32, {n}, rng)});
  }
}

// Two loops in sequence, the second over the first one's stacked output; composites, an index.
TEST(LoopsTest, OneLoopAfterAnother) {
  const char* const first = R"(graph "b" {%0 = Input "step" : i64[] %1 = Input "h" : T[4]
    %2 = Input "x" : T[4] %3 = Add(%1, %2) : T[4] %4 = Softmax(%3) {axis=0} : T[4]
    output "h" = %4 output "y" = %3})";
  const char* const second = R"(graph "b" {%0 = Input "step" : i64[] %1 = Input "h" : T[4]
    %2 = Input "y" : T[4] %3 = Input "x" : T[n, 4] %4 = Gather(%3, %0) {axis=0} : T[4]
    %5 = Sort(%2) {axis=0} : i64[4] %6 = Gather(%4, %5) {axis=0} : T[4] %7 = Add(%6, %1) : T[4]
    output "h" = %7})";
  const Graph graph =
      Parsed(DType::kF32,
             absl::StrCat(R"(graph "g" { dim n in [0, 30]
    %0 = Input "h" : T[4] %1 = Input "x" : T[n, 4]
    %2 = Scan(%0, %1) {body=)",
                          first, R"(, length=shape[n], result=1, scanned=1, states=1}
    %3 = Scan(%0, %2, %1) {body=)",
                          second, R"(, length=shape[n], result=0, scanned=1, states=1, reverse=true}
    output "y" = %2 output "h" = %3 })"));
  std::mt19937 rng(6);
  for (int64_t n : {0, 1, 13, 30}) {
    ExpectMatchesReference(
        graph, {RandomTensor(DType::kF32, {4}, rng), RandomTensor(DType::kF32, {n, 4}, rng)}, {},
        /*slack=*/8);
  }
}

TEST(LoopsTest, WhatIsWrongWithALoopIsNamed) {
  const Graph graph =
      Parsed(DType::kF32, absl::StrReplaceAll(kLayer, {{"BODY", kLayerBody}, {"REVERSE", ""}}));
  std::mt19937 rng(7);
  const Compiled compiled = Compile(graph, {RandomTensor(DType::kF32, {5, 16}, rng),
                                            RandomTensor(DType::kF32, {16, 16}, rng),
                                            RandomTensor(DType::kF32, {16}, rng)})
                                .value();
  const v1::Plan& right = compiled.plan();
  EXPECT_TRUE(VerifyPlan(right).ok()) << VerifyPlan(right);
  EXPECT_THAT(PlanToText(right), HasSubstr("loop of steps"));
  const auto broken = [&](const std::function<void(v1::Plan&, v1::Loop&)>& change,
                          const std::string& part) {
    v1::Plan plan = right;
    change(plan, *plan.mutable_loops(0));
    EXPECT_THAT(std::string(VerifyPlan(plan).message()), HasSubstr(part)) << PlanToText(plan);
  };
  broken([](v1::Plan& p, v1::Loop&) { p.set_format(1); }, "knows format 2 of plans with loops");
  broken([](v1::Plan&, v1::Loop& l) { l.set_steps(0); }, "loop 0 has steps");
  broken([](v1::Plan&, v1::Loop& l) { l.set_steps(99); }, "loop 0 has steps");
  broken([](v1::Plan&, v1::Loop& l) { l.set_steps(l.steps() - 1); },
         "which nothing has written yet");
  broken([](v1::Plan&, v1::Loop& l) { l.mutable_slices(0)->set_buffer(0); }, "is not a WINDOW");
  broken([](v1::Plan&, v1::Loop& l) { l.mutable_slices(0)->set_buffer(l.turn()); },
         "to more than one loop");
  broken([](v1::Plan&, v1::Loop& l) { l.clear_turn(); }, "belongs to no loop");
  broken([](v1::Plan&, v1::Loop& l) { l.mutable_slices(0)->set_of(99); }, "names buffer 99 of");
  broken([](v1::Plan&, v1::Loop& l) { l.mutable_carries(0)->set_last(l.carries(0).other()); },
         "a second time");
  broken([](v1::Plan&, v1::Loop& l) { l.mutable_carries(0)->set_initial(l.carries(0).read()); },
         "which belongs to loop 0");
  broken([](v1::Plan& p, v1::Loop& l) { p.mutable_outputs(0)->set_buffer(l.turn()); },
         "which nothing writes");
  broken([](v1::Plan& p, v1::Loop&) { *p.add_loops() = p.loops(0); }, "to more than one loop");
  // Values that the loop reads from outside must live until its last iteration.
  broken(
      [](v1::Plan& p, v1::Loop& l) {
        const auto other = static_cast<int>(l.carries(0).other());
        const auto scanned = static_cast<int>(l.slices(0).of());
        p.mutable_buffers(other)->set_arena_offset(p.buffers(scanned).arena_offset());
      },
      "overlaps");
}

TEST(LoopsTest, AnIndexOutsideEndsTheLoop) {
  const Graph graph = Parsed(DType::kF32, R"(graph "g" { dim n in [0, 9]
    %0 = Input "i" : i64[n] %1 = Input "t" : T[3]
    %2 = Scan(%0, %1) {body=graph "b" {%0 = Input "step" : i64[] %1 = Input "i" : i64[]
      %2 = Input "t" : T[3] %3 = Gather(%2, %1) {axis=0} : T[] output "y" = %3},
    length=shape[n], result=0, scanned=1, states=0} output "y" = %2 })");
  Compiled compiled = Compile(graph).value();
  const Tensor t = Tensor::Of<float>(DType::kF32, {3}, {5, 6, 7});
  const auto run = [&](std::vector<int64_t> at) {
    const auto n = static_cast<int64_t>(at.size());
    return compiled.Run({Tensor::Of<int64_t>(DType::kI64, {n}, at), t});
  };
  EXPECT_EQ(run({2, 0, 1}).value()[0].bytes, Tensor::Of<float>(DType::kF32, {3}, {7, 5, 6}).bytes);
  EXPECT_TRUE(IsIndexError(run({0, 3, 1}).status()));
  EXPECT_EQ(run({1}).value()[0].bytes, Tensor::Of<float>(DType::kF32, {1}, {6}).bytes);
}

}  // namespace
}  // namespace athanor
