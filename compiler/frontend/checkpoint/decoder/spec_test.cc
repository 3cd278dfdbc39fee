#include "compiler/frontend/checkpoint/decoder/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace athanor::checkpoint {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

json Config(std::string_view family = "llama") {
  return {{"model_type", family},     {"hidden_size", 64},
          {"intermediate_size", 96},  {"num_hidden_layers", 3},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 100},        {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 500000.0}};
}

Keys GgufKeys() {
  return {{"general.architecture", std::string("llama")},
          {"general.name", std::string("any")},
          {"tokenizer.ggml.model", std::string("gpt2")},
          {"llama.block_count", int64_t{3}},
          {"llama.embedding_length", int64_t{64}},
          {"llama.feed_forward_length", int64_t{96}},
          {"llama.attention.head_count", int64_t{4}},
          {"llama.attention.head_count_kv", int64_t{2}},
          {"llama.attention.layer_norm_rms_epsilon", 1e-5},
          {"llama.context_length", int64_t{512}},
          {"llama.rope.dimension_count", int64_t{16}},
          {"llama.rope.freq_base", 500000.0}};
}

// Returns GgufKeys() of another architecture.
Keys KeysOfArchitecture(const std::string& name) {
  Keys keys;
  for (const auto& [key, value] : GgufKeys()) {
    keys[key.starts_with("llama.") ? name + key.substr(5) : key] = value;
  }
  keys["general.architecture"] = name;
  return keys;
}

struct Outcome {
  std::optional<DecoderSpec> spec;
  std::vector<ImportRefusal> refusals;

  // "key: reason" of each.
  std::vector<std::string> texts() const {
    std::vector<std::string> found;
    for (const ImportRefusal& refusal : refusals) {
      found.push_back(refusal.node + ": " + refusal.reason);
    }
    return found;
  }
};

Outcome Read(CheckpointFormat format, const Keys& keys, std::vector<std::string> ignored = {}) {
  Outcome outcome;
  outcome.spec = SpecOf(format, keys, ignored, &outcome.refusals);
  EXPECT_EQ(outcome.spec.has_value(), outcome.refusals.empty());
  return outcome;
}

Outcome Hf(const json& config, std::vector<std::string> ignored = {}) {
  return Read(CheckpointFormat::kHf, KeysOfJson(config.dump()).value(), std::move(ignored));
}

TEST(SpecOf, ReadsSizes) {
  json config = Config();
  config["tie_word_embeddings"] = true;
  const Outcome outcome = Hf(config);
  ASSERT_TRUE(outcome.spec) << testing::PrintToString(outcome.texts());
  const DecoderSpec& spec = *outcome.spec;
  EXPECT_EQ(spec.family->name, "llama");
  EXPECT_EQ(spec.layers, 3);
  EXPECT_EQ(spec.width, 64);
  EXPECT_EQ(spec.hidden, 96);
  EXPECT_EQ(spec.heads, 4);
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_EQ(spec.head, 16);
  EXPECT_EQ(spec.vocabulary, 100);
  EXPECT_EQ(spec.positions, 512);
  EXPECT_EQ(spec.epsilon, 1e-5);
  EXPECT_TRUE(spec.tied);
  EXPECT_THAT(spec.windows, ElementsAre(0, 0, 0));
  ASSERT_THAT(spec.inverse, SizeIs(8));
  EXPECT_EQ(spec.inverse[0], 1);
  EXPECT_FLOAT_EQ(spec.inverse[4], static_cast<float>(1 / std::sqrt(500000.0)));
}

TEST(SpecOf, GgufSaysTheSame) {
  const Outcome outcome = Read(CheckpointFormat::kGguf, GgufKeys());
  ASSERT_TRUE(outcome.spec) << testing::PrintToString(outcome.texts());
  DecoderSpec hf = *Hf(Config()).spec;
  EXPECT_EQ(outcome.spec->inverse, hf.inverse);
  EXPECT_EQ(outcome.spec->head, hf.head);
  EXPECT_EQ(outcome.spec->hidden, hf.hidden);
  EXPECT_EQ(outcome.spec->windows, hf.windows);
  EXPECT_EQ(outcome.spec->vocabulary, 0);  // its tensors tell
}

