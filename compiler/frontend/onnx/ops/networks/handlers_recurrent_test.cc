// Tests that handlers_oracle_test does not cover: lengths known only at run time, layouts, linear
// attention, refusals.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/ops/reference_testing.h"
#include "compiler/ir/sample/compare.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
using Attributes = std::map<std::string, TestAttr>;

Tensor Random(std::vector<int64_t> shape, uint32_t seed) {
  std::mt19937 rng(seed);
  Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) {
    StoreScalar(t, i, Scalar::Float(t.dtype, static_cast<double>(rng() % 2001) / 1000 - 1));
  }
  return t;
}

Values Numbers(const absl::StatusOr<std::vector<Tensor>>& results, size_t which = 0) {
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() && which < results->size() ? ValuesOf((*results)[which]) : Values();
}

void ExpectNear(const Values& got, const Values& want, double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

// States of an RNN with one unit and one input, with weights w and r.
Values Unit(const Values& x, double w, double r, double h = 0) {
  Values hs;
  for (double v : x) hs.push_back(h = std::tanh(w * v + r * h));
  return hs;
}

TestModel OneUnit(Attributes attrs, bool lengths) {
  TestModel m(14);
  m.Input("x", Elem::kFloat, {"length", "batch", 1});
  if (lengths) m.Input("lengths", Elem::kInt32, {"batch"});
  m.Initializer("w", Of(DType::kF32, {1, 1, 1}, {0.5}));
  m.Initializer("r", Of(DType::kF32, {1, 1, 1}, {-0.75}));
  attrs["hidden_size"] = 1;
  m.Node("RNN", {"x", "w", "r", "", lengths ? "lengths" : ""}, {"y", "h"}, attrs);
  m.Output("y", Elem::kFloat).Output("h", Elem::kFloat);
  return m;
}

ImportOptions Lengths(int64_t least = 0, int64_t most = 6) {
  ImportOptions options;
  options.dims = {{.name = "length", .min = least, .max = most},
                  {.name = "batch", .min = 1, .max = 4}};
  return options;
}

TEST(HandlersRecurrentTest, ALengthThatOnlyARequestTells) {
  const TestImport import = ImportBytes(OneUnit({}, false).Bytes(), Lengths());
  ASSERT_TRUE(import.status.ok()) << import.status;
  for (const Values& x : {Values{1, -2, 3}, Values{0.5}, Values{1, 2, 3, 4, 5, 6}}) {
    const auto length = static_cast<int64_t>(x.size());
    const auto got = Evaluate(import, {Of(DType::kF32, {length, 1, 1}, x)});
    const Values want = Unit(x, 0.5, -0.75);
    ExpectNear(Numbers(got, 0), want);
    ExpectNear(Numbers(got, 1), {want.back()});
  }
  const auto none = Evaluate(import, {Tensor::Zeros(DType::kF32, {0, 1, 1})});
  EXPECT_TRUE(Numbers(none, 0).empty());
  EXPECT_EQ(Numbers(none, 1), (Values{0}));
}

TEST(HandlersRecurrentTest, BackwardsFromEachRowsOwnEnd) {
  const Attributes reverse = {{"direction", std::string("reverse")}};
  const auto got = RunModel(
      OneUnit(reverse, true),
      {Of(DType::kF32, {3, 2, 1}, {1, 4, 2, 5, 3, 6}), Of(DType::kI32, {2}, {3, 2})}, Lengths());
  const Values first = Unit({3, 2, 1}, 0.5, -0.75), second = Unit({5, 4}, 0.5, -0.75);
  ExpectNear(Numbers(got, 0), {first[2], second[1], first[1], second[0], first[0], 0});
  ExpectNear(Numbers(got, 1), {first[2], second[1]});
  // Without lengths, all steps are reversed.
  ExpectNear(
      Numbers(RunModel(OneUnit(reverse, false), {Of(DType::kF32, {2, 1, 1}, {1, 2})}, Lengths())),
      {Unit({2, 1}, 0.5, -0.75)[1], Unit({2}, 0.5, -0.75)[0]});
}

TEST(HandlersRecurrentTest, LengthsBeyondTheSequenceAreItsOwn) {
  const auto got =
      RunModel(OneUnit({}, true),
               {Of(DType::kF32, {2, 2, 1}, {1, 4, 2, 5}), Of(DType::kI32, {2}, {9, 0})}, Lengths());
  const Values first = Unit({1, 2}, 0.5, -0.75);
  ExpectNear(Numbers(got, 0), {first[0], 0, first[1], 0});
  ExpectNear(Numbers(got, 1), {first[1], 0});
}

TEST(HandlersRecurrentTest, BatchesFirst) {
  for (const char* op : {"RNN", "GRU", "LSTM"}) {
    const int64_t gates = std::string(op) == "RNN" ? 1 : std::string(op) == "GRU" ? 3 : 4;
    std::vector<std::vector<Tensor>> results;
    for (int64_t layout : {0, 1}) {
      TestModel m(14);
      const bool first = layout == 1;
      if (first) {
        m.Input("x", Elem::kFloat, {2, 3, 4}).Input("h0", Elem::kFloat, {2, 2, 5});
      } else {
        m.Input("x", Elem::kFloat, {3, 2, 4}).Input("h0", Elem::kFloat, {2, 2, 5});
      }
      m.Initializer("w", Random({2, gates * 5, 4}, 1))
          .Initializer("r", Random({2, gates * 5, 5}, 2));
      m.Node(op, {"x", "w", "r", "", "", "h0"}, {"y", "h"},
             {{"hidden_size", 5}, {"layout", layout}, {"direction", std::string("bidirectional")}});
      m.Output("y", Elem::kFloat).Output("h", Elem::kFloat);
      // The same numbers, with the first two axes exchanged; h0 is equal for both directions.
      const Tensor x = Random({3, 2, 4}, 3);
      Tensor turned = Tensor::Zeros(DType::kF32, {2, 3, 4});
      for (int64_t i = 0; i < 24; ++i) {
        StoreScalar(turned, i, LoadScalar(x, i / 4 % 3 * 8 + i / 12 * 4 + i % 4));
      }
      const Tensor h0 = Of(DType::kF32, {2, 2, 5}, Values(20, 0.25));
      const auto got = RunModel(m, {first ? turned : x, h0});
      ASSERT_TRUE(got.ok()) << got.status();
      results.push_back(*got);
    }
    EXPECT_EQ(results[1][0].shape, (std::vector<int64_t>{2, 3, 2, 5}));
    EXPECT_EQ(results[1][1].shape, (std::vector<int64_t>{2, 2, 5}));
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t d = 0; d < 2; ++d) {
        for (int64_t h = 0; h < 5; ++h) {
          EXPECT_EQ(LoadScalar(results[1][1], (n * 2 + d) * 5 + h).f,
                    LoadScalar(results[0][1], (d * 2 + n) * 5 + h).f);
          for (int64_t s = 0; s < 3; ++s) {
            EXPECT_EQ(LoadScalar(results[1][0], ((n * 3 + s) * 2 + d) * 5 + h).f,
                      LoadScalar(results[0][0], ((s * 2 + d) * 2 + n) * 5 + h).f);
          }
        }
      }
    }
  }
}

