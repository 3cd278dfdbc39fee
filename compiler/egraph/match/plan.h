// Determines the order in which a query's atoms are joined.
//
//   Plan plan = MakePlan(query, /*first=*/0, /*delta=*/false);
#ifndef ATHANOR_COMPILER_EGRAPH_MATCH_PLAN_H_
#define ATHANOR_COMPILER_EGRAPH_MATCH_PLAN_H_

#include <cstddef>

#include "compiler/egraph/match/query.h"

namespace athanor::egraph {

// Starts with atom `first`. The next atom is always the one with most known: all children (at most
// one row), then the root (the nodes of a class), then some child (the parents of a class), then
// nothing. Conditions come as soon as their variables have values. Registers are numbered in the
// order of their first use, so that plans with the same beginning have equal steps.
Plan MakePlan(const Query& query, size_t first, bool delta);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATCH_PLAN_H_
