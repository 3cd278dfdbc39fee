// The order in which a query's atoms are joined.
//
//   Plan plan = MakePlan(query, /*first=*/0, /*delta=*/false);
#ifndef ATHANOR_COMPILER_EGRAPH_MATCH_PLAN_H_
#define ATHANOR_COMPILER_EGRAPH_MATCH_PLAN_H_

#include <cstddef>

#include "compiler/egraph/match/query.h"

namespace athanor::egraph {

// Starts from atom `first`; next comes always the atom of which most is known: all children (at
// most one row), the root (the nodes of a class), some child (the parents of a class), nothing.
// Conditions come as soon as their variables have values. Registers are numbered in the order they
// are set, so that plans that begin alike have equal steps.
Plan MakePlan(const Query& query, size_t first, bool delta);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATCH_PLAN_H_
