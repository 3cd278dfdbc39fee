#include "server/openai/embeddings.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/calls/encoder_testing.h"
#include "server/openai/openai_testing.h"
#include "server/testing/waiters_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class EmbeddingsTest : public OpenAiTest {
 protected:
  void SetUp() override {
    options_.openai_aliases = "ada=e";
    OpenAiTest::SetUp();
  }
  void TearDown() override {
    AwaitNothingHeld();  // an answer comes ahead of the end of those who made it
    OpenAiTest::TearDown();
  }

  std::shared_ptr<ModelVersion> BeginEncoder(bool tokenizer = true) {
    routes_ = std::make_unique<Routes>(OpenAiRoutes(core_.get(), writer_).value());
    auto version = Store("e", EncoderGraph());
    version->SetEncoder(TestEncoder(tokenizer));
    EXPECT_TRUE(core_->workers().Start(version).ok());
    return version;
  }
  void ServeEncoder(bool tokenizer = true) { EXPECT_TRUE(Await(*BeginEncoder(tokenizer)).ok()); }
  std::unique_ptr<TestClient> Embed(const std::string& input, const std::string& more = "") {
    return Ask("POST", "/v1/embeddings", R"({"model":"e","input":)" + input + more + "}");
  }
  // Returns the embeddings by index, of a right answer.
  static std::vector<std::vector<float>> VectorsOf(const FakeClient::Answer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body();
    std::vector<std::vector<float>> vectors;
    const Json body = Json::parse(answer.body());
    for (const Json& one : body["data"]) {
      EXPECT_EQ(one["object"], "embedding");
      EXPECT_EQ(one["index"], vectors.size());
      if (one["embedding"].is_string()) {
        std::string bytes;
        EXPECT_TRUE(absl::Base64Unescape(one["embedding"].get<std::string>(), &bytes));
        vectors.emplace_back(bytes.size() / sizeof(float));
        std::memcpy(vectors.back().data(), bytes.data(), bytes.size());
      } else {
        vectors.push_back(one["embedding"].get<std::vector<float>>());
      }
    }
    return vectors;
  }
  static std::vector<float> VectorOf(const std::vector<int32_t>& tokens) {
    return {static_cast<float>(std::accumulate(tokens.begin(), tokens.end(), 0)),
            static_cast<float>(tokens.size())};
  }
  // Returns that of a text, whose tokens have <s> (0) ahead of them.
  static std::vector<float> VectorOf(const std::string& text) {
    std::vector<float> vector = VectorOf(IdsOf(text));
    ++vector[1];
    return vector;
  }
  void ExpectError(const std::string& input, const std::string& param, const std::string& text,
                   const std::string& more = "") {
    const auto answer = Embed(input, more)->AwaitEnd();
    EXPECT_EQ(answer.status, 400) << input;
    EXPECT_EQ(ErrorOf(answer)["param"], param) << answer.body();
    EXPECT_THAT(ErrorOf(answer)["message"].get<std::string>(), HasSubstr(text));
  }
};

TEST_F(EmbeddingsTest, AnswersHaveOpenAisForm) {
  ServeEncoder();
  EXPECT_EQ(Embed(R"("ab")")->AwaitEnd().body(),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[139,3]}],)"
            R"("model":"e","usage":{"prompt_tokens":3,"total_tokens":3}})");
  const auto alias = Ask("POST", "/v1/embeddings",
                         R"({"model":"ada","input":"ab","user":"u","encoding_format":"float"})");
  EXPECT_EQ(Json::parse(alias->AwaitEnd().body())["model"], "ada");
}

TEST_F(EmbeddingsTest, AllFormsOfInput) {
  ServeEncoder();
  using Vectors = std::vector<std::vector<float>>;
  EXPECT_EQ(VectorsOf(Embed(R"(["ab","c"])")->AwaitEnd()),
            (Vectors{VectorOf("ab"), VectorOf("c")}));
  // Tokens are as the client says: nothing is put around them.
  EXPECT_EQ(VectorsOf(Embed("[5,7]")->AwaitEnd()), (Vectors{{12, 2}}));
  EXPECT_EQ(VectorsOf(Embed("[[5,7],[99]]")->AwaitEnd()), (Vectors{{12, 2}, {99, 1}}));
  EXPECT_EQ(VectorsOf(Embed(R"([[5,7],"c"])")->AwaitEnd()), (Vectors{{12, 2}, VectorOf("c")}));
}

TEST_F(EmbeddingsTest, Base64HasTheSameNumbers) {
  ServeEncoder();
  const auto base64 = Embed(R"(["ab","xyz"])", R"(,"encoding_format":"base64")")->AwaitEnd();
  EXPECT_THAT(base64.body(), HasSubstr(R"("embedding":")"));
  EXPECT_EQ(VectorsOf(base64), VectorsOf(Embed(R"(["ab","xyz"])")->AwaitEnd()));
}

TEST_F(EmbeddingsTest, TheMostInputsKeepTheirOrder) {
  ServeEncoder();
  std::mt19937 random(3);
  Json input = Json::array();
  std::vector<std::vector<float>> wanted;
  int64_t tokens = 0;
  for (int64_t i = 0; i < 2048; ++i) {
    std::vector<int32_t> ids(1 + random() % 64);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % kTestVocabulary);
    tokens += static_cast<int64_t>(ids.size());
    wanted.push_back(VectorOf(ids));
    input.push_back(ids);
  }
  const auto answer = Embed(input.dump())->AwaitEnd();
  EXPECT_EQ(VectorsOf(answer), wanted);
  EXPECT_EQ(Json::parse(answer.body())["usage"]["prompt_tokens"], tokens);
}

