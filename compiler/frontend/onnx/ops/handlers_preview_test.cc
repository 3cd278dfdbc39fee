#include <cmath>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using testing::HasSubstr;

constexpr char kPreview[] = "ai.onnx.preview";
constexpr int64_t kHeads = 4, kShared = 2, kRows = 3, kKeys = 5, kSize = 2;

std::vector<float> Numbers(int64_t count, double step) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(std::sin(step * i)));
  return values;
}

struct Operands {
  std::vector<float> q = Numbers(kHeads * kRows * kSize, 0.7);
  std::vector<float> k = Numbers(kShared * kKeys * kSize, 1.3);
  std::vector<float> v = Numbers(kShared * kKeys * kSize, 2.1);
};

// Computes in double by the definition; the modifiers double scores and halve probabilities.
std::vector<double> Expected(const Operands& of, double scale) {
  std::vector<double> y(kHeads * kRows * kSize);
  for (int64_t h = 0; h < kHeads; ++h) {
    const int64_t shared = h / (kHeads / kShared);
    for (int64_t r = 0; r < kRows; ++r) {
      std::vector<double> p(kKeys);
      double sum = 0;
      for (int64_t j = 0; j < kKeys; ++j) {
        double score = 0;
        for (int64_t e = 0; e < kSize; ++e) {
          score += of.q[(h * kRows + r) * kSize + e] * of.k[(shared * kKeys + j) * kSize + e];
        }
        sum += p[j] = std::exp(2 * scale * score);
      }
      for (int64_t j = 0; j < kKeys; ++j) {
        for (int64_t e = 0; e < kSize; ++e) {
          y[(h * kRows + r) * kSize + e] +=
              0.5 * p[j] / sum * of.v[(shared * kKeys + j) * kSize + e];
        }
      }
    }
  }
  return y;
}

TestGraph Times(float factor) {
  TestGraph graph;
  graph.Input("s", Elem::kFloat, {1, kHeads, kRows, kKeys});
  graph.Initializer("f", Tensor::Of<float>(DType::kF32, {}, {factor}));
  graph.Node("Mul", {"s", "f"}, {"t"}).Output("t", Elem::kFloat);
  return graph;
}

std::string Model(const std::map<std::string, TestAttr>& attrs, int64_t shared = kShared) {
  TestModel m(25);
  m.Input("q", Elem::kFloat, {1, kHeads, kRows, kSize});
  m.Input("k", Elem::kFloat, {1, shared, kKeys, kSize});
  m.Input("v", Elem::kFloat, {1, shared, kKeys, kSize});
  m.Node("FlexAttention", {"q", "k", "v"}, {"y"}, attrs, kPreview).Output("y", Elem::kFloat);
  ::onnx::ModelProto model = m.Model();
  auto* opset = model.add_opset_import();
  opset->set_domain(kPreview);
  opset->set_version(1);
  return model.SerializeAsString();
}

TEST(FlexAttentionTest, ModifiesScoresAndProbabilities) {
  const Operands of;
  const std::vector<Tensor> inputs = {
      Tensor::Of<float>(DType::kF32, {1, kHeads, kRows, kSize}, of.q),
      Tensor::Of<float>(DType::kF32, {1, kShared, kKeys, kSize}, of.k),
      Tensor::Of<float>(DType::kF32, {1, kShared, kKeys, kSize}, of.v)};
  std::map<std::string, TestAttr> attrs = {{"score_mod", Times(2).proto},
                                           {"prob_mod", Times(0.5).proto}};
  for (double scale : {1 / std::sqrt(2.0), 0.25}) {
    const auto y = Evaluate(ImportBytes(Model(attrs)), inputs);
    ASSERT_TRUE(y.ok()) << y.status();
    const std::vector<double> expected = Expected(of, scale);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(y->front().data<float>()[i], expected[i], 1e-6) << i;
    }
    attrs["scale"] = 0.25f;
  }
}

TEST(FlexAttentionTest, RefusesHeadsThatDoNotDivide) {
  const TestImport import = ImportBytes(Model({}, 3));
  EXPECT_THAT(std::string(absl::string_view(import.status.message())),
              HasSubstr("has 4 heads of queries for 3 of keys and values"));
}

TEST(FlexAttentionTest, RefusesAGraphThatChangesTheShape) {
  TestGraph graph;
  graph.Input("s", Elem::kFloat, {1, kHeads, kRows, kKeys});
  graph.Node("Transpose", {"s"}, {"t"}).Output("t", Elem::kFloat);
  const TestImport import = ImportBytes(Model({{"score_mod", graph.proto}}));
  EXPECT_THAT(std::string(absl::string_view(import.status.message())),
              HasSubstr("graph \"score_mod\" makes float[5, 3, 4, 1] of float[1, 4, 3, 5]"));
}

}  // namespace
}  // namespace athanor::onnx
