#include "compiler/frontend/checkpoint/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "compiler/frontend/checkpoint/import_testing.h"

namespace athanor::checkpoint {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr const char* kConfig = "config.json";
constexpr const char* kOne = "model.safetensors";  // llama3's only file of weights
constexpr const char* kIndex = "model.safetensors.index.json";

// Returns the checkpoint with a change of its config.
Checkpoint With(const std::string& name, const json& changes) {
  Checkpoint checkpoint = Checkpoint::Hf(name);
  json config = TinyJson(name, kConfig);
  config.update(changes);
  checkpoint.files[kConfig] = config.dump();
  return checkpoint;
}

// Returns the checkpoint llama3 with a change of its tensors.
Checkpoint WithTensors(const std::function<void(Shard&)>& change) {
  Checkpoint checkpoint = Checkpoint::Hf("llama3");
  Shard shard = Shard::Read(checkpoint.files[kOne]);
  change(shard);
  checkpoint.files[kOne] = shard.Write();
  return checkpoint;
}

// Returns the checkpoint llama3 as GGUF, with other axes of a tensor, innermost first.
Checkpoint WithAxes(const std::string& tensor, const std::vector<int64_t>& axes) {
  Checkpoint checkpoint = Checkpoint::Gguf("llama3");
  std::string& file = checkpoint.files["model.gguf"];
  const size_t key = file.find("llama.vocab_size");
  if (key != std::string::npos) file.replace(key, 16, "general.whatever");
  const size_t at = file.find(tensor) + tensor.size() + sizeof(uint32_t);  // behind their number
  for (size_t i = 0; i < axes.size(); ++i) {
    file.replace(at + i * sizeof(int64_t), sizeof(int64_t), reinterpret_cast<const char*>(&axes[i]),
                 sizeof(int64_t));
  }
  return checkpoint;
}

TEST(ImportCheckpoint, SaysWhatItImported) {
  Checkpoint hf = Checkpoint::Hf("llama");
  const absl::StatusOr<ImportedCheckpoint> decoder = hf.Import();
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  EXPECT_EQ(decoder->family, "llama");
  EXPECT_EQ(decoder->layers, 2);
  EXPECT_EQ(decoder->vocabulary, 48);
  EXPECT_EQ(decoder->context, 256);
  EXPECT_THAT(decoder->generation.end_tokens, ElementsAre(2));
  EXPECT_THAT(decoder->notes, ElementsAre(HasSubstr("become f32")));
  EXPECT_EQ(decoder->parameters.size(), decoder->graph.ParameterIds().size());
  EXPECT_EQ(decoder->graph.dims, (std::vector<Dim>{{"T", 1, 256}, {"R", 0, 256}}));
  EXPECT_THAT(Checkpoint::Hf("llama3").Import()->notes, IsEmpty());
}

// Files of GGUF and of Hugging Face differ in how they store the weights, and in nothing behind.
TEST(ImportCheckpoint, FormatsHaveTheSameInterface) {
  for (const char* name :
       {"llama", "llama3", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "olmo2"}) {
    const ImportedCheckpoint hf = Checkpoint::Hf(name).Import().value();
    const ImportedCheckpoint gguf = Checkpoint::Gguf(name).Import().value();
    EXPECT_EQ(hf.graph.dims, gguf.graph.dims);
    EXPECT_EQ(hf.vocabulary, gguf.vocabulary);
    EXPECT_EQ(hf.context, gguf.context);
    EXPECT_EQ(hf.parameters.size(), gguf.parameters.size());
    EXPECT_EQ(hf.generation.end_tokens, gguf.generation.end_tokens);
  }
}

TEST(ImportCheckpoint, ConfigsOfOlderLibrariesGiveTheSameGraph) {
  Checkpoint young = Checkpoint::Hf("llama3"), old = young;
  json config = TinyJson("llama3", kConfig);
  config["rope_theta"] = config["rope_parameters"]["rope_theta"];
  config["rope_scaling"] = config["rope_parameters"];
  config["rope_scaling"].erase("rope_theta");
  config["torch_dtype"] = config["dtype"];
  for (const char* key : {"rope_parameters", "dtype"}) config.erase(key);
  old.files[kConfig] = config.dump();
  const absl::StatusOr<ImportedCheckpoint> a = young.Import(), b = old.Import();
  ASSERT_TRUE(a.ok() && b.ok()) << b.status();
  EXPECT_EQ(CanonicalHash(a->graph), CanonicalHash(b->graph));
}

TEST(ImportCheckpoint, OldAndNewConfigsOfGemma3GiveTheSameGraph) {
  Checkpoint young = Checkpoint::Hf("gemma3"), old = young;
  json config = TinyJson("gemma3", kConfig);
  const json ropes = config["rope_parameters"];
  config["rope_theta"] = ropes["full_attention"]["rope_theta"];
  config["rope_local_base_freq"] = ropes["sliding_attention"]["rope_theta"];
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", ropes["full_attention"]["factor"]}};
  config["sliding_window_pattern"] = 6;
  for (const char* key : {"rope_parameters", "layer_types", "tie_word_embeddings"}) {
    config.erase(key);
  }
  old.files[kConfig] = config.dump();
  const absl::StatusOr<ImportedCheckpoint> a = young.Import(), b = old.Import();
  ASSERT_TRUE(a.ok() && b.ok()) << b.status();
  EXPECT_EQ(CanonicalHash(a->graph), CanonicalHash(b->graph));
}

TEST(ImportCheckpoint, LimitsBoundTheDims) {
  Checkpoint checkpoint = Checkpoint::Hf("mistral");
  checkpoint.options.limits.tokens = 100;
  EXPECT_EQ(checkpoint.Import()->graph.dims[0], (Dim{"T", 1, 100}));
  checkpoint.options.limits.context = 8;  // the window, so that nothing is hidden
  const ImportedCheckpoint decoder = checkpoint.Import().value();
  EXPECT_EQ(decoder.graph.dims[0], (Dim{"T", 1, 8}));
  EXPECT_EQ(decoder.context, 8);
  EXPECT_THAT(ToText(decoder.graph), testing::Not(HasSubstr("LessThan")));
  checkpoint.options.limits.context = 257;
  EXPECT_THAT(checkpoint.Import().status().ToString(), HasSubstr("context=257"));
  checkpoint.options.limits.context = -1;
  EXPECT_FALSE(checkpoint.Import().ok());
  checkpoint.options.limits = {.tokens = 0};
  EXPECT_FALSE(checkpoint.Import().ok());
  checkpoint.options.limits = {};
  checkpoint.options.graph.max_nodes = 50;
  EXPECT_TRUE(absl::IsInvalidArgument(checkpoint.Import().status()))
      << checkpoint.Import().status();
}

TEST(ImportCheckpoint, LimitsOfPagedForm) {
  Checkpoint checkpoint = Checkpoint::Hf("mistral");
  checkpoint.options.form = DecoderForm::kPaged;
  checkpoint.options.limits = {.tokens = 100, .sequences = 3, .context = 33};
  const ImportedCheckpoint decoder = checkpoint.Import().value();
  const auto states = std::ssize(decoder.graph.StateIds());
  EXPECT_THAT(decoder.graph.dims, ElementsAre(Dim{"T", 1, 100}, Dim{"R", 0, 100}, Dim{"S", 1, 3},
                                              Dim{"B", 1, 3}, Dim{"N", 1, states * (1 + 3 * 3)}));
  EXPECT_THAT(ToText(decoder.graph), HasSubstr("window=8"));
  checkpoint.options.limits.context = 8;  // the window, so that nothing is hidden
  EXPECT_THAT(ToText(checkpoint.Import()->graph), testing::Not(HasSubstr("window")));
  // Blocks of as many slots as i32 numbers, or as a state may have bytes.
  checkpoint.options.limits = {.sequences = 1 << 30, .context = 16};
  EXPECT_EQ(checkpoint.Import()->graph.dims[4], (Dim{"N", 1, (int64_t{1} << 27) - 1}));
  checkpoint.options.limits.sequences = 1 << 17;
  checkpoint.options.graph.max_tensor_bytes = 1 << 20;
  const int64_t slot = TinyJson("mistral", kConfig)["num_key_value_heads"].get<int64_t>() *
                       TinyJson("mistral", kConfig)["head_dim"].get<int64_t>() * 4;
  EXPECT_EQ(checkpoint.Import()->graph.dims[4].max, (1 << 20) / slot / 16);
  // A bound of tensors leaves room for fewer blocks than there are states.
  checkpoint.options.limits = {.sequences = 1, .block = (1 << 20) / slot / 16 * 8};
  EXPECT_EQ(checkpoint.Import()->graph.dims[4].max, 2);
  for (const DecoderLimits& limits :
       {DecoderLimits{.sequences = 0}, DecoderLimits{.block = 0}, DecoderLimits{.block = 24},
        DecoderLimits{.block = 1 << 17}}) {
    checkpoint.options.limits = limits;
    EXPECT_THAT(checkpoint.Import().status().ToString(), HasSubstr("limits: "));
  }
}

TEST(ImportCheckpoint, RefusesKeysByName) {
  EXPECT_THAT(With("llama", {{"strange", 1}}).Refused(), ElementsAre(HasSubstr("strange: is not")));
  EXPECT_THAT(With("llama", {{"model_type", "gpt9"}}).Refused(),
              ElementsAre(HasSubstr("model_type: is")));
  Checkpoint ignoring = With("llama", {{"strange", {{"a", 1}}}});
  ignoring.options.ignore_keys = {"strange"};
  EXPECT_TRUE(ignoring.Import().ok());
}

TEST(ImportCheckpoint, RefusesFilesByName) {
  Checkpoint checkpoint = Checkpoint::Hf("llama3");
  checkpoint.files["pytorch_model.bin"] = "x";
  EXPECT_THAT(checkpoint.Refused(), ElementsAre(HasSubstr("pytorch_model.bin: is not supported")));
  EXPECT_TRUE(absl::IsUnimplemented(checkpoint.Import().status()));
  checkpoint = Checkpoint::Hf("llama3");
  checkpoint.files["consolidated.safetensors"] = "repeats the others";
  checkpoint.files["onnx/model.onnx"] = "of others";
  checkpoint.files["tokenizer.json"] = "of others";
  EXPECT_TRUE(checkpoint.Import().ok());
  checkpoint.files.erase(kConfig);
  EXPECT_THAT(checkpoint.Refused(), ElementsAre("config.json: is missing"));
  checkpoint.files.erase(kOne);
  EXPECT_THAT(checkpoint.Refused(),
              ElementsAre("config.json: is missing", HasSubstr("no .safetensors file")));
  checkpoint.files.clear();
  EXPECT_FALSE(checkpoint.Import().ok());
  checkpoint.format = CheckpointFormat::kGguf;
  EXPECT_FALSE(checkpoint.Import().ok());
}

TEST(ImportCheckpoint, RefusesBrokenFilesByName) {
  for (const char* file : {kConfig, "generation_config.json", kIndex}) {
    Checkpoint checkpoint = Checkpoint::Hf("llama");
    checkpoint.files[file] = "{";
    EXPECT_THAT(checkpoint.Refused(), ElementsAre(HasSubstr(std::string(file) + ": "))) << file;
  }
  Checkpoint hf = Checkpoint::Hf("llama3");
  hf.files[kOne].pop_back();
  EXPECT_THAT(hf.Refused(), ElementsAre(HasSubstr("model.safetensors: ")));
  hf.files[kOne].resize(20);
  EXPECT_THAT(hf.Refused(), ElementsAre(HasSubstr("model.safetensors: ")));
  EXPECT_TRUE(absl::IsInvalidArgument(hf.Import().status()));
  Checkpoint gguf = Checkpoint::Gguf("llama");
  const std::string whole = gguf.files["model.gguf"];
  for (size_t size : {size_t{0}, size_t{3}, size_t{24}, size_t{500}, whole.size() - 1}) {
    gguf.files["model.gguf"] = whole.substr(0, size);
    EXPECT_THAT(gguf.Refused(), ElementsAre(HasSubstr("model.gguf: "))) << size;
    EXPECT_TRUE(absl::IsInvalidArgument(gguf.Import().status())) << size;
  }
}

TEST(ImportCheckpoint, HeadsAreBoundedByTheLimit) {
  for (Checkpoint checkpoint : {Checkpoint::Hf("llama3"), Checkpoint::Gguf("llama3")}) {
    checkpoint.options.max_head_bytes = 100;
    EXPECT_TRUE(absl::IsResourceExhausted(checkpoint.Import().status()))
        << checkpoint.Import().status();
    checkpoint.options.max_head_bytes = 100'000;
    EXPECT_TRUE(checkpoint.Import().ok());
  }
}

// Thousands of wrong tensors, and of wrong names in an index, are not all listed.
TEST(ImportCheckpoint, RefusalsAreBounded) {
  Checkpoint checkpoint = WithTensors([](Shard& shard) {
    for (int i = 0; i < 1500; ++i) shard.tensors["t" + std::to_string(i)] = {"F32", {0}, ""};
  });
  std::vector<std::string> refused = checkpoint.Refused();
  ASSERT_THAT(refused, SizeIs(kMostRefusals + 1));
  EXPECT_THAT(refused.back(), HasSubstr("others are refused too"));
  json index;
  for (int i = 0; i < 1500; ++i) index["weight_map"]["t" + std::to_string(i)] = kOne;
  checkpoint = Checkpoint::Hf("llama3");
  checkpoint.files[kIndex] = index.dump();
  EXPECT_THAT(checkpoint.Refused(), SizeIs(kMostRefusals + 1));
  for (int i = 0; i < 1500; ++i) checkpoint.files["w" + std::to_string(i) + ".bin"] = "x";
  EXPECT_THAT(checkpoint.Refused(), SizeIs(kMostRefusals + 1));
}

TEST(ImportCheckpoint, GgufTensorsThatTellSizesAreChecked) {
  EXPECT_TRUE(WithAxes("rope_freqs.weight", {}).Import().ok());
  for (int64_t size : {0, 1}) {
    EXPECT_THAT(WithAxes("rope_freqs.weight", {size}).Refused(),
                ElementsAre(HasSubstr("rope_freqs.weight: must have shape [")));
  }
  EXPECT_THAT(WithAxes("token_embd.weight", {32, 0}).Refused(),
              Contains(HasSubstr("token_embd.weight: has 0 rows; there must be from 1 to")));
  EXPECT_THAT(WithAxes("token_embd.weight", {0, (1 << 24) + 1}).Refused(),
              Contains(HasSubstr("token_embd.weight: has 16777217 rows")));
}

TEST(ImportCheckpoint, ShardsAreThoseOfTheIndex) {
  constexpr const char* kFirst = "model-00001-of-00003.safetensors";
  Checkpoint checkpoint = Checkpoint::Hf("llama");
  const std::string first = checkpoint.files[kFirst];
  checkpoint.files.erase(kFirst);
  EXPECT_THAT(checkpoint.Refused(), ElementsAre(HasSubstr(std::string(kFirst) + ": is missing")));
  checkpoint.files[kFirst] = first;
  checkpoint.files["model-00004-of-00003.safetensors"] = Shard{}.Write();
  EXPECT_THAT(checkpoint.Refused(), ElementsAre(HasSubstr("is not named by")));
  checkpoint.files["model-00004-of-00003.safetensors"] = first;
  EXPECT_THAT(checkpoint.Refused(), Contains(HasSubstr("and again in")));
  checkpoint = Checkpoint::Hf("llama");
  json index = json::parse(checkpoint.files[kIndex]);
  index["weight_map"]["model.norm.weight"] = kFirst;
  checkpoint.files[kIndex] = index.dump();
  const std::vector<std::string> refused = checkpoint.Refused();
  EXPECT_THAT(refused, ElementsAre(HasSubstr("model.norm.weight: is not in")));
  checkpoint.files.erase(kIndex);
  EXPECT_TRUE(checkpoint.Import().ok());
}

TEST(ImportCheckpoint, TensorsFitTheSpec) {
  constexpr const char* kDown = "model.layers.1.mlp.down_proj.weight";
  EXPECT_THAT(WithTensors([](Shard& shard) { shard.tensors.erase(kDown); }).Refused(),
              ElementsAre(HasSubstr(std::string(kDown) + ": is missing")));
  EXPECT_THAT(WithTensors([](Shard& shard) {
                std::swap(shard.tensors[kDown].shape[0], shard.tensors[kDown].shape[1]);
              }).Refused(),
              ElementsAre(HasSubstr("has shape [64, 32]; it must be [32, 64]")));
  EXPECT_THAT(WithTensors([](Shard& shard) {
                shard.tensors["model.layers.2.mlp.down_proj.weight"] = shard.tensors[kDown];
              }).Refused(),
              ElementsAre(HasSubstr("is no tensor of family llama")));
  EXPECT_THAT(WithTensors([](Shard& shard) {
                shard.tensors["lm_head.weight"] = shard.tensors["model.embed_tokens.weight"];
              }).Refused(),
              ElementsAre(HasSubstr("lm_head.weight: is there, but tie_word_embeddings")));
  EXPECT_TRUE(WithTensors([](Shard& shard) {
                shard.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
                    "F32", {1}, std::string(4, 0)};
              })
                  .Import()
                  .ok());
  EXPECT_THAT(WithTensors([](Shard& shard) { shard.tensors.clear(); }).Refused(), SizeIs(20));
}

