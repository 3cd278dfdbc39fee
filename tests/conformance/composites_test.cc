// Runs composites without kernels of their own, through their decompositions: pipeline, Clang and
// executor against the reference evaluator. PagedAttention has a kernel on CPUs with vectors.
#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/substitute.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

constexpr char kB[] = "dim b in [0, 16] ", kS[] = "dim s in [1, 1000] ";

// Parses a graph with these dims and body; $0 stands for the dtype.
Graph Parsed(DType dtype, std::string_view dims, std::string_view body) {
  const std::string text = absl::StrCat(
      "graph \"g\" { ", absl::string_view(dims.data(), dims.size()),
      absl::Substitute(absl::string_view(body.data(), body.size()), std::string(DTypeName(dtype))),
      " }");
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << text;
  return graph.ok() ? *std::move(graph) : Graph();
}

Tensor RandomBytes(DType dtype, std::vector<int64_t> shape, std::mt19937& rng) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (char& byte : t.bytes) byte = static_cast<char>(rng());
  return t;
}

TEST(CompositesTest, CumulationAlongAnyAxis) {
  std::mt19937 rng(17);
  for (DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32, DType::kU8}) {
    for (int axis : {0, 1}) {
      std::string body = R"(%0 = Input "a" : $0[b, 21] )", outputs;
      int next = 0;
      for (const char* op : {"add", "mul"}) {
        for (const char* exclusive : {"false", "true"}) {
          for (const char* reverse : {"false", "true"}) {
            absl::StrAppend(&body, "%", ++next, " = Cumulate(%0) {axis=", axis,
                            ", exclusive=", exclusive, ", op=\"", op, "\", reverse=", reverse,
                            "} ");
            absl::StrAppend(&outputs, "output \"y", next, "\" = %", next, " ");
          }
        }
      }
      const Graph graph = Parsed(t, kB, body + outputs);
      for (int64_t b : {0, 1, 7}) {
        ExpectMatchesReference(graph, {RandomTensor(t, {b, 21}, rng, 0.5)}, {}, 10);
      }
    }
  }
}

TEST(CompositesTest, Rotary) {
  std::mt19937 rng(18);
  for (DType t : kFloats) {
    const Graph graph = Parsed(t, kS, R"(%0 = Input "a" : $0[2, 3, s, 17] %1 = Input "c" : $0[s, 8]
        %2 = Input "d" : $0[2, 1, s, 6] %3 = Rotary(%0, %1, %1) %4 = Rotary(%0, %2, %2)
        %5 = Rotary(%0, %1, %1) {interleaved=true} %6 = Rotary(%0, %2, %2) {interleaved=true}
        output "y" = %3 output "z" = %4 output "p" = %5 output "q" = %6)");
    for (int64_t s : {1, 7}) {
      ExpectMatchesReference(graph,
                             {RandomTensor(t, {2, 3, s, 17}, rng), RandomTensor(t, {s, 8}, rng),
                              RandomTensor(t, {2, 1, s, 6}, rng)},
                             {}, 4);
    }
  }
}