TEST(SpecOf, WhatMayBeAbsentHasItsDefault) {
  json config = Config();
  for (const char* key : {"num_key_value_heads", "rms_norm_eps", "rope_theta"}) config.erase(key);
  const Outcome outcome = Hf(config);
  ASSERT_TRUE(outcome.spec) << testing::PrintToString(outcome.texts());
  EXPECT_EQ(outcome.spec->kv_heads, 4);
  EXPECT_EQ(outcome.spec->epsilon, 1e-6);
  EXPECT_FLOAT_EQ(outcome.spec->inverse[4], 0.01f);
  EXPECT_FALSE(outcome.spec->tied);
  config["model_type"] = "phi3";
  EXPECT_EQ(Hf(config).spec->epsilon, 1e-5);
}

TEST(SpecOf, EachSizeThatMustBeThereIsRefusedByName) {
  for (const char* key : {"model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size", "max_position_embeddings"}) {
    json config = Config();
    config.erase(key);
    EXPECT_THAT(Hf(config).texts(), testing::Contains(HasSubstr(std::string(key) + ": is missing")))
        << key;
    for (const json& wrong : {json(0), json(-4), json(1.5), json("4"), json(1 << 25), json(true)}) {
      config[key] = wrong;
      EXPECT_THAT(Hf(config).texts(), testing::Contains(HasSubstr(std::string(key) + ": is ")))
          << key << wrong;
    }
  }
}

TEST(SpecOf, OldAndNewRopesAreTheSame) {
  const json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  json old = Config(), older = Config(), young = Config();
  young.erase("rope_theta");
  young["rope_parameters"] = scaling;
  young["rope_parameters"].update({{"rope_theta", 500000.0}, {"rope_type", "llama3"}});
  young["dtype"] = "bfloat16";
  old["rope_scaling"] = scaling;
  old["rope_scaling"]["rope_type"] = "llama3";
  old["torch_dtype"] = "bfloat16";
  older["rope_scaling"] = scaling;
  older["rope_scaling"]["type"] = "llama3";
  const Outcome a = Hf(old), b = Hf(older), c = Hf(young);
  ASSERT_TRUE(a.spec && b.spec && c.spec) << testing::PrintToString(c.texts());
  EXPECT_EQ(a.spec->inverse, b.spec->inverse);
  EXPECT_EQ(a.spec->inverse, c.spec->inverse);
  EXPECT_EQ(a.spec->inverse[0], 1);  // a wave of 6 positions stays
  EXPECT_FLOAT_EQ(a.spec->inverse[7], Hf(Config()).spec->inverse[7] / 8);
}

TEST(SpecOf, LinearRopesAreDivided) {
  json config = Config();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  Keys keys = GgufKeys();
  keys["llama.rope.scaling.type"] = std::string("linear");
  keys["llama.rope.scaling.factor"] = 4.0;
  const Outcome hf = Hf(config), gguf = Read(CheckpointFormat::kGguf, keys);
  ASSERT_TRUE(hf.spec && gguf.spec);
  EXPECT_EQ(hf.spec->inverse[0], 0.25f);
  EXPECT_EQ(hf.spec->inverse, gguf.spec->inverse);
}

TEST(SpecOf, OtherRopesAreRefusedByKey) {
  for (const char* type : {"yarn", "longrope", "dynamic", "su", "proportional"}) {
    json config = Config();
    config["rope_scaling"] = {{"rope_type", type}, {"factor", 4.0}};
    EXPECT_THAT(Hf(config).texts(),
                testing::Contains(AllOf(HasSubstr("rope_scaling.rope_type: is"), HasSubstr(type))));
    config.erase("rope_scaling");
    config["rope_parameters"] = {{"rope_type", type}, {"rope_theta", 1e4}};
    EXPECT_THAT(Hf(config).texts(), testing::Contains(HasSubstr("rope_parameters.rope_type: is")));
    Keys keys = GgufKeys();
    keys["llama.rope.scaling.type"] = std::string(type);
    EXPECT_THAT(Read(CheckpointFormat::kGguf, keys).texts(),
                ElementsAre(HasSubstr("llama.rope.scaling.type: is")));
  }
}

