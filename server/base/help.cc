#include "server/base/help.h"

#include <cstdint>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/roff.h"
#include "deploy/bazel/libs/version.h"
#include "server/base/options.h"
#include "server/base/signals.h"

namespace athanor {
namespace {

using O = ServerOptions;

constexpr absl::string_view kAbout = "serves model graphs over gRPC";
constexpr absl::string_view kSettings =
    "Every flag is also an environment variable (ATHANOR_STATE_DIR for --state_dir) and a\n"
    "`name = value` line of --config FILE; the command line wins, then the environment.";
constexpr absl::string_view kExitStatus =
    "0 after it has drained; 1 if it cannot start or is told to end a second time; 2 if a flag, "
    "the certificate or the key is wrong.";

// A flag with which athanord answers and ends; it takes no value.
struct Answer {
  absl::string_view name;
  absl::string_view help;
};
constexpr Answer kAnswers[] = {
    {"help", "print the flags, the signals and the exit statuses"},
    {"man", "print the manual page, in the language of man(7)"},
    {"version", "print the version"},
    {"make_token",
     "print a new token, and the line that stands for it in --auth's file; nothing else keeps it"},
};

std::string DefaultText(const FlagRow& row) {
  const ServerOptions defaults;
  if (const auto* field = std::get_if<bool O::*>(&row.field)) {
    return defaults.*(*field) ? "true" : "false";
  }
  if (const auto* field = std::get_if<std::string O::*>(&row.field)) {
    return (defaults.*(*field)).empty() ? "\"\"" : defaults.*(*field);
  }
  constexpr int64_t kMiB = int64_t{1} << 20, kMillion = 1'000'000;
  const int64_t value = defaults.*std::get<int64_t O::*>(row.field);
  if (row.type == FlagType::kDuration) {
    return value % 1000 == 0 ? absl::StrCat(value / 1000, "s") : absl::StrCat(value, "ms");
  }
  if (row.type == FlagType::kShortDuration && value != 0) {
    return value % 1000 == 0 ? absl::StrCat(value / 1000, "ms") : absl::StrCat(value, "us");
  }
  if (row.type == FlagType::kRatio) {
    return absl::StrCat(static_cast<double>(value) / static_cast<double>(kMillion));
  }
  if (row.type == FlagType::kBytes && value != 0 && value % kMiB == 0) {
    return absl::StrCat(value / kMiB, "MiB");
  }
  return absl::StrCat(value);
}

// Returns "a size such as 64MiB; default 2048MiB".
std::string ValueText(const FlagRow& row) {
  return absl::StrCat(FlagTypeText(row.type), "; default ", DefaultText(row));
}

// Returns an entry of a list of the manual page.
std::string Item(absl::string_view name, absl::string_view value, absl::string_view help) {
  return absl::StrCat(".TP\n", roff::Bold(name),
                      value.empty() ? "" : absl::StrCat(" (", roff::Escape(value), ")"), "\n",
                      roff::Sentence(help));
}

}  // namespace

std::string HelpText() {
  std::string text = absl::StrCat("athanord: ", kAbout, ".\n\n", kSettings, "\n\n");
  for (const FlagRow& row : FlagTable()) {
    absl::StrAppendFormat(&text, "  --%s (%s)\n      %s\n", row.name, ValueText(row), row.help);
  }
  absl::StrAppend(&text, "\nInstead of serving:\n\n");
  for (const Answer& row : kAnswers) {
    absl::StrAppend(&text, "  --", row.name, "\n      ", row.help, "\n");
  }
  absl::StrAppend(&text, "\nSignals:\n\n");
  for (const SignalHelp& row : SignalHelps()) {
    absl::StrAppend(&text, "  ", row.names, "\n      ", row.help, "\n");
  }
  absl::StrAppend(&text, "\nExit status: ", kExitStatus, "\n");
  return text;
}

std::string ManualText() {
  std::string text = absl::StrCat(
      ".TH \"ATHANORD\" 1 \"\" \"athanord ", roff::Escape(kVersion), "\"\n.SH NAME\nathanord \\- ",
      roff::Escape(kAbout), "\n.SH SYNOPSIS\n", roff::Bold("athanord"), " [", roff::Italic("FLAGS"),
      "]\n.SH DESCRIPTION\nServes each model at once from a correct baseline plan, searches for "
      "faster plans in the\nbackground, and swaps them in without dropping a request.\n.PP\n",
      roff::Sentence(kSettings), ".SH FLAGS\n");
  for (const FlagRow& row : FlagTable()) {
    absl::StrAppend(&text, Item(absl::StrCat("--", row.name), ValueText(row), row.help));
  }
  absl::StrAppend(&text, ".SH INSTEAD OF SERVING\n");
  for (const Answer& row : kAnswers) {
    absl::StrAppend(&text, Item(absl::StrCat("--", row.name), "", row.help));
  }
  absl::StrAppend(&text, ".SH SIGNALS\n");
  for (const SignalHelp& row : SignalHelps()) {
    absl::StrAppend(&text, Item(row.names, "", row.help));
  }
  absl::StrAppend(&text, ".SH EXIT STATUS\n", roff::Sentence(kExitStatus), ".SH SEE ALSO\n",
                  roff::Bold("athanor"), "(1), ", roff::Bold("athanor-bench"), "(1)\n");
  return text;
}

}  // namespace athanor
