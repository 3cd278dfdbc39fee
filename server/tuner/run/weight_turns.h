// Assigns fewer distinct contents to the weights of a large model while its plans are measured and
// checked, to save memory: equal layers read equal weights, two or more layers apart.
//
//   std::vector<int> turns = WeightTurns(graph, int64_t{512} << 20);
//   // by graph.ParameterIds(): [0, 1, 2, 0, 1, 2, 0]; all distinct if the graph is small
//
// Weights prepared from equal contents are shared as in the server
// (runtime/memory/prepared_pool.h), under the names of WeightName. Neighbours have different
// contents, so a plan that reads the next layer's weight is detected. A content recurs only after
// those of all layers between, which together exceed the caches.
//
// Rejected: whole models in the child (a second and third copy of a model that may hardly fit
// once), and one content for all (a step that reads another layer's weight would not be detected).
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

// Limits for a measurement and for a check.
inline constexpr int64_t kMostWeightBytes = int64_t{512} << 20;

// Returns for each parameter, in the order of graph.ParameterIds(), the first parameter with the
// same contents: itself, or an earlier one of equal type that the same operands of the same ops
// read. The distinct ones have at most `most` bytes together, unless two of each kind take more; no
// kind gets fewer than two.
std::vector<int> WeightTurns(const Graph& graph, int64_t most);

// Reports whether any parameter shares another's contents.
bool AreShared(const std::vector<int>& turns);

// Returns a ParameterView's hash: equal for equal contents. `set` numbers the sets of weights, if
// there are several.
std::string WeightName(int set, int turn);

// Returns the whole tensor, repeated from its first elements, in little memory. Returns
// RESOURCE_EXHAUSTED if it has more bytes than there are addresses.
absl::StatusOr<RepeatedBytes> RepeatedInput(const DrawnInput& input);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_WEIGHT_TURNS_H_
