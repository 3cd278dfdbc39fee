// The best genome of a search so far, and those put aside: tried and not taken, or replaced by a
// better one.
//
//   BestGenome best(&genomes, &tasks, SearchMode::kBudget);
//   if (best.Take(std::move(state))) moves.FindFrom(best.get());
//
// Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_BEST_GENOME_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_BEST_GENOME_H_

#include <optional>
#include <vector>

#include "compiler/search/search/genomes.h"
#include "compiler/search/search/search_options.h"
#include "compiler/search/search/task_table.h"

namespace athanor {

class BestGenome {
 public:
  // Borrows the tasks. The graph as it is, with the rule of thumb's fusion, is the baseline; at
  // first the best genome is the same with the fusions that genomes may have.
  BestGenome(Genomes* genomes, TaskTable* tasks, SearchMode mode);

  const FusedForm& get() const { return best_; }
  const FusedForm& baseline() const { return baseline_; }
  double time() const { return tasks_.TimeOf(best_.calls); }
  // Reports whether every kernel was measured, or serves in the baseline and cannot be measured.
  bool Known(const FusedForm& state) const;

  // Makes `state` the best genome if it is better, and puts the other one aside. Returns true if
  // so.
  bool Take(FusedForm state);
  // Removes and returns the state put aside that is better by now, because its tasks got faster
  // since; nullopt if there is none.
  std::optional<FusedForm> Reconsider();

  int genomes_taken() const { return genomes_taken_; }
  int forms_taken() const { return forms_taken_; }

 private:
  TaskTable& tasks_;
  const SearchMode mode_;
  const FusedForm baseline_;
  FusedForm best_;
  std::vector<FusedForm> aside_;
  int genomes_taken_ = 0, forms_taken_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_BEST_GENOME_H_