TEST(SpecOf, WindowsAreOfAllLayersOrOfSome) {
  json mistral = Config("mistral");
  mistral["sliding_window"] = 32;
  EXPECT_THAT(Hf(mistral).spec->windows, ElementsAre(32, 32, 32));
  mistral["sliding_window"] = nullptr;
  EXPECT_THAT(Hf(mistral).spec->windows, ElementsAre(0, 0, 0));
  Keys phi = KeysOfArchitecture("phi3");
  phi["phi3.attention.sliding_window"] = int64_t{32};
  EXPECT_THAT(Read(CheckpointFormat::kGguf, phi).spec->windows, ElementsAre(32, 32, 32));
  phi["phi3.attention.sliding_window"] = int64_t{0};  // as llama.cpp writes that there is none
  EXPECT_THAT(Read(CheckpointFormat::kGguf, phi).spec->windows, ElementsAre(0, 0, 0));
  phi["phi3.attention.sliding_window"] = int64_t{-1};
  EXPECT_FALSE(Read(CheckpointFormat::kGguf, phi).spec);
  mistral["sliding_window"] = 0;
  EXPECT_THAT(Hf(mistral).texts(), ElementsAre(HasSubstr("sliding_window: is \"0\"")));
  json qwen = Config("qwen2");
  qwen.update({{"sliding_window", 32}, {"max_window_layers", 2}, {"use_sliding_window", false}});
  EXPECT_THAT(Hf(qwen).spec->windows, ElementsAre(0, 0, 0));
  qwen["use_sliding_window"] = true;
  EXPECT_THAT(Hf(qwen).spec->windows, ElementsAre(0, 0, 32));
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(Hf(qwen).spec->windows, ElementsAre(32, 0, 0));
  qwen["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(Hf(qwen).texts(), ElementsAre(HasSubstr("layer_types: has 2 entries")));
  qwen["layer_types"] = {"chunked_attention", "full_attention", "full_attention"};
  EXPECT_THAT(Hf(qwen).texts(), ElementsAre(HasSubstr("layer_types: has \"chunked_attention\"")));
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  qwen["use_sliding_window"] = false;
  EXPECT_THAT(Hf(qwen).texts(), ElementsAre(HasSubstr("use_sliding_window")));
}

json Gemma2() {
  json config = Config("gemma2");
  config.update({{"head_dim", 32},
                 {"hidden_act", "gelu_pytorch_tanh"},
                 {"hidden_activation", "gelu_pytorch_tanh"},
                 {"cache_implementation", "hybrid"},
                 {"query_pre_attn_scalar", 144},
                 {"sliding_window", 32},
                 {"attn_logit_softcapping", 50.0},
                 {"final_logit_softcapping", 30.0}});
  return config;
}

Keys Gemma2Keys() {
  Keys keys = KeysOfArchitecture("gemma2");
  keys["gemma2.attention.sliding_window"] = int64_t{32};
  keys["gemma2.attn_logit_softcapping"] = 50.0;
  keys["gemma2.final_logit_softcapping"] = 30.0;
  return keys;
}

TEST(SpecOf, ReadsGemma2) {
  const Outcome hf = Hf(Gemma2());
  ASSERT_TRUE(hf.spec) << testing::PrintToString(hf.texts());
  EXPECT_TRUE(hf.spec->tied);
  EXPECT_EQ(hf.spec->head, 32);
  EXPECT_EQ(hf.spec->scale, 1.0 / 12);
  EXPECT_EQ(hf.spec->score_cap, 50);
  EXPECT_EQ(hf.spec->logit_cap, 30);
  EXPECT_THAT(hf.spec->windows, ElementsAre(32, 0, 32));
  json config = Gemma2();
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  config["tie_word_embeddings"] = false;
  config.erase("query_pre_attn_scalar");
  EXPECT_THAT(Hf(config).spec->windows, ElementsAre(0, 32, 0));
  EXPECT_FALSE(Hf(config).spec->tied);
  EXPECT_EQ(Hf(config).spec->scale, 1.0 / 16);
  // Nothing changes of the others.
  EXPECT_EQ(Hf(Config()).spec->scale, 0);
  EXPECT_EQ(Hf(Config()).spec->score_cap, 0);
  EXPECT_EQ(Hf(Config()).spec->logit_cap, 0);
}

TEST(SpecOf, ReadsGemma2OfGguf) {
  Keys keys = Gemma2Keys();
  const Outcome gguf = Read(CheckpointFormat::kGguf, keys);
  ASSERT_TRUE(gguf.spec) << testing::PrintToString(gguf.texts());
  EXPECT_EQ(gguf.spec->scale, 0.25);  // a head has 16
  EXPECT_EQ(gguf.spec->score_cap, 50);
  EXPECT_EQ(gguf.spec->logit_cap, 30);
  EXPECT_THAT(gguf.spec->windows, ElementsAre(32, 0, 32));
  keys["gemma2.block_count"] = int64_t{46};  // as the 27B: its scale is that of width / heads
  keys["gemma2.embedding_length"] = int64_t{400};
  keys["gemma2.attention.key_length"] = int64_t{16};
  EXPECT_EQ(Read(CheckpointFormat::kGguf, keys).spec->scale, 0.1);
  for (const char* key :
       {"attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"}) {
    Keys without = Gemma2Keys();
    without.erase(std::string("gemma2.") + key);
    EXPECT_THAT(Read(CheckpointFormat::kGguf, without).texts(),
                ElementsAre(AllOf(HasSubstr(key), HasSubstr("is missing"))));
  }
}

TEST(SpecOf, RefusesGemma2ByKey) {
  const std::map<std::string, json> wrong = {{"hidden_activation", "gelu"},
                                             {"hidden_act", "silu"},
                                             {"use_bidirectional_attention", true},
                                             {"query_pre_attn_scalar", 0},
                                             {"attn_logit_softcapping", 0.0},
                                             {"final_logit_softcapping", -30.0},
                                             {"sliding_window", 0},
                                             {"layer_types", {"full_attention"}},
                                             {"sliding_window_pattern", 6},
                                             {"attention_bias", true}};
  for (const auto& [key, value] : wrong) {
    json config = Gemma2();
    config[key] = value;
    EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr(key + ": "))) << key;
  }
  // Refuses a missing key for which the class has a number of its own, or of which none is a cap.
  for (const char* key : {"head_dim", "num_key_value_heads", "sliding_window",
                          "attn_logit_softcapping", "final_logit_softcapping"}) {
    json config = Gemma2();
    config.erase(key);
    EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr(std::string(key) + ": is missing")));
    config[key] = nullptr;
    EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr(std::string(key) + ": is missing")));
  }
}

