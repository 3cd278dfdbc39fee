// An encoder whose embeddings a test can work out: of n tokens they are {their sum, n}, whatever
// the padding is.
//
//   auto version = Store("e", EncoderGraph());
//   version->SetEncoder(TestEncoder());
//
// Its tokens are those of scripted_model_testing.h.
#ifndef ATHANOR_SERVER_CALLS_ENCODER_TESTING_H_
#define ATHANOR_SERVER_CALLS_ENCODER_TESTING_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/calls/scripted_model_testing.h"
#include "server/models/encoder_model.h"
#include "server/testing/testing.h"

namespace athanor {

// Takes up to 8 inputs in a run, of up to 64 tokens.
inline TestModel EncoderGraph() {
  Graph graph;
  graph.name = "encoder";
  graph.dims = {{"B", 1, 8}, {"T", 1, 64}};
  const Expr rows = Expr::Symbol("B"), length = Expr::Symbol("T");
  GraphBuilder b(&graph);
  const auto map = [&](NodeId node, Shape shape, std::vector<Expr> from) {
    return b.Add(Op::kIndexMap, {node}, {{"map", IndexMap{std::move(shape), std::move(from)}}})
        .value();
  };
  const auto f32 = [&](NodeId node) {
    return b.Add(Op::kCast, {node}, {{"dtype", DType::kF32}}).value();
  };
  const NodeId ids = b.Input("ids", {DType::kI32, {rows, length}}).value();
  const NodeId lengths = b.Input("lengths", {DType::kI32, {rows}}).value();
  const NodeId place =
      b.Add(Op::kIota, {},
            {{"shape", Shape{rows, length}}, {"axis", int64_t{1}}, {"dtype", DType::kI32}})
          .value();
  const NodeId ends = map(lengths, {rows, length}, {Expr::Axis(0)});
  const NodeId inside = f32(b.Add(Op::kLessThan, {place, ends}).value());
  const NodeId counted = b.Add(Op::kMul, {f32(ids), inside}).value();
  const NodeId sums = b.Add(Op::kSumReduce, {counted}, {{"axes", std::vector<int64_t>{1}}}).value();
  // Columns {sum, length}, chosen by {1, 0} and {0, 1}.
  const NodeId second =
      b.Add(Op::kIota, {}, {{"shape", Shape{2}}, {"axis", int64_t{0}}, {"dtype", DType::kF32}})
          .value();
  const NodeId of_sums = b.Add(Op::kMul, {map(sums, {rows, 2}, {Expr::Axis(0)}),
                                          map(second, {rows, 2}, {1 - Expr::Axis(1)})})
                             .value();
  const NodeId of_lengths = b.Add(Op::kMul, {map(f32(lengths), {rows, 2}, {Expr::Axis(0)}),
                                             map(second, {rows, 2}, {Expr::Axis(1)})})
                                .value();
  b.Output("embeddings", b.Add(Op::kAdd, {of_sums, of_lengths}).value());
  return ModelOf(graph, {});
}

inline std::shared_ptr<const EncoderModel> TestEncoder(bool with_tokenizer = true) {
  auto encoder = std::make_shared<EncoderModel>();
  encoder->family = "bert";
  encoder->width = 2;
  encoder->vocabulary = kTestVocabulary;
  encoder->context = 64;
  if (with_tokenizer) encoder->tokenizer = MakeTokenizer();
  return encoder;
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_ENCODER_TESTING_H_
