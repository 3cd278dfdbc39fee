// Tests that the backend cases of Attention do not cover: dims, edges of masks, refusals; and
// com.microsoft's forms, compared with attention computed in double by the definition.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/ops/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using Attributes = std::map<std::string, TestAttr>;
constexpr double kInf = std::numeric_limits<double>::infinity();

// Pseudo-random numbers with a long period.
Tensor Drawn(std::vector<int64_t> shape, int seed) {
  Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
  uint32_t state = 77 + static_cast<uint32_t>(seed);
  for (int64_t i = 0; i < t.elements(); ++i) {
    state = state * 1664525 + 1013904223;
    t.data<float>()[i] = static_cast<float>(state >> 16) / 32768 - 1;
  }
  return t;
}

// Accesses element [b, h, i, d] of [batch, heads, length, size], or of the flat form [batch,
// length, heads * size].
struct View {
  const Tensor& t;
  int64_t heads, size;
  bool flat;
  double At(int64_t b, int64_t h, int64_t i, int64_t d) const {
    const int64_t length = flat ? t.shape[1] : t.shape[2];
    return t.data<float>()[flat ? ((b * length + i) * heads + h) * size + d
                                : ((b * heads + h) * length + i) * size + d];
  }
};

// Attention by the definition: `addend` is added to each score, and -inf hides a key. The result is
// [b, i, h * size + d].
std::vector<double> Attention(const View& q, const View& k, const View& v, int64_t batch,
                              int64_t queries, int64_t keys,
                              const std::function<double(int64_t, int64_t, int64_t)>& addend) {
  std::vector<double> out;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t h = 0; h < q.heads; ++h) {
        std::vector<double> scores(keys);
        double largest = -kInf, sum = 0;
        const int64_t group = h * k.heads / q.heads;
        for (int64_t j = 0; j < keys; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < q.size; ++d) dot += q.At(b, h, i, d) * k.At(b, group, j, d);
          scores[j] = dot / std::sqrt(static_cast<double>(q.size)) + addend(b, i, j);
          largest = std::max(largest, scores[j]);
        }
        for (double& score : scores) {
          score = largest == -kInf ? 0 : std::exp(score - largest);
          sum += score;
        }
        for (int64_t d = 0; d < v.size; ++d) {
          double y = 0;
          for (int64_t j = 0; j < keys; ++j) {
            y += sum == 0 ? 0 : scores[j] / sum * v.At(b, group, j, d);
          }
          out.push_back(y);
        }
      }
    }
  }
  return out;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
}

std::vector<double> Numbers(const absl::StatusOr<std::vector<Tensor>>& results, size_t which = 0) {
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() && which < results->size() ? ValuesOf((*results)[which])
                                                 : std::vector<double>();
}

std::string RefusalOf(const TestModel& m, const ImportOptions& options = {}) {
  const TestImport import = ImportBytes(m.Bytes(), options);
  EXPECT_FALSE(import.status.ok());
  return std::string(import.status.message());
}

bool Uses(const TestImport& import, Op op) {
  for (const Node& node : import.imported.graph.nodes) {
    if (node.op == op) return true;
  }
  return false;
}

// A model with Q, K, V of one batch row and one head.
TestModel Plain(int64_t opset, Attributes attrs, const std::string& keys = "k") {
  TestModel m(opset);
  m.Input("q", Elem::kFloat, {1, 1, "q", 4}).Input("k", Elem::kFloat, {1, 1, keys, 4});
  m.Input("v", Elem::kFloat, {1, 1, keys, 4});
  m.Node("Attention", {"q", "k", "v"}, {"y"}, attrs).Output("y", Elem::kFloat);
  return m;
}

const ImportOptions& Lengths() {
  static const ImportOptions* const options = [] {
    auto* o = new ImportOptions();
    o->dims = {{.name = "q", .min = 1, .max = 9}, {.name = "k", .min = 1, .max = 9}};
    return o;
  }();
  return *options;
}

TEST(AttentionTest, CausalStartsAtTheFirstKeyWithoutACache) {
  const TestModel m = Plain(23, {{"is_causal", 1}});
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{2, 5}, {5, 2}, {3, 3}, {1, 1}}) {
    const Tensor q = Drawn({1, 1, queries, 4}, 1), k = Drawn({1, 1, keys, 4}, 2),
                 v = Drawn({1, 1, keys, 4}, 3);
    const View vq{q, 1, 4, false}, vk{k, 1, 4, false}, vv{v, 1, 4, false};
    ExpectNear(Numbers(RunModel(m, {q, k, v}, Lengths())),
               Attention(vq, vk, vv, 1, queries, keys,
                         [](int64_t, int64_t i, int64_t j) { return j <= i ? 0 : -kInf; }));
  }
}