// An expert without finite weights gives NaN to rows whose expert it is, and nothing to others.
TEST(ImportCheckpoint, RowsTakeOnlyTheirExperts) {
  constexpr const char* kShard = "model.safetensors";
  const Checkpoint whole = Checkpoint::Hf("qwen3_moe");
  const auto logits = [](Checkpoint checkpoint) {
    const absl::StatusOr<ImportedCheckpoint> decoder = checkpoint.Import();
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    return decoder.ok() ? Logits(checkpoint, *decoder, {7}, {0})[0] : std::vector<float>();
  };
  const std::vector<float> right = logits(whole);
  for (const char* part : {"gate", "up", "down"}) {
    int own = 0;
    for (int expert = 0; expert < 6; ++expert) {
      Shard shard = Shard::Read(whole.files.at(kShard));
      std::string& bytes = shard.tensors
                               .at("model.layers.1.mlp.experts." + std::to_string(expert) + "." +
                                   part + "_proj.weight")
                               .bytes;
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = i % 2 == 0 ? '\xC0' : '\x7F';  // NaN
      Checkpoint changed = whole;
      changed.files[kShard] = shard.Write();
      const std::vector<float> found = logits(std::move(changed));
      if (std::isnan(found[0])) {
        ++own;
      } else {
        EXPECT_EQ(found, right) << expert;
      }
    }
    EXPECT_EQ(own, 2) << part;
  }
}