json Gemma3() {
  json config = Config("gemma3_text");
  config.update({{"num_hidden_layers", 7},
                 {"head_dim", 32},
                 {"hidden_activation", "gelu_pytorch_tanh"},
                 {"query_pre_attn_scalar", 144},
                 {"sliding_window", 32},
                 {"rope_theta", 1e6},
                 {"rope_local_base_freq", 1e4},
                 {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
  return config;
}

TEST(SpecOf, ReadsGemma3) {
  const Outcome hf = Hf(Gemma3());
  ASSERT_TRUE(hf.spec) << testing::PrintToString(hf.texts());
  EXPECT_TRUE(hf.spec->tied);
  EXPECT_EQ(hf.spec->scale, 1.0 / 12);
  EXPECT_EQ(hf.spec->score_cap, 0);
  EXPECT_EQ(hf.spec->logit_cap, 0);
  EXPECT_THAT(hf.spec->windows, ElementsAre(32, 32, 32, 32, 32, 0, 32));
  EXPECT_FLOAT_EQ(hf.spec->inverse[0], 1 / 8.0f);
  EXPECT_FLOAT_EQ(hf.spec->inverse[8], 1 / 8e3f);
  ASSERT_THAT(hf.spec->local_inverse, SizeIs(16));
  EXPECT_EQ(hf.spec->local_inverse[0], 1);
  EXPECT_FLOAT_EQ(hf.spec->local_inverse[8], 1 / 1e2f);
  EXPECT_TRUE(Hf(Config()).spec->local_inverse.empty());
  json config = Gemma3();
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) config.erase(key);
  EXPECT_FLOAT_EQ(Hf(config).spec->inverse[8], 1e-3f);
  EXPECT_FLOAT_EQ(Hf(config).spec->local_inverse[8], 1e-2f);
  config["_sliding_window_pattern"] = 3;  // which the class does not read
  EXPECT_THAT(Hf(config).spec->windows, ElementsAre(32, 32, 32, 32, 32, 0, 32));
  config["sliding_window_pattern"] = 2;
  EXPECT_THAT(Hf(config).spec->windows, ElementsAre(32, 0, 32, 0, 32, 0, 32));
  config["sliding_window_pattern"] = 1;
  EXPECT_THAT(Hf(config).spec->windows, ElementsAre(0, 0, 0, 0, 0, 0, 0));
}

TEST(SpecOf, ReadsGemma3OfGguf) {
  Keys keys = KeysOfArchitecture("gemma3");
  keys["gemma3.block_count"] = int64_t{7};
  keys["gemma3.attention.sliding_window"] = int64_t{32};
  keys["gemma3.rope.freq_base"] = 1e6;
  keys["gemma3.rope.scaling.type"] = std::string("linear");
  keys["gemma3.rope.scaling.factor"] = 8.0;
  const Outcome gguf = Read(CheckpointFormat::kGguf, keys);
  ASSERT_TRUE(gguf.spec) << testing::PrintToString(gguf.texts());
  EXPECT_EQ(gguf.spec->scale, 0.25);
  EXPECT_THAT(gguf.spec->windows, ElementsAre(32, 32, 32, 32, 32, 0, 32));
  EXPECT_FLOAT_EQ(gguf.spec->inverse[4], 1 / 8e3f);
  EXPECT_FLOAT_EQ(gguf.spec->local_inverse[4], 1 / 1e2f);
  keys["gemma3.rope.freq_base_swa"] = 100.0;
  keys["gemma3.attention.sliding_window_pattern"] = int64_t{2};
  const Outcome other = Read(CheckpointFormat::kGguf, keys);
  ASSERT_TRUE(other.spec) << testing::PrintToString(other.texts());
  EXPECT_FLOAT_EQ(other.spec->local_inverse[4], 1 / 1e1f);
  EXPECT_THAT(other.spec->windows, ElementsAre(32, 0, 32, 0, 32, 0, 32));
}

TEST(SpecOf, RefusesGemma3ByKey) {
  const std::map<std::string, json> wrong = {{"final_logit_softcapping", 30.0},
                                             {"attn_logit_softcapping", 50.0},
                                             {"use_bidirectional_attention", true},
                                             {"hidden_activation", "silu"},
                                             {"rope_local_base_freq", 0.0},
                                             {"sliding_window_pattern", 0},
                                             {"rope_parameters", {{"rope_theta", 1e6}}},
                                             {"vision_config", {{"hidden_size", 4}}}};
  for (const auto& [key, value] : wrong) {
    json config = Gemma3();
    config[key] = value;
    EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr(key))) << key;
  }
  json config = Gemma3();
  config["rope_scaling"]["rope_type"] = "yarn";
  EXPECT_THAT(Hf(config).texts(), testing::Contains(HasSubstr("rope_scaling.rope_type: is")));
}

