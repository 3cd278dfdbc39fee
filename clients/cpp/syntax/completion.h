// Scripts with which a shell completes a tool's command lines.
//
//   ASSIGN_OR_RETURN(std::string script, CompletionScript("bash", tool.Rows()));
//
// They offer commands, options, the values of options that take one of a few, files, folders, and
// models, which they ask the server for (`TOOL models --names`) with the address that the line has.
#ifndef ATHANOR_CLIENTS_CPP_SYNTAX_COMPLETION_H_
#define ATHANOR_CLIENTS_CPP_SYNTAX_COMPLETION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/cpp/syntax/command_rows.h"

namespace athanor::client {

const std::vector<std::string>& CompletionShells();  // bash, zsh, fish

// INVALID_ARGUMENT names the shells that there are scripts for.
absl::StatusOr<std::string> CompletionScript(const std::string& shell, const CommandRow& tool);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_SYNTAX_COMPLETION_H_