TEST(ImportCheckpoint, EachExpertHasItsTensors) {
  constexpr const char* kShard = "model.safetensors";
  Checkpoint checkpoint = Checkpoint::Hf("qwen3_moe");
  Shard shard = Shard::Read(checkpoint.files.at(kShard));
  const std::string up = "model.layers.0.mlp.experts.5.up_proj.weight";
  shard.tensors["model.layers.0.mlp.experts.6.up_proj.weight"] = shard.tensors.at(up);
  shard.tensors.erase(up);
  checkpoint.files[kShard] = shard.Write();
  EXPECT_THAT(checkpoint.Refused(),
              UnorderedElementsAre(HasSubstr(up + ": is missing; its shape would be [32, 32]"),
                                   HasSubstr("experts.6.up_proj.weight: is no tensor of family")));
}

TEST(ImportCheckpoint, VocabularyIsTheEmbeddingsRows) {
  EXPECT_THAT(With("llama3", {{"vocab_size", 47}}).Refused(),
              ElementsAre(HasSubstr("model.embed_tokens.weight: has shape [48, 32]")));
}

TEST(ImportCheckpoint, EndsAreTokensOfTheVocabulary) {
  Checkpoint checkpoint = Checkpoint::Hf("llama");
  checkpoint.files["generation_config.json"] = R"({"eos_token_id":[2,48]})";
  EXPECT_THAT(checkpoint.Refused(),
              ElementsAre("eos_token_id: has token 48; the vocabulary has 48"));
}

