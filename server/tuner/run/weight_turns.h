// Weights of a large model take turns in fewer contents while its plans are measured and checked,
// so that these hold a part of it: equal layers read equal weights, two or more layers apart.
//
//   std::vector<int> turns = WeightTurns(graph, int64_t{512} << 20);
//   // of graph.ParameterIds(): [0, 1, 2, 0, 1, 2, 0]; all their own where the graph is smaller
//
// What is prepared from equal contents is shared as in the server (runtime/prepared_pool.h), under
// the names of WeightName. Neighbours keep different contents, so a plan that takes the next
// layer's weight is found out; and a layer's come back only after those of all layers between,
// which is more than caches hold.
//
// Rejected: whole models in the child (a second and third copy of one that may hardly fit once);
// one content for all (which layer's weight a step reads would be checked no more).
#ifndef ATHANOR_SERVER_TUNER_RUN_WEIGHT_TURNS_H_
#define ATHANOR_SERVER_TUNER_RUN_WEIGHT_TURNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "server/tuner/run/inputs.h"
#include "server/tuner/run/repeated_bytes.h"

namespace athanor {

// Of a measurement and of a check.
inline constexpr int64_t kMostWeightBytes = int64_t{512} << 20;

// For each parameter, in the order of graph.ParameterIds(), the first one whose contents it has:
// itself, or an earlier one of equal type that is read by the same operands of the same ops. Those
// that stand for themselves have at most `most` bytes, if two of a kind do; never fewer of a kind.
std::vector<int> WeightTurns(const Graph& graph, int64_t most);

// Whether any of them has another's contents.
bool AreShared(const std::vector<int>& turns);

// A ParameterView's hash: equal for those that have equal contents. `set`: of several contents.
std::string WeightName(int set, int turn);

// The whole tensor, from its first elements, in little memory. RESOURCE_EXHAUSTED: it has more
// bytes than there are addresses.
absl::StatusOr<RepeatedBytes> RepeatedInput(const DrawnInput& input);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_WEIGHT_TURNS_H_
