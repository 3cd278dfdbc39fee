#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/sentencepiece/sentencepiece_model.pb.h"
#include "server/text/files/tokenizer_json.h"
#include "server/text/files/vocabulary.h"
#include "server/text/tokens/tokenizer.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kJson = R"({
  "version": "1.0",
  "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"},
    {"type": "Replace", "pattern": {"String": "x"}, "content": "a"}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\s+|b"}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
  "post_processor": {"type": "TemplateProcessing", "pair": [], "single": [
    {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "aa": 3}, "merges": ["a a"]}})";

absl::StatusOr<std::vector<int32_t>> EncodeBy(const absl::StatusOr<TokenizerData>& data,
                                              const Part& part) {
  if (!data.ok()) return data.status();
  const auto tokenizer = Tokenizer::Create(*data);
  if (!tokenizer.ok()) return tokenizer.status();
  std::vector<int32_t> ids;
  const absl::Status status = (*tokenizer)->Encode({&part, 1}, true, &ids);
  if (!status.ok()) return status;
  return ids;
}

TEST(TokenizerJsonTest, ReadsEachPart) {
  const auto ids = EncodeBy(ReadTokenizerJson(kJson, ""), {"xaxb a<s>", true});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(4, 3, 0, 1, 2, 0, 4));
}

TEST(TokenizerJsonTest, ReadsUnigram) {
  const auto read = [](const std::string& vocabulary, const std::string& more) {
    return ReadTokenizerJson(
        R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
            "pre_tokenizer": {"type": "Metaspace", "replacement": "_"},
            "decoder": {"type": "Metaspace", "replacement": "_"},
            "model": {"type": "Unigram", "vocab": )" +
            vocabulary + more + "}}",
        "");
  };
  const std::string right = R"([["<unk>", 0], ["_a", -2], ["b", -3], ["_", -3], ["ab", -5.5]])";
  const auto data = read(right, R"(, "unk_id": 0)");
  const auto ids = EncodeBy(data, {"ab xyb", false});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 2, 3, 0, 2));
  EXPECT_DOUBLE_EQ(data->unk_score, -15.5);
  // Scores as serde_json reads them, in Python: float(10413266654746877) / 10.0**15.
  const auto scores = read(R"([["a", -10.413266654746877], ["b", -9.222574290196015], ["c", 1e2],
                               ["d", -1.5e-7], ["e", 0], ["f", -20]])",
                           "")
                          ->scores;
  EXPECT_THAT(scores, ElementsAre(-10.413266654746876, -9.222574290196016, 100, -1.5e-7, 0, -20));
  const auto refusal = [&](const std::string& vocabulary, const std::string& more) {
    return read(vocabulary, more).status().ToString();
  };
  EXPECT_THAT(refusal(right, R"(, "unk_id": 5)"), HasSubstr("unk_id is 5, of 5"));
  EXPECT_THAT(refusal(right, R"(, "unk_id": -2)"), HasSubstr("unk_id is -2"));
  EXPECT_THAT(refusal(right, R"(, "shiny": 1)"), HasSubstr("shiny"));
  EXPECT_THAT(refusal("{}", ""), HasSubstr("no list"));
  EXPECT_THAT(refusal(R"([["a", 0], ["b"]])", ""), HasSubstr("model.vocab[1]"));
  EXPECT_THAT(refusal(R"([["a", "0"]])", ""), HasSubstr("model.vocab[0]"));
  EXPECT_FALSE(EncodeBy(read("[]", ""), {""}).ok());
}

TEST(TokenizerJsonTest, ConfigReplacesEndsOfSomeClasses) {
  const auto begin = [](std::string_view config) {
    const auto data = ReadTokenizerJson(kJson, config);
    return data.ok() ? data->begin : std::vector<int32_t>{-1};
  };
  EXPECT_THAT(begin(R"({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false})"),
              ElementsAre());
  EXPECT_THAT(begin(R"({"tokenizer_class": "Other", "add_bos_token": false})"), ElementsAre(4));
  EXPECT_THAT(begin(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true,
                        "bos_token": {"content": "a"}})"),
              ElementsAre(0));
  EXPECT_THAT(begin(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})"),
              ElementsAre(-1));
}