TEST(HandlersRecurrentTest, OneLoopForAnyLength) {
  const TestImport import = ImportBytes(OneUnit({}, false).Bytes(), Lengths(1, 1'000'000));
  ASSERT_TRUE(import.status.ok()) << import.status;
  EXPECT_LT(import.imported.graph.nodes.size(), 30u);
  const Values x(500, 0.25);
  const Values want = Unit(x, 0.5, -0.75);
  ExpectNear(Numbers(Evaluate(import, {Of(DType::kF32, {500, 1, 1}, x)}), 1), {want.back()});
}

TEST(HandlersRecurrentTest, WhatIsRefused) {
  const auto refused = [](const TestModel& m, const ImportOptions& options,
                          const std::string& part) {
    const TestImport import = ImportBytes(m.Bytes(), options);
    EXPECT_FALSE(import.status.ok()) << part;
    EXPECT_NE(std::string(import.status.message()).find(part), std::string::npos)
        << import.status << "\nlacks " << part;
  };
  refused(OneUnit({{"activations", std::vector<std::string>{"Cos"}}}, false), Lengths(),
          "names \"Cos\"; it must be one of Affine");
  refused(OneUnit({{"activations", std::vector<std::string>{"Tanh", "Tanh"}}}, false), Lengths(),
          "names 2 functions; it must name 1");
  refused(OneUnit({{"activations", std::vector<std::string>{"Affine"}}}, false), Lengths(),
          "\"Affine\" has no default alpha");
  refused(OneUnit({{"direction", std::string("bidirectional")}}, false), Lengths(),
          "W has shape [1, 1, 1]; it must be [2, 1, 1]");
  refused(OneUnit({{"direction", std::string("up")}}, false), Lengths(), "bidirectional");
}

