// What the search hands to codegen: which values become buffers and how each kernel computes its
// own. Plain data, the only thing that crosses from search to codegen.
//
//   KernelChoice c{.root = 7, .kind = KernelKind::kContract, .anchor = 5, .contract = {.mr = 12,
//   .nv = 2}};
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_SCHEDULE_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// How a kernel walks its root's elements.
enum class KernelKind : uint8_t {
  kMap,  // lanes along the last axis; reductions inside run per lane
  kRow,  // one work item per row of the last axis; reductions over rows come before the row's loop
  kPoint,      // one element at a time; its reductions run in vectors
  kContract,   // register-tiled contraction `anchor`, the rest of the group is its epilogue
  kAttention,  // `anchor` without the whole score matrix
  kScatter,    // root is a Scatter
  kSort,       // root is a Sort or TopK
  kLoop,       // root is a Scan: no kernel of its own, its body's are chosen when it is lowered
};

// How a contraction reads its column operand.
enum class ColumnAccess : uint8_t {
  kPack,     // brought into panels inside each work item
  kAhead,    // a weight, brought into panels by `prepare`
  kInPlace,  // where it lies, lanes along the columns
  kDots,     // where it lies, lanes along the sums: the tile is one of dot products
  kLibrary,  // as the target's library does: it multiplies the item's block (library_product.h)
};

// Tile sizes of a contraction: a register tile is `mr` rows by `nv` vectors of columns; of dot
// products, `mr` rows by `nv` columns; of a library, whose tile is its own, one by one.
struct ContractSchedule {
  bool swap = false;  // the right operand's free axes become rows
  int mr = 12;
  int nv = 2;
  int64_t rows_per_item = 96;  // rows of the result one work item computes, a multiple of mr
  // Panels one work item computes: of nv vectors of columns; of dot products, of one.
  int64_t panels_per_item = 1;
  // Length of the reduction between visits of the tile's memory; not of kDots, kLibrary.
  int64_t kc = 512;
  ColumnAccess columns = ColumnAccess::kPack;
  // The item's rows are copied kc elements at a time, so that rows a power of two apart do not
  // share the same few places of the first-level cache; not of kDots.
  bool copy_rows = false;
  bool prefetch = false;  // kInPlace, kDots: what the next visit reads is asked for ahead
  NodeId packed = -1;     // the node that holds the panels of kAhead (PackWeights adds it)

  bool pack_ahead() const { return columns == ColumnAccess::kAhead; }

  // As a choice: without the node.
  friend bool operator==(const ContractSchedule& a, const ContractSchedule& b) {
    auto tie = [](const ContractSchedule& s) {
      return std::tie(s.swap, s.mr, s.nv, s.rows_per_item, s.panels_per_item, s.kc, s.columns,
                      s.copy_rows, s.prefetch);
    };
    return tie(a) == tie(b);
  }
};

struct AttentionSchedule {
  int mr = 12;             // keys, and then value columns, per register tile
  int nv = 2;              // vectors of queries per work item
  int64_t key_block = 96;  // keys between two corrections of the running maximum, a multiple of mr

  bool operator==(const AttentionSchedule&) const = default;
};

// How map, row and point kernels walk the root's elements.
struct WalkSchedule {
  int64_t elements = 4096;  // kMap: of a long axis or several rows, that one work item computes
  // Vectors computed side by side: of a map's elements; of a row's or a point's reductions, each
  // with a sum of its own.
  int unroll = 1;
  // kMap: rows of the last axis computed side by side, which share what windows both read.
  int64_t rows = 1;

  bool operator==(const WalkSchedule&) const = default;
};

struct KernelChoice {
  NodeId root = -1;
  KernelKind kind = KernelKind::kMap;
  NodeId anchor = -1;  // kContract, kAttention
  ContractSchedule contract;
  AttentionSchedule attention;
  WalkSchedule walk;
};

// One way to compute a graph: kernels in the order they run. Every node that is not some kernel's
// root (or a leaf with memory of its own) is computed inside the kernels that need it.
struct Genome {
  std::vector<KernelChoice> kernels;
};

// "contract mr=12 nv=2 rows=96 panels=1 kc=512 ahead", for reports; different for different
// schedules.
std::string ScheduleText(const KernelChoice& choice);
// The choice with that text; of no node. INVALID_ARGUMENT: it is the text of none.
absl::StatusOr<KernelChoice> ParseSchedule(absl::string_view text);

// Nodes with memory: inputs, parameters, constants of more than one element, and the kernels'
// roots.
std::vector<bool> MemoryOf(const Graph& graph, const Genome& genome);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_SCHEDULE_H_