TEST(AttentionTest, WhatOurRowSaysIsOurRow) {
  ImportOptions options;
  options.dims = {{.name = "q", .min = 1, .max = 9}};
  const TestImport same = ImportBytes(Plain(23, {{"is_causal", 1}}, "q").Bytes(), options);
  ASSERT_TRUE(same.status.ok()) << same.status;
  EXPECT_TRUE(Uses(same, Op::kAttention));
  EXPECT_FALSE(Uses(same, Op::kIota));  // causal without a mask
  const TestImport capped = ImportBytes(Plain(23, {{"softcap", 2.0f}}, "q").Bytes(), options);
  ASSERT_TRUE(capped.status.ok()) << capped.status;
  EXPECT_FALSE(Uses(capped, Op::kAttention));
}

TEST(AttentionTest, WindowsOfACache) {
  TestModel m(25);
  m.Input("q", Elem::kFloat, {1, 2, "s", 4}).Input("k", Elem::kFloat, {1, 1, "s", 4});
  m.Input("v", Elem::kFloat, {1, 1, "s", 4});
  m.Input("pk", Elem::kFloat, {1, 1, "p", 4}).Input("pv", Elem::kFloat, {1, 1, "p", 4});
  m.Node("Attention", {"q", "k", "v", "", "pk", "pv"}, {"y", "nk", "nv"},
         {{"left_window_size", 2}, {"right_window_size", 1}});
  m.Output("y", Elem::kFloat).Output("nk", Elem::kFloat).Output("nv", Elem::kFloat);
  ImportOptions options;
  options.dims = {{.name = "s", .min = 1, .max = 4}, {.name = "p", .min = 0, .max = 8}};
  for (const int64_t past : {0, 1, 5}) {
    const Tensor q = Drawn({1, 2, 3, 4}, 1), k = Drawn({1, 1, 3, 4}, 2), v = Drawn({1, 1, 3, 4}, 3),
                 pk = Drawn({1, 1, past, 4}, 4), pv = Drawn({1, 1, past, 4}, 5);
    const auto results = RunModel(m, {q, k, v, pk, pv}, options);
    ASSERT_TRUE(results.ok()) << results.status();
    Tensor keys = Tensor::Zeros(DType::kF32, {1, 1, past + 3, 4}), values = keys;
    keys.bytes = pk.bytes + k.bytes, values.bytes = pv.bytes + v.bytes;
    EXPECT_EQ((*results)[1], keys);
    EXPECT_EQ((*results)[2], values);
    const std::vector<double> want =
        Attention({q, 2, 4, false}, {keys, 1, 4, false}, {values, 1, 4, false}, 1, 3, past + 3,
                  [&](int64_t, int64_t i, int64_t j) {
                    return j >= i + past - 2 && j <= i + past + 1 ? 0 : -kInf;
                  });
    const std::vector<double> got = Numbers(results);
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t d = 0; d < 4; ++d) {
          EXPECT_NEAR(got[(h * 3 + i) * 4 + d], want[(i * 2 + h) * 4 + d], 1e-5);
        }
      }
    }
  }
}

TEST(AttentionTest, RowsThatAreWhollyHiddenAreZero) {
  for (const bool parts : {false, true}) {
    TestModel m(23);
    m.Input("q", Elem::kFloat, {1, 1, 2, 4}).Input("k", Elem::kFloat, {1, 1, 2, 4});
    m.Input("v", Elem::kFloat, {1, 1, 2, 4}).Input("m", Elem::kFloat, {2, 2});
    m.Node("Attention", {"q", "k", "v", "m"}, {"y"},
           parts ? Attributes{{"softcap", 3.0f}} : Attributes{});
    m.Output("y", Elem::kFloat);
    const std::vector<double> y =
        Numbers(RunModel(m, {Drawn({1, 1, 2, 4}, 1), Drawn({1, 1, 2, 4}, 2), Drawn({1, 1, 2, 4}, 3),
                             Of(DType::kF32, {2, 2}, {-kInf, -kInf, 0, -kInf})}));
    const Tensor v = Drawn({1, 1, 2, 4}, 3);
    for (int d = 0; d < 4; ++d) {
      EXPECT_EQ(y[d], 0);
      EXPECT_NEAR(y[4 + d], v.data<float>()[d], 1e-6);
    }
  }
}