// Quantises f32 as DynamicQuantizeLinear does: codes minus their zero point, and the scale.
struct Coded {
  Values codes;
  float scale = 1;
};
Coded Quantise(const Values& x) {
  float low = 0, high = 0;
  for (double v : x) {
    low = std::min(low, static_cast<float>(v));
    high = std::max(high, static_cast<float>(v));
  }
  Coded coded;
  if (high > low) coded.scale = (high - low) / 255;
  const float zero = std::nearbyint(std::clamp(-low / coded.scale, 0.0F, 255.0F));
  for (double v : x) {
    const float code = std::nearbyint(static_cast<float>(v) / coded.scale) + zero;
    coded.codes.push_back(std::clamp(code, 0.0F, 255.0F) - zero);
  }
  return coded;
}

// Quantised weights of one direction: [columns, 4 * hidden], with a scale and a zero point for each
// of the 4 * hidden rows.
struct Quantised4 {
  Tensor values;
  Values scale, zero;

  // Multiplies with x [n, columns], which is quantised as a whole by one scale.
  Values Product(const Values& x, int64_t columns) const {
    const int64_t rows = static_cast<int64_t>(scale.size());
    const Coded coded = Quantise(x);
    Values y;
    for (int64_t n = 0; n < static_cast<int64_t>(x.size()) / columns; ++n) {
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t k = 0; k < columns; ++k) {
          const Scalar q = LoadScalar(values, k * rows + r);
          const double code =
              IsSigned(values.dtype) ? static_cast<double>(q.i) : static_cast<double>(q.u);
          sum += coded.codes[n * columns + k] * (code - zero[r]);
        }
        y.push_back(sum * coded.scale * scale[r]);
      }
    }
    return y;
  }
};

struct QuantisedRun {
  int64_t length = 4, batch = 2, width = 3, hidden = 2;
  std::vector<int64_t> lengths;  // by row; empty: full length
  bool reverse = false;
};