json MoeConfig() {
  json config = Config("qwen3_moe");
  config["moe_intermediate_size"] = 24;
  config["num_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  return config;
}

TEST(SpecOf, ReadsExperts) {
  json config = MoeConfig();
  const Outcome read = Hf(config);
  ASSERT_TRUE(read.spec) << testing::PrintToString(read.texts());
  EXPECT_EQ(read.spec->hidden, 24);
  EXPECT_EQ(read.spec->experts, 8);
  EXPECT_EQ(read.spec->experts_of_row, 2);
  EXPECT_EQ(read.spec->head, 16);
  EXPECT_FALSE(read.spec->sums_to_one);
  config["norm_topk_prob"] = true;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = json::array();
  config["sliding_window"] = 4096;
  config["use_sliding_window"] = false;
  config["num_local_experts"] = config["num_experts"];
  config.erase("num_experts");
  EXPECT_TRUE(Hf(config).spec->sums_to_one);
  EXPECT_EQ(Hf(config).spec->experts, 8);
  Keys keys = KeysOfArchitecture("qwen3moe");
  keys["qwen3moe.expert_count"] = int64_t{8};
  keys["qwen3moe.expert_used_count"] = int64_t{8};
  keys["qwen3moe.expert_feed_forward_length"] = int64_t{24};
  const Outcome gguf = Read(CheckpointFormat::kGguf, keys);
  ASSERT_TRUE(gguf.spec) << testing::PrintToString(gguf.texts());
  EXPECT_EQ(gguf.spec->hidden, 24);
  EXPECT_EQ(gguf.spec->experts_of_row, 8);
  EXPECT_TRUE(gguf.spec->sums_to_one);
}

TEST(SpecOf, RefusesExpertsByKey) {
  const auto texts = [](const char* key, const json& value) {
    json config = MoeConfig();
    config[key] = value;
    return Hf(config).texts();
  };
  EXPECT_THAT(texts("decoder_sparse_step", 2), ElementsAre(HasSubstr("decoder_sparse_step: is")));
  EXPECT_THAT(texts("mlp_only_layers", {1}), ElementsAre(HasSubstr("mlp_only_layers: is")));
  EXPECT_THAT(texts("use_sliding_window", true), ElementsAre(HasSubstr("use_sliding_window: is")));
  EXPECT_THAT(texts("num_experts_per_tok", 9),
              ElementsAre(HasSubstr("num_experts_per_tok: is 9, of 8 experts")));
  EXPECT_THAT(texts("num_experts_per_tok", 0), ElementsAre(HasSubstr("num_experts_per_tok")));
  EXPECT_THAT(texts("num_experts", 2000), ElementsAre(HasSubstr("num_experts")));
  EXPECT_THAT(texts("num_local_experts", 8), ElementsAre(HasSubstr("num_experts: is not")));
  EXPECT_THAT(texts("shared_expert_intermediate_size", 8), ElementsAre(HasSubstr("shared_expert")));
}

TEST(SpecOf, ReadsOlmo2) {
  json config = Config("olmo2");
  config.erase("rms_norm_eps");
  config.erase("num_key_value_heads");
  const Outcome read = Hf(config);
  ASSERT_TRUE(read.spec) << testing::PrintToString(read.texts());
  EXPECT_EQ(read.spec->epsilon, 1e-5);
  EXPECT_EQ(read.spec->kv_heads, 4);
  Keys keys = KeysOfArchitecture("olmo2");
  EXPECT_TRUE(Read(CheckpointFormat::kGguf, keys).spec);
  keys["olmo2.attention.sliding_window"] = int64_t{4096};  // of OLMo 3
  EXPECT_THAT(Read(CheckpointFormat::kGguf, keys).texts(),
              ElementsAre(HasSubstr("sliding_window: is not supported")));
}

TEST(SpecOf, HeadsAreSaidWhereTheClassHasItsOwn) {
  for (const char* family : {"mistral", "qwen2", "qwen3"}) {
    json config = Config(family);
    config["head_dim"] = 16;
    EXPECT_TRUE(Hf(config).spec) << testing::PrintToString(Hf(config).texts());
    config.erase("num_key_value_heads");
    EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr("num_key_value_heads: is missing")))
        << family;
  }
  EXPECT_THAT(Hf(Config("qwen3")).texts(), ElementsAre(HasSubstr("head_dim: is missing")));
}

