// Describes the commands of a command line tool and their options.
//
//   ToolSyntax tool("athanor", "Calls models.", "Exit status: ...");
//   CommandSyntax infer = tool.root().Add("infer", "Calls a model once");
//   infer.Option("MODEL", &model, "NAME or NAME/VERSION").Required();
//   infer.Flag("--json", &json, "one JSON object per line");
//   infer.Then([&] { run = Infer; });
//   if (std::optional<bool> done = tool.Parse(argc, argv)) return *done ? 0 : 2;
//
// CLI11 does the work; its headers are seen by this room's source files only. The values that are
// pointed to outlive the tool's syntax; all handles end with it.
#ifndef ATHANOR_CLIENTS_CPP_SYNTAX_COMMAND_SYNTAX_H_
#define ATHANOR_CLIENTS_CPP_SYNTAX_COMMAND_SYNTAX_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/cpp/syntax/command_rows.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace athanor::client {

// Keeps what CLI11 does not keep of an option.
struct OptionExtra {
  Offers offers = Offers::kNothing;
  std::vector<std::string> values;
};
using OptionExtras = std::map<const CLI::Option*, OptionExtra>;

// A handle of one option, argument or flag. Each method returns the handle itself.
class OptionSyntax {
 public:
  OptionSyntax(CLI::Option* option, OptionExtras* extras) : option_(option), extras_(extras) {}

  OptionSyntax Required();
  OptionSyntax Count(int count);         // so many values, no fewer
  OptionSyntax OneAtATime();             // a vector's option: --x a --x b, not --x a b
  OptionSyntax SplitAt(char delimiter);  // one value holds several: a,b
  OptionSyntax ShowDefault();            // --help shows the value as it is now
  OptionSyntax FromEnvironment(const std::string& variable);
  OptionSyntax NotNegative();
  OptionSyntax ByteSize();  // takes 512MiB too
  OptionSyntax ExistingFile();
  // Says what a shell offers for it; checks nothing.
  OptionSyntax Offer(Offers offers);
  OptionSyntax OneOf(std::vector<std::string> values);
  // Refuses a value for which `wrong` returns a message.
  OptionSyntax Check(std::function<std::string(const std::string& text)> wrong);
  OptionSyntax Excludes(OptionSyntax other);
  OptionSyntax Needs(OptionSyntax other);

 private:
  CLI::Option* option_;
  OptionExtras* extras_;
};

// A handle of one command.
class CommandSyntax {
 public:
  CommandSyntax(CLI::App* app, OptionExtras* extras) : app_(app), extras_(extras) {}

  CommandSyntax Add(const std::string& name, const std::string& about);
  void RequireCommand();  // exactly one of those that were added
  // "--name" takes a value, "NAME" is an argument by its place. T: std::string, int, int64_t,
  // uint64_t, double, an optional number, or a vector of strings, which takes several.
  template <typename T>
  OptionSyntax Option(const std::string& name, T* value, const std::string& about = "");
  OptionSyntax Flag(const std::string& name, bool* value, const std::string& about);
  // Called once the whole line is parsed, if this is the command given.
  void Then(std::function<void()> given);

 private:
  CLI::App* app_;
  OptionExtras* extras_;
};

class ToolSyntax {
 public:
  ToolSyntax(const std::string& name, const std::string& about, const std::string& footer);
  ~ToolSyntax();

  CommandSyntax root();
  // Options of the root may follow the commands that are added from here on, too.
  void RootOptionsAnywhere();
  // Nullopt: go on. Otherwise help or what is wrong was printed, and true means help. What is wrong
  // names the option or command, and the one that was meant.
  std::optional<bool> Parse(int argc, char** argv);

  CommandRow Rows() const;
  // Returns the options of the command that Parse found, and of the tool: "--input".
  std::vector<std::string> GivenOptions() const;
  // Returns the help of a command, given by its words: {"cache", "gc"}; of the tool without any.
  // INVALID_ARGUMENT names a word that is no command.
  absl::StatusOr<std::string> Help(const std::vector<std::string>& words) const;

 private:
  std::unique_ptr<CLI::App> app_;
  OptionExtras extras_;
};

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_SYNTAX_COMMAND_SYNTAX_H_
