// The kernel IR: one kernel as structured loops over three-address statements on scalars and
// explicit vectors. Lowering writes it, the printers turn it into C, CUDA C++ or MSL, and it prints
// and parses as text (kir_text.cc).
//
//   kernel exp(s0) grid floordiv(s0 + 4095, 4096)
//     b0: f32 global in; b1: f32 global out
//     for i0 in [4096*g, min(s0, 4096*g + 4096)) step 16 { ... }
//
// Index expressions are Expr (compiler/ir/expr/expr.h) over these symbols:
//   "g"        the work item, in [0, grid)
//   "s0".."sN" size arguments, passed at launch (values of dims)
//   "i0"..     loop variables
//   "v0"..     registers of dtype i64, so that computed indices address memory
//   "lane"     the lane of the vector being computed
// Every register is assigned once, except those declared by kMutable, which kAssign may change.
#ifndef ATHANOR_COMPILER_CODEGEN_KIR_KIR_H_
#define ATHANOR_COMPILER_CODEGEN_KIR_KIR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/expr/expr.h"
#include "compiler/ir/graph/op.h"
#include "compiler/ir/value/dtype.h"
#include "compiler/ir/value/tensor.h"

namespace athanor::kir {

inline constexpr char kLane[] = "lane";
inline constexpr char kGrid[] = "g";
// Sizes of a GPU's wave and of its blocks. A team of more threads than a wave's is a block.
inline constexpr int kWaveThreads = 32, kBlockThreads = 128;

// An operand of a matrix instruction (compiler/search/kernels/matrix_instructions.h) of which a
// register holds a fragment.
enum class Part : uint8_t {
  kNone,   // a scalar or vector
  kLeft,   // m rows, k columns
  kRight,  // k rows, n columns
  kSums,   // m rows, n columns
};

// Registers of f16 and bf16 hold values of that precision: every result is rounded to it.
struct Type {
  DType dtype = DType::kF32;
  int lanes = 1;  // of a fragment: the team's threads
  // A fragment: each wave of the team has a matrix of its own, spread over its threads as
  // codegen/cuda/fragments.h has it.
  Part part = Part::kNone;
  bool operator==(const Type&) const = default;
};

using Var = int32_t;  // register "v<id>"
inline constexpr Var kNoVar = -1;

enum class Space : uint8_t {
  kGlobal,   // an argument of the kernel
  kLaunch,   // an argument too: memory of the launch, which all teams share
  kScratch,  // private to the team running the work item; undefined contents at the item's start
};

struct Buffer {
  DType dtype = DType::kF32;
  Space space = Space::kGlobal;
  bool written = false;  // kGlobal: an output; else it is only read
  int64_t elements = 0;  // kLaunch, kScratch: its size
  bool zeroed = false;   // kLaunch: counters of kTicket, 0 before and after each launch

