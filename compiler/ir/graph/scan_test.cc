// Tests of Scan: its checks, its results against loops written out in C++, and every function over
// whole graphs.
#include "compiler/ir/graph/scan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/ops/reference_testing.h"
#include "compiler/ir/sample/evaluate_at.h"
#include "compiler/ir/sample/widen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<double>;

// h' = h * w + x, y = h' + step: a state, a slice, a captured value and the step's number.
std::string Running(absl::string_view dtype, int result, absl::string_view more = "") {
  const auto type = absl::StrCat(dtype, "[2]");
  return absl::StrCat(
      "graph \"g\" { dim n in [0, 9]\n %0 = Input \"h\" : ", type, " %1 = Input \"x\" : ", dtype,
      "[n, 2]\n %2 = Input \"w\" : ", type, "\n %3 = Scan(%0, %1, %2) {body=graph \"body\" {",
      "%0 = Input \"step\" : i64[] %1 = Input \"h\" : ", type, " %2 = Input \"x\" : ", type,
      " %3 = Input \"w\" : ", type, " %4 = Mul(%1, %3) : ", type, " %5 = Add(%4, %2) : ", type,
      " %6 = Cast(%0) {dtype=", dtype, "} : ", dtype,
      "[] %7 = IndexMap(%6) {map=map[2]()} : ", type, " %8 = Add(%5, %7) : ", type,
      " output \"h\" = %5 output \"y\" = %8}, length=shape[n], ", "result=", result,
      ", scanned=1, states=1", more, "}\n output \"y\" = %3 }");
}

Graph Parsed(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << text;
  return graph.ok() ? *std::move(graph) : Graph();
}

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  return graph.ok() ? "accepted" : std::string(graph.status().message());
}

std::string With(std::string text, absl::string_view from, absl::string_view to) {
  const size_t at = text.find(std::string(from));
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), std::string(to));
}

struct Results {
  Values last, stacked;
};

// Computes the same with a loop.
Results Expected(Values h, const Values& x, const Values& w, bool reverse) {
  const size_t n = x.size() / 2;
  Results run{h, Values(2 * n)};
  for (size_t step = 0; step < n; ++step) {
    const size_t at = reverse ? n - 1 - step : step;
    for (size_t i = 0; i < 2; ++i) {
      run.last[i] = run.last[i] * w[i] + x[2 * at + i];
      run.stacked[2 * at + i] = run.last[i] + static_cast<double>(step);
    }
  }
  return run;
}

TEST(ScanTest, EachStepSeesTheOneBefore) {
  const Values h = {1, -1}, w = {2, -1};
  for (DType t : {DType::kF16, DType::kF32, DType::kF64, DType::kI64, DType::kI32}) {
    for (bool reverse : {false, true}) {
      for (int64_t n : {0, 1, 2, 7}) {
        Values x;
        for (int64_t i = 0; i < 2 * n; ++i) x.push_back(static_cast<double>(i % 5) - 2);
        const Results want = Expected(h, x, w, reverse);
        for (int result : {0, 1}) {
          const Graph graph =
              Parsed(Running(std::string(DTypeName(t)), result, reverse ? ", reverse=true" : ""));
          const std::vector<Tensor> inputs = {Of(t, {2}, h), Of(t, {n, 2}, x), Of(t, {2}, w)};
          const Tensor y = Evaluate(graph, inputs).value()[0];
          EXPECT_EQ(ValuesOf(y), result == 0 ? want.last : want.stacked) << DTypeName(t) << n;
          EXPECT_EQ(y.dtype, t);
        }
      }
    }
  }
}

TEST(ScanTest, IntegersBeyondDoublesPass) {
  const int64_t big = (int64_t{1} << 60) + 1;
  const Graph graph = Parsed(Running("i64", 0));
  const std::vector<Tensor> inputs = {Tensor::Of<int64_t>(DType::kI64, {2}, {big, -big}),
                                      Tensor::Of<int64_t>(DType::kI64, {1, 2}, {1, -1}),
                                      Tensor::Of<int64_t>(DType::kI64, {2}, {1, 1})};
  const Tensor y = Evaluate(graph, inputs).value()[0];
  EXPECT_EQ(LoadScalar(y, 0).i, big + 1);
  EXPECT_EQ(LoadScalar(y, 1).i, -big - 1);
}

