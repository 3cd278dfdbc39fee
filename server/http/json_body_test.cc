#include "server/http/json_body.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class JsonBodyTest : public ::testing::Test {
 protected:
  absl::StatusOr<Json> Parse(absl::string_view text) {
    absl::StatusOr<JsonBody> body = ParseJsonBody(text, &ledger_);
    if (!body.ok()) return body.status();
    return std::move(body->value);
  }
  void ExpectWrong(absl::string_view text, absl::string_view why) {
    const auto parsed = Parse(text);
    ASSERT_FALSE(parsed.ok()) << text.substr(0, 80);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << parsed.status();
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(std::string(why)));
    EXPECT_EQ(ledger_.used(), 0);
  }

  ServerLedger ledger_{int64_t{1} << 30};
};

TEST_F(JsonBodyTest, ValuesAreNlohmannsOwn) {
  for (const char* text :
       {"1", "null", "true", "\"\"", "[]", "{}", "-1", "18446744073709551615", "1.5", "1e-999",
        "[[],{},[1,2,{\"a\":[]}]]", R"({"b":1,"a":{"c":null,"":[true,false,"x"]}})",
        R"("\u0000\u00e4\ud83d\ude00\"\\\/")", " \n\t[ 1 , 2 ] "}) {
    const auto parsed = Parse(text);
    ASSERT_TRUE(parsed.ok()) << text << parsed.status();
    EXPECT_EQ(*parsed, Json::parse(text)) << text;
    EXPECT_EQ(parsed->dump(), Json::parse(text).dump()) << "keys keep their order";
  }
}

TEST_F(JsonBodyTest, WhatIsNoJson) {
  for (const char* text :
       {"",      " ",        "{",       "[1,",       "[1,]", "{\"a\":}", "{\"a\" 1}",
        "{a:1}", "{}{}",     "nul",     "'a'",       "01",   "+1",       "1.",
        "NaN",   "\"\x01\"", "\"\\x\"", "\"\\u12\"", "[1]x", "// 1\n1"}) {
    ExpectWrong(text, "the body is no valid JSON");
  }
  ExpectWrong("{\"a\":1e999}", "the body is no valid JSON");
  ExpectWrong(absl::string_view("1\0", 2), "the body is no valid JSON");
}

TEST_F(JsonBodyTest, TextIsUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"",
                           "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800x\"", "\"\xf4\x90\x80\x80\""}) {
    ExpectWrong(text, "the body is no valid JSON");
  }
}

TEST_F(JsonBodyTest, KeysComeOnce) {
  ExpectWrong(R"({"a":1,"b":2,"a":3})", R"(the key "a" twice)");
  ExpectWrong(R"({"x":[{"a":1,"\u0061":3}]})", R"(the key "a" twice)");
  EXPECT_TRUE(Parse(R"({"a":{"a":{"a":1}},"b":{"a":1}})").ok());
}

TEST_F(JsonBodyTest, DepthHasALimit) {
  const auto deep = [](int levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_TRUE(Parse(deep(64)).ok());
  ExpectWrong(deep(65), "deeper than 64");
  ExpectWrong(std::string(1'000'000, '['), "deeper than 64");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  ExpectWrong(objects, "deeper than 64");
}

TEST_F(JsonBodyTest, ManyValuesAreLinear) {
  std::string list = "[1", keys = "{\"0\":1";
  for (int i = 1; i < 300'000; ++i) {
    list += ",1";
    keys += ",\"" + std::to_string(i) + "\":1";
  }
  EXPECT_EQ(Parse(list + "]")->size(), 300'000u);
  EXPECT_EQ(Parse(keys + "}")->size(), 300'000u);
}

TEST_F(JsonBodyTest, LongTextsTakeTheirBytes) {
  // Marks in a text are no values.
  const std::string text(10'000'000, ',');
  const auto body = ParseJsonBody("\"" + text + "\"", &ledger_);
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body->value, text);
  EXPECT_EQ(body->memory.bytes(), 10'000'002);
  EXPECT_EQ(ledger_.used(), 10'000'002);
}

TEST_F(JsonBodyTest, ValuesAreReservedAhead) {
  ServerLedger small(10'000);
  std::string list = "[[]";
  for (int i = 0; i < 400; ++i) list += ",[]";
  EXPECT_TRUE(absl::IsResourceExhausted(ParseJsonBody(list + "]", &small).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseJsonBody(list, &small).status()))
      << "nobody should send it again";
  EXPECT_EQ(small.used(), 0);
  EXPECT_EQ(ParseJsonBody("[1,2]", &small)->memory.bytes(), 5 + 2 * 48);
  EXPECT_EQ(small.used(), 0) << "it goes with the body";
}

TEST_F(JsonBodyTest, RandomBytesNeverDoHarm) {
  std::mt19937 random(1);
  const std::string marks = "{}[]\",:\\u0a1.-eEtruefalsn \xc3\xa4\xff";
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (int i = random() % 24; i > 0; --i) text += marks[random() % marks.size()];
    const auto parsed = Parse(text);
    // Accepts the same as nlohmann's own, but for repeated keys.
    if (parsed.ok()) {
      EXPECT_EQ(*parsed, Json::parse(text)) << text;
    } else if (Json::accept(text)) {
      EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("twice")) << text;
    }
  }
}

}  // namespace
}  // namespace athanor
