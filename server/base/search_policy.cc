#include "server/base/search_policy.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

// Longer than anyone waits: a value above it is probably a mistaken unit.
constexpr milliseconds kMostTime = std::chrono::hours(720);
constexpr int64_t kMostCandidates = 1'000'000;

absl::Status Wrong(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is not a search budget: ", why,
      "; it takes 0 (the baseline only), a time such as 30s (up to 720h), a number of candidates "
      "such as 200c (up to 1000000c), or fast or exhaust, alone or with a limit as in exhaust:5m"));
}

// Parses `limit` into `budget`. Returns why it is not a limit, or an empty string.
std::string ReadLimit(absl::string_view limit, SearchBudget* budget) {
  if (absl::StartsWith(limit, "-")) return absl::StrCat(limit, " is negative");
  absl::string_view digits = limit;
  const bool counts = absl::ConsumeSuffix(&digits, "c");
  if (counts) {
    if (digits.empty() || digits.find_first_not_of("0123456789") != absl::string_view::npos) {
      return absl::StrCat("'", limit, "' is not a number of candidates");
    }
    if (!absl::SimpleAtoi(digits, &budget->candidates) || budget->candidates > kMostCandidates) {
      return absl::StrCat(limit, " is more than 1000000c");
    }
  } else {
    const size_t unit = limit.find_first_not_of("0123456789");
    const bool known = unit != 0 && unit != absl::string_view::npos &&
                       (limit.substr(unit) == "ms" || limit.substr(unit) == "s" ||
                        limit.substr(unit) == "m" || limit.substr(unit) == "h");
    if (!known) return absl::StrCat("'", limit, "' is neither a time nor a number of candidates");
    const absl::StatusOr<int64_t> ms = ParseDuration(limit);
    if (!ms.ok() || milliseconds(*ms) > kMostTime) return absl::StrCat(limit, " is more than 720h");
    budget->time = milliseconds(*ms);
  }
  const bool zero = budget->time == milliseconds(0) && budget->candidates == 0;
  return zero ? absl::StrCat(limit, " leaves nothing to search with") : "";
}

}  // namespace

absl::StatusOr<SearchBudget> ParseSearchBudget(absl::string_view text) {
  SearchBudget budget;
  if (text == "0") {
    budget.search = false;
    return budget;
  }
  if (text.empty()) return Wrong(text, "it is empty");
  std::optional<absl::string_view> limit = text;
  for (const auto& [name, mode] :
       {std::pair("fast", v1::SEARCH_FAST), std::pair("exhaust", v1::SEARCH_EXHAUST)}) {
    absl::string_view rest = text;
    if (!absl::ConsumePrefix(&rest, name)) continue;
    if (!rest.empty() && !absl::ConsumePrefix(&rest, ":")) break;
    budget.mode = mode;
    limit = text == name ? std::nullopt : std::optional(rest);
  }
  if (!limit.has_value()) return budget;
  if (const std::string why = ReadLimit(*limit, &budget); !why.empty()) return Wrong(text, why);
  return budget;
}

std::string ToText(const SearchBudget& budget) {
  if (!budget.search) return "0";
  std::string limit;
  const int64_t ms = budget.time.count();
  if (ms > 0) limit = ms % 1000 == 0 ? absl::StrCat(ms / 1000, "s") : absl::StrCat(ms, "ms");
  if (budget.candidates > 0) limit = absl::StrCat(budget.candidates, "c");
  if (budget.mode != v1::SEARCH_FAST && budget.mode != v1::SEARCH_EXHAUST) return limit;
  return absl::StrCat(budget.mode == v1::SEARCH_FAST ? "fast" : "exhaust", limit.empty() ? "" : ":",
                      limit);
}

v1::SearchOptions SearchPolicy::ToProto() const {
  v1::SearchOptions options;
  options.set_budget(ToText(budget));
  options.set_seed(seed);
  for (const std::string& rule : disabled_rules) options.add_disabled_rules(rule);
  options.set_approximate(approximate);
  options.set_use(use);
  return options;
}

absl::StatusOr<std::set<std::string>> ParseRuleNames(absl::string_view text) {
  std::set<std::string> names;
  if (text.empty()) return names;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    bool right = !name.empty();
    for (char c : name)
      right = right && (absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_');
    if (!right) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CHexEscape(name),
                       "' is not the name of a rule or a family of rules; names look like "
                       "contract_takes_scale"));
    }
    names.emplace(name);
  }
  return names;
}

SearchPolicy ServerPolicy(const ServerOptions& options) {
  SearchPolicy policy;
  policy.budget = ParseSearchBudget(options.search_budget).value_or(SearchBudget{});
  policy.seed = static_cast<uint64_t>(options.search_seed);
  policy.disabled_rules = ParseRuleNames(options.disable_rules).value_or(std::set<std::string>{});
  return policy;
}

}  // namespace athanor
