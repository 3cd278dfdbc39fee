// Expected tokens and texts are those of transformers 5.23 (PreTrainedTokenizerFast) over the same
// files.
#include "server/text/model_text.h"

#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "compiler/frontend/checkpoint/files/gguf_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/sentencepiece/sentencepiece_model.pb.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kTokenizer[] = R"({
  "version": "1.0",
  "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
  "post_processor": {"type": "TemplateProcessing", "pair": [], "single": [
    {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "aa": 3, "<s>": 4, "<": 5, "s": 6,
    ">": 7, "e": 8, "|": 9, "</s>": 10}, "merges": ["a a"]}})";
constexpr char kAdded[] = R"("added_tokens_decoder": {
  "4": {"content": "<s>", "lstrip": false, "normalized": false, "rstrip": false,
        "single_word": false, "special": true},
  "11": {"content": "<e>", "lstrip": false, "normalized": false, "rstrip": false,
         "single_word": false, "special": true},
  "12": {"content": "<|a|>", "lstrip": false, "normalized": false, "rstrip": true,
         "single_word": false, "special": false}})";
constexpr char kText[] = "aa<s>b</s><e><|a|>";

// Keeps the bytes of a folder's files; of a map's the addresses are kept too.
using Folder = std::map<std::string, std::string>;

absl::StatusOr<ModelText> Read(const Folder& folder) {
  std::vector<TextFile> files;
  for (const auto& [path, bytes] : folder) files.push_back({path, bytes});
  return ReadModelText(files);
}
absl::StatusOr<ModelText> ReadWith(Folder folder) {
  folder.try_emplace("tokenizer.json", kTokenizer);
  return Read(folder);
}

