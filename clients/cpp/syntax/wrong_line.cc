#include "clients/cpp/syntax/wrong_line.h"

#include <optional>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "clients/cpp/syntax/nearest.h"

namespace athanor::client {
namespace {

std::string PathOf(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : absl::StrCat(PathOf(*parent), " ", app.get_name());
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::string WithNearest(std::string text, const std::string& nearest, absl::string_view quote) {
  if (nearest.empty()) return text;
  return absl::StrCat(text, "; did you mean ", quote, nearest, quote, "?");
}

// Says what of the line nobody takes: a command, an option, or one argument too many. Nullopt if
// all of it is taken.
std::optional<std::string> LeftOver(const CLI::App& root, const CLI::App& given) {
  std::vector<std::string> left = root.remaining(/*recurse=*/true);
  if (left.empty()) return std::nullopt;
  const std::string& word = left.front();
  if (absl::StartsWith(word, "-") && word.size() > 1) {
    const std::string name = word.substr(0, word.find('='));
    return WithNearest(absl::StrCat("there is no option ", name), Nearest(name, OptionNames(given)),
                       "");
  }
  const std::vector<std::string> commands = CommandNames(given);
  if (commands.empty()) return absl::StrCat("\"", word, "\" is one argument too many");
  return WithNearest(absl::StrCat("there is no command \"", word, "\""), Nearest(word, commands),
                     "\"");
}

std::string About(const CLI::App& given, const std::string& name) {
  const CLI::Option* option = given.get_option_no_throw(name);
  return option == nullptr ? "" : option->get_description();
}

// Says what is missing, for "X is required".
std::string Missing(const CLI::App& given, absl::string_view what) {
  const std::string name(absl::StripSuffix(what, " is required"));
  if (name == "A subcommand") return "a command is missing";
  const std::string about = About(given, name);
  return absl::StrCat(name, " is missing", about.empty() ? "" : ": ", about);
}

std::string Joined(absl::string_view what, absl::string_view verb, absl::string_view between,
                   absl::string_view after) {
  const size_t at = what.find(verb);
  if (at == absl::string_view::npos) return std::string(what);
  return absl::StrCat(what.substr(0, at), between, what.substr(at + verb.size()), after);
}

// CLI11's classes tell errors apart, not their names: that of an ExtrasError is the tool's.
template <typename Kind>
bool Is(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

std::string Reason(const CLI::App& given, const CLI::ParseError& error) {
  const std::string what = error.what();
  const std::string name = what.substr(0, what.find(':'));
  if (Is<CLI::RequiredError>(error)) return Missing(given, what);
  if (Is<CLI::ExcludesError>(error)) {
    return Joined(what, " excludes ", " and ", " cannot be given together");
  }
  if (Is<CLI::RequiresError>(error)) {
    return Joined(what, " requires ", " needs ", ", which is not given");
  }
  if (Is<CLI::ArgumentMismatch>(error)) {
    const bool twice = absl::StrContains(what, "At Most");
    return absl::StrCat(name, twice ? " is given twice" : ": a value is missing");
  }
  return what;
}

}  // namespace

const CLI::App& GivenCommand(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    for (const CLI::Option* option : at->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

std::string WrongLineText(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& given = GivenCommand(root);
  const std::string path = PathOf(given);
  std::optional<std::string> left;
  // A value that is missing or wrong comes first: what follows it may be left over for that.
  if (Is<CLI::ExtrasError>(error) || Is<CLI::RequiredError>(error)) left = LeftOver(root, given);
  std::string help = absl::StrCat(root.get_name(), " help");
  if (&given != &root) absl::StrAppend(&help, path.substr(root.get_name().size()));
  absl::StrAppend(&help,
                  CommandNames(given).empty() ? " tells what it takes" : " lists the commands");
  return absl::StrCat(path, ": ", left.has_value() ? *left : Reason(given, error), "\n", help,
                      "\n");
}

}  // namespace athanor::client