// A layer more or less is said of each tensor.
TEST(ImportCheckpoint, LayersAreThoseOfTheConfig) {
  EXPECT_THAT(With("llama3", {{"num_hidden_layers", 3}}).Refused(), SizeIs(9));
  EXPECT_THAT(With("llama3", {{"num_hidden_layers", 1}}).Refused(), SizeIs(9));
}

// Random bytes of the files' words are others: it imports a graph, or refuses.
TEST(ImportCheckpoint, RandomBytesAreImportedOrRefused) {
  std::mt19937 draw(1);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    Checkpoint checkpoint = i % 2 == 0 ? Checkpoint::Gguf("llama") : Checkpoint::Hf("llama");
    const char* files[] = {"model.gguf", kConfig, "model.gguf", kIndex};
    std::string& bytes = checkpoint.files[files[i % 4]];
    const size_t head = std::min<size_t>(bytes.size(), 3000);
    for (uint32_t n = 1 + draw() % 2; n > 0; --n) {
      bytes[draw() % head] = static_cast<char>(draw() % 4 == 0 ? draw() : '0' + draw() % 10);
    }
    const absl::StatusOr<ImportedCheckpoint> decoder = checkpoint.Import();
    if (decoder.ok()) continue;
    ++refused;
    EXPECT_TRUE(absl::IsInvalidArgument(decoder.status()) ||
                absl::IsUnimplemented(decoder.status()) ||
                absl::IsResourceExhausted(decoder.status()))
        << decoder.status();
  }
  EXPECT_GT(refused, 100);
}

