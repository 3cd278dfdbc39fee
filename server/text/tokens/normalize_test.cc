#include "server/text/tokens/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr std::pair<NormalizeStep::Kind, int> kForms[] = {
    {NormalizeStep::kNfc, UTF8PROC_COMPOSE},
    {NormalizeStep::kNfd, UTF8PROC_DECOMPOSE},
    {NormalizeStep::kNfkc, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {NormalizeStep::kNfkd, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

Normalizer Former(NormalizeStep::Kind kind) {
  const auto normalizer = Normalizer::Create({{.kind = kind}});
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  return normalizer.value_or(Normalizer());
}

// Forms a text as a whole by the library, which orders marks its own way.
std::string LibraryForm(int options, std::string_view text) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(mapped, std::free);
  return bytes < 0 ? "refused"
                   : std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(bytes));
}

void AppendPoint(uint32_t c, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

TEST(NormalizeTest, FormsEqualTheLibrarys) {
  std::mt19937 random(1);
  std::vector<std::pair<Normalizer, int>> forms;
  for (const auto& [kind, options] : kForms) forms.emplace_back(Former(kind), options);
  // Marks of many classes, jamo and syllables, letters that compose, the longest decomposition.
  const uint32_t kPoints[] = {'a',    'e',   'K',    ' ',    '<',    0x301,  0x323,  0x338,
                              0x327,  0x345, 0x5B0,  0x3099, 0x1100, 0x1161, 0x11A8, 0xAC00,
                              0xAC01, 0xE9,  0x1EAD, 0x212B, 0xFB01, 0xFDFA, 0x958,  0x1D165};
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) {
      AppendPoint(kPoints[random() % std::size(kPoints)], &text);
    }
    for (const auto& [form, options] : forms) {
      ASSERT_EQ(form.Run(text).value_or("refused"), LibraryForm(options, text)) << options;
    }
  }
  for (uint32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "a";
    AppendPoint(c, &text);
    text += "\u0323b";
    for (const auto& [form, options] : forms) {
      EXPECT_EQ(form.Run(text).value_or("refused"), LibraryForm(options, text)) << c;
    }
  }
}

// A user's text; the square of its marks would not end.
TEST(NormalizeTest, AMillionMarks) {
  std::string text = "a", ordered = "\u1EA1";  // a with the first dot below
  for (int i = 0; i < 1'000'000; ++i) text += "\u0301\u0323";
  for (int i = 1; i < 1'000'000; ++i) ordered += "\u0323";
  for (int i = 0; i < 1'000'000; ++i) ordered += "\u0301";
  EXPECT_TRUE(Former(NormalizeStep::kNfc).Run(text).value_or("refused") == ordered);
}

}  // namespace
}  // namespace athanor