TEST_F(EmbeddingsTest, WrongInputsAreNamed) {
  ServeEncoder();
  ExpectError("null", "input", "input is missing");
  ExpectError(R"("")", "input", "input is empty");
  ExpectError("[]", "input", "input is empty");
  ExpectError("7", "input", "input is 7; it has to be a text, a list of texts");
  ExpectError(R"(["a",""])", "input[1]", "input[1] is empty");
  ExpectError(R"(["a",[]])", "input[1]", "input[1] is empty");
  ExpectError(R"(["a",7])", "input[1]", "input[1] is 7; it has to be a text or a list of tokens");
  ExpectError(R"([1,"a"])", "input[1]", "input[1] is \"a\"");
  ExpectError("[5,100]", "input[1]", "input[1] is 100; the model's tokens are 0 to 99");
  ExpectError("[[5],[5,-1]]", "input[1][1]", "input[1][1] is -1");
  ExpectError("[[5],[5,6,100]]", "input[1][2]", "input[1][2] is 100");
  Json many = Json::array();
  for (int i = 0; i < 2049; ++i) many.push_back("a");
  ExpectError(many.dump(), "input", "input has 2049 inputs; it may have 2048");
  std::string tokens = "[5";
  for (int i = 0; i < 300'000; ++i) tokens += ",5";
  ExpectError(tokens + "]", "input", "input has 300001 tokens; a request may have 300000");
}

TEST_F(EmbeddingsTest, LongInputsAreRefusedNotCut) {
  ServeEncoder();
  const std::string most(63, 'a'), more(64, 'a');  // with <s> 64 and 65
  EXPECT_EQ(VectorsOf(Embed("\"" + most + "\"")->AwaitEnd())[0][1], 64);
  ExpectError("[\"a\",\"" + more + "\"]", "input[1]",
              "input[1] has 65 tokens, and the model takes at most 64");
  EXPECT_EQ(ErrorOf(Embed("\"" + more + "\"")->AwaitEnd())["code"], "context_length_exceeded");
  ExpectError("\"" + std::string(64 * 32 + 1, 'a') + "\"", "input", "bytes");
  EXPECT_EQ(ErrorOf(Embed("\"" + std::string(100'000, 'a') + "\"")->AwaitEnd())["code"],
            "context_length_exceeded");
}

TEST_F(EmbeddingsTest, FieldsOfOthersAreRefused) {
  ServeEncoder();
  ExpectError(R"("a")", "dimensions", "dimensions is not supported", R"(,"dimensions":1)");
  ExpectError(R"("a")", "encoding_format", "encoding_format is \"hex\"; it has to be",
              R"(,"encoding_format":"hex")");
  EXPECT_THAT(Embed(R"("a")", R"(,"temperature":1)")->AwaitEnd().body(),
              HasSubstr("Unrecognized request argument supplied: temperature"));
  EXPECT_THAT(Ask("POST", "/v1/completions", R"({"model":"e","prompt":"a"})")->AwaitEnd().body(),
              HasSubstr("is an encoder: it makes embeddings"));
  EXPECT_EQ(Embed(R"("a")", R"(,"encoding_format":null,"dimensions":null)")->AwaitEnd().status,
            200);
}

TEST_F(EmbeddingsTest, ModelsThatAreNoEncoders) {
  Begin();
  EXPECT_THAT(Ask("POST", "/v1/embeddings", R"({"model":"m","input":"a"})")->AwaitEnd().body(),
              HasSubstr("is no encoder: it makes no embeddings; it generates tokens"));
  const auto absent = Ask("POST", "/v1/embeddings", R"({"model":"x","input":"a"})")->AwaitEnd();
  EXPECT_EQ(absent.status, 404);
  EXPECT_EQ(ErrorOf(absent)["code"], "model_not_found");
}

TEST_F(EmbeddingsTest, WithoutATokenizerTokensWork) {
  ServeEncoder(/*tokenizer=*/false);
  EXPECT_EQ(VectorsOf(Embed("[5]")->AwaitEnd())[0][0], 5);
  ExpectError(R"(["a"])", "input[0]", "the model has no tokenizer");
}

TEST_F(EmbeddingsTest, ModelsListEncoders) {
  ServeEncoder();
  const Json list = Json::parse(Get("/v1/models").body());
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][1]["id"], "ada");
  EXPECT_EQ(list["data"][0]["max_model_len"], 64);
  EXPECT_EQ(list["data"][0]["meta"]["n_embd"], 2);
}

TEST_F(EmbeddingsTest, AClientThatLeavesEndsItsRuns) {
  control_->HoldCompiles();
  const auto version = BeginEncoder();
  Json input = Json::array();
  for (int i = 0; i < 100; ++i) input.push_back("a");
  auto client = Embed(input.dump());
  AwaitWaiters(version->serving(), 2);
  client->Leave();
  AwaitNothingHeld();
  control_->ReleaseCompiles();
  EXPECT_TRUE(Await(*version).ok());
}

TEST_F(EmbeddingsTest, AVersionThatFailsEndsAll) {
  control_->FailCompiles(absl::UnimplementedError("no such op"));
  BeginEncoder();
  const auto answer = Embed(R"(["a","b"])")->AwaitEnd();
  EXPECT_GE(answer.status, 400) << answer.body();
  EXPECT_THAT(answer.body(), HasSubstr("no such op"));
}

TEST(EmbeddingsTextTest, NumbersAreTheShortestOnes) {
  EmbeddingResult result;
  result.width = 4;
  result.values = {0.1f, -1.17549435e-38f, std::nanf(""), std::numeric_limits<float>::infinity()};
  EXPECT_THAT(EmbeddingsText({.model = "a\"b"}, result),
              HasSubstr(R"("embedding":[0.1,-1.1754944e-38,null,null]}],"model":"a\"b")"));
}

}  // namespace
}  // namespace athanor