// Returns [length, batch, hidden] of one direction. Values are quantised together: all of x up to
// the end of the longest row, and at each step the states of the rows that had the previous step.
Values QuantisedLstm(const QuantisedRun& run, Values x, const Quantised4& w, const Quantised4& r,
                     const Values& bias) {
  const int64_t h = run.hidden, b = run.batch;
  const auto length_of = [&](int64_t n) {
    return run.lengths.empty() ? run.length : run.lengths[n];
  };
  int64_t longest = 0;
  for (int64_t n = 0; n < b; ++n) longest = std::max(longest, length_of(n));
  x.resize(longest * b * run.width);
  const Values gates_of_x = w.Product(x, run.width);
  Values hs(b * h, 0), cs(b * h, 0), y(run.length * b * h, 0);
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (int64_t step = 0; step < longest; ++step) {
    const Values gates_of_h = r.Product(hs, h);
    for (int64_t n = 0; n < b; ++n) {
      const int64_t at = run.reverse ? length_of(n) - 1 - step : step;
      for (int64_t k = 0; k < h; ++k) {
        double& state = hs[n * h + k];
        if (step >= length_of(n)) {
          state = 0;
          continue;
        }
        const auto gate = [&](int64_t g) {
          return gates_of_x[(at * b + n) * 4 * h + g * h + k] + gates_of_h[n * 4 * h + g * h + k] +
                 bias[g * h + k] + bias[(4 + g) * h + k];
        };
        double& cell = cs[n * h + k];
        cell = sigmoid(gate(2)) * cell + sigmoid(gate(0)) * std::tanh(gate(3));
        state = sigmoid(gate(1)) * std::tanh(cell);
        y[(at * b + n) * h + k] = state;
      }
    }
  }
  return y;
}

TEST(HandlersRecurrentTest, QuantisedWeightsMultiplyWhatIsQuantisedAtEachStep) {
  constexpr int64_t kHidden = 2, kRows = 4 * kHidden, kWidth = 3;
  std::mt19937 rng(5);
  for (const DType dtype : {DType::kI8, DType::kU8}) {
    for (const bool by_row : {false, true}) {
      for (const bool lengths : {false, true}) {
        const auto some = [&](int64_t count, double low, double high) {
          Values values;
          for (int64_t i = 0; i < count; ++i) {
            values.push_back(static_cast<float>(low + (high - low) * (rng() % 1000) / 1000));
          }
          return values;
        };
        const auto codes = [&](int64_t count) {
          Values values;
          for (int64_t i = 0; i < count; ++i) {
            values.push_back(static_cast<double>(rng() % 256) - (dtype == DType::kI8 ? 128 : 0));
          }
          return values;
        };
        const int64_t sizes = by_row ? kRows : 1;
        QuantisedRun run;
        if (lengths) run.lengths = {3, 1};  // no row has the last of the 4 steps
        TestModel m(17);
        m.Input("x", Elem::kFloat, {"length", run.batch, kWidth});
        if (lengths) m.Input("lengths", Elem::kInt32, {run.batch});
        std::vector<Quantised4> weights;  // w and r of both directions
        const std::vector<int64_t> shape =
            by_row ? std::vector<int64_t>{2, kRows} : std::vector<int64_t>{2};
        for (const int64_t columns : {kWidth, kHidden}) {
          const std::string name = columns == kWidth ? "w" : "r";
          const Values q = codes(2 * columns * kRows), scale = some(2 * sizes, 0.002, 0.01);
          const Values zero = codes(2 * sizes);
          m.Initializer(name, Of(dtype, {2, columns, kRows}, q));
          m.Initializer(name + "s", Of(DType::kF32, shape, scale));
          m.Initializer(name + "z", Of(dtype, shape, zero));
          for (int64_t d = 0; d < 2; ++d) {
            Quantised4 each = {
                Of(dtype, {columns, kRows},
                   Values(q.begin() + d * columns * kRows, q.begin() + (d + 1) * columns * kRows)),
                {},
                {}};
            for (int64_t i = 0; i < kRows; ++i) {
              each.scale.push_back(scale[d * sizes + (by_row ? i : 0)]);
              each.zero.push_back(zero[d * sizes + (by_row ? i : 0)]);
            }
            weights.push_back(each);
          }
        }
        const Values bias = some(2 * 2 * kRows, -1, 1);
        m.Initializer("b", Of(DType::kF32, {2, 2 * kRows}, bias));
        m.Node("DynamicQuantizeLSTM",
               {"x", "w", "r", "b", lengths ? "lengths" : "", "", "", "", "ws", "wz", "rs", "rz"},
               {"y", "h", "c"},
               {{"hidden_size", kHidden}, {"direction", std::string("bidirectional")}},
               "com.microsoft");
        m.Output("y", Elem::kFloat).Output("h", Elem::kFloat).Output("c", Elem::kFloat);
        Values x = some(run.length * run.batch * kWidth, -1, 2);
        // Values that no row reads, and that would widen the range.
        if (lengths) std::fill(x.end() - run.batch * kWidth, x.end(), 100);
        std::vector<Tensor> inputs = {Of(DType::kF32, {run.length, run.batch, kWidth}, x)};
        if (lengths) inputs.push_back(Of(DType::kI32, {2}, {3, 1}));
        ImportOptions options;
        options.dims = {{.name = "length", .min = 1, .max = 6}};
        const auto got = RunModel(m, inputs, options);
        Values want(2 * run.length * run.batch * kHidden);
        for (int64_t d = 0; d < 2; ++d) {
          run.reverse = d == 1;
          const Values y = QuantisedLstm(
              run, x, weights[d], weights[2 + d],
              Values(bias.begin() + d * 2 * kRows, bias.begin() + (d + 1) * 2 * kRows));
          const int64_t step = run.batch * kHidden;
          for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
            want[(i / step * 2 + d) * step + i % step] = y[i];
          }
        }
        SCOPED_TRACE(absl::StrCat(dtype == DType::kI8, by_row, lengths));
        ExpectNear(Numbers(got, 0), want, 1e-5);
      }
    }
  }
}

