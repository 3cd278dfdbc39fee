// What a search begins with, from the message that asks for it.
//
//   SearchSetup setup = ReadSearchStart(start).value();
//   Search search(SingleForm(setup.prepared.graph), start.target(), setup.machine, setup.options);
#ifndef ATHANOR_COMPILER_PIPELINE_SEARCH_START_H_
#define ATHANOR_COMPILER_PIPELINE_SEARCH_START_H_

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
  Machine machine;  // measured, or typical where nothing is
  RuleChoice rules;
  SearchOptions options;
  std::vector<std::string> refused_recipes;  // why they are not among the options' recipes
};

// INVALID_ARGUMENT: the text is no graph, a rule is unknown, or the sizes are not those of its
// dims.
absl::StatusOr<SearchSetup> ReadSearchStart(const internal::SearchStart& start);

// What was measured of the machine; the rest as is typical of the target.
Machine MachineOf(const v1::Target& target, const internal::MachineReply& measured);

// Of the weights that every call of the graph reads from end to end: not of tables that it looks
// some rows up in.
int64_t WeightBytes(const Graph& graph);

// The switches of family "fuse".
FusionRules FusionRulesOf(const RuleChoice& rules);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_SEARCH_START_H_
