// The changes of the best genome that are worth trying: other memory for a value, in all equal
// layers at once, or another form of the graph.
//
//   Moves moves(&options, &forms, &genomes, &tasks);
//   moves.FindFrom(best);                                  // whenever the best genome is another
//   while (std::optional<Move> move = moves.Next(Work::kFlips)) Try(*move);
//
// A move is returned once, however often it is found. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_MOVES_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_MOVES_H_

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/search/kernels/fusion.h"
#include "compiler/search/regions/forms.h"
#include "compiler/search/search/genomes.h"
#include "compiler/search/search/search_options.h"
#include "compiler/search/search/task_table.h"
#include "compiler/search/search/work_turns.h"

namespace athanor {

// Least gain that is worth a measurement, and least gain of a change of the genome: shares of the
// whole time.
inline constexpr double kLeastAction = 0.001, kLeastMove = 0.005;

// A change of the best genome that is worth trying.
struct Move {
  std::string key;  // equal in equal layers, so that it is tried once
  int form;
  Fusion fusion;
  double gain;     // predicted, as a share of the baseline's time
  double promise;  // expected gain for its cost: comparable with KernelRequests::Gain
};

class Moves {
 public:
  // Borrows all four.
  Moves(const SearchOptions* options, FormSpace* forms, Genomes* genomes, TaskTable* tasks);

  // Replaces the moves left by those from `best`. The first call of the three below finds them,
  // which takes seconds in a graph of thousands of nodes.
  void FindFrom(const FusedForm& best) { from_ = best; }
  // Removes and returns the most promising move left. `work` is not kSchedules.
  std::optional<Move> Next(Work work);
  // Returns the promise of the move that Next would return; 0 if there is none.
  double Promise(Work work);
  // Reports whether a move left should gain more than this.
  bool AnyGains(double least);

 private:
  void Find();
  // Adds changes by one decision, made alike in all places that look alike.
  void AddFlips(const FusedForm& from);
  // Adds other forms.
  void AddForms(const FusedForm& from);
  // `more`: its kernels, or only the new ones.
  void Add(Work work, std::string key, int form, Fusion fusion, double gain, const Calls& more);
  // Returns the mean of the gain that a change may bring and the gain it should bring. `less`: the
  // kernels that it replaces; `more`: its own.
  double GainOf(const Calls& less, const Calls& more);
  // Returns the decisions that can be made from a genome, by key.
  std::map<std::string, Fusion> Flips(const FusedForm& from);

  const SearchOptions& options_;
  FormSpace& forms_;
  Genomes& genomes_;
  TaskTable& tasks_;
  std::optional<FusedForm> from_;                // whose moves are still to be found
  std::array<std::vector<Move>, kWorks> moves_;  // by Work; least promising first
  std::set<std::string> moved_;                  // keys of moves returned
  // Calls that a change replaces and adds, by its key. The same change is ranked many times.
  std::map<std::string, std::pair<Calls, Calls>> changes_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_MOVES_H_
