// Says what is wrong with a command line, in the words of whoever typed it.
//
//   athanor: there is no command "modles"; did you mean "models"?
//   athanor help lists the commands
#ifndef ATHANOR_CLIENTS_CPP_SYNTAX_WRONG_LINE_H_
#define ATHANOR_CLIENTS_CPP_SYNTAX_WRONG_LINE_H_

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace athanor::client {

// Returns the command that was given: the deepest that the line names.
const CLI::App& GivenCommand(const CLI::App& root);
// Returns the options that a command takes, those of the commands above it too: "--input".
std::vector<std::string> OptionNames(const CLI::App& command);
// Returns the lines for `error`, with which `root` ended its parse.
std::string WrongLineText(const CLI::App& root, const CLI::ParseError& error);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_SYNTAX_WRONG_LINE_H_
