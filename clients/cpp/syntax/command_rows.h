// The commands and options of a tool as plain data: for completions, manual pages, suggestions.
//
//   const CommandRow tool = syntax.Rows();
//   for (const CommandRow& command : tool.commands) Print(command.name, command.about);
#ifndef ATHANOR_CLIENTS_CPP_SYNTAX_COMMAND_ROWS_H_
#define ATHANOR_CLIENTS_CPP_SYNTAX_COMMAND_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::client {

// Says what a shell offers for a value.
enum class Offers : uint8_t { kNothing, kFiles, kFolders, kModels, kCommands };

struct OptionRow {
  std::string name;  // "--budget"; of an argument by its place: "MODEL"
  std::string about;
  std::string value;        // kind of its value: "TEXT", "INT"; empty for a flag
  std::string fallback;     // the value it has if it is not given, where that is told
  std::string environment;  // the variable that gives it, too
  bool required = false;
  bool repeated = false;
  Offers offers = Offers::kNothing;
  std::vector<std::string> values;  // the only ones it takes; empty: any
};

struct CommandRow {
  std::string name;
  std::string about;
  std::string footer;
  std::vector<OptionRow> arguments;  // by their place
  std::vector<OptionRow> options;    // without --help
  std::vector<CommandRow> commands;  // those below it
};

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_SYNTAX_COMMAND_ROWS_H_