std::vector<int32_t> Encode(const absl::StatusOr<ModelText>& text, const std::string& prompt) {
  if (!text.ok() || text->tokenizer == nullptr) {
    ADD_FAILURE() << text.status();
    return {};
  }
  std::vector<int32_t> ids;
  const absl::Status status = text->tokenizer->Encode({{prompt, true}}, true, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

std::string Render(const absl::StatusOr<ModelText>& text, Json request) {
  if (!text.ok()) return text.status().ToString();
  const auto parts = RenderChat(*text, std::move(request));
  if (!parts.ok()) return parts.status().ToString();
  std::string all;
  for (const Part& part : *parts) all += part.text;
  return all;
}
const Json& Hello() {
  static const Json kHello = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  return kHello;
}

TEST(ModelTextTest, ReadsTokensTemplateAndVariables) {
  const auto text = ReadWith({{"tokenizer_config.json", R"({"bos_token": "<s>",
    "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": false}, "pad_token": null,
    "unk_token": 3, "chat_template": "config {{bos_token}}"})"}});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(Encode(text, kText), ElementsAre(4, 3, 4, 1, 10, 5, 8, 7, 5, 9, 0, 9, 7));
  EXPECT_EQ(text->variables, Json({{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  EXPECT_TRUE(text->tokenizer->special(10)) << "a named token of the vocabulary is special";
  EXPECT_EQ(Render(text, Hello()), "config <s>");
  EXPECT_TRUE(text->no_chat.ok()) << text->no_chat;
}

TEST(ModelTextTest, TheFileOfATemplateComesFirst) {
  EXPECT_EQ(Render(ReadWith({{"tokenizer_config.json", R"({"bos_token": "<s>",
                               "chat_template": "config"})"},
                             {"chat_template.jinja", "file\r\n{{bos_token}}"}}),
                   Hello()),
            "file\n<s>");
}

TEST(ModelTextTest, ChoosesTheTemplateNamedDefault) {
  const auto render = [](const std::string& list) {
    return Render(ReadWith({{"tokenizer_config.json", R"({"chat_template": )" + list + "}"}}),
                  Hello());
  };
  EXPECT_EQ(render(R"([{"name": "x", "template": "X"}, {"name": "default", "template": "D"}])"),
            "D");
  EXPECT_THAT(render(R"([{"name": "x", "template": "X"}, {"name": "y", "template": "Y"}])"),
              HasSubstr("default, only x, y"));
  EXPECT_THAT(render(R"([{"name": "x"}])"), HasSubstr("\"template\""));
  EXPECT_THAT(render("7"), HasSubstr("neither a text nor"));
  EXPECT_THAT(render("[]"), HasSubstr("neither a text nor"));
  EXPECT_THAT(render("null"), HasSubstr("neither chat_template.jinja nor"));
  EXPECT_THAT(render(R"("{% for %}")"), HasSubstr("tokenizer_config.json: chat_template: "));
  EXPECT_THAT(render(R"("{% for %}")"), HasSubstr("FAILED_PRECONDITION"));
}

TEST(ModelTextTest, AChatWithToolsHasTheTemplateNamedToolUse) {
  const auto read = [](const std::string& list) {
    return ReadWith({{"tokenizer_config.json", R"({"chat_template": )" + list + "}"}});
  };
  const auto both = read(R"([{"name": "tool_use", "template": "T"},
                             {"name": "default", "template": "D"}])");
  Json tools = Hello();
  tools["tools"] = Json::array();
  EXPECT_EQ(Render(both, Hello()), "D");
  EXPECT_EQ(Render(both, tools), "T");
  tools["tools"] = nullptr;
  EXPECT_EQ(Render(both, tools), "D");
  tools["tools"] = Json::array({"x"});
  EXPECT_EQ(Render(read(R"([{"name": "default", "template": "D{{tools[0]}}"}])"), tools), "Dx");
  const auto broken = read(R"([{"name": "default", "template": "D"},
                               {"name": "tool_use", "template": "{{"}])");
  EXPECT_EQ(Render(broken, Hello()), "D");
  EXPECT_THAT(Render(broken, tools), HasSubstr("chat_template tool_use"));
  const auto only = read(R"([{"name": "tool_use", "template": "T"}])");
  EXPECT_EQ(Render(only, tools), "T");
  EXPECT_THAT(Render(only, Hello()), HasSubstr("default, only tool_use"));
}

TEST(ModelTextTest, WithoutAddedTokensTheMapOfSpecialOnesOverrides) {
  const char map[] = R"({"bos_token": "<s>", "unk_token": {"content": "</s>"}})";
  const auto text = ReadWith({{"tokenizer_config.json", R"({"bos_token": "b", "eos_token": "a"})"},
                              {"special_tokens_map.json", map}});
  EXPECT_THAT(Encode(text, kText), ElementsAre(4, 0, 0, 4, 1, 10, 5, 8, 7, 5, 9, 0, 9, 7));
  EXPECT_EQ(text->variables,
            Json({{"bos_token", "<s>"}, {"eos_token", "a"}, {"unk_token", "</s>"}}));
}

TEST(ModelTextTest, AddsTheTokensThatTheConfigurationLists) {
  const auto text =
      ReadWith({{"tokenizer_config.json", std::string(R"({"bos_token": "<s>", )") + kAdded + "}"},
                {"special_tokens_map.json", R"({"eos_token": "</s>"})"}});
  EXPECT_THAT(Encode(text, "aa<s>b<e><|a|> a"), ElementsAre(4, 3, 4, 1, 11, 12, 0));
  EXPECT_EQ(text->variables, Json({{"bos_token", "<s>"}})) << "the map is an older file";
}

TEST(ModelTextTest, AddsTheTokensOfAFileOfTheirOwn) {
  const auto text = ReadWith({{"tokenizer_config.json", R"({"eos_token": "<e>"})"},
                              {"added_tokens.json", R"({"<e>": 11, "<|a|>": 12})"}});
  EXPECT_THAT(Encode(text, "aa<s>b<e><|a|> a"), ElementsAre(4, 3, 4, 1, 11, 12, 2, 0));
  EXPECT_TRUE(text->tokenizer->special(11)) << "it is named";
  EXPECT_FALSE(text->tokenizer->special(12));
}

TEST(ModelTextTest, NamesTheFileThatIsWrong) {
  const auto refusal = [](Folder folder) {
    return ReadWith(std::move(folder)).status().ToString();
  };
  EXPECT_THAT(refusal({{"tokenizer.json", "{}"}}), HasSubstr("INVALID_ARGUMENT: tokenizer.json"));
  EXPECT_THAT(refusal({{"tokenizer.json", R"({"model": {"type": "WordLevel"}})"}}),
              HasSubstr("UNIMPLEMENTED: tokenizer.json"));
  EXPECT_THAT(refusal({{"tokenizer.json", R"({"model": {"type": "Unigram"}})"}}),
              HasSubstr("INVALID_ARGUMENT: tokenizer.json: model lacks \"vocab\""));
  EXPECT_THAT(refusal({{"tokenizer_config.json", "["}}), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(refusal({{"tokenizer_config.json", "[]"}}), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(refusal({{"special_tokens_map.json", "7"}}), HasSubstr("special_tokens_map.json"));
  EXPECT_THAT(refusal({{"added_tokens.json", R"({"<e>": "11"})"}}),
              HasSubstr("added_tokens.json: the id of \"<e>\" is no integer"));
  EXPECT_THAT(refusal({{"added_tokens.json", R"({"<e>": -1})"}}), HasSubstr("is -1"));
  EXPECT_THAT(refusal({{"added_tokens.json", R"({"": 11})"}}), HasSubstr("no text"));
  EXPECT_THAT(refusal({{"added_tokens.json", R"({"aa": 11})"}}),
              HasSubstr("has the id 11, and in the vocabulary 3"));
  const auto listed = [&](const std::string& token) {
    return refusal({{"tokenizer_config.json", R"({"added_tokens_decoder": )" + token + "}"}});
  };
  EXPECT_THAT(listed("[]"), HasSubstr("added_tokens_decoder is no object"));
  EXPECT_THAT(listed(R"({"x": {"content": "q"}})"), HasSubstr("[\"x\"]: the key is no id"));
  EXPECT_THAT(listed(R"({"11": {}})"), HasSubstr("lacks \"content\""));
  EXPECT_THAT(listed(R"({"99999999999": {"content": "q"}})"), HasSubstr("99999999999"));
  EXPECT_THAT(Read({{"tokenizer.model", "x"}}).status().ToString(),
              HasSubstr("INVALID_ARGUMENT: tokenizer.model"));
}

// Changed files are refused with a right code, or make a text that encodes and renders.
TEST(ModelTextTest, ChangedFilesDoNoHarm) {
  const Folder files = {
      {"tokenizer_config.json",
       std::string(R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": [
                       {"name": "default", "template": "{{messages[0].content}}"}], )") +
           kAdded + "}"},
      {"special_tokens_map.json", R"({"pad_token": "a", "unk_token": {"content": "</s>"}})"},
      {"added_tokens.json", R"({"<e>": 11, "<|a|>": 12})"}};
  std::mt19937 random(1);
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    Folder changed = files;
    for (auto& [path, text] : changed) {
      for (auto n = random() % 3; n > 0; --n) {
        text[random() % text.size()] = R"("{}[],:0129anr<>\)"[random() % 17];
      }
    }
    if (random() % 2 == 0) changed.erase("tokenizer_config.json");
    const auto text = ReadWith(changed);
    if (!text.ok()) {
      const absl::StatusCode code = text.status().code();
      EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument ||
                  code == absl::StatusCode::kUnimplemented)
          << text.status();
      continue;
    }
    ++read;
    Encode(text, kText);
    Render(text, Hello());
  }
  EXPECT_GT(read, 100);
}

TEST(ModelTextTest, WithoutAVocabularyPromptsAreTokens) {
  const auto text = Read({{"config.json", "{}"}});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->tokenizer, nullptr);
  EXPECT_FALSE(text->chat.has_value());
  EXPECT_THAT(Render(text, Hello()), HasSubstr("FAILED_PRECONDITION: the model has no chat"));
}

