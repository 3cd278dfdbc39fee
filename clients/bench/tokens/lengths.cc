#include "clients/bench/tokens/lengths.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {
namespace {

constexpr double kChatInput = 161, kChatOutput = 338, kChatSigma = 1;
constexpr double kMostSigma = 5;

absl::Status Bad(absl::string_view flag, absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", text, ": ", what));
}

bool IsLength(int64_t tokens) { return tokens >= 1 && tokens <= kMostTokens; }

// A line is an object with `key`.
absl::StatusOr<std::vector<int64_t>> ReadLengths(absl::string_view flag, const std::string& path,
                                                 absl::string_view key) {
  ASSIGN_OR_RETURN(std::string bytes, client::ReadFile(path));
  std::vector<int64_t> lengths;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(bytes, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto found = row.is_object() ? row.find(key) : row.end();
    if (!row.is_object() || found == row.end() || !found->is_number_integer() ||
        !IsLength(found->get<int64_t>())) {
      return Bad(flag, absl::StrCat("file:", path),
                 absl::StrCat("line ", line_number, " must be a JSON object whose \"", key,
                              "\" is 1 to ", kMostTokens));
    }
    lengths.push_back(found->get<int64_t>());
  }
  if (lengths.empty()) return Bad(flag, absl::StrCat("file:", path), "holds no line");
  return lengths;
}

}  // namespace

absl::StatusOr<Lengths> Lengths::Parse(absl::string_view flag, const std::string& text,
                                       absl::string_view key) {
  Lengths lengths(0);
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "file:")) {
    ASSIGN_OR_RETURN(lengths.listed_, ReadLengths(flag, std::string(rest), key));
    return lengths;
  }
  if (text == "chat") {
    lengths.mean_ = key == kInputKey ? kChatInput : kChatOutput;
    lengths.sigma_ = kChatSigma;
    return lengths;
  }
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() == 3 && parts[0] == "lognormal" && absl::SimpleAtod(parts[1], &lengths.mean_) &&
      absl::SimpleAtod(parts[2], &lengths.sigma_) && lengths.mean_ >= 1 &&
      lengths.mean_ <= kMostTokens && lengths.sigma_ >= 0 && lengths.sigma_ <= kMostSigma) {
    return lengths;
  }
  lengths = Lengths(0);
  if (parts.size() == 3 && parts[0] == "uniform" && absl::SimpleAtoi(parts[1], &lengths.low_) &&
      absl::SimpleAtoi(parts[2], &lengths.high_) && IsLength(lengths.low_) &&
      IsLength(lengths.high_) && lengths.low_ <= lengths.high_) {
    return lengths;
  }
  int64_t fixed = 0;
  if (absl::SimpleAtoi(text, &fixed) && IsLength(fixed)) return Lengths(fixed);
  return Bad(flag, text,
             absl::StrCat("must be a number of tokens from 1 to ", kMostTokens,
                          ", uniform:LOW:HIGH, lognormal:MEAN:SIGMA with SIGMA 0 to ", kMostSigma,
                          ", chat, or file:PATH"));
}

int64_t Lengths::Draw(std::mt19937_64* random, int64_t number) const {
  if (!listed_.empty()) return listed_[InRotation(number, listed_.size())];
  if (sigma_ < 0) return std::uniform_int_distribution<int64_t>(low_, high_)(*random);
  // The mean of exp(N(mu, sigma^2)) is exp(mu + sigma^2 / 2).
  const double mu = std::log(mean_) - sigma_ * sigma_ / 2;
  const double drawn = std::exp(mu + sigma_ * std::normal_distribution<double>()(*random));
  return static_cast<int64_t>(std::llround(std::clamp<double>(drawn, 1, kMostTokens)));
}

}  // namespace athanor::bench
