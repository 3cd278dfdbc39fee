// Makes states that a run writes part of what a check compares.
//
//   Graph graph = WithStatesWritten(ParseGraph(text).value());   // each written state is an output
//   RETURN_IF_ERROR(FillStates(graph, arguments, dims, states.get()));
//   ...                                                          // a run of the plan
//   RETURN_IF_ERROR(ReadStates(graph, dims, *states, outputs));  // of outputs that are states
//
// Plans copy no state out, so such outputs are taken from the memory of states, in logical form.
#ifndef ATHANOR_SERVER_TUNER_CHECK_STATE_OUTPUTS_H_
#define ATHANOR_SERVER_TUNER_CHECK_STATE_OUTPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "server/tuner/run/scratch_states.h"

namespace athanor {

// Returns the graph with an output "state NAME" for each update that is none of its outputs.
Graph WithStatesWritten(Graph graph);

// Returns the name of the state whose value this output is; empty: it is no state's.
std::string StateOf(const Graph& graph, const Output& output);

// Returns how many outputs plans of the graph have: those that are no states.
int PlanOutputsOf(const Graph& graph);

// Fills the plan's states. `contents` are those of graph.StateIds(), `dims` values of the plan's
// dims. INVALID_ARGUMENT: the plan has a state that the graph has not.
absl::Status FillStates(const Graph& graph, absl::Span<const absl::string_view> contents,
                        absl::Span<const int64_t> dims, ScratchStates* states);

// Writes outputs that are states; leaves the others alone. `outputs` are by graph.outputs.
absl::Status ReadStates(const Graph& graph, absl::Span<const int64_t> dims,
                        const ScratchStates& states, absl::Span<const absl::Span<char>> outputs);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_STATE_OUTPUTS_H_
