#include "compiler/frontend/checkpoint/decoder/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace athanor::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<ImportRefusal> refusals;

GenerationDefaults Hf(std::string_view generation, std::string_view config = "{}") {
  refusals.clear();
  return ReadGeneration(CheckpointFormat::kHf, KeysOfJson(generation).value(),
                        KeysOfJson(config).value(), &refusals);
}

std::vector<std::string> Refused() {
  std::vector<std::string> keys;
  for (const ImportRefusal& refusal : refusals) keys.push_back(refusal.node);
  return keys;
}

TEST(ReadGeneration, EndsAreAbsentOneOrAList) {
  EXPECT_THAT(Hf("{}").end_tokens, IsEmpty());
  EXPECT_THAT(Hf(R"({"eos_token_id":null})").end_tokens, IsEmpty());
  EXPECT_THAT(Hf(R"({"eos_token_id":2})").end_tokens, ElementsAre(2));
  EXPECT_THAT(Hf(R"({"eos_token_id":[9,7,9]})").end_tokens, ElementsAre(7, 9));
  EXPECT_THAT(refusals, IsEmpty());
}

TEST(ReadGeneration, EndsOfTheConfigCountWhereTheOtherFileIsSilent) {
  EXPECT_THAT(Hf("{}", R"({"eos_token_id":5})").end_tokens, ElementsAre(5));
  EXPECT_THAT(Hf(R"({"eos_token_id":2})", R"({"eos_token_id":5})").end_tokens, ElementsAre(2));
}

TEST(ReadGeneration, SamplingIsAsTheFileSays) {
  const GenerationDefaults read = Hf(
      R"({"do_sample":true,"temperature":0.6,"top_k":40,"top_p":0.9,"min_p":0.1,
          "repetition_penalty":1.1,"transformers_version":"5"})");
  EXPECT_EQ(read.temperature, 0.6);
  EXPECT_EQ(read.top_k, 40);
  EXPECT_EQ(read.top_p, 0.9);
  EXPECT_EQ(read.min_p, 0.1);
  EXPECT_EQ(read.repetition_penalty, 1.1);
  EXPECT_EQ(Hf(R"({"do_sample":false,"temperature":0.6})").temperature, 0);
  EXPECT_EQ(Hf("{}").temperature, 1);
}

TEST(ReadGeneration, RefusesByKey) {
  Hf(R"({"eos_token_id":-1,"temperature":-1,"top_k":1.5,"top_p":2,"min_p":"a",
         "repetition_penalty":0,"do_sample":1})");
  EXPECT_THAT(Refused(), ElementsAre("eos_token_id", "temperature", "top_k", "top_p", "min_p",
                                     "repetition_penalty", "do_sample"));
  // Refuses as a default what no request may ask for.
  Hf(R"({"temperature":1001,"top_p":0,"repetition_penalty":101})");
  EXPECT_THAT(Refused(), ElementsAre("temperature", "top_p", "repetition_penalty"));
  Hf(R"({"eos_token_id":[1,2147483648]})");
  EXPECT_THAT(Refused(), ElementsAre("eos_token_id"));
}

TEST(ReadGeneration, GgufHasItsEndsAmongItsKeys) {
  refusals.clear();
  const Keys keys = {{"tokenizer.ggml.eos_token_id", int64_t{2}},
                     {"tokenizer.ggml.eot_token_id", int64_t{1}}};
  EXPECT_THAT(ReadGeneration(CheckpointFormat::kGguf, {}, keys, &refusals).end_tokens,
              ElementsAre(1, 2));
  EXPECT_THAT(refusals, IsEmpty());
}

}  // namespace
}  // namespace athanor::checkpoint
