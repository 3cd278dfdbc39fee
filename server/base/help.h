// Tells people what athanord takes: the text of --help and the manual page, both made from the
// tables of flags and signals.
#ifndef ATHANOR_SERVER_BASE_HELP_H_
#define ATHANOR_SERVER_BASE_HELP_H_

#include <string>

namespace athanor {

// Returns the text of --help.
std::string HelpText();
// Returns the manual page athanord(1), which --man prints, in the language of man(7).
std::string ManualText();

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_HELP_H_