// Each key of these changes numbers that are not computed so.
TEST(SpecOf, RefusesByKeyWhatItDoesNotCompute) {
  const std::map<std::string, json> keys = {{"attention_bias", true},
                                            {"mlp_bias", true},
                                            {"hidden_act", "gelu"},
                                            {"sliding_window", 4096},
                                            {"partial_rotary_factor", 0.5},
                                            {"num_local_experts", 8},
                                            {"num_experts_per_tok", 2},
                                            {"final_logit_softcapping", 30.0},
                                            {"attn_logit_softcapping", 50.0},
                                            {"logit_scale", 0.5},
                                            {"rope_interleaved", true},
                                            {"use_qk_norm", true},
                                            {"layer_types", {"full_attention"}},
                                            {"a_key_of_tomorrow", 1}};
  for (const auto& [key, value] : keys) {
    json config = Config();
    config[key] = value;
    const Outcome outcome = Hf(config);
    EXPECT_THAT(outcome.texts(), ElementsAre(HasSubstr(key + ": is "))) << key;
    EXPECT_EQ(outcome.refusals[0].code, absl::StatusCode::kUnimplemented);
  }
  json config = Config();
  config["quantization_config"] = {{"bits", 4}, {"quant_method", "gptq"}};
  EXPECT_THAT(Hf(config).texts(), AllOf(SizeIs(2), Each(HasSubstr("quantization_config."))));
}