// Every cut and many changes of the file are refused with a right code, or make a tokenizer that
// encodes.
TEST(TokenizerJsonTest, ChangedFilesDoNoHarm) {
  std::mt19937 random(1);
  int read = 0;
  for (size_t i = 0; i < kJson.size() + 3000; ++i) {
    std::string json(kJson);
    if (i < kJson.size()) {
      json.resize(i);
    } else {
      for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
        json[random() % json.size()] = R"("{}[],:0129aĠ\ntx+*()<>)"[random() % 24];
      }
    }
    const auto ids = EncodeBy(ReadTokenizerJson(json, ""), {"xaxb a<s>\xC3\xA9", i % 2 == 0});
    if (ids.ok()) {
      ++read;
      continue;
    }
    const absl::StatusCode code = ids.status().code();
    EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument ||
                code == absl::StatusCode::kUnimplemented)
        << ids.status();
  }
  EXPECT_GT(read, 10);
}

TEST(TokenizerJsonTest, RefusesDeepFiles) {
  EXPECT_EQ(ReadTokenizerJson(std::string(1'000'000, '['), "").status().code(),
            absl::StatusCode::kResourceExhausted);
}

sentencepiece::Model SmallModel() {
  sentencepiece::Model model;
  const auto add = [&](const char* text, float score, sentencepiece::Piece::Type type) {
    sentencepiece::Piece* piece = model.add_pieces();
    piece->set_piece(text);
    piece->set_score(score);
    piece->set_type(type);
  };
  add("<unk>", 0, sentencepiece::Piece::UNKNOWN);
  add("<s>", 0, sentencepiece::Piece::CONTROL);
  add("</s>", 0, sentencepiece::Piece::CONTROL);
  add("ab", -1, sentencepiece::Piece::NORMAL);
  add("ba", 0, sentencepiece::Piece::NORMAL);
  add("a", -9, sentencepiece::Piece::NORMAL);
  add("b", -9, sentencepiece::Piece::NORMAL);
  add("\xE2\x96\x81", -9, sentencepiece::Piece::NORMAL);
  model.mutable_trainer_spec()->set_model_type(sentencepiece::Trainer::BPE);
  model.mutable_normalizer_spec()->set_remove_extra_whitespaces(false);
  return model;
}

TEST(SentencePieceTest, MergesByScore) {
  const auto ids = EncodeBy(ReadSentencePiece(SmallModel().SerializeAsString()), {"abab cd"});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 7, 5, 4, 6, 7, 0));
}

TEST(SentencePieceTest, CutsUserDefinedTokensOut) {
  sentencepiece::Model model = SmallModel();
  for (const char* text : {"aba", "\u2581c"}) {
    sentencepiece::Piece* piece = model.add_pieces();
    piece->set_piece(text);
    piece->set_type(sentencepiece::Piece::USER_DEFINED);
  }
  const auto data = ReadSentencePiece(model.SerializeAsString());
  const auto ids = EncodeBy(data, {"ababa c"});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 7, 8, 4, 9));
  EXPECT_EQ((*Tokenizer::Create(*data))->BytesOf(9), " c");
}

