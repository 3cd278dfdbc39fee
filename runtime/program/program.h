// A plan message, checked and flattened into the tables that the executor walks. Needs no device.
//
//   absl::StatusOr<Program> program = BuildProgram(plan);
//   program->run[0].label
#ifndef ATHANOR_RUNTIME_PROGRAM_PROGRAM_H_
#define ATHANOR_RUNTIME_PROGRAM_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/device/library_call.h"
#include "runtime/program/size_expr.h"

namespace athanor {

// Fields that end in `_size` are ids of Program::sizes.
struct Program {
  struct Buffer {
    v1::Buffer::Kind kind;
    std::string name;
    std::string dtype;
    std::vector<int> shape_sizes;
    int bytes_size;
    // INPUT: index among inputs. OUTPUT: index of the output whose memory it is. PARAMETER: index
    // among parameters. CONSTANT, PREPARED: index in `fixed`. ARENA: offset in the arena. WINDOW:
    // its loop. STATE: index among states.
    int64_t place;
    bool zeroed = false;  // ARENA: counters, as v1::Buffer
    std::string layout;   // STATE: as v1::Buffer
    bool kept = false;    // a step of run, a loop or an output uses it
    // Bytes that library calls touch, by level; empty: none uses it. Its address must not change
    // from run to run.
    std::vector<int64_t> touched;
  };
  // A constant or prepared buffer.
  struct Fixed {
    int buffer;
    int64_t bytes;
    int step = -1;  // of prepare: the first that names the buffer, which makes it
  };
  struct Step {
    std::string label;
    int kernel;
    int call = -1;              // in `calls`; -1: its kernel is code
    int team;                   // of the kernel
    int first_buffer, buffers;  // in buffer_refs
    int first_size, sizes;      // in size_refs
    int grid_size, flops_size, moved_size;
  };
  // As v1::Loop.
  struct Loop {
    struct Slice {
      int buffer, of;
      bool reverse;
    };
    struct Carry {
      int initial, read, next, last, other;
    };
    // A step's use of one of the loop's windows, in buffer_refs.
    struct Use {
      int position, buffer;
    };
    int first, end;  // steps of run
    int count_size;
    int turn = -1;  // buffer with the iteration's number; -1: no step reads it
    std::vector<Slice> slices;
    std::vector<Carry> carries;
    std::vector<Use> uses;
    std::vector<int> inside;  // loops directly inside it, sorted by `first`
  };
  struct Output {
    std::string name;
    int buffer;
    bool copied;  // its buffer is not the caller's memory, so it is copied out
  };

  std::string plan_id;
  SizeTable sizes;
  int kernels = 0;
  std::vector<Buffer> buffers;
  std::vector<int> inputs;         // buffers
  std::vector<int> parameters;     // buffers
  std::vector<int> states;         // buffers
  std::vector<int> arena_buffers;  // sorted by offset
  std::vector<Fixed> fixed;
  std::vector<Step> prepare, run;
  // Library calls of run, each in its ways, which the objects of their kernels complete
  // (CompleteCall); those of several ways have one a level. A run is at the
  // lowest level whose ways have enough rows.
  struct Call {
    int rows_size;
    std::vector<LibraryCall> ways;

    const LibraryCall& at(int level) const { return ways[ways.size() == 1 ? 0 : level]; }
  };
  std::vector<Call> calls;
  int levels = 1;
  std::vector<Loop> loops;
  std::vector<int> outer_loops;  // loops inside no other, sorted by `first`
  // Each step of prepare makes one buffer and reads the others, as in plans of the compiler. If
  // false, none of its steps may be left out.
  bool prepares_once = true;
  std::vector<int> buffer_refs;  // of all steps: buffers
  std::vector<int> size_refs;    // of all steps: ids
  std::vector<Output> outputs;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;  // per thread, the most any step needs
};

// INVALID_ARGUMENT names the plan's field and what it should be.
absl::StatusOr<Program> BuildProgram(const v1::Plan& plan);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_PROGRAM_PROGRAM_H_
