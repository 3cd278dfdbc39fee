// The commands that a tool has about itself: help, version, completion, man.
//
//   AddToolCommands(&tool, [&](std::function<absl::Status()> run) { context.run = run; });
#ifndef ATHANOR_CLIENTS_CPP_SYNTAX_TOOL_COMMANDS_H_
#define ATHANOR_CLIENTS_CPP_SYNTAX_TOOL_COMMANDS_H_

#include <functional>

#include "absl/status/status.h"
#include "clients/cpp/syntax/command_syntax.h"

namespace athanor::client {

// Marks errors of the command line: found before anything was asked of a server.
inline constexpr char kUsagePayload[] = "usage";
absl::Status Usage(absl::Status status);

// Adds them, to be called once all other commands are added. `given` gets what runs the one that
// the command line names, which prints to stdout; the tool must outlive it.
void AddToolCommands(ToolSyntax* tool,
                     std::function<void(std::function<absl::Status()> run)> given);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_SYNTAX_TOOL_COMMANDS_H_
