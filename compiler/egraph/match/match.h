// Finds the matches of many queries in an e-graph at once.
//
//   std::vector<MatchRequest> requests = {{.query = &q, .since = 0, .limit = 1000}};
//   MatchOutcome outcome = FindMatches(graph, requests, {});
//   for (size_t i = 0; i < outcome.lists[0].size(); ++i) {
//     Match m(&graph, &q.variables(), outcome.lists[0][i]);
//   }
//
// The plans of all requests are merged into a trie, so that equal first steps of several rules are
// executed once (as in the code trees of de Moura and Bjorner, CADE 2007). Walking the trie is
// nested loops over rows. A step takes its rows from the shortest list that holds them all: the
// nodes of a class, or the parents of one of the known children, by operator; one look-up in the
// hash-cons if all children are known; the operator's whole table only at the start. Choosing the
// shortest list for every binding is what makes generic join efficient (Ngo et al. 2013). We choose
// per atom instead of per variable: patterns are nearly always trees of atoms, for which both visit
// the same rows, and lists by class need no tries that unions would have to rebuild.
//
// Thread-compatible: only reads the e-graph, which must stay clean.
#ifndef ATHANOR_COMPILER_EGRAPH_MATCH_MATCH_H_
#define ATHANOR_COMPILER_EGRAPH_MATCH_MATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/match/query.h"

namespace athanor::egraph {

struct MatchRequest {
  const Query* query;
  // Finds only matches with a row that was added or changed after this epoch; 0 for all matches.
  uint32_t since = 0;
  // True if conditions or appliers read values: then a changed value of the analysis makes a row
  // new too.
  bool reads_values = false;
  // The search for this query stops when it exceeds this number of matches.
  uint64_t limit = std::numeric_limits<uint64_t>::max();
};

// The matches of one request, in the order of discovery.
struct MatchList {
  size_t num_variables = 0;
  std::vector<uint32_t> values;  // num_variables per match
  bool over_limit = false;       // if true, the list is empty
  // Number of rows and conditions examined for this request; work shared by several requests is
  // divided among them. Equal on every machine. The time of the walk is divided in the same
  // proportion.
  double work = 0;
  double microseconds = 0;

  size_t Bytes() const { return values.capacity() * sizeof(uint32_t); }
  size_t size() const { return num_variables == 0 ? 0 : values.size() / num_variables; }
  absl::Span<const uint32_t> operator[](size_t i) const {
    return absl::MakeConstSpan(values).subspan(i * num_variables, num_variables);
  }
};

struct MatchOptions {
  bool share = true;  // false: runs every request by itself
  // Called every few thousand rows, with the bytes of the matches so far; true ends the search.
  std::function<bool(size_t match_bytes)> stop;
};

struct MatchOutcome {
  std::vector<MatchList> lists;  // one per request
  bool stopped = false;          // if true, the lists are incomplete
};

// REQUIRES: graph.clean().
MatchOutcome FindMatches(const EGraph& graph, absl::Span<const MatchRequest> requests,
                         const MatchOptions& options);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATCH_MATCH_H_
