#include "tests/bench/arguments.h"

#include <cstdio>
#include <set>

#include "absl/strings/str_cat.h"

namespace athanor {

absl::Status ReadArguments(int argc, const char* const* argv,
                           const std::map<std::string, Argument>& arguments) {
  std::set<std::string> given;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const auto argument = arguments.find(name);
    if (argument == arguments.end()) {
      std::string all;
      for (const auto& [known, about] : arguments) absl::StrAppend(&all, " ", known);
      return absl::InvalidArgumentError(absl::StrCat("there is no ", name, "; there are", all));
    }
    if (i + 1 == argc) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
    if (!argument->second.set(argv[i + 1])) {
      return absl::InvalidArgumentError(absl::StrCat(name, " cannot be ", argv[i + 1]));
    }
    given.insert(name);
  }
  for (const auto& [name, about] : arguments) {
    if (about.needed && !given.contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is needed"));
    }
  }
  return absl::OkStatus();
}

int ExitStatus(const char* program, const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", program, status.ToString().c_str());
  return 1;
}

}  // namespace athanor
