// A plan message, checked and flattened into the tables the executor walks.
// Needs no device.
//
//   absl::StatusOr<Program> program = BuildProgram(plan);
//   program->run[0].label
#ifndef ATHANOR_RUNTIME_PROGRAM_H_
#define ATHANOR_RUNTIME_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/size_expr.h"

namespace athanor {

// Numbers that end in `_size` are ids of Program::sizes.
struct Program {
  struct Buffer {
    v1::Buffer::Kind kind;
    std::string name;
    std::string dtype;
    std::vector<int> shape_sizes;
    int bytes_size;
    // INPUT: position among inputs. OUTPUT: the output whose memory it is.
    // PARAMETER: position among parameters. CONSTANT, PREPARED: position in
    // `fixed`. ARENA: offset in the arena. WINDOW: the loop it is of.
    int64_t place;
  };
  // A constant or prepared buffer.
  struct Fixed {
    int buffer;
    int64_t bytes;
    int step = -1;      // of prepare: the first that names it, which makes it
    bool kept = false;  // a step of run or an output uses it
  };
  struct Step {
    std::string label;
    int kernel;
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
    // A use of one of its windows by a step, in buffer_refs.
    struct Use {
      int position, buffer;
    };
    int first, end;  // steps of run
    int count_size;
    int turn = -1;  // buffer; -1: no step reads the turn's number
    std::vector<Slice> slices;
    std::vector<Carry> carries;
    std::vector<Use> uses;
    std::vector<int> inside;  // loops directly inside it, by first
  };
  struct Output {
    std::string name;
    int buffer;
    bool copied;  // not itself the memory of an OUTPUT buffer
  };

  std::string plan_id;
  SizeTable sizes;
  int kernels = 0;
  std::vector<Buffer> buffers;
  std::vector<int> inputs;         // buffers
  std::vector<int> parameters;     // buffers
  std::vector<int> arena_buffers;  // by offset
  std::vector<Fixed> fixed;
  std::vector<Step> prepare, run;
  std::vector<Loop> loops;
  std::vector<int> outer_loops;  // those inside none, by first
  // Each step of prepare makes one buffer and reads the others, as plans of the
  // compiler do. Else none of its steps may be left out.
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

#endif  // ATHANOR_RUNTIME_PROGRAM_H_
