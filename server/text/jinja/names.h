// Binds the names of a parsed template to variables, as jinja2 3.1 does (idtracking, compiler).
//
//   RETURN_IF_ERROR(BindNames(root));  // then every Place of the tree is filled in
//
// The README of this folder states the rule. INVALID_ARGUMENT where jinja2 refuses: something in a
// loop sets "loop", or the filter of a set block reads a name that nothing around the block knows.
#ifndef ATHANOR_SERVER_TEXT_JINJA_NAMES_H_
#define ATHANOR_SERVER_TEXT_JINJA_NAMES_H_

#include "absl/status/status.h"
#include "server/text/jinja/tree.h"

namespace athanor::jinja {

// Takes time linear in the tree. `root` is the kScope of a whole template.
absl::Status BindNames(Statement* root);

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_NAMES_H_
