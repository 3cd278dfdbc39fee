// The token with which calls say who makes them.
//
//   ASSIGN_OR_RETURN(options.token, ReadToken(token_file));
#ifndef ATHANOR_CLIENTS_CPP_INPUTS_TOKEN_H_
#define ATHANOR_CLIENTS_CPP_INPUTS_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"

namespace athanor::client {

inline constexpr char kTokenFileHelp[] =
    "file whose first line is the token that says who calls, where the server asks for one; "
    "default: the environment variable ATHANOR_TOKEN, else none";

// Returns the first line of `file`, without the white space around it; if `file` is empty,
// ATHANOR_TOKEN; empty if that is not set either. INVALID_ARGUMENT, which never holds the token
// itself, if it is not 8 to 256 visible ASCII characters.
absl::StatusOr<std::string> ReadToken(const std::string& file);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_INPUTS_TOKEN_H_