TEST(SentencePieceTest, UnigramTakesTheBestSum) {
  sentencepiece::Model model = SmallModel();
  model.mutable_trainer_spec()->clear_model_type();  // the default
  model.mutable_normalizer_spec()->set_remove_extra_whitespaces(true);
  sentencepiece::Piece* piece = model.add_pieces();
  piece->set_piece("b c");  // no text has it: spaces become U+2581 ahead of pieces
  piece->set_type(sentencepiece::Piece::USER_DEFINED);
  piece = model.add_pieces();
  piece->set_piece("a\u2581");
  piece->set_score(5);
  piece->set_type(sentencepiece::Piece::UNUSED);
  const auto data = ReadSentencePiece(model.SerializeAsString());
  const auto ids = EncodeBy(data, {"  abab  cd "});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 7, 3, 3, 7, 0));
  EXPECT_DOUBLE_EQ(data->unk_score, -19);
  EXPECT_THAT(*EncodeBy(data, {"  "}), ElementsAre(1));
  // A user's symbol is better than its parts.
  model.mutable_pieces(8)->set_piece("bab");
  EXPECT_THAT(*EncodeBy(ReadSentencePiece(model.SerializeAsString()), {"xbab"}),
              ElementsAre(1, 7, 0, 8));
}

TEST(SentencePieceTest, RefusesByName) {
  const auto refusal = [](auto change) {
    sentencepiece::Model model = SmallModel();
    change(&model);
    return ReadSentencePiece(model.SerializeAsString()).status().ToString();
  };
  using Model = sentencepiece::Model;
  EXPECT_THAT(refusal([](Model* m) {
                m->mutable_trainer_spec()->set_model_type(sentencepiece::Trainer::WORD);
              }),
              HasSubstr("WORD"));
  EXPECT_THAT(
      refusal([](Model* m) { m->mutable_pieces(3)->set_type(sentencepiece::Piece::UNUSED); }),
      HasSubstr("the unused token 3"));
  EXPECT_THAT(refusal([](Model* m) { m->mutable_pieces(3)->set_piece("az"); }), HasSubstr("\"z\""));
  EXPECT_THAT(refusal([](Model* m) { m->mutable_pieces(3)->set_piece("\xFF"); }),
              HasSubstr("UTF-8"));
  EXPECT_THAT(refusal([](Model* m) { m->mutable_trainer_spec()->set_bos_id(8); }),
              HasSubstr("bos_id"));
  EXPECT_FALSE(ReadSentencePiece("").ok());
  EXPECT_FALSE(ReadSentencePiece("\xFF\xFF").ok());
}

checkpoint::Gguf SmallGguf() {
  checkpoint::Gguf gguf;
  gguf.keys["tokenizer.ggml.model"] = "gpt2";
  gguf.keys["tokenizer.ggml.pre"] = "smollm";
  gguf.keys["tokenizer.ggml.tokens"] = std::vector<std::string>{"a", "b", "1", "11", "<e>", "ab"};
  gguf.keys["tokenizer.ggml.token_type"] = std::vector<int64_t>{1, 1, 1, 1, 3, 1};
  gguf.keys["tokenizer.ggml.merges"] = std::vector<std::string>{"a b", "1 1"};
  gguf.keys["tokenizer.ggml.eos_token_id"] = int64_t{4};
  return gguf;
}

TEST(GgufVocabularyTest, SplitsAsPreSays) {
  const auto ids = EncodeBy(ReadVocabulary(SmallGguf()), {"ab11<e>", true});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(5, 2, 2, 4));
}

