// The genomes that a search compares, in short: a form of the graph and a fusion, with the tasks
// that result.
//
//   Genomes genomes(&forms, &tasks, rules);
//   FusedForm baseline = genomes.Make(0, {});
//   Genome genome = genomes.Choose(baseline);   // with the schedules of the rule of thumb
//
// Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_GENOMES_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_GENOMES_H_

#include <map>

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task_index.h"
#include "compiler/search/regions/forms.h"
#include "compiler/search/search/task_table.h"

namespace athanor {

// A genome in short: what ChooseKernels needs, and the tasks that result.
struct FusedForm {
  int form = 0;
  Fusion fusion;
  Calls calls;
};

class Genomes {
 public:
  // Borrows the forms and the tasks. `rules`: fusions that genomes may have.
  Genomes(FormSpace* forms, TaskTable* tasks, const FusionRules& rules);

  FusedForm Make(int form, Fusion fusion);
  // Returns the tasks that a form would have.
  Calls CallsOf(int form, const Fusion& fusion);
  // Returns the tasks of the rule of thumb's genome for any graph with the forms' dims.
  Calls UsualCalls(const Graph& graph);
  // Returns the genome over the form's graph, nothing packed.
  Genome Choose(int form, const Fusion& fusion);
  Genome Choose(const FusedForm& state) { return Choose(state.form, state.fusion); }
  // Returns the genome with the layouts of weights that its schedules read.
  ScheduledGraph Packed(int form, Genome genome) const;

  // Returns `from`'s decisions for the same values of another form.
  Fusion Carried(const FusedForm& from, int form);
  // Returns the rule of thumb's fusion, with memory as the recipe has it where there is a choice.
  Fusion FusionOf(const RecipeForm& recipe);

  const Graph& graph(int form) const { return forms_.graph(form); }
  TaskIndex& IndexOf(int form);
  const FusionRules& rules() const { return rules_; }

 private:
  Genome Choose(const Graph& graph, const TaskIndex& index, const Fusion& fusion);
  Calls CallsOf(const Graph& graph, TaskIndex& index, const Fusion& fusion);

  FormSpace& forms_;
  TaskTable& tasks_;
  const FusionRules rules_;
  NodeNumbers numbers_;
  FusionMemo fused_;
  std::map<int, TaskIndex> indexes_;  // by form
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_GENOMES_H_
