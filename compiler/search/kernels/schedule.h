// The schedule that the search hands to codegen: which values become buffers and how each kernel
// computes its own. Plain data; nothing else crosses from search to codegen.
//
//   KernelChoice c{.root = 7, .kind = KernelKind::kContract, .anchor = 5,
//                  .contract = PanelSchedule{.mr = 12, .nv = 2}};
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_SCHEDULE_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// How a kernel walks its root's elements.
enum class KernelKind : uint8_t {
  kMap,  // lanes along the last axis; reductions inside run per lane
  kRow,  // one work item per row of the last axis; reductions over rows come before the row's loop
  kPoint,       // one element at a time; its reductions run in vectors
  kContract,    // register-tiled contraction `anchor`; the rest of the kernel is its epilogue
  kAttention,   // `anchor` block by block, never with the whole score matrix
  kPaged,       // PagedAttention `anchor`, rows of one sequence together
  kScatter,     // root is a Scatter
  kStateWrite,  // root is a StateWrite: an item a row of its update
  kSort,        // root is a Sort or TopK
  kLoop,  // root is a Scan: it has no kernel of its own; its body's are chosen when it is lowered
};

// How a contraction by panels reads its column operand.
enum class ColumnAccess : uint8_t {
  kPack,     // copied into panels inside each work item
  kAhead,    // a weight that `prepare` copies into panels
  kInPlace,  // read in place, lanes along the columns
  kDots,     // read in place, lanes along the sums: the tile is one of dot products
};

// A contraction by panels of columns, in register tiles of `mr` rows by `nv` vectors of columns;
// for kDots, by `nv` columns. In each schedule of a contraction, `swap`: the right operand's free
// axes become rows.
struct PanelSchedule {
  bool swap = false;
  int mr = 12;
  int nv = 2;
  // kAhead: vectors of a panel as `prepare` stores it, of which tiles take nv at a time; a multiple
  // of nv. 0: nv. The sums do not depend on it.
  int panel = 0;
  int64_t rows_per_item = 96;  // rows of the result one work item computes, a multiple of mr
  // Panels that one work item computes. A panel is nv vectors of columns; for kDots, one vector.
  int64_t panels_per_item = 1;
  // Length of the reduction between two visits of the tile's memory. Not used by kDots.
  int64_t kc = 512;
  ColumnAccess columns = ColumnAccess::kPack;
  // Copies the item's rows kc elements at a time, so that rows a power of two apart do not compete
  // for the same few sets of the first-level cache. Not used by kDots.
  bool copy_rows = false;
  bool prefetch = false;  // kInPlace, kDots: prefetches what the next visit reads

  bool operator==(const PanelSchedule&) const = default;
};

// GPUs: a contraction by tiles whose operands a block stages in its shared memory. Each thread has
// mr x nv of a tile's sums; or each wave, in so many matrix instructions.
struct TileSchedule {
  bool swap = false;
  int mr = 8;
  int nv = 8;
  int64_t kc = 16;  // sums of a stage
  // Stages of matrix instructions; all but one of them are copied ahead. 0: threads multiply, from
  // one stage.
  int stages = 0;
  int split = 1;  // items that share the sums of a tile; the last to be done adds them up

  bool tensor() const { return stages > 0; }

  bool operator==(const TileSchedule&) const = default;
};

// A contraction whose items the CPU's library multiplies, a block each (library_product.h).
struct LibrarySchedule {
  bool swap = false;
  int64_t rows_per_item = 96;
  int64_t panels_per_item = 1;  // a panel is one vector of columns

  bool operator==(const LibrarySchedule&) const = default;
};

// Limits of the workspace of a call, in bytes. A proposal that fits a lower one is that one's.
inline constexpr int64_t kCallWorkspaces[] = {0, 4 << 20, 32 << 20};

// GPUs: a contraction that the target's library computes in one step of the plan.
struct CallSchedule {
  bool swap = false;
  // Which of the library's proposals it is, from 0, among those of at most so many bytes.
  int proposal = 0;
  int64_t workspace = 0;

