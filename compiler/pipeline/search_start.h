// Reads the input of a search from the message that asks for it.
//
//   SearchSetup setup = ReadSearchStart(start).value();
//   Search search(SingleForm(setup.prepared.graph), start.target(), setup.machine, setup.options);
#ifndef ATHANOR_COMPILER_PIPELINE_SEARCH_START_H_
#define ATHANOR_COMPILER_PIPELINE_SEARCH_START_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/search/search/search.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

struct SearchSetup {
  std::string graph_hash;  // of the user's graph
  Prepared prepared;
  std::optional<PagedSizes> paged;  // over the dims of the prepared graph
  Machine machine;                  // measured; typical values where nothing was measured
  RuleChoice rules;
  SearchOptions options;
  std::vector<std::string> refused_recipes;  // reasons why recipes are not among the options'
};

// INVALID_ARGUMENT: the text is no graph, a rule is unknown, or the sizes do not fit its dims.
absl::StatusOr<SearchSetup> ReadSearchStart(const internal::SearchStart& start);

// Returns the measured rates of the machine, and values typical of the target for the others.
Machine MachineOf(const v1::Target& target, const internal::MachineReply& measured);

// Returns the bytes of the weights that every call reads from end to end; not of tables in which it
// looks up some rows.
int64_t WeightBytes(const Graph& graph);

// Returns the switches of family "fuse".
FusionRules FusionRulesOf(const RuleChoice& rules);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_SEARCH_START_H_
