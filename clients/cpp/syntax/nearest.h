// Finds the word that somebody meant.
//
//   Nearest("modles", {"models", "infer"})   // "models"
#ifndef ATHANOR_CLIENTS_CPP_SYNTAX_NEAREST_H_
#define ATHANOR_CLIENTS_CPP_SYNTAX_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace athanor::client {

// Returns how many letters must be added, removed, replaced or swapped with their neighbour to make
// `b` of `a`; a letter takes part in one of these only.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the word of `known` nearest to `word`, the first of several; empty if none is near: one
// letter or at most a third of the longer word's letters may differ, or `word` must begin it.
std::string Nearest(absl::string_view word, const std::vector<std::string>& known);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_SYNTAX_NEAREST_H_
