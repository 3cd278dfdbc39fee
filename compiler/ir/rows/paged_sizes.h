// Sizes of calls as a language model has them: how many rows, of how many sequences, over how long
// a context. Checks and searches use them instead of shares of the dims' bounds, at which states
// would take all memory, and which most calls are far below.
//
//   std::optional<PagedSizes> paged = PagedSizes::Of(decoder);   // nullopt: no states in blocks
//   paged->At({.rows = 8, .sequences = 8, .wanted = 8, .context = 256});   // values of its dims
//   paged->At(paged->Usual(512));
//
// Pure functions of dims, whose bounds are those of a box.
#ifndef ATHANOR_COMPILER_IR_ROWS_PAGED_SIZES_H_
#define ATHANOR_COMPILER_IR_ROWS_PAGED_SIZES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

struct PagedCall {
  int64_t rows = 1;
  int64_t sequences = 1;
  int64_t wanted = 1;   // rows whose results count
  int64_t context = 1;  // positions of a sequence
};

class PagedSizes {
 public:
  // Of the first PagedAttention of a graph with states, if rows, sequences, blocks of a sequence
  // and slots have a dim each.
  static std::optional<PagedSizes> Of(const Graph& graph);

  // The dims' names. `followers` are those of sequences and, if there are some, of wanted rows: no
  // call has more of them than rows.
  const std::string& rows() const { return dims_[rows_].name; }
  std::vector<std::string> followers() const;

  int64_t fewest_rows() const { return dims_[rows_].min; }
  int64_t most_rows() const { return dims_[rows_].max; }
  int64_t block() const { return block_; }

  // States of a call have at most so many bytes, or what its rows need: checks hold them several
  // times over.
  static constexpr int64_t kMostStateBytes = int64_t{128} << 20;

  // Returns the values of the dims, in the graph's order, nearest to the call: inside their bounds,
  // with as many blocks of each sequence as context and rows need, and with slots for all of them.
  // The context is shorter where its states would be too large.
  std::vector<int64_t> At(const PagedCall& call) const;
  // The same for other dims, inside their bounds. One whose name it does not know has its minimum.
  std::vector<int64_t> At(const PagedCall& call, const std::vector<Dim>& dims) const;

  // A call with so many rows as an engine makes it: few rows are of a sequence each, many are the
  // prompts of few.
  static PagedCall Usual(int64_t rows, int64_t context);
  // The smallest call: nothing is wanted where none need be.
  PagedCall Smallest() const;
  // At these a plan of the whole box is compared with others: the smallest, and one of many rows.
  std::vector<PagedCall> Compared() const;

 private:
  PagedSizes() = default;

  std::vector<Dim> dims_;
  int rows_ = -1, sequences_ = -1, blocks_ = -1, slots_ = -1;  // in dims_
  Expr slots_of_;                                              // over the last
  int64_t block_ = 16, slot_bytes_ = 0;                        // of all states
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_ROWS_PAGED_SIZES_H_
