// Manual pages of a tool and its commands, in the language of man(7).
//
//   for (const ManualPage& page : ManualPages(tool.Rows(), "0.1.0")) Write(page.name + ".1",
//   page.text);
#ifndef ATHANOR_CLIENTS_CPP_SYNTAX_MANUAL_H_
#define ATHANOR_CLIENTS_CPP_SYNTAX_MANUAL_H_

#include <string>
#include <vector>

#include "clients/cpp/syntax/command_rows.h"

namespace athanor::client {

struct ManualPage {
  std::string name;  // "athanor", "athanor-cache-gc"
  std::string text;
};

// Returns a page for the tool, then one for each of its commands.
std::vector<ManualPage> ManualPages(const CommandRow& tool, const std::string& version);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_SYNTAX_MANUAL_H_