TEST(AttentionTest, Refusals) {
  const auto model = [](std::vector<TestSize> q, std::vector<TestSize> k, Attributes attrs,
                        int64_t opset = 25) {
    TestModel m(opset);
    m.Input("q", Elem::kFloat, q).Input("k", Elem::kFloat, k).Input("v", Elem::kFloat, k);
    m.Node("Attention", {"q", "k", "v"}, {"y"}, attrs).Output("y", Elem::kFloat);
    return m;
  };
  const auto holds = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  holds(RefusalOf(model({1, 2, 6}, {1, 2, 6}, {})), "q_num_heads and kv_num_heads must be given");
  holds(RefusalOf(model({1, 2, 6}, {1, 2, 6}, {{"q_num_heads", 4}, {"kv_num_heads", 2}})),
        "Q has 6 elements along axis 2 and 4 heads, which must divide them");
  holds(RefusalOf(model({1, 3, 2, 4}, {1, 2, 2, 4}, {})), "K has 2 heads, which must divide the 3");
  holds(RefusalOf(model({1, 2, 2, 4}, {1, 2, 2, 4}, {{"q_num_heads", 2}})), "Q has rank 4");
  holds(RefusalOf(model({2, 4}, {2, 4}, {})), "have ranks 2, 2 and 2");
  holds(RefusalOf(model({1, 2, 2, 4}, {1, 2, 2, 4}, {{"left_window_size", -2}})),
        "left_window_size is -2");
  holds(RefusalOf(model({1, 2, 2, 4}, {1, 2, 2, 4}, {{"softmax_precision", 7}})),
        "softmax_precision is 7");
}

TEST(AttentionTest, WindowsBeyondEveryPositionHideNothing) {
  const auto run = [](const std::map<std::string, TestAttr>& attrs) {
    TestModel m(25);
    for (const char* name : {"q", "k", "v"}) m.Input(name, Elem::kFloat, {1, 1, 3, 2});
    m.Node("Attention", {"q", "k", "v"}, {"y"}, attrs).Output("y", Elem::kFloat);
    return Numbers(
        RunModel(m, {Drawn({1, 1, 3, 2}, 1), Drawn({1, 1, 3, 2}, 2), Drawn({1, 1, 3, 2}, 3)}));
  };
  const int64_t far = std::numeric_limits<int64_t>::max();
  const std::vector<double> whole = run({}),
                            got = run({{"left_window_size", far}, {"right_window_size", far}});
  ASSERT_EQ(got.size(), whole.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], whole[i], 1e-6) << i;
}

// Projects with concatenated weights, which are identities.
TEST(MicrosoftAttentionTest, ProjectsMasksAndCaches) {
  TestModel m(17);
  m.Input("x", Elem::kFloat, {2, "s", 4}).Input("mask", Elem::kInt32, {2, "s"});
  Tensor weights = Tensor::Zeros(DType::kF32, {4, 12});
  for (int i = 0; i < 4; ++i) {
    for (int part = 0; part < 3; ++part) weights.data<float>()[i * 12 + part * 4 + i] = 1;
  }
  m.Initializer("w", weights);
  m.Node("Attention", {"x", "w", "", "mask"}, {"y", "present"},
         {{"num_heads", 2}, {"unidirectional", 1}}, "com.microsoft");
  m.Output("y", Elem::kFloat).Output("present", Elem::kFloat);
  ImportOptions options;
  options.dims = {{.name = "s", .min = 1, .max = 6}};
  const Tensor x = Drawn({2, 3, 4}, 1);
  const std::vector<double> mask = {1, 1, 1, 0, 1, 1};
  const auto results = RunModel(m, {x, Of(DType::kI32, {2, 3}, mask)}, options);
  const View view{x, 2, 2, true};
  ExpectNear(Numbers(results),
             Attention(view, view, view, 2, 3, 3, [&](int64_t b, int64_t i, int64_t j) {
               return j > i ? -kInf : mask[b * 3 + j] != 0 ? 0 : -1e4;
             }));
  ASSERT_TRUE(results.ok());
  EXPECT_EQ((*results)[1].shape, (std::vector<int64_t>{2, 2, 2, 3, 2}));
}

