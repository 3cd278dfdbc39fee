#include "compiler/frontend/checkpoint/files/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::checkpoint {
namespace {

using ::testing::HasSubstr;

GgufValue Read(std::string_view value) {
  const absl::StatusOr<Keys> keys = KeysOfJson("{\"k\":" + std::string(value) + "}");
  return keys.ok() && keys->contains("k") ? keys->at("k") : GgufValue(std::string("not read"));
}

std::string Refused(std::string_view json) {
  const absl::StatusOr<Keys> keys = KeysOfJson(json);
  return keys.ok() ? "read" : std::string(keys.status().message());
}

TEST(KeysOfJson, ReadsValuesByType) {
  EXPECT_EQ(Read("true"), GgufValue(true));
  EXPECT_EQ(Read("-3"), GgufValue(int64_t{-3}));
  EXPECT_EQ(Read("9223372036854775807"), GgufValue(INT64_MAX));
  EXPECT_EQ(Read("9223372036854775808"), GgufValue(9223372036854775808.0));
  EXPECT_EQ(Read("1e-5"), GgufValue(1e-5));
  EXPECT_EQ(Read("\"silu\""), GgufValue(std::string("silu")));
  EXPECT_EQ(Read("[]"), GgufValue(std::vector<int64_t>{}));
  EXPECT_EQ(Read("[1,2]"), GgufValue(std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Read("[1,2.5]"), GgufValue(std::vector<double>{1, 2.5}));
  EXPECT_EQ(Read("[true]"), GgufValue(std::vector<bool>{true}));
  EXPECT_EQ(Read("[\"a\",\"b\"]"), GgufValue(std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Read("[1,\"b\",null,{}]"), GgufValue(std::string("[1,\"b\",null,{}]")));
}

TEST(KeysOfJson, NamesMembersOfObjectsByPath) {
  const absl::StatusOr<Keys> keys = KeysOfJson(R"({"a":{"b":{"c":1},"d":null},"e":null,"f":{}})");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys, (Keys{{"a.b.c", int64_t{1}}}));
}

TEST(KeysOfJson, RefusesWhatIsNoObject) {
  for (std::string_view text : {"", "[]", "3", "null", "{", "{\"a\":1", "{\"a\":1}}", "{'a':1}",
                                "{\"a\":\"\xff\"}", "{\"a\":01}"}) {
    EXPECT_THAT(Refused(text), HasSubstr("no JSON object")) << text;
  }
}

TEST(KeysOfJson, RefusesKeysThatAreThereTwice) {
  EXPECT_THAT(Refused(R"({"a":1,"a":1})"), HasSubstr("key \"a\" is there twice"));
  EXPECT_THAT(Refused(R"({"x":{"a":1,"b":2,"a":1}})"), HasSubstr("key \"a\" is there twice"));
  EXPECT_THAT(Refused(R"({"x":[{"a":1,"a":1}]})"), HasSubstr("key \"a\" is there twice"));
  EXPECT_THAT(Refused(R"({"a":{"b":1},"a.b":2})"), HasSubstr("once inside an object"));
  EXPECT_EQ(Refused(R"({"x":{"a":1},"y":{"a":1},"a":[{"a":1},{"a":2}]})"), "read");
}

TEST(KeysOfJson, RefusesDepthsAndSizesBeyondItsLimits) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(Refused(nested(31)), "read");
  EXPECT_THAT(Refused(nested(33)), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(Refused(nested(1'000'000)), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(Refused("{\"a\":\"" + std::string(17 << 20, 'x') + "\"}"), HasSubstr("at most"));
}

// Each leaf's key repeats the names of the objects that it is in.
TEST(KeysOfJson, RefusesKeysThatAreTooLong) {
  const auto inside = [](size_t bytes, int leaves) {
    std::string json = "{\"" + std::string(bytes, 'a') + "\":{";
    for (int i = 0; i < leaves; ++i) {
      json += (i == 0 ? "\"b" : ",\"b") + std::to_string(100'000 + i) + "\":0";
    }
    return json + "}}";
  };
  EXPECT_EQ(Refused(inside(1024 - 8, 2)), "read");
  EXPECT_THAT(Refused(inside(1024 - 7, 2)), HasSubstr("aaa...\" has 1025 bytes"));
  const std::string refused = Refused(inside(8 << 20, 500'000));
  EXPECT_THAT(refused, HasSubstr("has 8388608 bytes"));
  EXPECT_LT(refused.size(), 300u);
  EXPECT_EQ(Refused(inside(1000, 60'000)), "read");
  EXPECT_THAT(Refused(inside(1000, 70'000)), HasSubstr("have more than 67108864 bytes"));
}

TEST(TextOf, IsAsInJson) {
  EXPECT_EQ(TextOf(true), "true");
  EXPECT_EQ(TextOf(int64_t{-1}), "-1");
  EXPECT_EQ(TextOf(0.5), "0.5");
  EXPECT_EQ(TextOf(std::string("silu")), "silu");
  EXPECT_EQ(TextOf(std::vector<int64_t>{1, 2}), "[1, 2]");
  EXPECT_EQ(TextOf(std::vector<bool>{}), "[]");
}

}  // namespace
}  // namespace athanor::checkpoint
