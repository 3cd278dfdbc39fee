#include "clients/cpp/inputs/token.h"

#include <algorithm>
#include <cstdlib>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

constexpr char kVariable[] = "ATHANOR_TOKEN";
constexpr size_t kShortest = 8, kLongest = 256;

}  // namespace

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  std::string text;
  if (file.empty()) {
    const char* const variable = std::getenv(kVariable);
    if (variable == nullptr || *variable == '\0') return "";
    text = variable;
  } else {
    ASSIGN_OR_RETURN(text, ReadFile(file));
    text.resize(std::min(text.size(), text.find('\n')));
  }
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (token.size() >= kShortest && token.size() <= kLongest &&
      absl::c_all_of(token, absl::ascii_isgraph)) {
    return std::string(token);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      file.empty() ? kVariable : absl::StrCat("--token_file ", file), ": a token is ", kShortest,
      " to ", kLongest, " visible ASCII characters, this has ", token.size(), " characters",
      token.size() >= kShortest && token.size() <= kLongest ? ", not all visible" : ""));
}

}  // namespace athanor::client