TEST(SpecOf, IgnoredKeysAreInert) {
  json config = Config();
  config["a_key_of_tomorrow"] = {{"x", 1}, {"y", 2}};
  config["another"] = 1;
  EXPECT_THAT(Hf(config).refusals, SizeIs(3));
  EXPECT_THAT(Hf(config, {"a_key_of_tomorrow"}).refusals, SizeIs(1));
  EXPECT_THAT(Hf(config, {"a_key_of_tomorrow.y", "another"}).refusals, SizeIs(1));
  EXPECT_THAT(Hf(config, {"a_key_of_tomorrow", "another"}).refusals, SizeIs(0));
  EXPECT_THAT(Hf(config, {"a_key_of", "anothe"}).refusals, SizeIs(3));
}

// Random keys of few names, so that they lie below and beside each other.
TEST(SpecOf, IgnoredKeysAreThoseNamedAndBelow) {
  std::mt19937 draw(1);
  const auto any = [&] {
    std::string key = "x";
    for (uint32_t n = draw() % 4; n > 0; --n) key += std::vector{".", "x", "-", "y"}[draw() % 4];
    return key;
  };
  int inert = 0;
  for (int i = 0; i < 5000; ++i) {
    Keys keys = GgufKeys();
    const std::string key = any();
    keys[key] = int64_t{1};
    std::vector<std::string> ignored;
    for (uint32_t n = draw() % 6; n > 0; --n) ignored.push_back(any());
    const bool expected = std::any_of(ignored.begin(), ignored.end(), [&](const std::string& name) {
      return key == name || key.starts_with(name + ".");
    });
    inert += expected ? 1 : 0;
    EXPECT_EQ(Read(CheckpointFormat::kGguf, keys, ignored).refusals.empty(), expected)
        << key << " of " << testing::PrintToString(ignored);
  }
  EXPECT_GT(inert, 500);
}

TEST(SpecOf, RefusalsAreBounded) {
  json config = Config();
  for (int i = 0; i < 999; ++i) config["strange" + std::to_string(i)] = 1;
  EXPECT_THAT(Hf(config).refusals, SizeIs(999));
  config["strange999"] = 1;
  EXPECT_THAT(Hf(config).refusals, SizeIs(1000));
  for (int i = 0; i < 5000; ++i) config["other" + std::to_string(i)] = 1;
  const Outcome outcome = Hf(config);
  ASSERT_THAT(outcome.refusals, SizeIs(1001));
  EXPECT_THAT(outcome.texts().back(), HasSubstr("others are refused too"));
  EXPECT_EQ(outcome.refusals.back().code, absl::StatusCode::kUnimplemented);
  std::vector<ImportRefusal> full = outcome.refusals;
  config = Config();
  config.erase("hidden_size");
  EXPECT_FALSE(SpecOf(CheckpointFormat::kHf, KeysOfJson(config.dump()).value(), {}, &full));
  EXPECT_THAT(full, SizeIs(1001));
  EXPECT_EQ(full.back().code, absl::StatusCode::kInvalidArgument);
}

TEST(SpecOf, FamiliesAndClassesOfOthersAreRefused) {
  for (const char* name : {"gpt2", "Llama", "", "mixtral"}) {
    EXPECT_THAT(Hf(Config(name)).texts(),
                ElementsAre(AllOf(HasSubstr("model_type: is"), HasSubstr("llama, mistral"))));
  }
  json config = Config();
  config["architectures"] = {"LlamaForSequenceClassification"};
  EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr("architectures: must be")));
  config["architectures"] = {"LlamaForCausalLM"};
  EXPECT_TRUE(Hf(config).spec);
  Keys keys = GgufKeys();
  keys["general.architecture"] = std::string("mistral");  // GGUF calls it llama
  EXPECT_THAT(Read(CheckpointFormat::kGguf, keys).texts(),
              ElementsAre(HasSubstr("general.architecture: is")));
}

TEST(SpecOf, SizesThatContradictAreRefused) {
  json config = Config();
  config["num_key_value_heads"] = 3;
  EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr("num_key_value_heads: is 3")));
  config = Config();
  config["hidden_size"] = 66;
  EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr("num_attention_heads: is 4")));
  config["head_dim"] = 16;
  EXPECT_TRUE(Hf(config).spec);
  config["head_dim"] = 15;
  EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr("head_dim: is 15")));
  config["head_dim"] = 1 << 24;
  EXPECT_THAT(Hf(config).texts(), ElementsAre(HasSubstr("head_dim: is 16777216")));
  Keys keys = GgufKeys();
  keys["llama.rope.dimension_count"] = int64_t{8};
  keys["llama.attention.value_length"] = int64_t{32};
  EXPECT_THAT(Read(CheckpointFormat::kGguf, keys).texts(),
              ElementsAre(HasSubstr("llama.attention.value_length: is 32"),
                          HasSubstr("llama.rope.dimension_count: is 8")));
}

