// Checkpoints of encoders that are refused, or taken with a note, by key, tensor and file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "compiler/frontend/checkpoint/encoder_testing.h"

namespace athanor::checkpoint::encoder {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kConfig[] = "config.json", kModules[] = "modules.json",
               kPooling[] = "1_Pooling/config.json", kLength[] = "sentence_bert_config.json",
               kWeights[] = "model.safetensors";

Checkpoint With(const std::string& file, const json& changes, const std::string& name = "bert") {
  Checkpoint checkpoint = Checkpoint::Hf(name);
  json object = json::parse(checkpoint.files[file]);
  object.update(changes);
  checkpoint.files[file] = object.dump();
  return checkpoint;
}

std::vector<std::string> RefusedWith(const json& config, const std::string& name = "bert") {
  return With(kConfig, config, name).Refused();
}

Checkpoint WithWeights(const std::string& name, const std::function<void(Shard&)>& change) {
  Checkpoint checkpoint = Checkpoint::Hf(name);
  Shard shard = Shard::Read(checkpoint.files[kWeights]);
  change(shard);
  checkpoint.files[kWeights] = shard.Write();
  return checkpoint;
}

std::vector<std::string> NotesOf(Checkpoint checkpoint) {
  const auto imported = checkpoint.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  return imported.ok() ? imported->notes : std::vector<std::string>();
}

TEST(Keys, ThatChangeNumbersAreRefused) {
  EXPECT_THAT(RefusedWith({{"position_embedding_type", "relative_key"}}),
              ElementsAre("position_embedding_type: is \"relative_key\"; supported is absolute"));
  EXPECT_THAT(RefusedWith({{"is_decoder", true}}),
              ElementsAre("is_decoder: is \"true\"; supported is false"));
  EXPECT_THAT(RefusedWith({{"add_cross_attention", true}}),
              ElementsAre("add_cross_attention: is \"true\"; supported is false"));
  EXPECT_THAT(RefusedWith({{"hidden_act", "mish"}}),
              ElementsAre("hidden_act: is \"mish\"; supported are gelu, gelu_python, gelu_new, "
                          "gelu_pytorch_tanh, gelu_fast, relu, silu, swish, tanh"));
  EXPECT_THAT(RefusedWith({{"rope_theta", 1e4}}),
              ElementsAre("rope_theta: is not supported; name it in ignore_keys if no number "
                          "depends on it"));
  EXPECT_THAT(RefusedWith({{"architectures", {"BertForSequenceClassification"}}}),
              ElementsAre("architectures: must be one of BertModel, BertForMaskedLM, "
                          "BertForPreTraining for model_type \"bert\""));
  EXPECT_THAT(RefusedWith({{"num_attention_heads", 5}}),
              ElementsAre("num_attention_heads: is 5, which must divide hidden_size, 32"));
  EXPECT_THAT(RefusedWith({{"pad_token_id", 39}}, "roberta"),
              ElementsAre("max_position_embeddings: is 40; it must be above pad_token_id + 1, 40, "
                          "the first position"));
}

TEST(Keys, AreRefusedAllAtOnce) {
  EXPECT_THAT(RefusedWith({{"hidden_size", 0}, {"is_decoder", true}, {"new_key", {{"a", 1}}}}),
              ElementsAre("hidden_size: is \"0\"; it must be an integer from 1 to 16777216",
                          HasSubstr("is_decoder"), HasSubstr("new_key.a")));
}

TEST(Keys, OfTokenizersAndTasksAreInert) {
  EXPECT_TRUE(With(kConfig, {{"tokenizer_class", "XLMRobertaTokenizer"},
                             {"finetuning_task", "sts"},
                             {"prefix", ""},
                             {"task_specific_params", {{"a", {{"b", 1}}}}}})
                  .Import()
                  .ok());
}

TEST(Keys, OfIgnoreKeysAreInert) {
  Checkpoint checkpoint = With(kConfig, {{"new_key", {{"a", 1}}}});
  checkpoint.options.ignore_keys = {"new_key"};
  EXPECT_TRUE(checkpoint.Import().ok());
}

TEST(Family, ThatIsUnknownNamesAll) {
  EXPECT_THAT(RefusedWith({{"model_type", "deberta"}}),
              ElementsAre(testing::AllOf(HasSubstr("model_type: is \"deberta\"; supported are"),
                                         HasSubstr("llama, "), HasSubstr("xlm-roberta"))));
}

TEST(Tensors, AreHeldAgainstTheKeys) {
  EXPECT_THAT(WithWeights("bert",
                          [](Shard& shard) {
                            shard.tensors.erase("encoder.layer.1.output.dense.bias");
                            shard.tensors["extra.weight"] = {"F32", {1}, std::string(4, '\0')};
                            shard.tensors["embeddings.LayerNorm.bias"] = {
                                "F32", {31}, std::string(124, '\0')};
                            shard.tensors["encoder.layer.0.output.dense.bias"] = {
                                "I64", {32}, std::string(256, '\0')};
                          })
                  .Refused(),
              ElementsAre("embeddings.LayerNorm.bias: has shape [31]; it must be [32]",
                          "encoder.layer.0.output.dense.bias: is stored as I64; weights are no "
                          "integers",
                          "encoder.layer.1.output.dense.bias: is missing; its shape would be [32]",
                          "extra.weight: is no tensor of family bert"));
}

TEST(Tensors, OfHeadsAndBuffersAreInert) {
  EXPECT_TRUE(WithWeights("bert",
                          [](Shard& shard) {
                            shard.tensors["cls.seq_relationship.bias"] = {
                                "F32", {2}, std::string(8, '\0')};
                            shard.tensors["embeddings.position_ids"] = {
                                "I64", {1, 40}, std::string(320, '\0')};
                          })
                  .Import()
                  .ok());
}

TEST(Tensors, UnderTwoNamesAreRefused) {
  EXPECT_THAT(WithWeights("bert",
                          [](Shard& shard) {
                            shard.tensors["bert.embeddings.LayerNorm.gamma"] =
                                shard.tensors["embeddings.LayerNorm.weight"];
                          })
                  .Refused(),
              ElementsAre("embeddings.LayerNorm.weight: is there as "
                          "\"bert.embeddings.LayerNorm.gamma\" too"));
}

TEST(Modules, AreTransformerPoolingNormalize) {
  const auto refused = [](const json& modules) {
    Checkpoint checkpoint = Checkpoint::Hf("bert");
    checkpoint.files[kModules] = modules.dump();
    return checkpoint.Refused();
  };
  const auto module = [](const char* type, const char* path) {
    return json{{"idx", 0}, {"name", "0"}, {"path", path}, {"type", type}};
  };
  const json transformer = module("sentence_transformers.models.Transformer", ""),
             pooling = module("sentence_transformers.models.Pooling", "1_Pooling"),
             dense = module("sentence_transformers.models.Dense", "2_Dense");
  EXPECT_THAT(refused({transformer, pooling, dense}),
              ElementsAre("modules.json: has the modules \"Transformer\", \"Pooling\", \"Dense\"; "
                          "supported are Transformer, Pooling and perhaps Normalize, in this "
                          "order"));
  EXPECT_THAT(refused({pooling, transformer}), ElementsAre(HasSubstr("\"Pooling\", \"Trans")));
  EXPECT_THAT(refused(json::array()), ElementsAre(HasSubstr("has the modules ; supported")));
  EXPECT_THAT(refused(transformer), ElementsAre("modules.json: it is no JSON list of objects"));
  EXPECT_THAT(
      refused({module("Transformer", "0_Transformer"), pooling}),
      ElementsAre(HasSubstr("modules.json: path: is \"0_Transformer\" of the Transformer")));
  EXPECT_THAT(refused({transformer, module("Pooling", "other")}),
              ElementsAre("modules.json: path: names \"other/config.json\", which is missing"));
}

TEST(Modules, MissingAreTheMean) {
  Checkpoint checkpoint = Checkpoint::Hf("bert");
  checkpoint.files.erase(kModules);
  EXPECT_THAT(checkpoint.Refused(),
              ElementsAre("1_Pooling/config.json: is there, but no modules.json, which would name "
                          "it"));
  checkpoint.files.erase(kPooling);
  EXPECT_THAT(NotesOf(checkpoint),
              ElementsAre(HasSubstr("there is no modules.json: an embedding is the mean")));
}

TEST(PoolingConfig, IsOneKind) {
  EXPECT_THAT(With(kPooling, {{"pooling_mode_cls_token", true}}).Refused(),
              ElementsAre("1_Pooling/config.json: pooling_mode_cls_token: is true, and "
                          "pooling_mode_mean_tokens too; supported is one of them"));
  EXPECT_THAT(With(kPooling, {{"pooling_mode_weightedmean_tokens", true}}).Refused(),
              ElementsAre(HasSubstr("pooling_mode_weightedmean_tokens: is true; supported are")));
  EXPECT_THAT(With(kPooling, {{"pooling_mode", "weightedmean"}}).Refused(),
              ElementsAre("1_Pooling/config.json: pooling_mode: is \"weightedmean\"; supported are "
                          "mean, cls, max and lasttoken"));
  EXPECT_THAT(With(kPooling, {{"pooling_mode", {"cls", "mean"}}}).Refused(),
              testing::Contains(HasSubstr("it must be a text, or a list of one")));
  EXPECT_TRUE(With(kPooling, {{"pooling_mode", {"cls"}}}).Import().ok());
  EXPECT_THAT(With(kPooling, {{"word_embedding_dimension", 16}}).Refused(),
              ElementsAre("hidden_size: is 32, but the configuration of Pooling has 16"));
  EXPECT_THAT(With(kPooling, {{"new_key", 1}}).Refused(),
              ElementsAre(HasSubstr("1_Pooling/config.json: new_key: is not supported")));
}

TEST(Length, IsBoundedByFilesAndPositions) {
  const auto context = [](Checkpoint checkpoint) {
    const auto imported = checkpoint.Import();
    EXPECT_TRUE(imported.ok()) << imported.status();
    return imported.ok() ? imported->context : -1;
  };
  EXPECT_EQ(context(Checkpoint::Hf("bert")), 32);
  EXPECT_EQ(context(With(kLength, {{"max_seq_length", 512}})), 40);
  Checkpoint checkpoint = With(kLength, {{"max_seq_length", nullptr}});
  EXPECT_EQ(context(checkpoint), 40);
  checkpoint.files["tokenizer_config.json"] = R"({"model_max_length": 20})";
  EXPECT_EQ(context(checkpoint), 20);
  checkpoint.files["tokenizer_config.json"] =
      R"({"model_max_length": 1000000000000000019884624838656})";
  EXPECT_EQ(context(checkpoint), 40);
  EXPECT_EQ(context(Checkpoint::Hf("roberta")), 38);  // positions begin at 2
  EXPECT_EQ(context(Checkpoint::Gguf("xlm_roberta_gguf")), 38);
  EXPECT_THAT(With(kLength, {{"max_seq_length", 0}}).Refused(),
              ElementsAre(HasSubstr("sentence_bert_config.json: max_seq_length: is \"0\"")));
  EXPECT_THAT(With(kLength, {{"do_lower_case", true}}).Refused(),
              ElementsAre("sentence_bert_config.json: do_lower_case: is true; supported is false"));
}

TEST(Length, OfFilesThatCannotBeReadIsRefused) {
  Checkpoint checkpoint = Checkpoint::Hf("bert");
  checkpoint.files["sentence_roberta_config.json"] = checkpoint.files[kLength];
  EXPECT_THAT(checkpoint.Refused(), ElementsAre("sentence_roberta_config.json: is there beside "
                                                "\"sentence_bert_config.json\"; right is one"));
  checkpoint = Checkpoint::Hf("roberta");
  checkpoint.files["tokenizer_config.json"] = R"({"model_max_length": 9, "a": 1, "a": 1})";
  EXPECT_THAT(checkpoint.Refused(), ElementsAre("tokenizer_config.json: key \"a\" is there twice"));
}

TEST(Prompts, AreNoted) {
  Checkpoint checkpoint = Checkpoint::Hf("bert");
  checkpoint.files["config_sentence_transformers.json"] =
      R"({"prompts": {"query": "query: "}, "default_prompt_name": "query"})";
  EXPECT_THAT(NotesOf(checkpoint),
              ElementsAre("sentence-transformers puts the prompt \"query\" ahead of each text; the "
                          "server does not"));
  EXPECT_THAT(NotesOf(Checkpoint::Hf("bert")), IsEmpty());
}

// Random changes: it imports a graph that verifies, or refuses by name.
TEST(Random, ChangesAreImportedOrRefused) {
  std::mt19937 draw(1);
  const std::vector<json> values = {
      0, 1, 2, 16, 64, -1, true, "gelu", false, 1e30, "x", nullptr, json::array(), json::object()};
  const std::vector<std::string> files = {kConfig, kPooling, kLength};
  int imported = 0, refused = 0;
  for (int i = 0; i < 200; ++i) {
    Checkpoint checkpoint = Checkpoint::Hf(draw() % 2 == 0 ? "bert" : "xlm_roberta");
    std::string& text = checkpoint.files[files[draw() % files.size()]];
    json object = json::parse(text);
    auto it = object.begin();
    std::advance(it, draw() % object.size());
    it.value() = values[draw() % values.size()];
    text = object.dump();
    const auto found = checkpoint.Import();
    if (found.ok()) {
      ++imported;
      EXPECT_TRUE(Verify(found->graph).ok());
      continue;
    }
    ++refused;
    EXPECT_TRUE(absl::IsInvalidArgument(found.status()) || absl::IsUnimplemented(found.status()))
        << found.status();
    EXPECT_FALSE(checkpoint.refusals.empty()) << found.status();
  }
  EXPECT_GT(imported, 20);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace athanor::checkpoint::encoder
