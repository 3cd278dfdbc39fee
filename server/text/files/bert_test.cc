// How files of BERT's tokenizers are read: tokenizer.json, vocab.txt, GGUF. Expected ids are those
// of HF's tokenizers 0.23.3.
#include "server/text/files/bert.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/checkpoint/files/gguf.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/files/tokenizer_json.h"
#include "server/text/files/vocabulary.h"
#include "server/text/model_text.h"
#include "server/text/tokens/tokenizer.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr std::string_view kJson = R"({
  "version": "1.0", "truncation": {"max_length": 2, "stride": 0, "strategy": "LongestFirst"},
  "padding": {"strategy": {"Fixed": 8}, "pad_id": 0},
  "added_tokens": [{"id": 1, "content": "[CLS]", "special": true, "normalized": false},
                   {"id": 2, "content": "[SEP]", "special": true, "normalized": false}],
  "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                 "strip_accents": null, "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
  "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 4, "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3,
            "##b": 4, ".": 5, "A": 6, "é": 7}}})";

std::string With(std::string json, std::string_view from, std::string_view to) {
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? json : json.replace(at, from.size(), to);
}
std::string JsonWith(std::string_view from, std::string_view to) {
  return With(std::string(kJson), from, to);
}

absl::StatusOr<Ids> EncodeBy(const absl::StatusOr<TokenizerData>& data, const std::string& text) {
  if (!data.ok()) return data.status();
  const auto tokenizer = Tokenizer::Create(*data);
  if (!tokenizer.ok()) return tokenizer.status();
  Ids ids;
  const Part part = {text, true};
  const absl::Status status = (*tokenizer)->Encode({&part, 1}, true, &ids);
  if (!status.ok()) return status;
  return ids;
}

TEST(BertJsonTest, ReadsEachPart) {
  const auto ids = EncodeBy(ReadTokenizerJson(kJson, ""), "Ab. \u00c1bb\u00e9 ABBBB[SEP]a\u4e2da");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 3, 4, 5, 0, 0, 2, 3, 0, 3, 2)) << "nothing is cut or filled up";
  const std::string roberta = JsonWith(R"("BertProcessing")", R"("RobertaProcessing",
      "trim_offsets": true, "add_prefix_space": false)");
  EXPECT_THAT(*EncodeBy(ReadTokenizerJson(roberta, ""), "a"), ElementsAre(1, 3, 2));
  const std::string untyped = JsonWith(R"("type": "WordPiece", "unk)", R"("unk)");
  EXPECT_THAT(*EncodeBy(ReadTokenizerJson(untyped, ""), "ab"), ElementsAre(1, 3, 4, 2));
}

TEST(BertJsonTest, AccentsGoWithTheCase) {
  const auto ids = [](std::string_view options) {
    return *EncodeBy(
        ReadTokenizerJson(JsonWith(R"("strip_accents": null, "lowercase": true)", options), ""),
        "A\u00c1");
  };
  EXPECT_THAT(ids(R"("strip_accents": null, "lowercase": false)"), ElementsAre(1, 0, 2));
  const auto accent = [](std::string_view options) {
    return *EncodeBy(
        ReadTokenizerJson(JsonWith(R"("strip_accents": null, "lowercase": true)", options), ""),
        "\u00c9");
  };
  EXPECT_THAT(accent(R"("strip_accents": false, "lowercase": true)"), ElementsAre(1, 7, 2));
  EXPECT_THAT(accent(R"("lowercase": true)"), ElementsAre(1, 0, 2)) << "e is no piece";
}