TEST(ScanTest, OnlyALength) {
  const Graph graph = Parsed(R"(graph "g" { dim n in [0, 9] %0 = Input "x" : f32[n, 1]
      %1 = Scan {body=graph "b" {%0 = Input "step" : i64[] output "y" = %0}, length=shape[n + 2],
      result=0, scanned=0, states=0} output "y" = %1 })");
  EXPECT_EQ(ValuesOf(Evaluate(graph, {Of(DType::kF32, {1, 1}, {0})}).value()[0]),
            (Values{0, 1, 2}));
}

TEST(ScanTest, OneInsideAnother) {
  // Rows of running sums; the last element of each row is the start of the next.
  const Graph graph = Parsed(R"(graph "g" { dim n in [0, 9] dim m in [0, 9]
      %0 = Input "h" : f32[] %1 = Input "x" : f32[n, m]
      %2 = Scan(%0, %1) {body=graph "o" {%0 = Input "step" : i64[] %1 = Input "h" : f32[]
        %2 = Input "x" : f32[m]
        %3 = Scan(%1, %2) {body=graph "i" {%0 = Input "step" : i64[] %1 = Input "h" : f32[]
          %2 = Input "x" : f32[] %3 = Add(%1, %2) : f32[] output "h" = %3 output "y" = %3},
          length=shape[m], result=0, scanned=1, states=1} : f32[]
        %4 = Scan(%1, %2) {body=graph "i" {%0 = Input "step" : i64[] %1 = Input "h" : f32[]
          %2 = Input "x" : f32[] %3 = Add(%1, %2) : f32[] output "h" = %3 output "y" = %3},
          length=shape[m], result=1, scanned=1, states=1} : f32[m]
        output "h" = %3 output "y" = %4}, length=shape[n], result=1, scanned=1, states=1}
      output "y" = %2 })");
  const std::vector<Tensor> inputs = {Of(DType::kF32, {}, {10}),
                                      Of(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6})};
  EXPECT_EQ(ValuesOf(Evaluate(graph, inputs).value()[0]), (Values{11, 13, 16, 20, 25, 31}));
  EXPECT_EQ(CanonicalHash(graph), CanonicalHash(Parsed(ToText(graph))));
}

TEST(ScanTest, WhatDoesNotFitIsNamed) {
  const std::string good = Running("f32", 1);
  EXPECT_THAT(ErrorOf(With(good, "result=1", "result=2")), HasSubstr("result=2 must be in [0, 1]"));
  EXPECT_THAT(ErrorOf(With(good, "states=1", "states=4")), HasSubstr("states=4 must be in [0, 3]"));
  EXPECT_THAT(ErrorOf(With(good, "scanned=1", "scanned=3")),
              HasSubstr("scanned=3 must be in [0, 2]"));
  EXPECT_THAT(ErrorOf(With(good, "length=shape[n]", "length=shape[n, n]")),
              HasSubstr("length holds 2 sizes"));
  EXPECT_THAT(
      ErrorOf(With(good, "length=shape[n]", "length=shape[n + 1]")),
      HasSubstr("axis 0 of operand 1, which is scanned, has size n; it must be the length"));
  EXPECT_THAT(ErrorOf(With(good, "length=shape[n]", "length=shape[n - 1]")),
              HasSubstr("is not provably 0 or more"));
  EXPECT_THAT(ErrorOf(With(good, "\"step\" : i64[]", "\"step\" : i32[]")),
              HasSubstr("the step's number, is i32[]; it must be i64[]"));
  EXPECT_THAT(ErrorOf(With(good, "Scan(%0, %1, %2)", "Scan(%0, %1)")),
              HasSubstr("the body has 4 inputs; it needs 3"));
  EXPECT_THAT(ErrorOf(With(good, "%2 = Input \"w\" : f32[2]", "%2 = Input \"w\" : f16[2]")),
              HasSubstr("operand 2"));
  EXPECT_THAT(ErrorOf(With(good, "output \"h\" = %5", "output \"h\" = %6")), HasSubstr("state 0"));
  EXPECT_THAT(ErrorOf(With(good, "%4 = Mul(%1, %3) : f32[2]", "%4 = Mul(%1, %3) : f32[3]")),
              HasSubstr("attribute body: %4 (Mul)"));
  EXPECT_THAT(ErrorOf(With(good, "%3 = Input \"w\"", "%3 = Parameter \"w\"")),
              HasSubstr("a weight is captured"));
  EXPECT_THAT(ErrorOf(With(good, "graph \"body\" {", "graph \"body\" { dim m in [1, 2] ")),
              HasSubstr("expected a node"));
  EXPECT_THAT(ErrorOf(With(good, " output \"h\" = %5 output \"y\" = %8}", "}")),
              HasSubstr("no outputs"));
  EXPECT_THAT(ErrorOf(With(good, "body=graph \"body\" {", "body=3, more=graph \"body\" {")),
              HasSubstr("is of type int; it must be of type graph"));
}