// The names' own vocabularies, and ids of 46 texts for each, are compared by hand
// (tests/tokens/README.md).
TEST(GgufVocabularyTest, EachNameSplitsItsWay) {
  const auto ids = [](const char* pre, const std::string& text) {
    checkpoint::Gguf gguf;
    gguf.keys["tokenizer.ggml.model"] = "gpt2";
    gguf.keys["tokenizer.ggml.pre"] = pre;
    gguf.keys["tokenizer.ggml.tokens"] = std::vector<std::string>{"1",
                                                                  "11",
                                                                  "'",
                                                                  "S",
                                                                  "'S",
                                                                  "e",
                                                                  "\xC3\x8C",
                                                                  "\xC4\xA3",
                                                                  "<s>",
                                                                  "ee",
                                                                  "\xC3\x83",
                                                                  "\xC2\xA9",
                                                                  "\xC3\x83\xC2\xA9",
                                                                  "e\xC3\x8C"};
    gguf.keys["tokenizer.ggml.token_type"] =
        std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1};
    gguf.keys["tokenizer.ggml.merges"] =
        std::vector<std::string>{"1 1", "' S", "\xC3\x83 \xC2\xA9", "e \xC3\x8C"};
    gguf.keys["tokenizer.ggml.bos_token_id"] = int64_t{8};
    const auto got = EncodeBy(ReadVocabulary(gguf), {text, false});
    EXPECT_TRUE(got.ok()) << pre << ": " << got.status();
    return got.value_or(std::vector<int32_t>());
  };
  for (const char* pre : {"gpt-2", "mpt"}) EXPECT_THAT(ids(pre, "1111"), ElementsAre(1, 1)) << pre;
  for (const char* pre : {"smollm", "starcoder", "refact", "command-r", "deepseek-coder",
                          "deepseek-llm", "qwen2", "qwen35"}) {
    EXPECT_THAT(ids(pre, "1111"), ElementsAre(0, 0, 0, 0)) << pre;
  }
  for (const char* pre : {"falcon", "deepseek-v3"}) {
    EXPECT_THAT(ids(pre, "1111"), ElementsAre(1, 0, 0)) << pre << ": three stay together";
  }
  EXPECT_THAT(ids("llama-bpe", "1111"), ElementsAre(8, 1, 0, 0)) << "behind the beginning";
  EXPECT_THAT(ids("gpt-2", "e'S"), ElementsAre(5, 2, 3)) << "small letters only";
  EXPECT_THAT(ids("qwen2", "e'S"), ElementsAre(5, 4));
  EXPECT_THAT(ids("gpt-2", "ee"), ElementsAre(5, 5));
  EXPECT_THAT(ids("llama-bpe", "ee"), ElementsAre(8, 9)) << "a word that is a token needs no merge";
  // e and an acute, which are one code point in NFC.
  for (const char* pre : {"mpt", "command-r", "qwen2", "qwen35"}) {
    EXPECT_THAT(ids(pre, "e\xCC\x81"), ElementsAre(12)) << pre;
  }
  EXPECT_THAT(ids("gpt-2", "e\xCC\x81"), ElementsAre(5, 6, 7));
  // A mark that joins no letter.
  EXPECT_THAT(ids("qwen2", "e\xCC\xA1"), ElementsAre(5, 6));
  EXPECT_THAT(ids("qwen35", "e\xCC\xA1"), ElementsAre(13)) << "marks are of words";
}

TEST(GgufVocabularyTest, Gemma4WritesSpacesAsPiecesDo) {
  checkpoint::Gguf gguf;
  gguf.keys["tokenizer.ggml.model"] = "gemma4";
  gguf.keys["tokenizer.ggml.tokens"] =
      std::vector<std::string>{"<unk>", "a", "\u2581", "\u2581a", "<0xC3>", "<0xA9>", "<bos>"};
  gguf.keys["tokenizer.ggml.token_type"] = std::vector<int64_t>{2, 1, 1, 1, 6, 6, 3};
  gguf.keys["tokenizer.ggml.merges"] = std::vector<std::string>{"\u2581 a"};
  gguf.keys["tokenizer.ggml.unknown_token_id"] = int64_t{0};
  gguf.keys["tokenizer.ggml.bos_token_id"] = int64_t{6};
  gguf.keys["tokenizer.ggml.add_bos_token"] = true;
  const auto data = ReadVocabulary(gguf);
  const auto ids = EncodeBy(data, {"a a\xC3\xA9zz"});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(6, 1, 3, 4, 5, 0));
  EXPECT_EQ((*Tokenizer::Create(*data))->BytesOf(3), " a");
}