// The slots that no row sees hold NaN.
TEST(CompositesTest, PagedAttention) {
  std::mt19937 rng(23);
  constexpr int64_t kBlock = 16, kLast = 20;
  for (const char* attrs : {"block=16", "block=16, scale=0.5, softcap=3.0, window=6"}) {
    const Graph graph = Parsed(DType::kF32, kB,
                               absl::StrCat(R"(%0 = Input "q" : $0[b, 4, 8]
        %1 = Input "k" : $0[64, 2, 8] %2 = Input "v" : $0[64, 2, 5] %3 = Input "t" : i32[2, 2]
        %4 = Input "s" : i32[b] %5 = Input "p" : i32[b] %6 = Parameter "o" : $0[4]
        %7 = PagedAttention(%0, %1, %2, %3, %4, %5) {)",
                                            attrs, R"(}
        %8 = PagedAttention(%0, %1, %2, %3, %4, %5, %6) {)",
                                            attrs, R"(}
        output "y" = %7 output "z" = %8)"));
    const std::vector<int32_t> table = {3, 1, 0, 2};
    for (int64_t b : {0, 1, 7}) {
      Tensor k = RandomTensor(DType::kF32, {64, 2, 8}, rng);
      Tensor v = RandomTensor(DType::kF32, {64, 2, 5}, rng);
      for (int block : {1, 2}) {
        for (Tensor* pool : {&k, &v}) {
          const int64_t slot = pool->elements() / 64;
          const int64_t from = (block * kBlock + kLast - kBlock + 1) * slot;
          std::fill(pool->data<float>() + from, pool->data<float>() + (block + 1) * kBlock * slot,
                    std::numeric_limits<float>::quiet_NaN());
        }
      }
      std::vector<int32_t> sequences, positions;
      for (int64_t i = 0; i < b; ++i) {
        sequences.push_back(static_cast<int32_t>(rng() % 2));
        positions.push_back(static_cast<int32_t>(i == 0 ? kLast : rng() % (kLast + 1)));
      }
      ExpectMatchesReference(graph,
                             {RandomTensor(DType::kF32, {b, 4, 8}, rng), k, v,
                              Tensor::Of<int32_t>(DType::kI32, {2, 2}, table),
                              Tensor::Of<int32_t>(DType::kI32, {b}, sequences),
                              Tensor::Of<int32_t>(DType::kI32, {b}, positions)},
                             {RandomTensor(DType::kF32, {4}, rng)}, 8);
    }
  }
}

// The last block is not whole, and its keys are seen up to the last slot. Others than the kernel's.
TEST(CompositesTest, PagedAttentionOfSlotsThatAreNoWholeBlocks) {
  std::mt19937 rng(29);
  const Graph graph = Parsed(DType::kF32, kB, R"(%0 = Input "q" : $0[b, 2, 8]
      %1 = Input "k" : $0[20, 1, 8] %2 = Input "v" : $0[20, 1, 5] %3 = Input "t" : i32[1, 2]
      %4 = Input "s" : i32[b] %5 = Input "p" : i32[b]
      %6 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} output "y" = %6)");
  ExpectMatchesReference(
      graph,
      {RandomTensor(DType::kF32, {3, 2, 8}, rng), RandomTensor(DType::kF32, {20, 1, 8}, rng),
       RandomTensor(DType::kF32, {20, 1, 5}, rng), Tensor::Of<int32_t>(DType::kI32, {1, 2}, {0, 1}),
       Tensor::Of<int32_t>(DType::kI32, {3}, {0, 0, 0}),
       Tensor::Of<int32_t>(DType::kI32, {3}, {0, 15, 19})},
      {}, 8);
}

// Dequantizes a weight that a contraction reads, by blocks, and an activation, by rows.
TEST(CompositesTest, Dequantize) {
  std::mt19937 rng(19);
  for (DType q : {DType::kU8, DType::kI8}) {
    for (DType t : {DType::kF32, DType::kF16}) {
      for (int64_t bits : {2, 4, 8}) {
        const int64_t columns = 24 * 8 / bits, blocks = (columns + 14) / 15;
        std::string body = absl::Substitute(
            R"(%0 = Parameter "w" : $1[5, 24] %1 = Parameter "s" : $0[5, $2]
               %2 = Parameter "z" : $1[5, $2] %3 = Input "a" : $0[b, $3]
               %4 = Dequantize(%0, %1, %2) {axis=1, bits=$4, block=15, dtype=$0}
               %5 = Contract(%3, %4) {spec="bk,nk->bn"} %6 = Input "v" : $1[b, 7]
               %7 = Input "u" : $0[b] %8 = Dequantize(%6, %7) {bits=$4, dtype=$0}
               output "y" = %5 output "x" = %8)",
            std::string(DTypeName(t)), std::string(DTypeName(q)), blocks, columns, bits);
        const Graph graph = Parsed(t, kB, body);
        ExpectMatchesReference(
            graph,
            {RandomTensor(t, {3, columns}, rng), RandomBytes(q, {3, 7}, rng),
             RandomTensor(t, {3}, rng)},
            {RandomBytes(q, {5, 24}, rng), RandomTensor(t, {5, blocks}, rng, 0.01),
             RandomTensor(q, {5, blocks}, rng)},
            10);
      }
    }
  }
}

}  // namespace
}  // namespace athanor