TEST(ScanTest, NotTooDeep) {
  std::string inside = "graph \"b\" {%0 = Input \"step\" : i64[] output \"y\" = %0}";
  std::string type = "i64[1";
  for (int depth = 1; depth <= 5; ++depth) {
    const std::string text =
        absl::StrCat("graph \"g\" { %0 = Scan {body=", inside,
                     ", length=shape[1], result=0, scanned=0, states=0} output \"y\" = %0 }");
    if (depth <= GraphLimits().max_bodies) {
      EXPECT_EQ(ErrorOf(text), "accepted") << depth;
    } else {
      EXPECT_THAT(ErrorOf(text), HasSubstr("is nested too deep"));
    }
    inside = absl::StrCat("graph \"b\" {%0 = Input \"step\" : i64[] %1 = Scan {body=", inside,
                          ", length=shape[1], result=0, scanned=0, states=0} : ", type,
                          "] output \"y\" = %1}");
    absl::StrAppend(&type, ", 1");
  }
}

TEST(ScanTest, TextAndCanonicalForm) {
  const Graph graph = Parsed(Running("f32", 1));
  const Graph again = Parsed(ToText(graph));
  EXPECT_EQ(ToText(again), ToText(graph));
  const std::string hash = CanonicalHash(graph);
  EXPECT_EQ(CanonicalHash(again), hash);
  // Names of dims and nodes, inside the body too, do not change the hash. The result's number,
  // lengths and the body's ops do.
  std::string renamed = Running("f32", 1);
  for (const auto& [from, to] :
       {std::pair("dim n", "dim len"), std::pair("[n, 2]", "[len, 2]"),
        std::pair("shape[n]", "shape[len]"), std::pair("\"body\"", "\"other\"")}) {
    renamed = With(renamed, from, to);
  }
  EXPECT_EQ(CanonicalHash(Parsed(renamed)), hash);
  EXPECT_NE(CanonicalHash(Parsed(Running("f32", 0))), hash);
  EXPECT_NE(CanonicalHash(Parsed(Running("f32", 1, ", reverse=true"))), hash);
  EXPECT_EQ(CanonicalHash(Parsed(Running("f32", 1, ", reverse=false"))), hash);
  EXPECT_NE(CanonicalHash(Parsed(With(Running("f32", 1), "= Mul(%1", "= Max(%1"))), hash);
  // A dim that only the body uses is a dim of the graph and renamed with it.
  const std::string inner =
      With(With(With(Running("f32", 0), "dim n", "dim k in [1, 4] dim n"), "{map=map[2]()}",
                "{map=map[2]()}"),
           "%0 = Input \"h\" : f32[2]", "%9 = Input \"z\" : f32[k, k] %0 = Input \"h\" : f32[2]");
  const Graph canonical = Canonicalize(Parsed(inner));
  EXPECT_TRUE(Verify(canonical).ok()) << Verify(canonical);
  std::set<std::string> symbols;
  for (const Node& node : canonical.nodes) {
    ForEachExpr(node.attrs, [&](const Expr& e) { e.CollectSymbols(&symbols); });
  }
  EXPECT_THAT(symbols, ::testing::ElementsAre("d1"));
}

