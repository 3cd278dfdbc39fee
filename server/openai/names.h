// The names that clients may call models by: --openai_aliases beside the models' own.
//
//   ASSIGN_OR_RETURN(ModelNames names, ModelNames::Parse("gpt-4o=digits,small=tiny"));
//   names.Resolve("gpt-4o")   // "digits"
//   names.Resolve("tiny")     // "tiny"
#ifndef ATHANOR_SERVER_OPENAI_NAMES_H_
#define ATHANOR_SERVER_OPENAI_NAMES_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

// Immutable.
class ModelNames {
 public:
  // INVALID_ARGUMENT names what is wrong: a part that is no ALIAS=MODEL, an alias that is there
  // twice, or whose model is an alias. Models need not be there yet.
  static absl::StatusOr<ModelNames> Parse(absl::string_view aliases);

  // Returns the model that the name means. An alias goes ahead of a model of its name.
  std::string Resolve(const std::string& name) const;
  const std::map<std::string, std::string>& aliases() const { return aliases_; }

 private:
  std::map<std::string, std::string> aliases_;  // model by alias
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_NAMES_H_
