#include "compiler/ir/sample/widen.h"

#include <cmath>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

Graph Parsed(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

Graph Twin(const std::string& text) {
  absl::StatusOr<Graph> twin = WidenToF64(Parsed(text));
  EXPECT_TRUE(twin.ok()) << twin.status();
  EXPECT_TRUE(Verify(*twin).ok()) << Verify(*twin);
  return *std::move(twin);
}

std::string OutputType(const Graph& graph, int output) {
  return TypeToString(graph.node(graph.outputs[output].node).type);
}

Tensor F32(std::vector<int64_t> shape, std::vector<float> values) {
  return Tensor::Of<float>(DType::kF32, std::move(shape), values);
}

TEST(WidenToF64, ComputesInF64FromTheSameInputs) {
  const std::string text = R"(graph "g" { dim b in [1, 9]
    %0 = Input "x" : f32[b, 2] %1 = Parameter "w" : f32[2, 2]
    %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Softmax(%2) {axis=1}
    %4 = IndexMap(%3) {map=map[b, 3]($0, $1), fill=f32[] {0.1}} output "y" = %4 })";
  const Graph twin = Twin(text);
  EXPECT_EQ(OutputType(twin, 0), "f64[b, 3]");
  EXPECT_EQ(twin.outputs[0].name, "y");
  EXPECT_EQ(twin.InputIds().size(), 1);
  EXPECT_EQ(TypeToString(twin.node(twin.ParameterIds()[0]).type), "f32[2, 2]");
  const auto values = Evaluate(twin, {F32({1, 2}, {1, 3}), F32({2, 2}, {1, 0.5f, 0, 0.25f})});
  ASSERT_TRUE(values.ok()) << values.status();
  const double* y = (*values)[0].data<double>();
  EXPECT_DOUBLE_EQ(y[0], 1 / (1 + std::exp(0.25)));
  EXPECT_DOUBLE_EQ(y[1], 1 / (1 + std::exp(-0.25)));
  EXPECT_EQ(y[2], 0.1f);  // the literal keeps its f32 value
}

TEST(WidenToF64, WhatIsOnlyMovedStaysAsItIs) {
  const Graph twin = Twin(R"(graph "g" { dim b in [1, 9]
    %0 = Parameter "t" : bf16[50, 4] %1 = Input "i" : i64[b] %2 = Gather(%0, %1) {axis=0}
    %3 = IndexMap(%2) {map=map[4, b]($1, $0)} %4 = MaxReduce(%3) {axes=[1]} %5 = Exp(%2)
    output "moved" = %3 output "most" = %4 output "computed" = %5 })");
  EXPECT_EQ(OutputType(twin, 0), "bf16[4, b]");
  EXPECT_EQ(OutputType(twin, 1), "bf16[4]");
  EXPECT_EQ(OutputType(twin, 2), "f64[b, 4]");
}

TEST(WidenToF64, ChoicesAmongMixedFloatsAreWide) {
  const Graph twin = Twin(R"(graph "g" { %0 = Input "x" : f16[3] %1 = Exp(%0) %2 = Max(%0, %1)
    %3 = LessThan(%0, %1) %4 = Select(%3, %0, %1)
    output "m" = %2 output "c" = %3 output "s" = %4 })");
  EXPECT_EQ(OutputType(twin, 0), "f64[3]");
  EXPECT_EQ(OutputType(twin, 1), "bool[3]");
  EXPECT_EQ(OutputType(twin, 2), "f64[3]");
}

TEST(WidenToF64, CastsThatOnlyRoundAreLeftOut) {
  const Graph twin = Twin(R"(graph "g" { %0 = Input "x" : f32[1] %1 = Cast(%0) {dtype=bf16}
    %2 = Cast(%1) {dtype=f32} %3 = Cast(%1) {dtype=i32} %4 = Cast(%0) {dtype=f8e4m3}
    output "y" = %2 output "i" = %3 output "q" = %4 })");
  const auto values = Evaluate(twin, {F32({1}, {300.7f})});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].data<double>()[0], static_cast<double>(300.7f));
  EXPECT_EQ((*values)[1].data<int32_t>()[0], 300);
  EXPECT_EQ(OutputType(twin, 2), "f8e4m3[1]");
}

TEST(WidenToF64, BitsAreThoseOfTheOwnDType) {
  const Graph twin = Twin(R"(graph "g" { %0 = Input "x" : f32[1] %1 = Exp(%0)
    %2 = Bitcast(%1) {dtype=i32} %3 = Bitcast(%2) {dtype=f32} %4 = Add(%3, %1)
    output "bits" = %2 output "back" = %3 output "sum" = %4 })");
  const auto values = Evaluate(twin, {F32({1}, {0})});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].data<int32_t>()[0], 0x3f800000);
  EXPECT_EQ((*values)[1].data<float>()[0], 1.0f);
  EXPECT_EQ((*values)[2].data<double>()[0], 2.0);
}

TEST(WidenToF64, IntegersStay) {
  const std::string text = R"(graph "g" { %0 = Input "x" : i32[3] %1 = Mul(%0, %0)
    %2 = Constant {value=i32[3] {1, 2, 3}} %3 = Add(%1, %2) output "y" = %3 })";
  EXPECT_EQ(CanonicalHash(Twin(text)), CanonicalHash(Parsed(text)));
}

TEST(WidenToF64, DequantizedNumbersAreWide) {
  const Graph twin = Twin(R"(graph "g" { %0 = Input "q" : i8[3] %1 = Input "s" : bf16[]
    %2 = Dequantize(%0, %1) {dtype=bf16} %3 = Sort(%2) {axis=0} output "y" = %2 output "o" = %3 })");
  EXPECT_EQ(OutputType(twin, 0), "f64[3]");
  EXPECT_EQ(OutputType(twin, 1), "i64[3]");
  EXPECT_EQ(TypeToString(twin.node(0).type), "i8[3]");
}

TEST(WidenToF64, AnInputsValueStays) {
  const std::string text = R"(graph "g" { %0 = Input "x" {value=i64[2] {1, 2}} : i64[2]
    %1 = Mul(%0, %0) output "y" = %1 })";
  EXPECT_EQ(CanonicalHash(Twin(text)), CanonicalHash(Parsed(text)));
}

TEST(WidenToF64, AStateKeepsItsDType) {
  const Graph twin = Twin(R"(graph "g" { %0 = Input "q" : f32[3, 1, 2] %1 = Input "i" : i32[3]
    %2 = Input "t" : i32[1, 1] %3 = StateRead "s" {role="keys"} : f32[16, 1, 2] %4 = Exp(%0)
    %5 = StateWrite(%3, %1, %4) %6 = PagedAttention(%0, %5, %5, %2, %1, %1) {block=16}
    output "y" = %6 update %5 })");
  EXPECT_EQ(OutputType(twin, 0), "f64[3, 1, 2]");
  ASSERT_EQ(twin.updates.size(), 1u);
  EXPECT_EQ(TypeToString(twin.node(twin.updates[0]).type), "f32[16, 1, 2]");
}

TEST(WidenToF64, AnF64GraphIsItsOwnTwin) {
  const std::string text = R"(graph "g" { %0 = Input "x" : f64[3, 4] %1 = Exp(%0)
    %2 = SumReduce(%1) {axes=[1]} output "y" = %2 })";
  EXPECT_EQ(CanonicalHash(Twin(text)), CanonicalHash(Parsed(text)));
}

}  // namespace
}  // namespace athanor