TEST(ScanTest, OneLoopIsKnownByItsNodes) {
  const Graph a = Parsed(Running("f32", 0)), b = Parsed(Running("f32", 1));
  EXPECT_EQ(LoopKey(a.node(3)), LoopKey(b.node(3)));
  Node other = b.node(3);
  other.inputs = {0, 1, 0};
  EXPECT_NE(LoopKey(other), LoopKey(b.node(3)));
}

TEST(ScanTest, AnEditDoesNotReachOtherCopies) {
  Attrs attrs = Parsed(Running("f32", 0)).node(3).attrs;
  const Attrs before = attrs;
  EditExprs(&attrs, [](Expr& e) { e = e.Substitute({{"n", Expr(3)}}); });
  EXPECT_FALSE(attrs == before);
  EXPECT_EQ(GetAttr<Shape>(before, "length")[0], Expr::Symbol("n"));
}

TEST(ScanTest, TheWideTwinIsNearer) {
  const Graph graph = Parsed(Running("f16", 0));
  const Graph wide = WidenToF64(graph).value();
  EXPECT_TRUE(Verify(wide).ok()) << Verify(wide);
  const std::vector<Tensor> inputs = {Of(DType::kF16, {2}, {1, 1}),
                                      Of(DType::kF16, {3, 2}, {0, 0, 0, 0, 0, 0}),
                                      Of(DType::kF16, {2}, {1.0009765625, 1})};
  const Tensor y = Evaluate(wide, inputs).value()[0];
  EXPECT_EQ(y.dtype, DType::kF64);
  EXPECT_EQ(LoadScalar(y, 0).f, 1.0009765625 * 1.0009765625 * 1.0009765625);
}

TEST(ScanTest, ElementsAtAnySize) {
  const Graph graph = Parsed(Running("f32", 1));
  Values x;
  for (int i = 0; i < 14; ++i) x.push_back(i % 3);
  const std::vector<Tensor> inputs = {Of(DType::kF32, {2}, {1, 2}), Of(DType::kF32, {7, 2}, x),
                                      Of(DType::kF32, {2}, {0.5, 1})};
  const std::vector<absl::string_view> bytes = {inputs[0].bytes, inputs[1].bytes, inputs[2].bytes};
  const Results want = Expected({1, 2}, x, {0.5, 1}, false);
  const auto got = EvaluateAt(graph, {{"n", 7}}, {{13, 0, 4}}, bytes, 10'000).value();
  EXPECT_EQ(ValuesOf(got[0]), (Values{want.stacked[13], want.stacked[0], want.stacked[4]}));
  EXPECT_EQ(EvaluateAt(graph, {{"n", 7}}, {{0}}, bytes, 20).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ScanTest, ErrorsNameTheStep) {
  const Graph graph =
      Parsed(R"(graph "g" { dim n in [0, 9] %0 = Input "i" : i64[n] %1 = Input "t" : f32[3]
      %2 = Scan(%0, %1) {body=graph "b" {%0 = Input "step" : i64[] %1 = Input "i" : i64[]
        %2 = Input "t" : f32[3] %3 = Gather(%2, %1) {axis=0} : f32[] output "y" = %3},
      length=shape[n], result=0, scanned=1, states=0} output "y" = %2 })");
  const Tensor t = Of(DType::kF32, {3}, {5, 6, 7});
  EXPECT_EQ(ValuesOf(Evaluate(graph, {Of(DType::kI64, {2}, {2, 0}), t}).value()[0]),
            (Values{7, 5}));
  const absl::Status bad = Evaluate(graph, {Of(DType::kI64, {2}, {2, 3}), t}).status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("step 1"));
}

}  // namespace
}  // namespace athanor
