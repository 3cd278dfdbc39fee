// Changes that the analysis of an e-graph refused.
//
//   for (const Refusal& r : graph.refusals()) LOG(INFO) << r.message;
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_REFUSAL_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_REFUSAL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/egraph/graph/ids.h"

namespace athanor::egraph {

// A change that the analysis refused. The e-graph stays as it was.
struct Refusal {
  enum class Kind {
    kNode,        // Add: the analysis has no value for the node
    kUnion,       // Union: the values of two classes do not merge
    kCongruence,  // Rebuild: two nodes became equal, but the values of their classes do not merge;
                  // both nodes stay. An earlier union was wrong.
    kValue,       // Rebuild: a node's new value does not merge into its class's value
  };
  Kind kind;
  Cause cause;  // origin of the change, or of the union that led to it
  ClassId a;
  ClassId b;  // for kUnion and kCongruence
  std::string message;
};

// The first refusals of an e-graph, and the number of all by cause.
class Refusals {
 public:
  static constexpr size_t kMost = 64;

  // Records a refusal whose message is that of `why`, and returns the error for the caller.
  absl::Status Add(Refusal::Kind kind, Cause cause, ClassId a, ClassId b, const absl::Status& why);

  // Returns the first kMost.
  const std::vector<Refusal>& first() const { return first_; }
  // Returns the number of all with this cause.
  uint64_t Count(Cause cause) const;

 private:
  std::vector<Refusal> first_;
  std::map<Cause, uint64_t> counts_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_REFUSAL_H_
