// Words of manual pages in the language of man(7): text that does not steer the formatter, bold and
// italic.
//
//   absl::StrCat(".TP\n", roff::Bold("--out"), "\n", roff::Sentence("folder to write to"));
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_ROFF_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_ROFF_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace athanor::roff {

// Escapes what would steer the formatter: backslashes, hyphens that must stay ASCII, and a dot or
// a quote where a line begins.
inline std::string Escape(absl::string_view text) {
  std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  out = absl::StrReplaceAll(out, {{"\n.", "\n\\&."}, {"\n'", "\n\\&'"}});
  if (absl::StartsWith(out, ".") || absl::StartsWith(out, "'")) out.insert(0, "\\&");
  return out;
}

inline std::string Bold(absl::string_view text) {
  return absl::StrCat("\\fB", Escape(text), "\\fR");
}

inline std::string Italic(absl::string_view text) {
  return absl::StrCat("\\fI", Escape(text), "\\fR");
}

// Returns a line that ends with a full stop.
inline std::string Sentence(absl::string_view text) {
  return absl::StrCat(Escape(text), absl::EndsWith(text, ".") ? "\n" : ".\n");
}

}  // namespace athanor::roff

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_ROFF_H_
