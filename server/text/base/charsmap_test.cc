#include "server/text/base/charsmap.h"

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/base/utf8.h"
#include "server/text/tokens/normalize.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// A map that sentencepiece 0.2.3 compiled of these rules: A -> a, AB -> "xy ", tab and U+A0 -> a
// space, U+20AC -> nothing, U+FB01 -> fi, and U+E9, A and e with an acute to the other form.
std::string SmallMap() {
  std::vector<uint32_t> units(256);
  for (uint32_t i = 0; i < units.size(); ++i) units[i] = i ^ 1;
  constexpr std::pair<int, uint32_t> kUsed[] = {
      {0, 0x2000},    {1, 0xd09},      {2, 0x80000001},  {3, 0x80000003},  {4, 0x80000010},
      {5, 0xd81},     {6, 0x80000005}, {7, 0x238cc},     {8, 0x581},       {9, 0x80000014},
      {10, 0x21a0},   {11, 0x1da9},    {12, 0x80000009}, {13, 0x2b882},    {14, 0x80000000},
      {15, 0x5ac},    {16, 0x200ac},   {17, 0xd81},      {18, 0x8000000d}, {65, 0x11542},
      {73, 0x12941},  {109, 0x29865},  {202, 0x180c2},   {203, 0x1a4c3},   {207, 0x12ccc},
      {231, 0x16cef}, {234, 0x194e2}};
  for (const auto& [at, unit] : kUsed) units[at] = unit;
  const uint32_t bytes = 1024;
  std::string blob(4 + bytes, '\0');
  std::memcpy(blob.data(), &bytes, 4);
  std::memcpy(blob.data() + 4, units.data(), bytes);
  constexpr char kTexts[] = "\0 \0a\0a\xcc\x81\0e\xcc\x81\0fi\0xy \0\xc3\xa9";
  return blob.append(kTexts, sizeof kTexts);
}

std::string NormalOf(NormalizeStep step, std::string_view text) {
  const auto normalizer = Normalizer::Create({std::move(step)});
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  const auto normal = normalizer->Run(text);
  return normal.ok() ? *normal : normal.status().ToString();
}

TEST(CharsmapTest, FindsRules) {
  const auto map = Charsmap::Create(SmallMap());
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->Longest("ABC")->bytes, 2);
  EXPECT_EQ(map->Longest("ABC")->to, "xy ");
  EXPECT_EQ(map->Shortest("ABC")->bytes, 1);
  EXPECT_EQ(map->Shortest("ABC")->to, "a");
  EXPECT_EQ(map->Longest("\u20AC")->to, "");
  EXPECT_FALSE(map->Longest("B").has_value());
  EXPECT_FALSE(map->Longest("\u20AD").has_value());
  EXPECT_FALSE(map->Longest("").has_value());
  EXPECT_FALSE(map->Longest(std::string_view("\0", 1)).has_value());
}

// The right column is what sentencepiece and tokenizers make of the texts.
TEST(CharsmapTest, NormalizesAsSentencePiece) {
  const NormalizeStep step = {.kind = NormalizeStep::kCharsmap, .from = SmallMap(), .strips = true};
  for (const auto& [text, normal] : {std::pair("", ""),
                                     {"A", "a"},
                                     {"AB", "xy"},
                                     {"ABA", "xy a"},
                                     {"\u00e9", "e\u0301"},
                                     {"e\u0301e", "\u00e9e"},
                                     {"a\u20acb", "ab"},
                                     {"a\t\tb", "a b"},
                                     {"\ufb01n", "fin"},
                                     {"\u00a0 x \u00a0", "x"},
                                     {" \t ", ""},
                                     {"A\u0301B", "a\u0301B"},
                                     {"x\u2581 \u2581", "x"},
                                     {"\u65e5\u672c", "\u65e5\u672c"}}) {
    EXPECT_EQ(NormalOf(step, text), normal) << text;
  }
}

TEST(CharsmapTest, NormalizesAsTokenizers) {
  const NormalizeStep step = {.kind = NormalizeStep::kPrecompiled, .from = SmallMap()};
  for (const auto& [text, normal] : {std::pair("", ""),
                                     {"AB", "aB"},
                                     {"xA\u00e9\u0301", "xae\u0301"},
                                     {"\u00e9", "e\u0301"},
                                     {"e\u0301e", "\u00e9e"},
                                     {"a\u20acb", "ab"},
                                     {"a\t\tb", "a  b"},
                                     {"\u00a0 x \u00a0", "  x  "},
                                     {"A\u0301B", "aB"},
                                     {"\u65e5\u672c", "\u65e5\u672c"}}) {
    EXPECT_EQ(NormalOf(step, text), normal) << text;
  }
}

TEST(CharsmapTest, KeptTextsStayAndSpacesToo) {
  NormalizeStep step = {.kind = NormalizeStep::kCharsmap, .from = SmallMap()};
  step.kept = {"A", "ABA ", "<\u00e9>"};
  EXPECT_EQ(NormalOf(step, "AB<\u00e9>\u00e9 "), "AB<\u00e9>e\u0301 ");
  EXPECT_EQ(NormalOf(step, "ABA  ABA"), "ABA  ABA");
  step.from.clear();
  EXPECT_EQ(NormalOf(step, " \u00e9\t"), " \u00e9\t");
  step.strips = true;
  EXPECT_EQ(NormalOf(step, "  \u00e9  \t "), "\u00e9 \t");
}

TEST(CharsmapTest, RefusesWrongMaps) {
  const auto refusal = [](std::string blob) {
    return std::string(Charsmap::Create(blob).status().message());
  };
  const std::string map = SmallMap();
  EXPECT_THAT(refusal(""), HasSubstr("cut"));
  EXPECT_THAT(refusal(map.substr(0, 900)), HasSubstr("1024 bytes, of 896"));
  EXPECT_THAT(refusal(std::string(8, '\0')), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal(map.substr(0, 1028)), HasSubstr("of 0 bytes"));
  EXPECT_THAT(refusal(map + "\xFF"), HasSubstr("UTF-8"));
  std::string inside = map;  // a text may not begin within a character
  inside[4 + 2 * 4] = 0x07;
  EXPECT_THAT(refusal(inside), HasSubstr("a text at 7"));
}

// Whatever the units are, no text reads beside the tables, and what comes out is UTF-8.
TEST(CharsmapTest, ChangedMapsDoNoHarm) {
  std::mt19937 random(1);
  const std::string text = "xAB\u00e9\u0301 e\u0301\u20ac\ufb01\u00a0\t";
  int made = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string map = SmallMap();
    for (int n = 1 + static_cast<int>(random() % 60); n > 0; --n) {
      map[random() % map.size()] = static_cast<char>(random());
    }
    if (!Charsmap::Create(map).ok()) continue;
    ++made;
    for (const auto kind : {NormalizeStep::kCharsmap, NormalizeStep::kPrecompiled}) {
      const std::string normal = NormalOf({.kind = kind, .from = map}, text);
      EXPECT_EQ(FindBrokenUtf8(normal), std::nullopt);
    }
  }
  EXPECT_GT(made, 20);
}

}  // namespace
}  // namespace athanor
