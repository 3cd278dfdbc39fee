#include "clients/cpp/syntax/manual.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "deploy/bazel/libs/roff.h"

namespace athanor::client {
namespace {

using roff::Bold;
using roff::Escape;
using roff::Italic;
using roff::Sentence;

std::string Synopsis(const CommandRow& row, const std::string& path) {
  std::string text = Bold(path);
  if (!row.options.empty()) absl::StrAppend(&text, " [", Italic("OPTIONS"), "]");
  for (const OptionRow& argument : row.arguments) {
    const std::string name = absl::StrCat(Italic(argument.name), argument.repeated ? " ..." : "");
    absl::StrAppend(&text, " ", argument.required ? name : absl::StrCat("[", name, "]"));
  }
  if (!row.commands.empty()) absl::StrAppend(&text, " ", Italic("COMMAND"), " ...");
  return text + "\n";
}

std::string Item(const OptionRow& row) {
  std::string text = ".TP\n";
  const bool option = absl::StartsWith(row.name, "-");
  absl::StrAppend(&text, option ? Bold(row.name) : Italic(row.name));
  if (option && !row.value.empty()) absl::StrAppend(&text, " ", Italic(row.value));
  absl::StrAppend(&text, row.repeated ? " ...\n" : "\n", Sentence(row.about));
  if (!row.values.empty()) {
    absl::StrAppend(&text, "One of ", Escape(absl::StrJoin(row.values, ", ")), ".\n");
  }
  if (row.required && option) absl::StrAppend(&text, "Required.\n");
  if (!row.fallback.empty()) absl::StrAppend(&text, "Default: ", Escape(row.fallback), ".\n");
  if (!row.environment.empty()) {
    absl::StrAppend(&text, "The environment variable ", Bold(row.environment), " gives it, too.\n");
  }
  return text;
}

std::string Section(const std::string& title, const std::vector<OptionRow>& rows) {
  if (rows.empty()) return "";
  std::string text = absl::StrCat(".SH ", title, "\n");
  for (const OptionRow& row : rows) absl::StrAppend(&text, Item(row));
  return text;
}

std::string PageName(const std::string& path) { return absl::StrReplaceAll(path, {{" ", "-"}}); }

std::string Environment(const std::vector<OptionRow>& rows) {
  std::string text;
  for (const OptionRow& row : rows) {
    if (row.environment.empty()) continue;
    absl::StrAppend(&text, ".TP\n", Bold(row.environment), "\nThe same as ", Bold(row.name), ".\n");
  }
  return text.empty() ? "" : absl::StrCat(".SH ENVIRONMENT\n", text);
}

void AddPages(const CommandRow& row, const std::string& path, const CommandRow& tool,
              const std::string& version, std::vector<ManualPage>* pages) {
  const bool is_tool = &row == &tool;
  const std::string name = PageName(path);
  std::string text = absl::StrCat(".TH \"", absl::AsciiStrToUpper(Escape(name)), "\" 1 \"\" \"",
                                  Escape(tool.name), " ", Escape(version), "\"\n.SH NAME\n",
                                  Escape(name), " \\- ", Escape(row.about), "\n.SH SYNOPSIS\n",
                                  Synopsis(row, path), ".SH DESCRIPTION\n", Sentence(row.about));
  absl::StrAppend(&text, Section("ARGUMENTS", row.arguments));
  if (!row.commands.empty()) {
    absl::StrAppend(&text, ".SH COMMANDS\n");
    for (const CommandRow& command : row.commands) {
      absl::StrAppend(&text, ".TP\n", Bold(command.name), "\n", Sentence(command.about));
    }
  }
  absl::StrAppend(&text, Section("OPTIONS", row.options));
  if (!is_tool) absl::StrAppend(&text, Section("OPTIONS OF EVERY COMMAND", tool.options));
  absl::StrAppend(&text, Environment(is_tool ? row.options : tool.options));
  if (!tool.footer.empty()) absl::StrAppend(&text, ".SH EXIT STATUS\n", Sentence(tool.footer));
  std::vector<std::string> see;
  const auto page = [](const std::string& see_name) { return Bold(see_name) + "(1)"; };
  if (!is_tool) see.push_back(page(tool.name));
  for (const CommandRow& command : row.commands) {
    see.push_back(page(absl::StrCat(name, "-", command.name)));
  }
  if (!see.empty()) absl::StrAppend(&text, ".SH SEE ALSO\n", absl::StrJoin(see, ", "), "\n");
  pages->push_back({name, std::move(text)});
  for (const CommandRow& command : row.commands) {
    AddPages(command, absl::StrCat(path, " ", command.name), tool, version, pages);
  }
}

}  // namespace

std::vector<ManualPage> ManualPages(const CommandRow& tool, const std::string& version) {
  std::vector<ManualPage> pages;
  AddPages(tool, tool.name, tool, version, &pages);
  return pages;
}

}  // namespace athanor::client
