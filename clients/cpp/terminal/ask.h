// Asks whoever sits at the terminal.
//
//   if (CanAsk() && !Ask("delete 3 versions of digits (3, 2, 1)?")) return;
#ifndef ATHANOR_CLIENTS_CPP_TERMINAL_ASK_H_
#define ATHANOR_CLIENTS_CPP_TERMINAL_ASK_H_

#include "absl/strings/string_view.h"

namespace athanor::client {

// Tells whether both standard input and standard error are a terminal.
bool CanAsk();

// Prints the question and waits for a line; only "y" and "yes", in any case, are a yes.
bool Ask(absl::string_view question);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TERMINAL_ASK_H_