TEST(MicrosoftAttentionTest, HeadsOfThreeInputs) {
  TestModel m(17);
  m.Input("q", Elem::kFloat, {2, "s", 4}).Input("k", Elem::kFloat, {2, "t", 4});
  m.Input("v", Elem::kFloat, {2, "t", 6}).Input("lengths", Elem::kInt32, {2});
  m.Input("bias", Elem::kFloat, {1, 1, "s", "t"});
  m.Node("MultiHeadAttention", {"q", "k", "v", "", "lengths", "bias"}, {"y"}, {{"num_heads", 2}},
         "com.microsoft");
  m.Output("y", Elem::kFloat);
  ImportOptions options;
  options.dims = {{.name = "s", .min = 1, .max = 4}, {.name = "t", .min = 1, .max = 8}};
  const Tensor q = Drawn({2, 2, 4}, 1), k = Drawn({2, 5, 4}, 2), v = Drawn({2, 5, 6}, 3),
               bias = Drawn({1, 1, 2, 5}, 4);
  const std::vector<double> lengths = {5, 2};
  ExpectNear(Numbers(RunModel(m, {q, k, v, Of(DType::kI32, {2}, lengths), bias}, options)),
             Attention({q, 2, 2, true}, {k, 2, 2, true}, {v, 2, 3, true}, 2, 2, 5,
                       [&](int64_t b, int64_t i, int64_t j) {
                         return (j < lengths[b] ? 0 : -1e4) + bias.data<float>()[i * 5 + j];
                       }));
}

// Rows of unequal length: new keys follow the last key of each row.
TEST(GroupQueryAttentionTest, RaggedRowsAndTheOnlyRow) {
  for (const auto& [ragged, window] : std::vector<std::pair<bool, int64_t>>{
           {false, -1}, {true, -1}, {false, 2}, {true, 2}, {true, 0}}) {
    const int64_t batch = ragged ? 2 : 1, past = 4, fresh = ragged ? 1 : 2, all = past + fresh;
    TestModel m(17);
    m.Input("q", Elem::kFloat, {batch, fresh, 8}).Input("k", Elem::kFloat, {batch, fresh, 4});
    m.Input("v", Elem::kFloat, {batch, fresh, 4}).Input("pk", Elem::kFloat, {batch, 2, "p", 2});
    m.Input("pv", Elem::kFloat, {batch, 2, "p", 2}).Input("lengths", Elem::kInt32, {batch});
    m.Node("Shape", {"pk"}, {"shape"}).Initializer("two", Of(DType::kI64, {}, {2}));
    m.Node("Gather", {"shape", "two"}, {"past"});
    m.Initializer("fresh", Of(DType::kI64, {}, {static_cast<double>(fresh)}));
    m.Node("Add", {"past", "fresh"}, {"total"}).Node("Cast", {"total"}, {"total32"}, {{"to", 6}});
    m.Node("GroupQueryAttention", {"q", "k", "v", "pk", "pv", "lengths", "total32"},
           {"y", "nk", "nv"},
           {{"num_heads", 4}, {"kv_num_heads", 2}, {"local_window_size", window}}, "com.microsoft");
    m.Output("y", Elem::kFloat).Output("nk", Elem::kFloat).Output("nv", Elem::kFloat);
    ImportOptions options;
    options.dims = {{.name = "p", .min = 1, .max = 16}};
    const Tensor q = Drawn({batch, fresh, 8}, 1), k = Drawn({batch, fresh, 4}, 2),
                 v = Drawn({batch, fresh, 4}, 3), pk = Drawn({batch, 2, past, 2}, 4),
                 pv = Drawn({batch, 2, past, 2}, 5);
    const std::vector<double> lengths = ragged ? std::vector<double>{4, 2} : std::vector<double>{5};
    const auto results = RunModel(m, {q, k, v, pk, pv, Of(DType::kI32, {batch}, lengths)}, options);
    ASSERT_TRUE(results.ok()) << results.status();
    // Builds the cache by the definition; keys behind a row's last are hidden.
    Tensor keys = Tensor::Zeros(DType::kF32, {batch, 2, all, 2}), values = keys;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t before = static_cast<int64_t>(lengths[b]) + 1 - fresh;
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t j = 0; j < before + fresh; ++j) {
          for (int64_t d = 0; d < 2; ++d) {
            const int64_t at = ((b * 2 + h) * all + j) * 2 + d;
            const bool old = j < before;
            keys.data<float>()[at] =
                static_cast<float>(old ? View{pk, 2, 2, false}.At(b, h, j, d)
                                       : View{k, 2, 2, true}.At(b, h, j - before, d));
            values.data<float>()[at] =
                static_cast<float>(old ? View{pv, 2, 2, false}.At(b, h, j, d)
                                       : View{v, 2, 2, true}.At(b, h, j - before, d));
            EXPECT_EQ((*results)[1].data<float>()[at], keys.data<float>()[at]);
            EXPECT_EQ((*results)[2].data<float>()[at], values.data<float>()[at]);
          }
        }
      }
    }
    ExpectNear(Numbers(results),
               Attention({q, 4, 2, true}, {keys, 2, 2, false}, {values, 2, 2, false}, batch, fresh,
                         all, [&, window = window](int64_t b, int64_t i, int64_t j) {
                           const double at = lengths[b] + 1 - fresh + i;
                           return j <= at && (window < 0 || j > at - window) ? 0 : -kInf;
                         }));
  }
}