TEST(BertJsonTest, TheConfigurationOfItsClassOverrides) {
  const auto ids = [](const std::string& config) {
    return EncodeBy(ReadTokenizerJson(kJson, config), "A\u00e9 A");
  };
  EXPECT_THAT(*ids(""), ElementsAre(1, 0, 3, 2));
  EXPECT_THAT(*ids(R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})"),
              ElementsAre(1, 0, 6, 2));
  EXPECT_THAT(*ids(R"({"tokenizer_class": "Other", "do_lower_case": false})"),
              ElementsAre(1, 0, 3, 2));
  const auto single = [](const std::string& config) {
    return EncodeBy(ReadTokenizerJson(kJson, config), "\u00c9");
  };
  EXPECT_THAT(*single(R"({"tokenizer_class": "BertTokenizerFast", "strip_accents": false})"),
              ElementsAre(1, 7, 2));
  EXPECT_THAT(*single(R"({"tokenizer_class": "BertTokenizer", "strip_accents": null})"),
              ElementsAre(1, 0, 2));
  EXPECT_THAT(
      ids(R"({"tokenizer_class": "BertTokenizer", "do_lower_case": 1})").status().ToString(),
      HasSubstr("do_lower_case is neither true nor false"));
}

TEST(BertJsonTest, WithoutADecoderSpacesAreBetweenTokens) {
  const auto data = ReadTokenizerJson(
      JsonWith(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})", "null"), "");
  ASSERT_TRUE(data.ok()) << data.status();
  const auto tokenizer = Tokenizer::Create(*data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->FirstBytesOf(4), "##b");
  EXPECT_EQ((*tokenizer)->BytesOf(4), " ##b");
}

TEST(BertJsonTest, RefusesByName) {
  const auto refusal = [](std::string_view from, std::string_view to) {
    return EncodeBy(ReadTokenizerJson(JsonWith(from, to), ""), "a").status().ToString();
  };
  EXPECT_THAT(refusal(R"("unk_token": "[UNK]")", R"("unk_token": "<unk>")"), HasSubstr("<unk>"));
  EXPECT_THAT(refusal(R"("unk_token": "[UNK]",)", ""), HasSubstr("unk_token"));
  EXPECT_THAT(refusal(R"(per_word": 4)", R"(per_word": -1)"), HasSubstr("per_word is -1"));
  EXPECT_THAT(refusal(R"(per_word": 4)", R"(per_word": 4.5)"), HasSubstr("max_input_chars"));
  EXPECT_THAT(refusal(R"(["[CLS]", 1])", R"(["[CLS]"])"), HasSubstr("post_processor.cls"));
  EXPECT_THAT(refusal(R"(["[CLS]", 1])", R"(["[CLS]", 77])"), HasSubstr("77"));
  EXPECT_THAT(refusal(R"("lowercase": true)", R"("lowercase": "yes")"), HasSubstr("lowercase"));
  EXPECT_THAT(refusal(R"("lowercase": true)", R"("lowercase": true, "shiny": 1)"),
              HasSubstr("shiny"));
  EXPECT_THAT(refusal(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})",
                      R"({"type": "Sequence", "decoders": [
                           {"type": "WordPiece", "prefix": "##", "cleanup": true},
                           {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})"),
              HasSubstr("Strip behind WordPiece"));
}