TEST(GgufVocabularyTest, TheKeySaysWhichOfSeveralIsUnknown) {
  checkpoint::Gguf gguf;
  gguf.keys["tokenizer.ggml.model"] = "llama";
  gguf.keys["tokenizer.ggml.tokens"] =
      std::vector<std::string>{"<pad>", "<unk>", "a", "\xE2\x96\x81", "<s>"};
  gguf.keys["tokenizer.ggml.scores"] = std::vector<double>{0, 0, 0, 0, 0};
  gguf.keys["tokenizer.ggml.token_type"] = std::vector<int64_t>{2, 2, 1, 1, 3};
  gguf.keys["tokenizer.ggml.bos_token_id"] = int64_t{4};
  EXPECT_THAT(ReadVocabulary(gguf).status().ToString(), HasSubstr("two unknown tokens"));
  gguf.keys["tokenizer.ggml.unknown_token_id"] = int64_t{1};
  const auto ids = EncodeBy(ReadVocabulary(gguf), {"az<pad>", false});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(4, 3, 2, 1, 2, 1));
  gguf.keys["tokenizer.ggml.unknown_token_id"] = int64_t{5};
  EXPECT_THAT(ReadVocabulary(gguf).status().ToString(), HasSubstr("unknown_token_id is 5, of 5"));
}

TEST(GgufVocabularyTest, T5IsUnigram) {
  checkpoint::Gguf gguf;
  gguf.keys["tokenizer.ggml.model"] = "t5";
  gguf.keys["tokenizer.ggml.tokens"] =
      std::vector<std::string>{"<pad>", "</s>", "<unk>", "\u2581", "a", "\u2581ab", "b"};
  gguf.keys["tokenizer.ggml.scores"] = std::vector<double>{0, 0, 0, -2, -3, -4, -3};
  gguf.keys["tokenizer.ggml.token_type"] = std::vector<int64_t>{3, 3, 2, 1, 1, 1, 1};
  gguf.keys["tokenizer.ggml.eos_token_id"] = int64_t{1};
  gguf.keys["tokenizer.ggml.unknown_token_id"] = int64_t{2};
  gguf.keys["tokenizer.ggml.remove_extra_whitespaces"] = true;
  const auto ids = EncodeBy(ReadVocabulary(gguf), {" ab  aby ", false});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(5, 5, 2, 1));
  gguf.keys["tokenizer.ggml.precompiled_charsmap"] = std::vector<int64_t>{4, 0, 0};
  EXPECT_THAT(EncodeBy(ReadVocabulary(gguf), {"a"}).status().ToString(), HasSubstr("charsmap"));
}

TEST(GgufVocabularyTest, RefusesByName) {
  const auto refusal = [](const char* key, checkpoint::GgufValue value) {
    checkpoint::Gguf gguf = SmallGguf();
    gguf.keys[std::string("tokenizer.ggml.") + key] = std::move(value);
    return ReadVocabulary(gguf).status().ToString();
  };
  EXPECT_THAT(refusal("model", "rwkv"), HasSubstr("rwkv"));
  EXPECT_THAT(refusal("pre", "grok"), HasSubstr("grok"));
  EXPECT_THAT(refusal("pre", int64_t{1}), HasSubstr("tokenizer.ggml.pre"));
  EXPECT_THAT(refusal("token_type", std::vector<int64_t>{1}), HasSubstr("token_type"));
  EXPECT_THAT(refusal("token_type", std::vector<int64_t>{1, 1, 1, 1, 9, 1}), HasSubstr("value 9"));
  EXPECT_THAT(refusal("merges", std::vector<std::string>{"a z"}), HasSubstr("merges[0]"));
  EXPECT_THAT(refusal("merges", std::vector<std::string>{""}), HasSubstr("merges[0]"));
  EXPECT_THAT(refusal("add_bos_token", true), HasSubstr("bos_token_id"));
}

}  // namespace
}  // namespace athanor
