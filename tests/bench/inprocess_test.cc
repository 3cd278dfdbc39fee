#include "tests/bench/inprocess.h"

#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/graph.pb.h"

namespace athanor {
namespace {

// y[b] = x[b, 4] w[4] + v[b], with `last` as the last op.
std::string Serialised(const std::string& last = "Add") {
  const std::string b = "shape { terms { coefficient: 1 factors { symbol: 'b' } } }";
  const std::string four = "shape { terms { coefficient: 4 } }";
  const std::string type = " dtype: 'f32' has_type: true ";
  const std::string text =
      "name: 'test' dims { name: 'b' min: 1 max: 8 } outputs { name: 'y' node: 'last' }"
      "nodes { name: 'v' op: 'Input'" +
      type + b +
      "}"
      "nodes { name: 'x' op: 'Input'" +
      type + b + four +
      "}"
      "nodes { name: 'w' op: 'Parameter'" +
      type + four + " content_hash: '" + std::string(32, 'h') +
      "' }"
      "nodes { name: 'product' op: 'Contract' inputs: 'x' inputs: 'w'"
      "  attrs { key: 'spec' value { s: 'bi,i->b' } } }"
      "nodes { name: 'last' op: '" +
      last + "' inputs: 'product' inputs: 'v' }";
  v1::Graph graph;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &graph));
  return graph.SerializeAsString();
}

constexpr float kWeight[] = {1, 10, 100, 1000};

class InProcess : public testing::Test {
 protected:
  void* Load(const std::string& graph, int threads, const char* folder) {
    const char* name = "w";
    const void* data = kWeight;
    const size_t size = sizeof kWeight;
    return athanor_load(graph.data(), graph.size(), &name, &data, &size, 1, threads, folder, error_,
                        sizeof error_);
  }

  // Runs the model on two rows and returns y.
  std::vector<float> Run(void* model) {
    const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8}, v = {0.5, 0.25};
    std::vector<float> y(2, -1);
    std::vector<const void*> inputs;
    std::vector<size_t> bytes;
    for (int i = 0; athanor_input(model, i) != nullptr; ++i) {
      const std::vector<float>& array = std::string(athanor_input(model, i)) == "x" ? x : v;
      inputs.push_back(array.data());
      bytes.push_back(array.size() * sizeof(float));
    }
    EXPECT_EQ(inputs.size(), 2u);
    EXPECT_STREQ(athanor_dim(model, 0), "b");
    EXPECT_EQ(athanor_dim(model, 1), nullptr);
    EXPECT_STREQ(athanor_output(model, 0), "y");
    EXPECT_EQ(athanor_output(model, 1), nullptr);
    const int64_t b = 2;
    void* outputs[] = {y.data()};
    const size_t output_bytes[] = {y.size() * sizeof(float)};
    EXPECT_EQ(athanor_run(model, inputs.data(), bytes.data(), &b, outputs, output_bytes, error_,
                          sizeof error_),
              0)
        << error_;
    return y;
  }

  char error_[1000] = "";
};

const std::vector<float> kWant = {4321.5, 8765.25};

TEST_F(InProcess, RunsTheBaselineAndThePlanOfAFolder) {
  void* baseline = Load(Serialised(), 2, nullptr);
  ASSERT_NE(baseline, nullptr) << error_;
  EXPECT_EQ(Run(baseline), kWant);
  EXPECT_STREQ(athanor_plan_kind(baseline), "baseline");
  EXPECT_GE(athanor_kernels(baseline), 1);
  EXPECT_GE(athanor_steps(baseline), 1);
  const std::string folder = testing::TempDir() + "/inprocess_plan", id = athanor_plan_id(baseline);
  ASSERT_EQ(athanor_save(baseline, folder.c_str(), error_, sizeof error_), 0) << error_;
  athanor_free(baseline);

  void* again = Load(Serialised(), 2, folder.c_str());
  ASSERT_NE(again, nullptr) << error_;
  EXPECT_EQ(Run(again), kWant);
  EXPECT_EQ(athanor_plan_id(again), id);
  athanor_free(again);

  // A plan of another graph or number of threads is refused; timing it would mislead.
  EXPECT_EQ(Load(Serialised("Mul"), 2, folder.c_str()), nullptr);
  EXPECT_NE(std::string(error_).find("the plan is for the graph"), std::string::npos) << error_;
  EXPECT_EQ(Load(Serialised(), 1, folder.c_str()), nullptr);
  EXPECT_NE(std::string(error_).find("for 2 threads, not for 1"), std::string::npos) << error_;
}

TEST_F(InProcess, SaysWhatIsWrong) {
  EXPECT_EQ(Load("no graph", 1, nullptr), nullptr);
  EXPECT_NE(std::string(error_).find("does not parse"), std::string::npos) << error_;
  EXPECT_EQ(Load(Serialised("Nonsense"), 1, nullptr), nullptr);
  EXPECT_NE(std::string(error_).find("Nonsense"), std::string::npos) << error_;
  EXPECT_EQ(Load(Serialised(), 1, "/nonexistent"), nullptr);
  EXPECT_NE(std::string(error_).find("/nonexistent/plan.pb"), std::string::npos) << error_;
}

TEST_F(InProcess, TimesSteps) {
  void* model = Load(Serialised(), 1, nullptr);
  ASSERT_NE(model, nullptr) << error_;
  const std::vector<float> x(4, 1), v(1);
  float y = 0;
  const bool x_first = std::string(athanor_input(model, 0)) == "x";
  const void* inputs[] = {x_first ? x.data() : v.data(), x_first ? v.data() : x.data()};
  const size_t bytes[] = {x_first ? 16u : 4u, x_first ? 4u : 16u};
  const int64_t b = 1;
  void* outputs[] = {&y};
  const size_t output_bytes[] = {4};
  int64_t nanoseconds[8];
  const char* labels[8];
  const int steps = athanor_steps(model);
  EXPECT_EQ(athanor_profile(model, inputs, bytes, &b, outputs, output_bytes, nanoseconds, labels,
                            steps - 1),
            -1);
  ASSERT_LE(steps, 8);
  EXPECT_EQ(
      athanor_profile(model, inputs, bytes, &b, outputs, output_bytes, nanoseconds, labels, 8),
      steps);
  EXPECT_EQ(y, 1111);
  for (int i = 0; i < steps; ++i) EXPECT_STRNE(labels[i], "");
  double seconds[3] = {-1, -1, -1};
  athanor_seconds(model, seconds);
  for (double s : seconds) EXPECT_GT(s, 0);
  athanor_free(model);
}

}  // namespace
}  // namespace athanor