TEST(GroupQueryAttentionTest, WhatIsNotServedIsNamed) {
  TestModel m(17);
  m.Input("q", Elem::kFloat, {1, 2, 8}).Input("k", Elem::kFloat, {1, 2, 4});
  m.Input("v", Elem::kFloat, {1, 2, 4}).Input("lengths", Elem::kInt32, {1});
  m.Input("total", Elem::kInt32, {});
  m.Node("GroupQueryAttention", {"q", "k", "v", "", "", "lengths", "total"}, {"y"},
         {{"num_heads", 4}, {"kv_num_heads", 2}}, "com.microsoft");
  m.Output("y", Elem::kFloat);
  EXPECT_NE(RefusalOf(m).find("values={\"total\""), std::string::npos) << RefusalOf(m);
  ImportOptions options;
  options.values = {{"total", Of(DType::kI32, {}, {2})}};
  EXPECT_TRUE(ImportBytes(m.Bytes(), options).status.ok());
  options.values = {{"total", Of(DType::kI32, {}, {3})}};
  EXPECT_NE(RefusalOf(m, options).find("total_sequence_length is 3"), std::string::npos);
}

TEST(RotaryTest, PairsAndTheRest) {
  for (const bool interleaved : {false, true}) {
    TestModel m(23);
    m.Input("x", Elem::kFloat, {1, "s", 6}).Input("at", Elem::kInt64, {1, "s"});
    m.Initializer("cos", Drawn({5, 2}, 1)).Initializer("sin", Drawn({5, 2}, 2));
    m.Node("RotaryEmbedding", {"x", "cos", "sin", "at"}, {"y"},
           {{"num_heads", 1}, {"rotary_embedding_dim", 4}, {"interleaved", interleaved ? 1 : 0}});
    m.Output("y", Elem::kFloat);
    ImportOptions options;
    options.dims = {{.name = "s", .min = 1, .max = 4}};
    const Tensor x = Drawn({1, 2, 6}, 3), cos = Drawn({5, 2}, 1), sin = Drawn({5, 2}, 2);
    const std::vector<double> at = {4, 1};
    const std::vector<double> y = Numbers(RunModel(m, {x, Of(DType::kI64, {1, 2}, at)}, options));
    for (int i = 0; i < 2; ++i) {
      const float* row = x.data<float>() + i * 6;
      for (int pair = 0; pair < 2; ++pair) {
        const int a = interleaved ? 2 * pair : pair, b = interleaved ? 2 * pair + 1 : pair + 2;
        const int64_t position = static_cast<int64_t>(at[i]) * 2 + pair;
        const double c = cos.data<float>()[position], s = sin.data<float>()[position];
        EXPECT_NEAR(y[i * 6 + a], c * row[a] - s * row[b], 1e-6);
        EXPECT_NEAR(y[i * 6 + b], s * row[a] + c * row[b], 1e-6);
      }
      EXPECT_EQ(y[i * 6 + 4], row[4]);
      EXPECT_EQ(y[i * 6 + 5], row[5]);
    }
  }
}

}  // namespace
}  // namespace athanor::onnx