// Every cut and many changes of the file are refused with a right code, or make a tokenizer that
// encodes.
TEST(BertJsonTest, ChangedFilesDoNoHarm) {
  std::mt19937 random(1);
  int read = 0;
  for (size_t i = 0; i < kJson.size() + 3000; ++i) {
    std::string json(kJson);
    if (i < kJson.size()) {
      json.resize(i);
    } else {
      for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
        json[random() % json.size()] = R"("{}[],:0129a#\ntx+*()<>)"[random() % 23];
      }
    }
    const auto ids = EncodeBy(ReadTokenizerJson(json, ""), "Ab. [SEP]\u00e9");
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

absl::StatusOr<ModelText> ReadFolder(const std::string& list, const std::string& config,
                                     const std::string& model = "{}") {
  const TextFile files[] = {
      {"vocab.txt", list}, {"tokenizer_config.json", config}, {"config.json", model}};
  return ReadModelText(files);
}

absl::StatusOr<Ids> EncodeFolder(const absl::StatusOr<ModelText>& text, const std::string& prompt) {
  if (!text.ok()) return text.status();
  Ids ids;
  const absl::Status status = text->tokenizer->Encode({{prompt, true}}, true, &ids);
  if (!status.ok()) return status;
  return ids;
}

constexpr char kList[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n\nA\na\n";
constexpr char kBert[] = R"({"tokenizer_class": "BertTokenizer"})";

TEST(WordListTest, ReadsAPieceALine) {
  const auto text = ReadFolder(kList, kBert);
  const auto ids = EncodeFolder(text, "Ab[MASK] a[unk]");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(2, 9, 6, 4, 9, 1, 1, 1, 3)) << "of equal lines the last counts";
  EXPECT_EQ(text->tokenizer->size(), 10);
  EXPECT_EQ(text->tokenizer->BytesOf(7), "") << "an empty line is no token";
  EXPECT_EQ(text->variables["mask_token"], "[MASK]");
  EXPECT_THAT(*EncodeFolder(ReadFolder("[UNK]\r\n[CLS]\r\n[SEP]\rx", kBert), "x"),
              ElementsAre(1, 3, 2));
}

TEST(WordListTest, TheConfigurationSaysTheRest) {
  const auto ids = [](const std::string& options) {
    return EncodeFolder(
        ReadFolder(kList, R"({"tokenizer_class": "DistilBertTokenizer", )" + options + "}"),
        "A\u00c1");
  };
  EXPECT_THAT(*ids(R"("do_lower_case": false)"), ElementsAre(2, 1, 3));
  EXPECT_THAT(*EncodeFolder(ReadFolder(kList, R"({"tokenizer_class": "BertTokenizer",
                                                 "do_lower_case": false})"),
                            "A"),
              ElementsAre(2, 8, 3));
  EXPECT_THAT(*ids(R"("cls_token": {"content": "a"}, "sep_token": "[PAD]", "strip_accents": null)"),
              ElementsAre(9, 1, 0));
  EXPECT_THAT(*EncodeFolder(ReadFolder(kList, "{}", R"({"model_type": "bert"})"), "a"),
              ElementsAre(2, 9, 3));
}

TEST(WordListTest, RefusesByName) {
  const auto refusal = [](const std::string& list, const std::string& config,
                          const std::string& model = "{}") {
    return ReadFolder(list, config, model).status().ToString();
  };
  EXPECT_THAT(refusal(kList, R"({"tokenizer_class": "EsmTokenizer"})"), HasSubstr("EsmTokenizer"));
  EXPECT_THAT(refusal(kList, "{}", R"({"model_type": "roberta"})"), HasSubstr("\"roberta\""));
  EXPECT_THAT(refusal(kList, "{}"), HasSubstr("model_type"));
  EXPECT_THAT(refusal("[CLS]\n[SEP]\n", kBert), HasSubstr("the unk_token \"[UNK]\" is none of"));
  EXPECT_THAT(refusal("", kBert), HasSubstr("0 lines"));
  EXPECT_THAT(refusal("[UNK]\n\xFF\n", kBert), HasSubstr("vocab.txt: line 2 is no UTF-8"));
  const auto option = [&](const std::string& text) {
    return refusal(kList, R"({"tokenizer_class": "BertTokenizer", )" + text + "}");
  };
  EXPECT_THAT(option(R"("do_basic_tokenize": false)"), HasSubstr("do_basic_tokenize"));
  EXPECT_THAT(option(R"("never_split": ["a"])"), HasSubstr("never_split"));
  EXPECT_THAT(option(R"("strip_accents": "no")"), HasSubstr("strip_accents"));
  EXPECT_THAT(option(R"("cls_token": "<s>")"), HasSubstr("the cls_token \"<s>\""));
  EXPECT_EQ(option(R"("never_split": null, "do_basic_tokenize": true)"), "OK");
}

checkpoint::Gguf BertGguf() {
  checkpoint::Gguf gguf;
  gguf.keys["tokenizer.ggml.model"] = "bert";
  gguf.keys["tokenizer.ggml.tokens"] =
      std::vector<std::string>{"[UNK]", "[CLS]",   "[SEP]",        "[unused1]", "\u2581a",
                               "b",     "\u2581[", "\u2581\u00e9", "\u2581[x]"};
  gguf.keys["tokenizer.ggml.token_type"] = std::vector<int64_t>{3, 3, 3, 1, 1, 1, 1, 1, 1};
  return gguf;
}