  // Rounds the size of a scratch buffer up to a cache line.
  int64_t ScratchBytes() const { return (elements * DTypeBytes(dtype) + 63) / 64 * 64; }
};

enum class Opcode : uint8_t {
  kConst,  // result = constant, in every lane
  kIndex,  // result(i64) = index; lane l has "lane" = l
  kLoad,  // result = buffer[index]; lane l has "lane" = l; inactive lanes and false predicates give
          // 0
  kStore,      // buffer[index] = args[0]; inactive lanes and false predicates store nothing
  kPrefetch,   // buffer[index] will be read soon; a hint, so the index may lie outside the buffer
  kCompute,    // result = op(args...), lane by lane; op is elementwise in the op table
  kFma,        // result = args[0] * args[1] + args[2], rounded once (floats) or wrapping (integers)
  kBroadcast,  // result(lanes) = args[0](scalar) in every lane
  kReduce,  // result(scalar) = op over the lanes of args[0]; op is kAdd, kMul, kMin, kMax, kAnd or
            // kOr
  kLaneMask,    // result(bool, lanes) = lane < index
  kCheckIndex,  // result(bool) = 0 <= args[0] < index; an active lane that fails sets the error
                // record
  kRandomBits,  // result(u32) = word (args[0] mod 4) of the Philox block args[0] div 4, key args[1]
                // (u64)
  kMutable,     // declares result with the value args[0]; result may be assigned in this block and
                // below
  kAssign,      // the kMutable register `result` takes the value args[0]
  kFor,         // for (loop = begin; loop < end; loop += step) body
  kIf,          // if (args[0], a bool scalar) body
  // matrices[0] = matrices[1] * matrices[2] by a library, in f32 or f64. extents: rows, columns and
  // sums. The result is not read, not transposed, and in neither operand's buffer.
  kGemm,
  // matrices[0] = matrices[1] * matrices[2] (+ buffer, the bias, in each row) by a GPU's library
  // (v1::LibraryCall), for each of a batch. extents: rows, columns, sums, batch; all but the rows
  // are constant, as are indices and strides. The kernel's only statement, of one item. The last
  // buffer, of kLaunch, is its workspace; there is none if the call gets no bytes.
  kCall,
  // sorts the first extents[0] elements of matrices[0], unsigned integers, in ascending order;
  // those of matrices[1], i32 or i64, move with them. Equal keys keep their order. matrices[2] and
  // [3] are scratch of the same sizes, undefined afterwards.
  kSort,
  // orders what the team's threads did to memory before it ahead of what they do after it
  kBarrier,
  // result(kLeft, kRight) = the matrix at matrices[0], of scratch, whose index is the same in all
  // threads of a wave
  kFragment,
  kMma,   // result(kSums) = args[0](kLeft) * args[1](kRight) + args[2](kSums), by wave
  kSlot,  // result(lanes) = the element that each thread has in slot `step` of args[0](kSums)
  // Begins to copy: lane l copies `step` elements from matrices[0], of a global buffer that is only
  // read, to buffer[index], scratch; zeros where the predicate is false, for which nothing is read.
  // Until a kWait has waited for it nothing may touch what is written, and then only its thread.
  kCopy,
  kCommit,  // makes a group of the copies that each thread has begun since the last kCommit
  kWait,    // waits until at most `step` groups, the youngest, are under way
  // result(i32) = how many teams drew buffer[index] before, of `step` teams that draw it; the same
  // in all threads. What those teams stored ahead of their draws is seen behind this one. The last
  // draw leaves 0. For teams of a block; the buffer is `zeroed`.
  kTicket,
};

enum class AxisRole : uint8_t { kSerial, kUnroll };

// Element (i, j) is buffer[index + i * stride + j] or, if transposed, buffer[index + j * stride +
// i]. A row of kSort, and the source of kCopy, has no stride.
struct Matrix {
  int buffer = -1;
  Expr index;
  Expr stride;
  bool transposed = false;
  int64_t batch_stride = 0;  // kCall: elements from one of the batch to the next
};

// The ops of kReduce: any order of the lanes gives what one after another gives, but for rounding.
constexpr bool CanReduce(Op op) {
  return op == Op::kAdd || op == Op::kMul || op == Op::kMin || op == Op::kMax || op == Op::kAnd ||
         op == Op::kOr;
}
// Shift, whose attribute `direction` is Stmt::shift_left.
constexpr bool HasDirection(Op op) { return op == Op::kShift; }

struct Stmt {
  Opcode opcode = Opcode::kConst;
  Var result = kNoVar;
  // Of the result; of args[0] for kStore; of an element for kGemm and kCopy, of the operands' for
  // kCall; of a key for kSort.
  Type type;
  Op op = Op::kAdd;  // kCompute, kReduce
  std::vector<Var> args;
  // kLoad, kStore, kPrefetch, kCopy, kTicket; kCall: the bias, -1 if there is none.
  int buffer = -1;
  Expr index;  // see Opcode
  // kLoad, kStore, kCheckIndex: lanes [0, count) are active; all if absent.
  std::optional<Expr> count;
  Var predicate = kNoVar;   // kLoad, kStore, kCheckIndex, kCopy: bool, scalar or per lane
  Scalar constant;          // kConst
  bool shift_left = false;  // kCompute Shift
  std::string loop;         // kFor
  Expr begin, end;          // kFor
  int64_t step = 1;         // kFor, kSlot, kCopy, kWait, kTicket
  AxisRole role = AxisRole::kSerial;
  bool narrow = false;           // its index expressions may be computed in i32 (index_bits.h)
  std::vector<Stmt> body;        // kFor, kIf
  std::vector<Matrix> matrices;  // kGemm, kCall, kSort, kFragment, kCopy
  std::vector<Expr> extents;     // kGemm, kCall, kSort
  // kCall: ascending numbers of rows that the library computes; the first that suffices is taken.
  std::vector<int64_t> ways;
  int proposal = 0;  // kCall: which of the library's ways to compute each it is, from 0
};

struct Kernel {
  std::string name;  // for people; not hashed
  // dim names whose values are s0, s1, ...; neither printed nor hashed
  std::vector<std::string> sizes;
  // In the order of the launch's buffer table, kLaunch last; then scratch.
  std::vector<Buffer> buffers;
  Expr grid = 1;  // over s0, s1, ...
  // Threads that run an item together: a power of two up to kWaveThreads, or kBlockThreads. Lane l
  // of a vector is thread l's, so vectors of a team have as many lanes. All threads compute scalars
  // alike; thread 0 stores them. Teams of one have vectors of any lanes, and no kBarrier; others no
  // kGemm and no kSort. Only a block has fragments and copies.
  int team = 1;
  int vars = 0;  // registers v0 .. v<vars-1>
  std::vector<Stmt> body;

  int64_t ScratchBytes() const;  // of all scratch buffers, one after another
  int LaunchBuffers() const;     // counts those of kLaunch
};

// Returns the library call that the kernel is; null if it is code.
const Stmt* CallOf(const Kernel& kernel);

// Verifies what printers rely on: registers are defined before use and in scope, operands have the
// types the opcode says, symbols of index expressions are known, stores go to written or scratch
// buffers only, steps are positive. A team's kernel has no races: lanes of a store have elements of
// their own, and barriers order the rest (barriers.h); items share by tickets only (tickets.h). The
// error names the statement's result or loop, or the statements that race.
absl::Status Verify(const Kernel& kernel);

// ToText returns the text form without the name; equal text means equal kernels. KirHash is its
// SHA-256, 64 hex digits.
std::string ToText(const Kernel& kernel);
std::string TypeText(Type type);  // "f32x16"
absl::StatusOr<Kernel> ParseKernel(std::string_view text);
std::string KirHash(const Kernel& kernel);

// Tells whether `index` is the same in all lanes, advances by one per lane, or neither. `vectors`:
// the i64 registers that differ by lane.
enum class LanePattern : uint8_t { kUniform, kContiguous, kScattered };
LanePattern LanePatternOf(const Expr& index, const std::vector<std::string>& vectors);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_KIR_KIR_H_
