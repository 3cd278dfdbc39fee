#include "clients/cpp/syntax/command_syntax.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cpp/syntax/nearest.h"
#include "clients/cpp/syntax/wrong_line.h"

namespace athanor::client {
namespace {

template <typename T>
struct ValueOf {
  using type = T;
};
template <typename T>
struct ValueOf<std::optional<T>> {
  using type = T;
};

// Returns why `text` is no T; empty if it is one.
template <typename T>
std::string WrongNumber(const std::string& text) {
  T value;
  if constexpr (std::is_floating_point_v<T>) {
    if (absl::SimpleAtod(text, &value)) return "";
    return absl::StrCat("\"", text, "\" must be a number");
  } else {
    if (absl::SimpleAtoi(text, &value)) return "";
    return absl::StrCat("\"", text, "\" must be a whole number",
                        std::is_unsigned_v<T> ? ", 0 or more" : "");
  }
}

std::string WrongFile(const std::string& path) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0) {
    return absl::StrCat("\"", path, "\": ", std::strerror(errno));
  }
  return S_ISDIR(about.st_mode) ? absl::StrCat("\"", path, "\" is a folder, not a file") : "";
}

OptionRow RowOf(const CLI::Option& option, const OptionExtras& extras) {
  OptionRow row;
  row.name =
      option.get_positional() ? option.get_single_name() : "--" + option.get_lnames().front();
  row.about = option.get_description();
  const bool flag = option.get_expected_max() == 0;
  if (!flag) row.value = option.get_type_name().substr(0, option.get_type_name().find(':'));
  row.fallback = option.get_default_str();
  row.environment = option.get_envname();
  row.required = option.get_required();
  row.repeated = option.get_expected_max() > 1;
  if (const auto found = extras.find(&option); found != extras.end()) {
    row.offers = found->second.offers;
    row.values = found->second.values;
  }
  return row;
}

CommandRow RowsOf(const CLI::App& app, const OptionExtras& extras) {
  CommandRow row{app.get_name(), app.get_description(), app.get_footer(), {}, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option == app.get_help_ptr()) continue;
    (option->get_positional() ? row.arguments : row.options).push_back(RowOf(*option, extras));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    row.commands.push_back(RowsOf(*command, extras));
  }
  return row;
}

}  // namespace

OptionSyntax OptionSyntax::Required() {
  option_->required();
  return *this;
}

OptionSyntax OptionSyntax::Count(int count) {
  option_->expected(count);
  return *this;
}

OptionSyntax OptionSyntax::OneAtATime() {
  option_->allow_extra_args(false);
  return *this;
}

OptionSyntax OptionSyntax::SplitAt(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

OptionSyntax OptionSyntax::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

OptionSyntax OptionSyntax::FromEnvironment(const std::string& variable) {
  option_->envname(variable);
  return *this;
}

OptionSyntax OptionSyntax::NotNegative() {
  return Check([](const std::string& text) {
    double value = 0;
    const bool negative = absl::SimpleAtod(text, &value) && value < 0;
    return negative ? absl::StrCat("\"", text, "\" must be 0 or more") : "";
  });
}

OptionSyntax OptionSyntax::ByteSize() {
  option_->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  return *this;
}

OptionSyntax OptionSyntax::ExistingFile() { return Offer(Offers::kFiles).Check(WrongFile); }

OptionSyntax OptionSyntax::Offer(Offers offers) {
  (*extras_)[option_].offers = offers;
  return *this;
}

OptionSyntax OptionSyntax::OneOf(std::vector<std::string> values) {
  (*extras_)[option_].values = values;
  return Check([values = std::move(values)](const std::string& text) {
    if (absl::c_linear_search(values, text)) return std::string();
    const std::string nearest = Nearest(text, values);
    return absl::StrCat("\"", text, "\" must be one of ", absl::StrJoin(values, ", "),
                        nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"));
  });
}

OptionSyntax OptionSyntax::Check(std::function<std::string(const std::string& text)> wrong) {
  option_->check(CLI::Validator(std::move(wrong), ""));
  return *this;
}

OptionSyntax OptionSyntax::Excludes(OptionSyntax other) {
  option_->excludes(other.option_);
  return *this;
}

OptionSyntax OptionSyntax::Needs(OptionSyntax other) {
  option_->needs(other.option_);
  return *this;
}

CommandSyntax CommandSyntax::Add(const std::string& name, const std::string& about) {
  return CommandSyntax(app_->add_subcommand(name, about), extras_);
}

void CommandSyntax::RequireCommand() { app_->require_subcommand(1); }

template <typename T>
OptionSyntax CommandSyntax::Option(const std::string& name, T* value, const std::string& about) {
  CLI::Option* option = app_->add_option(name, *value, about);
  using Value = typename ValueOf<T>::type;
  // A check of the kind comes last: a size's unit is turned into a number before.
  if constexpr (std::is_arithmetic_v<Value>) option->check(CLI::Validator(WrongNumber<Value>, ""));
  return OptionSyntax(option, extras_);
}
template OptionSyntax CommandSyntax::Option(const std::string&, std::string*, const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, int*, const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, int64_t*, const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, uint64_t*, const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, double*, const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, std::optional<int>*,
                                            const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, std::optional<int64_t>*,
                                            const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, std::optional<uint64_t>*,
                                            const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, std::optional<double>*,
                                            const std::string&);
template OptionSyntax CommandSyntax::Option(const std::string&, std::vector<std::string>*,
                                            const std::string&);

OptionSyntax CommandSyntax::Flag(const std::string& name, bool* value, const std::string& about) {
  return OptionSyntax(app_->add_flag(name, *value, about), extras_);
}

void CommandSyntax::Then(std::function<void()> given) { app_->callback(std::move(given)); }

ToolSyntax::ToolSyntax(const std::string& name, const std::string& about, const std::string& footer)
    : app_(std::make_unique<CLI::App>(about, name)) {
  app_->footer(footer);
}

ToolSyntax::~ToolSyntax() = default;

CommandSyntax ToolSyntax::root() { return CommandSyntax(app_.get(), &extras_); }

void ToolSyntax::RootOptionsAnywhere() { app_->fallthrough(); }

std::optional<bool> ToolSyntax::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& help) {
    app_->exit(help);
    return true;
  } catch (const CLI::ParseError& error) {
    std::fputs(WrongLineText(*app_, error).c_str(), stderr);
    return false;
  }
  return std::nullopt;
}

CommandRow ToolSyntax::Rows() const { return RowsOf(*app_, extras_); }

std::vector<std::string> ToolSyntax::GivenOptions() const {
  return OptionNames(GivenCommand(*app_));
}

absl::StatusOr<std::string> ToolSyntax::Help(const std::vector<std::string>& words) const {
  const CLI::App* app = app_.get();
  std::string path;
  for (const std::string& word : words) {
    std::vector<std::string> names;
    const CLI::App* found = nullptr;
    for (const CLI::App* command : app->get_subcommands({})) {
      names.push_back(command->get_name());
      if (command->get_name() == word) found = command;
    }
    if (found == nullptr) {
      const std::string nearest = Nearest(word, names);
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no command \"", path, word, "\"",
          nearest.empty() ? "" : absl::StrCat("; did you mean \"", path, nearest, "\"?")));
    }
    app = found;
    absl::StrAppend(&path, word, " ");
  }
  // App::help would go on to the command that is being run.
  absl::StripTrailingAsciiWhitespace(&path);
  return app->get_formatter()->make_help(
      app, absl::StrCat(app_->get_name(), path.empty() ? "" : " ", path),
      CLI::AppFormatMode::Normal);
}

}  // namespace athanor::client