TEST(HandlersRecurrentTest, WhatIsRefusedOfQuantisedWeights) {
  const auto refused = [](std::vector<int64_t> r, std::vector<int64_t> scale) {
    TestModel m(17);
    m.Input("x", Elem::kFloat, {2, 1, 3});
    m.Initializer("w", Tensor::Zeros(DType::kI8, {1, 3, 8}));
    m.Initializer("r", Tensor::Zeros(DType::kI8, std::move(r)));
    m.Initializer("s", Tensor::Zeros(DType::kF32, std::move(scale)));
    m.Initializer("z", Tensor::Zeros(DType::kI8, {1}));
    m.Node("DynamicQuantizeLSTM", {"x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"}, {"y"},
           {{"hidden_size", 2}}, "com.microsoft");
    m.Output("y", Elem::kFloat);
    return std::string(ImportBytes(m.Bytes()).status.message());
  };
  EXPECT_EQ(refused({1, 2, 8}, {1}), "");
  EXPECT_EQ(refused({1, 2, 8}, {1, 8}), "");
  EXPECT_NE(refused({1, 2, 8}, {8}).find("W_scale has shape [8]; it must be [1]"),
            std::string::npos);
  EXPECT_NE(refused({1, 2, 8}, {1, 2}).find("W_scale has shape [1, 2]; it must be [1, 8]"),
            std::string::npos);
  EXPECT_NE(refused({1, 8, 2}, {1}).find("its axis 1 must be hidden_size"), std::string::npos);
}