  bool operator==(const CallSchedule&) const = default;
};

using ContractSchedule = std::variant<PanelSchedule, TileSchedule, LibrarySchedule, CallSchedule>;

inline bool Swaps(const ContractSchedule& schedule) {
  return std::visit([](const auto& s) { return s.swap; }, schedule);
}

// Reports whether matrix instructions compute the contraction.
inline bool IsTensor(const ContractSchedule& schedule) {
  const auto* tile = std::get_if<TileSchedule>(&schedule);
  return tile != nullptr && tile->tensor();
}

// Numbers the ways of contractions, in the order above: those of panels, tiles of threads and of
// matrix instructions, blocks of the CPU's library, calls of a GPU's.
int WayOf(const ContractSchedule& schedule);

// Rows of kPaged's larger items.
inline constexpr int kPagedRows = 16;

struct AttentionSchedule {
  // Keys, and then value columns, per register tile; kPaged: rows times heads of a group.
  int mr = 12;
  int nv = 2;  // vectors of queries per work item; kPaged: of keys, and then of value columns
  int64_t key_block = 96;  // keys between two corrections of the running maximum, a multiple of mr
  // kPaged: rows of a work item, 1 or 16. The sums of a row depend on neither this, mr nor nv.
  int row_tile = 1;

  bool operator==(const AttentionSchedule&) const = default;
};

// How map, row and point kernels walk the root's elements.
struct WalkSchedule {
  // kMap: elements of a long axis or of several rows that one work item computes
  int64_t elements = 4096;
  // Vectors computed side by side: of a map's elements, or of a row's or a point's reductions, each
  // with a sum of its own.
  int unroll = 1;
  // kMap: rows of the last axis computed side by side; they share the reads of common windows.
  int64_t rows = 1;

  bool operator==(const WalkSchedule&) const = default;
};

struct KernelChoice {
  NodeId root = -1;
  KernelKind kind = KernelKind::kMap;
  NodeId anchor = -1;  // kContract, kAttention, kPaged
  ContractSchedule contract;
  NodeId packed = -1;  // holds the panels of ColumnAccess::kAhead (PackWeights adds it)
  AttentionSchedule attention;
  WalkSchedule walk;
  // GPUs: threads that compute an item together (kir::Kernel.team). kPaged, kSort, kLoop: 1.
  int team = 1;
};

// Reports whether the kernel is a call of a GPU's library.
inline bool IsCall(const KernelChoice& choice) {
  return choice.kind == KernelKind::kContract &&
         std::holds_alternative<CallSchedule>(choice.contract);
}

// Reports whether the kernel's blocks are multiplied by the CPU's library.
inline bool IsLibraryProduct(const KernelChoice& choice) {
  return choice.kind == KernelKind::kContract &&
         std::holds_alternative<LibrarySchedule>(choice.contract);
}

// Reports whether kernels may have teams of so many threads: a power of two up to 32, or 128.
inline bool IsTeam(int threads) {
  return threads == 128 || (threads >= 1 && threads <= 32 && (threads & (threads - 1)) == 0);
}

// A way to compute a graph: kernels in execution order. Every node that is neither some kernel's
// root nor a leaf with memory of its own is computed inside the kernels that need it.
struct Genome {
  std::vector<KernelChoice> kernels;
};

// Returns the schedule as text for reports, "contract mr=12 nv=2 rows=96 panels=1 kc=512 ahead".
// Different schedules have different texts.
std::string ScheduleText(const KernelChoice& choice);
// Parses what ScheduleText writes; the choice has no nodes. INVALID_ARGUMENT if it is not such a
// text.
absl::StatusOr<KernelChoice> ParseSchedule(absl::string_view text);

// Reports by node whether it has memory: inputs, parameters, constants of more than one element,
// and the kernels' roots.
std::vector<bool> MemoryOf(const Graph& graph, const Genome& genome);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_SCHEDULE_H_