std::string SmallModel() {
  sentencepiece::Model model;
  const std::pair<const char*, sentencepiece::Piece::Type> pieces[] = {
      {"<unk>", sentencepiece::Piece::UNKNOWN},
      {"<s>", sentencepiece::Piece::CONTROL},
      {"</s>", sentencepiece::Piece::CONTROL},
      {"a", sentencepiece::Piece::NORMAL},
      {"\xE2\x96\x81", sentencepiece::Piece::NORMAL}};
  for (const auto& [text, type] : pieces) {
    sentencepiece::Piece* piece = model.add_pieces();
    piece->set_piece(text);
    piece->set_score(0);
    piece->set_type(type);
  }
  model.mutable_trainer_spec()->set_model_type(sentencepiece::Trainer::BPE);
  model.mutable_normalizer_spec()->set_remove_extra_whitespaces(false);
  return model.SerializeAsString();
}

TEST(ModelTextTest, ReadsSentencePieceWithWhatLiesBesideIt) {
  auto text = Read({{"tokenizer.model", SmallModel()}});
  EXPECT_THAT(Encode(text, "a"), ElementsAre(1, 4, 3));
  EXPECT_EQ(text->variables,
            Json({{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}));
  text = Read({{"tokenizer.model", SmallModel()},
               {"added_tokens.json", R"({"<|im_end|>": 5})"},
               {"tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true,
                                             "eos_token": "<|im_end|>", "unk_token": null})"}});
  EXPECT_THAT(Encode(text, "a<|im_end|>"), ElementsAre(4, 3, 5, 5));
  EXPECT_EQ(text->variables, Json({{"eos_token", "<|im_end|>"}, {"bos_token", "<s>"}}));
  EXPECT_THAT(Read({{"tokenizer.model", SmallModel()},
                    {"tokenizer_config.json", R"({"add_eos_token": true, "eos_token": "q"})"}})
                  .status()
                  .ToString(),
              HasSubstr("add_eos_token wants the eos_token \"q\""));
  EXPECT_THAT(Encode(ReadWith({{"tokenizer.model", SmallModel()}}), "aa"), ElementsAre(4, 3))
      << "tokenizer.json comes first";
}

checkpoint::GgufWriter SmallGguf() {
  checkpoint::GgufWriter writer;
  writer.Key("tokenizer.ggml.model", "gpt2");
  writer.Key("tokenizer.ggml.pre", "smollm");
  writer.Key("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<e>"});
  writer.Key("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  writer.Key("tokenizer.ggml.eos_token_id", uint32_t{3});
  writer.Key("tokenizer.ggml.padding_token_id", uint32_t{1});
  return writer;
}

TEST(ModelTextTest, ReadsTheHeadOfAGgufFile) {
  checkpoint::GgufWriter writer = SmallGguf();
  writer.Key("tokenizer.chat_template", "{{messages[0].content}}{{eos_token}}");
  writer.Tensor("weight", {1 << 20}, 0, std::string(64, 'x'));
  const auto text = Read({{"model.gguf", writer.File().substr(0, writer.Head().size() + 64)}});
  EXPECT_THAT(Encode(text, "ab"), ElementsAre(2));
  EXPECT_EQ(text->variables, Json({{"eos_token", "<e>"}, {"pad_token", "b"}}));
  EXPECT_EQ(Render(text, Hello()), "a<e>");
}

TEST(ModelTextTest, NamesTheGgufFileThatIsWrong) {
  const auto read = [](const checkpoint::GgufWriter& writer) {
    const auto text = Read({{"model.gguf", writer.File()}});
    return text.ok() ? std::string(text->no_chat.message()) : text.status().ToString();
  };
  EXPECT_THAT(read(SmallGguf()), HasSubstr("model.gguf has no key tokenizer.chat_template"));
  checkpoint::GgufWriter writer = SmallGguf();
  writer.Key("tokenizer.chat_template", "{% for %}");
  EXPECT_THAT(read(writer), HasSubstr("model.gguf: tokenizer.chat_template: "));
  writer.Key("tokenizer.ggml.bos_token_id", uint32_t{4});
  EXPECT_THAT(read(writer), HasSubstr("tokenizer.ggml.bos_token_id is 4, of 4 tokens"));
  EXPECT_THAT(Read({{"model.gguf", "GGUX"}}).status().ToString(), HasSubstr("model.gguf: "));
  checkpoint::GgufWriter unknown;
  unknown.Key("tokenizer.ggml.model", "rwkv");
  EXPECT_THAT(read(unknown), HasSubstr("UNIMPLEMENTED: model.gguf: tokenizer.ggml.model \"rwkv\""));
}

// Weights for tests of plans: they name their tokens, and nothing says how text becomes them.
TEST(ModelTextTest, TinyCheckpointsHaveNoText) {
  for (const char* name : {"llama", "llama3", "phi3", "qwen2", "qwen3"}) {
    std::ifstream file(std::string("tests/tokens/testdata/") + name + "/model.gguf",
                       std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(bytes.empty()) << name;
    const auto text = Read({{"model.gguf", bytes}});
    ASSERT_TRUE(text.ok()) << name << ": " << text.status();
    EXPECT_EQ(text->tokenizer, nullptr) << name;
    EXPECT_FALSE(text->no_chat.ok()) << name;
  }
}

absl::StatusOr<ModelText> WithTemplate(const char* source) {
  return Read({{"chat_template.jinja", source}});
}
Json Turns(Json last, Json more) {
  Json request = {{"messages",
                   {{{"role", "user"}, {"content", "a"}, {"calls", nullptr}},
                    {{"role", "assistant"}, {"content", std::move(last)}}}}};
  request.update(more);
  return request;
}

TEST(RenderChatTest, GivesTheTemplateWhatTransformersDoes) {
  const auto text = WithTemplate(
      "{% for m in messages %}<{{m.role}}>{{m.calls}}{{m.content|trim}}</s>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}{{tools is none}}{{documents is none}}"
      "{{continue_final_message}}{{extra}}");
  EXPECT_EQ(Render(text, Turns(" b ", {{"extra", "x"}})),
            "<user>a</s><assistant>b</s><assistant>TrueTruex");
  EXPECT_EQ(Render(text, Turns("b", {{"add_generation_prompt", false},
                                     {"continue_final_message", false},
                                     {"tools", Json::array()}})),
            "<user>a</s><assistant>b</s>FalseTrue");
  EXPECT_EQ(Render(text, Turns(nullptr, {{"add_generation_prompt", false}})),
            "<user>a</s><assistant></s>TrueTrue");
  const auto parts = RenderChat(*text, Turns("</s>", Json::object()));
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT(*parts, testing::Contains(Part{"</s>", false})) << "a user's text is no token";
}

TEST(RenderChatTest, GoesOnWithTheLastMessage) {
  const Json go = {{"continue_final_message", true}};
  const auto trims =
      WithTemplate("{% for m in messages %}<{{m.role}}>{{m.content|trim}}</s>{% endfor %}");
  EXPECT_EQ(Render(trims, Turns(" b ", go)), "<user>a</s><assistant>b");
  EXPECT_EQ(Render(trims, Turns("", go)), "<user>a</s><assistant>");
  const auto keeps =
      WithTemplate("{% for m in messages %}<{{m.role}}>{{m.content}}</s>{% endfor %}");
  EXPECT_EQ(Render(keeps, Turns(" b ", go)), "<user>a</s><assistant> b ");
  const auto blocks = WithTemplate("{% for c in messages[-1].content %}{{c.text}},{% endfor %}");
  EXPECT_EQ(Render(blocks, Turns({{{"text", "x"}}, {{"text", "y"}}, {{"type", "image"}}}, go)),
            "x,y");
  EXPECT_THAT(Render(WithTemplate("{{messages[0].content}}"), Turns("b", go)),
              HasSubstr("leaves out the last message"));
  EXPECT_THAT(Render(keeps, Turns(nullptr, go)), HasSubstr("has no text"));
  EXPECT_THAT(Render(keeps, Turns("b", {{"continue_final_message", 1}})),
              HasSubstr("neither true nor false"));
  EXPECT_THAT(Render(keeps, Turns("b", {{"continue_final_message", true},
                                        {"add_generation_prompt", true}})),
              HasSubstr("ask for one of them"));
}

TEST(RenderChatTest, RefusesWhatAreNoMessages) {
  const auto text = WithTemplate("x");
  EXPECT_THAT(Render(text, Json::array()), HasSubstr("no JSON object"));
  EXPECT_THAT(Render(text, Json::object()), HasSubstr("messages is no list"));
  EXPECT_THAT(Render(text, {{"messages", Json::array()}}), HasSubstr("messages is no list"));
  EXPECT_THAT(Render(text, {{"messages", {1}}}), HasSubstr("no object"));
  EXPECT_THAT(Render(WithTemplate("{{raise_exception('no')}}"), Hello()),
              HasSubstr("INVALID_ARGUMENT"));
}

// All bytes, then "hi".
std::string Ranks() {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    ranks += absl::Base64Escape(std::string(1, static_cast<char>(byte))) + " " +
             std::to_string(byte) + "\n";
  }
  return ranks + "aGk= 256\n";
}

TEST(ModelTextTest, ReadsRanks) {
  const std::string config = R"({"model_type": "qwen2"})";
  const std::string listed = R"({"eos_token": "<e>", "added_tokens_decoder": {
      "300": {"content": "<e>", "special": true}}})";
  for (const char* file : {"qwen.tiktoken", "tokenizer.model"}) {
    EXPECT_THAT(Encode(Read({{"config.json", config}, {file, Ranks()}}), "hi<|im_end|>"),
                ElementsAre(256, 259));
    const auto text =
        Read({{"config.json", config}, {file, Ranks()}, {"tokenizer_config.json", listed}});
    EXPECT_THAT(Encode(text, "<e>hi"), ElementsAre(300, 256));
    EXPECT_EQ(text->variables["eos_token"], "<e>");
    EXPECT_THAT(Read({{file, Ranks()}}).status().ToString(),
                AllOf(HasSubstr(file), HasSubstr("model_type")));
  }
}

TEST(ModelTextTest, ReadsTekken) {
  Json tekken = {
      {"config",
       {{"pattern", "\\p{L}+"}, {"default_vocab_size", 277}, {"default_num_special_tokens", 20}}},
      {"vocab", Json::array()}};
  for (int rank = 0; rank < 257; ++rank) {
    const std::string bytes = rank < 256 ? std::string(1, static_cast<char>(rank)) : "hi";
    tekken["vocab"].push_back({{"rank", rank}, {"token_bytes", absl::Base64Escape(bytes)}});
  }
  const auto text =
      Read({{"config.json", R"({"model_type": "mistral"})"}, {"tekken.json", tekken.dump()}});
  EXPECT_THAT(Encode(text, "[INST]hi"), ElementsAre(1, 3, 276));
  EXPECT_EQ(text->variables["eos_token"], "</s>");
  EXPECT_THAT(Read({{"tekken.json", "{}"}}).status().ToString(), HasSubstr("tekken.json"));
}

}  // namespace
}  // namespace athanor
