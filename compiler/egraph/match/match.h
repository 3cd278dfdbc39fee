// Finds the matches of many queries in an e-graph, at once.
//
//   std::vector<MatchRequest> requests = {{.query = &q, .since = 0, .limit = 1000}};
//   MatchOutcome outcome = FindMatches(graph, requests, {});
//   for (size_t i = 0; i < outcome.lists[0].size(); ++i) {
//     Match m(&graph, &q.variables(), outcome.lists[0][i]);
//   }
//
// The plans of all requests are laid over each other as a trie, so that what several rules look for
// first is looked for once (as in the code trees of de Moura and Bjorner, CADE 2007). Walking the
// trie is nested loops over rows. A step takes its rows from the shortest list that holds them all:
// nodes of a class or parents of one of the known children, by operator; one look-up in the
// hash-cons where all children are known; the operator's whole table only to start from. Choosing
// the shortest list anew for every binding is what makes generic join good (Ngo et al. 2013); we
// keep it per atom rather than per variable: patterns are nearly always trees of atoms, for which
// both visit the same rows, and lists by class need no tries that unions would have to rebuild.
//
// Thread-compatible: reads the e-graph, which is clean throughout.
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
  // Only matches with a row that came or changed after this epoch; 0 for all.
  uint32_t since = 0;
  // Whether a changed value of the analysis makes a row new, too: somebody looks at values.
  bool reads_values = false;
  // One match more, and the search for this query stops.
  uint64_t limit = std::numeric_limits<uint64_t>::max();
};

// The matches of one request, in the order they were found.
struct MatchList {
  size_t num_variables = 0;
  std::vector<uint32_t> values;  // num_variables per match
  bool over_limit = false;       // then there are none here
  // Rows and conditions looked at for this request; those looked at for several are divided. Equal
  // on every machine. The time of the walk is divided in the same proportion.
  double work = 0;
  double microseconds = 0;

  size_t Bytes() const { return values.capacity() * sizeof(uint32_t); }
  size_t size() const { return num_variables == 0 ? 0 : values.size() / num_variables; }
  absl::Span<const uint32_t> operator[](size_t i) const {
    return absl::MakeConstSpan(values).subspan(i * num_variables, num_variables);
  }
};

struct MatchOptions {
  bool share = true;  // false: every request by itself
  // Asked every few thousand rows, with the bytes of the matches so far; true ends the search.
  std::function<bool(size_t match_bytes)> stop;
};

struct MatchOutcome {
  std::vector<MatchList> lists;  // one per request
  bool stopped = false;          // then the lists are incomplete
};

// REQUIRES: graph.clean().
MatchOutcome FindMatches(const EGraph& graph, absl::Span<const MatchRequest> requests,
                         const MatchOptions& options);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATCH_MATCH_H_