TEST(SpecOf, SaysAllReasonsAtOnce) {
  json config = Config();
  config.erase("hidden_size");
  config.update({{"vocab_size", "many"}, {"mlp_bias", true}, {"strange", 1}});
  EXPECT_THAT(Hf(config).refusals, SizeIs(4));
}

TEST(SpecOf, GgufRefusesByKey) {
  const std::map<std::string, GgufValue> wrong = {
      {"llama.expert_count", int64_t{8}},
      {"llama.attention.sliding_window", int64_t{4096}},
      {"llama.attention.head_count_kv", std::vector<int64_t>{2, 2, 1}},
      {"llama.block_count", 3.0},
      {"llama.attention.layer_norm_rms_epsilon", std::numeric_limits<double>::quiet_NaN()},
      {"split.count", int64_t{2}},
      {"adapter.type", std::string("lora")}};
  for (const auto& [key, value] : wrong) {
    Keys keys = GgufKeys();
    keys[key] = value;
    EXPECT_THAT(Read(CheckpointFormat::kGguf, keys).texts(),
                testing::Contains(HasSubstr(key + ": is ")))
        << key;
  }
}

TEST(ScaleRope, DividesByFactors) {
  DecoderSpec spec = *Hf(Config()).spec;
  EXPECT_FALSE(ScaleRope(std::vector<float>(7, 1), &spec).ok());
  for (float wrong : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> factors(8, 1);
    factors[3] = wrong;
    DecoderSpec scaled = spec;
    EXPECT_FALSE(ScaleRope(factors, &scaled).ok());
  }
  std::vector<float> factors(8, 1);
  factors[0] = 2;
  ASSERT_TRUE(ScaleRope(factors, &spec).ok());
  EXPECT_EQ(spec.inverse[0], 0.5f);
}

// Random keys with random values: it reads or refuses, and what it reads is in bounds.
TEST(SpecOf, RandomConfigsAreReadOrRefused) {
  std::mt19937 draw(1);
  const std::vector<json> values = {0,
                                    1,
                                    2,
                                    64,
                                    -1,
                                    1e300,
                                    0.5,
                                    true,
                                    false,
                                    "silu",
                                    "",
                                    {},
                                    {{"rope_type", "linear"}, {"factor", 2}},
                                    INT64_MAX,
                                    UINT64_MAX,
                                    {1, 2},
                                    {"full_attention", "full_attention", "sliding_attention"},
                                    nullptr,
                                    "qwen2",
                                    {{"rope_type", "llama3"}}};
  const std::vector<std::string> more = {
      "head_dim",          "rope_parameters",    "rope_scaling",   "layer_types", "sliding_window",
      "max_window_layers", "use_sliding_window", "attention_bias", "unknown"};
  int read = 0;
  for (int i = 0; i < 3000; ++i) {
    const char* const families[] = {"llama", "mistral", "qwen2", "qwen3"};
    json config = i % 6 == 4 ? Gemma2() : i % 6 == 5 ? Gemma3() : Config(families[i % 6]);
    if (i % 6 == 3) config["head_dim"] = 16;
    std::vector<std::string> keys = more;
    for (const auto& [key, value] : config.items()) keys.push_back(key);
    for (uint32_t n = draw() % 3; n > 0; --n) {
      config[keys[draw() % keys.size()]] = values[draw() % values.size()];
    }
    const Outcome outcome = Hf(config);
    if (!outcome.spec) continue;
    ++read;
    EXPECT_EQ(outcome.spec->windows.size(), outcome.spec->layers) << config;
    EXPECT_EQ(outcome.spec->inverse.size(), outcome.spec->head / 2) << config;
    EXPECT_EQ(outcome.spec->heads % outcome.spec->kv_heads, 0) << config;
    for (float inverse : outcome.spec->inverse) EXPECT_TRUE(std::isfinite(inverse)) << config;
    for (float inverse : outcome.spec->local_inverse) EXPECT_TRUE(std::isfinite(inverse)) << config;
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace athanor::checkpoint
