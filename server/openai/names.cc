#include "server/openai/names.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/value/message.h"

namespace athanor {

absl::StatusOr<ModelNames> ModelNames::Parse(absl::string_view aliases) {
  ModelNames names;
  for (absl::string_view part : absl::StrSplit(aliases, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> both =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    std::string alias(absl::StripAsciiWhitespace(both.first));
    std::string model(absl::StripAsciiWhitespace(both.second));
    if (alias.empty() || model.empty()) {
      return Invalid("--openai_aliases has ", Quoted({part.data(), part.size()}),
                     "; each part has to be ALIAS=MODEL");
    }
    const auto [at, added] = names.aliases_.emplace(std::move(alias), std::move(model));
    if (!added) return Invalid("--openai_aliases has the alias ", Quoted(at->first), " twice");
  }
  for (const auto& [alias, model] : names.aliases_) {
    if (!names.aliases_.contains(model)) continue;
    return Invalid("--openai_aliases: the model of ", Quoted(alias), " is ", Quoted(model),
                   ", which is an alias; name the model itself");
  }
  return names;
}

std::string ModelNames::Resolve(const std::string& name) const {
  const auto found = aliases_.find(name);
  return found == aliases_.end() ? name : found->second;
}

}  // namespace athanor
