// Chooses the layouts of the values between the regions of a chain, by dynamic programming.
//
//   LayoutChain chain;
//   chain.tables = {{{.inputs = {0}, .outputs = {0}, .cost = 3},     // as it is
//                    {.inputs = {0}, .outputs = {1}, .cost = 3.1},   // leaves it transposed
//                    {.inputs = {1}, .outputs = {0}, .cost = 1}}};   // reads it transposed
//   chain.steps = {{.table = 0, .inputs = {kFixed}, .outputs = {0}},
//                  {.table = 0, .inputs = {0}, .outputs = {kFixed}}};
//   JoinLayouts(chain, {})[0];   // rows 1 and 2, cost 4.1
//
// Steps are in an order in which values are made before they are used, like regions. The state
// between two steps is the layouts of the values that are made and still needed. A value that
// several later steps use therefore has one layout for all of them, which each of them pays for.
// Only the best ways to reach equal states are kept. This is Viterbi's algorithm (1967) over a
// chain whose states are made as they are met; it is exact as long as there are no more than
// `beam`.
//
// Time and memory: steps x beam x rows of a table. Pure function, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_LAYOUT_JOIN_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_LAYOUT_JOIN_H_

#include <cstddef>
#include <vector>

namespace athanor {

// A way to run a region, with its inputs and outputs in these layouts. Layout 0 is "as it is";
// the caller defines the other numbers, the same for all tables.
struct LayoutRow {
  std::vector<int> inputs, outputs;
  double cost = 0;  // any unit; not finite: the row is never taken
};

// Marks a port whose value keeps its layout in all rows: the graph's own.
inline constexpr int kFixed = -1;

struct LayoutStep {
  int table;
  std::vector<int> inputs, outputs;  // values, numbered from 0, or kFixed
};

struct LayoutChain {
  std::vector<std::vector<LayoutRow>> tables;  // equal regions share one
  std::vector<LayoutStep> steps;
};

struct JoinLimits {
  size_t beam = 128;  // states kept between two steps, the one without changes included
  size_t best = 1;    // joins to return
};

// The row that each step takes, and their total cost.
struct LayoutJoin {
  std::vector<int> rows;
  double cost = 0;
};

// Returns at most limits.best joins, cheapest first; at equal cost the one that changes fewer
// values. The same chain gives the same joins. Equal regions may get different rows, as those at
// the ends must; if the optimum is unique, those in the middle of many get the same. REQUIRES: rows
// have as many layouts as their steps have values; each table has a row of finite cost with 0 at
// every port; a value is made by at most one step, before it is used. A value that no step makes is
// as it is.
std::vector<LayoutJoin> JoinLayouts(const LayoutChain& chain, const JoinLimits& limits);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_LAYOUT_JOIN_H_