TEST(BertGgufTest, PiecesSayWhetherCaseAndAccentsGo) {
  checkpoint::Gguf gguf = BertGguf();
  const auto data = ReadVocabulary(gguf);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->pieces, ElementsAre("[UNK]", "[CLS]", "[SEP]", "[unused1]", "a", "##b", "[",
                                        "\u00e9", "[x]"));
  EXPECT_THAT(*EncodeBy(data, "Ab \u00c9 [SEP]["), ElementsAre(1, 4, 5, 7, 2, 6, 2));
  const auto with = [&](const char* id, const char* piece) {
    auto tokens = std::get<std::vector<std::string>>(gguf.keys["tokenizer.ggml.tokens"]);
    tokens[std::stoul(id)] = piece;
    checkpoint::Gguf changed = gguf;
    changed.keys["tokenizer.ggml.tokens"] = std::move(tokens);
    return *EncodeBy(ReadVocabulary(changed), "Ab \u00e1");
  };
  EXPECT_THAT(with("7", "\u2581c"), ElementsAre(1, 4, 5, 4, 2)) << "no piece has an accent";
  EXPECT_THAT(with("7", "\u2581A"), ElementsAre(1, 7, 5, 4, 2)) << "a piece has a capital";
  EXPECT_THAT(with("8", "\u2581"), ElementsAre(1, 4, 5, 0, 2))
      << "no word is empty: it is ##\u2581";
  EXPECT_THAT(with("8", "\u2581A"), ElementsAre(1, 8, 5, 0, 2)) << "and another an accent";
}

TEST(BertGgufTest, AddedAndSpecialTokensSayNothingOfCase) {
  checkpoint::Gguf gguf = BertGguf();
  auto tokens = std::get<std::vector<std::string>>(gguf.keys["tokenizer.ggml.tokens"]);
  auto types = std::get<std::vector<int64_t>>(gguf.keys["tokenizer.ggml.token_type"]);
  tokens.push_back("\u2581COVID");
  types.push_back(4);
  gguf.keys["tokenizer.ggml.tokens"] = tokens;
  gguf.keys["tokenizer.ggml.token_type"] = types;
  EXPECT_THAT(*EncodeBy(ReadVocabulary(gguf), "Ab COVID A"), ElementsAre(1, 4, 5, 9, 4, 2));
  checkpoint::Gguf untyped = BertGguf();
  untyped.keys.erase("tokenizer.ggml.token_type");
  EXPECT_THAT(*EncodeBy(ReadVocabulary(untyped), "Ab [SEP]A"), ElementsAre(1, 4, 5, 2, 4, 2));
}

TEST(BertGgufTest, KeysNameTokens) {
  checkpoint::Gguf gguf = BertGguf();
  gguf.keys["tokenizer.ggml.cls_token_id"] = int64_t{4};
  gguf.keys["tokenizer.ggml.seperator_token_id"] = int64_t{6};
  gguf.keys["tokenizer.ggml.unknown_token_id"] = int64_t{5};
  EXPECT_THAT(*EncodeBy(ReadVocabulary(gguf), "z"), ElementsAre(4, 5, 6));
  gguf.keys["tokenizer.ggml.cls_token_id"] = int64_t{9};
  EXPECT_THAT(ReadVocabulary(gguf).status().ToString(), HasSubstr("cls_token_id is 9, of 9"));
  checkpoint::Gguf without = BertGguf();
  without.keys["tokenizer.ggml.tokens"] = std::vector<std::string>{"[UNK]", "[CLS]"};
  without.keys["tokenizer.ggml.token_type"] = std::vector<int64_t>{3, 3};
  EXPECT_THAT(ReadVocabulary(without).status().ToString(),
              HasSubstr("there is no tokenizer.ggml.seperator_token_id, and no token \"[SEP]\""));
}

}  // namespace
}  // namespace athanor