// The recurrence by its schema, in numbers; all tensors are [batch, length, heads * size].
struct Attended {
  Values output, state;
};
Attended Reference(const std::string& rule, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor* decay, const Tensor* beta, int64_t heads, int64_t kv) {
  const int64_t batch = q.shape[0], length = q.shape[1];
  const int64_t dk = q.shape[2] / heads, dv = v.shape[2] / kv;
  const auto at = [](const Tensor& t, int64_t b, int64_t s, int64_t i) {
    return LoadScalar(t, (b * t.shape[1] + s) * t.shape[2] + i).f;
  };
  Attended a;
  a.state.assign(batch * kv * dk * dv, 0);
  a.output.assign(batch * length * heads * dv, 0);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < length; ++s) {
      for (int64_t h = 0; h < kv; ++h) {
        double* state = a.state.data() + (b * kv + h) * dk * dv;
        for (int64_t d = 0; d < dk && decay != nullptr; ++d) {
          const int64_t i = decay->shape[2] == kv ? h : h * dk + d;
          for (int64_t m = 0; m < dv; ++m) state[d * dv + m] *= std::exp(at(*decay, b, s, i));
        }
        Values value(dv);
        for (int64_t m = 0; m < dv; ++m) {
          value[m] = at(v, b, s, h * dv + m);
          if (beta == nullptr) continue;
          for (int64_t d = 0; d < dk; ++d) value[m] -= state[d * dv + m] * at(k, b, s, h * dk + d);
          value[m] *= at(*beta, b, s, beta->shape[2] == 1 ? 0 : h);
        }
        for (int64_t d = 0; d < dk; ++d) {
          for (int64_t m = 0; m < dv; ++m) state[d * dv + m] += at(k, b, s, h * dk + d) * value[m];
        }
      }
      for (int64_t h = 0; h < heads; ++h) {
        const double* state = a.state.data() + (b * kv + h / (heads / kv)) * dk * dv;
        for (int64_t m = 0; m < dv; ++m) {
          double sum = 0;
          for (int64_t d = 0; d < dk; ++d) sum += at(q, b, s, h * dk + d) * state[d * dv + m];
          a.output[(b * length + s) * heads * dv + h * dv + m] = sum / std::sqrt(dk);
        }
      }
    }
  }
  return a;
}

TEST(HandlersRecurrentTest, LinearAttention) {
  constexpr int64_t kHeads = 4, kKv = 2, kKey = 3, kValue = 2, kLength = 4, kBatch = 2;
  for (const std::string rule : {"linear", "gated", "delta", "gated_delta"}) {
    for (bool wide : {false, true}) {
      for (bool dims : {false, true}) {
        const bool gated = rule.starts_with("gated"), delta = rule.ends_with("delta");
        const TestSize length = dims ? TestSize("length") : TestSize(kLength);
        const int64_t decays = wide ? kKv * kKey : kKv, betas = wide ? 1 : kKv;
        TestModel m(27);
        m.Input("q", Elem::kFloat, {kBatch, length, kHeads * kKey});
        m.Input("k", Elem::kFloat, {kBatch, length, kKv * kKey});
        m.Input("v", Elem::kFloat, {kBatch, length, kKv * kValue});
        std::vector<Tensor> inputs = {Random({kBatch, kLength, kHeads * kKey}, 1),
                                      Random({kBatch, kLength, kKv * kKey}, 2),
                                      Random({kBatch, kLength, kKv * kValue}, 3)};
        if (gated) m.Input("g", Elem::kFloat, {kBatch, length, decays});
        if (gated) inputs.push_back(Random({kBatch, kLength, decays}, 4));
        if (delta) m.Input("b", Elem::kFloat, {kBatch, length, betas});
        if (delta) inputs.push_back(Random({kBatch, kLength, betas}, 5));
        m.Node("LinearAttention", {"q", "k", "v", "", gated ? "g" : "", delta ? "b" : ""},
               {"y", "s"}, {{"q_num_heads", kHeads}, {"kv_num_heads", kKv}, {"update_rule", rule}});
        m.Output("y", Elem::kFloat).Output("s", Elem::kFloat);
        ImportOptions options;
        if (dims) options.dims = {{.name = "length", .min = 1, .max = 6}};
        const auto got = RunModel(m, inputs, options);
        const Attended want =
            Reference(rule, inputs[0], inputs[1], inputs[2], gated ? &inputs[3] : nullptr,
                      delta ? &inputs.back() : nullptr, kHeads, kKv);
        SCOPED_TRACE(absl::StrCat(rule, wide, dims));
        ExpectNear(Numbers(got, 0), want.output, 1e-5);
        ExpectNear(Numbers(got, 1), want.state, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace athanor::onnx
