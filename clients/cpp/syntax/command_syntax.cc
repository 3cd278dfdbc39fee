#include "clients/cpp/syntax/command_syntax.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"

namespace athanor::client {

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
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

OptionSyntax OptionSyntax::ByteSize() {
  option_->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  return *this;
}

OptionSyntax OptionSyntax::ExistingFile() {
  option_->check(CLI::ExistingFile);
  return *this;
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
  return CommandSyntax(app_->add_subcommand(name, about));
}

void CommandSyntax::RequireCommand() { app_->require_subcommand(1); }

template <typename T>
OptionSyntax CommandSyntax::Option(const std::string& name, T* value, const std::string& about) {
  return OptionSyntax(app_->add_option(name, *value, about));
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
  return OptionSyntax(app_->add_flag(name, *value, about));
}

void CommandSyntax::Then(std::function<void()> given) { app_->callback(std::move(given)); }

ToolSyntax::ToolSyntax(const std::string& name, const std::string& about, const std::string& footer)
    : app_(std::make_unique<CLI::App>(about, name)) {
  app_->footer(footer);
}

ToolSyntax::~ToolSyntax() = default;

CommandSyntax ToolSyntax::root() { return CommandSyntax(app_.get()); }

void ToolSyntax::RootOptionsAnywhere() { app_->fallthrough(); }

std::optional<bool> ToolSyntax::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0;
  }
  return std::nullopt;
}

}  // namespace athanor::client