// Random changes: it imports a graph that verifies, or refuses by name.
TEST(ImportCheckpoint, RandomChangesAreImportedOrRefused) {
  std::mt19937 draw(1);
  const std::vector<json> values = {0, 1, 2, 16, 64, -1, true, "silu", json::array(), 1e9, nullptr};
  int imported = 0, refused = 0;
  for (int i = 0; i < 200; ++i) {
    json config = TinyJson("llama3", kConfig);
    std::vector<std::string> keys;
    for (const auto& [key, value] : config.items()) keys.push_back(key);
    Checkpoint checkpoint = WithTensors([&](Shard& shard) {
      if (draw() % 2 == 0) return;
      auto it = shard.tensors.begin();
      std::advance(it, draw() % shard.tensors.size());
      if (draw() % 2 == 0) {
        shard.tensors.erase(it);
      } else {
        it->second.dtype = "I64";
      }
    });
    if (draw() % 4 > 0) config[keys[draw() % keys.size()]] = values[draw() % values.size()];
    checkpoint.files[kConfig] = config.dump();
    const absl::StatusOr<ImportedCheckpoint> decoder = checkpoint.Import();
    if (decoder.ok()) {
      ++imported;
      EXPECT_TRUE(Verify(decoder->graph).ok());
      EXPECT_THAT(checkpoint.refusals, IsEmpty());
    } else {
      ++refused;
      EXPECT_TRUE(absl::IsInvalidArgument(decoder.status()) ||
                  absl::IsUnimplemented(decoder.status()))
          << decoder.status();
      EXPECT_FALSE(checkpoint.refusals.empty()) << decoder.status();
    }
  }
  EXPECT_GT(imported, 20);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace athanor::checkpoint
