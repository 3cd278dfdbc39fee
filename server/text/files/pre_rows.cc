#include "server/text/files/pre_rows.h"

#include <algorithm>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr char kDigit[] = R"(\p{N})";
constexpr char kThreeDigits[] = R"(\p{N}{1,3})";
constexpr char kHan[] = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";  // all from U+0800 on
constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
// The letters that DeepSeek LLM's expression lists: cased ones, but not all.
constexpr char kDeepseekLetters[] =
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"
    "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C"
    "\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5"
    "\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59"
    "\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC"
    "\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107"
    "\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE"
    "\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E"
    "\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A"
    "\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2"
    "\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943";
// GPT-4's, but for the digits that stay together and what words are of.
std::string Gpt4(std::string_view digits, std::string_view letters = R"(\p{L})") {
  return Cat(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[)", letters, "]+|", digits,
             "| ?[^\\s", letters, R"(\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

}  // namespace

const std::vector<PreRow>& PreRows() {
  static const auto* const kRows = new std::vector<PreRow>{
      {.name = "gpt-2", .patterns = {kGpt2}},
      {.name = "mpt", .patterns = {kGpt2}, .nfc = true},
      {.name = "smollm", .patterns = {kDigit, kGpt2}},
      {.name = "starcoder", .patterns = {kDigit, kGpt2}},
      {.name = "refact", .patterns = {kDigit, kGpt2}},
      {.name = "command-r", .patterns = {kDigit, kGpt2}, .nfc = true},
      {.name = "falcon", .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {.name = "deepseek-coder",
       .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHan, kDigit}},
      {.name = "deepseek-llm",
       .patterns = {"[\r\n]", Cat("\\s?[", kDeepseekLetters, "]+"),
                    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+", "\\s+$",
                    kHan, kDigit}},
      {.name = "deepseek-v3",
       .patterns = {kThreeDigits, "[\u4E00-\u9FA5\u3040-\u30FF]+",
                    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
                    R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
                    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {.name = "llama-bpe",
       .patterns = {Gpt4(kThreeDigits)},
       .ignore_merges = true,
       .add_bos = true},
      {.name = "gemma4", .spaces = true},
      {.name = "qwen2", .patterns = {Gpt4(kDigit)}, .nfc = true},
      // Ids beside llama.cpp's vocabulary are without NFC, but transformers' class has it.
      {.name = "qwen35", .patterns = {Gpt4(kDigit, R"(\p{L}\p{M})")}, .nfc = true},
  };
  return *kRows;
}

const PreRow* FindPreRow(std::string_view name) {
  const std::vector<PreRow>& rows = PreRows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const PreRow& row) { return row.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace athanor
