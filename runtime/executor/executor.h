// Runs plans. An Executable is a loaded plan with its kernels, parameters and prepared weights; an
// execution context holds what one call at a time needs.
//
//   auto model = Executable::Load(plan, objects, parameters, device, {}).value();
//   auto context = model->NewContext().value();  // reuse it for many calls
//   absl::Status status = model->Run(context.get(), /*dims=*/{4, 128}, {x_bytes},
//                                    {absl::MakeSpan(y_bytes)}, {});
#ifndef ATHANOR_RUNTIME_EXECUTOR_EXECUTOR_H_
#define ATHANOR_RUNTIME_EXECUTOR_EXECUTOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/device/device.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/executor/call_block.h"
#include "runtime/memory/committed_memory.h"
#include "runtime/memory/fixed_buffers.h"
#include "runtime/memory/prepared_pool.h"
#include "runtime/memory/state_memory.h"
#include "runtime/memory/uploaded_weights.h"
#include "runtime/program/program.h"

namespace athanor {

// A step as a debugger sees it after it ran: everything that the step could touch.
struct StepView {
  struct Buffer {
    int index;  // in plan.buffers
    absl::string_view name, dtype;
    absl::InlinedVector<int64_t, 6> shape;
    absl::string_view data;
  };
  int step;  // in plan.run
  absl::string_view label;
  int64_t grid;
  std::vector<Buffer> buffers;
};

struct RunOptions {
  // Checked before every step or, on a device with recordings, before each of these:
  // DEADLINE_EXCEEDED, CANCELLED.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  const std::atomic<bool>* cancelled = nullptr;
  // Receives the nanoseconds of each step, over all iterations of a loop, by the device's clock if
  // there is one and the plan was loaded with `timed`; empty, or one element per step of plan.run.
  absl::Span<int64_t> step_nanoseconds;
  // For measuring: runs only this many steps of plan.run, from first_step on; -1: all from there.
  // Must not cut a loop.
  int first_step = 0, steps = -1;
  // For measuring: receives how long the steps took by the device's clock, or nullopt: if it has
  // none, the plan was loaded without `timed`, or the steps are not one recording.
  std::optional<double>* device_seconds = nullptr;
  // For measuring: takes the inputs that this context's last run brought, if that was at these dims
  // and succeeded, and leaves on the device outputs and errors of items outside loops. Means
  // nothing where kernels use the caller's memory.
  bool resident = false;
  // For debugging: runs on one thread and calls this after every step; an error ends the run.
  // Allocates, as does the first run with step_nanoseconds or other steps on a device with
  // recordings, which records them.
  const std::function<absl::Status(const StepView&)>* check = nullptr;
};

struct LoadOptions {
  // Count the device's memory, and the host's by which calls bring and fetch what a device with
  // memory of its own reads and writes; null: it is not counted. Must outlive the Executable and
  // its contexts.
  MemoryLedger* ledger = nullptr;
  MemoryLedger* host_ledger = nullptr;
  // Pool in which constants, prepared weights and copies of weights are shared with other plans.
  // The pool charges them to a ledger of its own; it must outlive the Executable. Null: no sharing.
  PreparedPool* pool = nullptr;
  // For measuring: recordings keep times, which costs each run a little.
  bool timed = false;
  // For tests: fills the arena, but counters, with NaNs before every run.
  bool poison = false;
};

// Reports whether a run ended because a kernel found an index out of range, and not with another
// INVALID_ARGUMENT.
bool IsIndexError(const absl::Status& status);

// Immutable after Load, used by any number of threads at once.
class Executable : public std::enable_shared_from_this<Executable> {
 public:
  class Context;

  // Checks the plan, loads objects[i] for plan.kernels[i], and runs `prepare`. `parameters` may
  // hold more than the plan needs, in any order. The device must outlive the Executable and its
  // contexts.
  //
  // INVALID_ARGUMENT names what is wrong in the plan, or the parameter that is missing or has a
  // wrong byte count. FAILED_PRECONDITION: the plan is made for another kind of device, or a kernel
  // does not load on this machine.
  // RESOURCE_EXHAUSTED, before anything is loaded, names what the plan needs: its prepared weights
  // or scratch do not fit.
  static absl::StatusOr<std::shared_ptr<const Executable>> Load(
      const v1::Plan& plan, absl::Span<const absl::string_view> objects,
      absl::Span<const ParameterView> parameters, Device* device, const LoadOptions& options);
  ~Executable();

  // Returns a context, which is used by one thread at a time and keeps the Executable alive.
  // Reserves addresses for the bucket's largest sizes; memory is charged to the ledger and
  // committed as runs touch it. What is small to the device, or all if it cannot do so, is
  // allocated here. A plan with states takes them from `states`, which must outlive the context,
  // and whose blocks must be committed before a run uses them; FAILED_PRECONDITION names a state
  // that is not there, or lies there in another way.
  absl::StatusOr<std::unique_ptr<Context>> NewContext(const StateMemory* states = nullptr) const;

  // Computes outputs from inputs. `dims` are values in the order of plan.dims; `inputs` follow
  // plan.buffers of kind INPUT, `outputs` plan.outputs. They have exactly input_bytes() and
  // output_bytes() and need no alignment; outputs overlap nothing. Allocates nothing but memory of
  // the arena that no run before touched.
  //
  // INVALID_ARGUMENT: a dim outside the plan's range, a wrong byte count, or an index that a kernel
  // found out of range (names step, index and extent). FAILED_PRECONDITION: the plan is wrong about
  // its own sizes. RESOURCE_EXHAUSTED: there is no memory for what these dims touch. Any other: the
  // device's own, such as UNAVAILABLE if it is lost. After an error
  // the outputs' contents are undefined; the context stays usable.
  absl::Status Run(Context* context, absl::Span<const int64_t> dims,
                   absl::Span<const absl::string_view> inputs,
                   absl::Span<const absl::Span<char>> outputs, const RunOptions& options) const;

  // Makes the recordings that Run() with these options replays, so that its time has none; those of
  // whole runs are there with the context. Does nothing on a device of host memory. Errors are
  // Run()'s.
  absl::Status Record(Context* context, const RunOptions& options) const;

  // INVALID_ARGUMENT names the dim and its range.
  absl::Status CheckDims(absl::Span<const int64_t> dims) const;

  using Shape = absl::InlinedVector<int64_t, 6>;
  int inputs() const { return program_.inputs.size(); }
  int outputs() const { return program_.outputs.size(); }
  const std::string& input_name(int i) const { return InputBuffer(i).name; }
  const std::string& output_name(int i) const { return program_.outputs[i].name; }
  const std::string& input_dtype(int i) const { return InputBuffer(i).dtype; }
  const std::string& output_dtype(int i) const { return OutputBuffer(i).dtype; }
  // REQUIRES for all four: CheckDims(dims) is OK.
  int64_t input_bytes(int i, absl::Span<const int64_t> dims) const {
    return program_.sizes.EvaluateOne(InputBuffer(i).bytes_size, dims);
  }
  int64_t output_bytes(int i, absl::Span<const int64_t> dims) const {
    return program_.sizes.EvaluateOne(OutputBuffer(i).bytes_size, dims);
  }
  Shape input_shape(int i, absl::Span<const int64_t> dims) const {
    return ShapeOf(InputBuffer(i), dims);
  }
  Shape output_shape(int i, absl::Span<const int64_t> dims) const {
    return ShapeOf(OutputBuffer(i), dims);
  }

  const std::string& plan_id() const { return program_.plan_id; }
  const std::vector<SizeDim>& dims() const { return program_.sizes.dims(); }
  int steps() const { return program_.run.size(); }
  const std::string& step_label(int i) const { return program_.run[i].label; }
  // Constants, prepared weights and copies of weights, held as long as this lives: the blocks, some
  // of which other plans may hold too, and the bytes of all.
  std::vector<PreparedPool::Block> fixed_blocks() const {
    std::vector<PreparedPool::Block> blocks = fixed_.blocks();
    blocks.insert(blocks.end(), weights_.blocks().begin(), weights_.blocks().end());
    return blocks;
  }
  int64_t fixed_bytes() const { return PreparedPool::BytesOf(fixed_blocks()); }

 private:
  Executable(Program program, Device* device, const LoadOptions& options);

  const Program::Buffer& InputBuffer(int i) const { return program_.buffers[program_.inputs[i]]; }
  const Program::Buffer& OutputBuffer(int i) const {
    return program_.buffers[program_.outputs[i].buffer];
  }
  Shape ShapeOf(const Program::Buffer& buffer, absl::Span<const int64_t> dims) const;

  absl::Status ChargeScratch(MemoryCharge* scratch) const;
  absl::Status Fill(const v1::Plan& plan, absl::Span<const absl::string_view> objects,
                    absl::Span<const ParameterView> parameters, DeviceQueue& queue);
  absl::Status ReserveMemory(const v1::Plan& plan, absl::Span<const ParameterView> parameters,
                             DeviceQueue& queue);
  absl::Status LoadKernels(const v1::Plan& plan, absl::Span<const absl::string_view> objects);
  absl::Status Prepare(DeviceQueue& queue);
  absl::Status RecordPrepared(DeviceQueue& queue);
  void* FixedAddress(const Program::Buffer& buffer) const;
  absl::Status CheckTensors(const Context& context, absl::Span<const absl::string_view> inputs,
                            absl::Span<const absl::Span<char>> outputs) const;
  static int64_t Work(const Context& context, const Program::Step& step);
  absl::Status CheckSteps(const RunOptions& options) const;
  int64_t EndOf(const RunOptions& options) const;  // behind the last step
  // Reports whether somebody looks at what single steps do.
  static bool StepByStep(const RunOptions& options);
  absl::Status RunSteps(Context& context, absl::Span<const absl::string_view> inputs,
                        absl::Span<const absl::Span<char>> outputs,
                        const RunOptions& options) const;
  // Runs steps [first, end), with the loops among them. `loops` are those directly inside the same
  // loop.
  absl::Status RunSpan(Context& context, const RunOptions& options, absl::Span<const int> loops,
                       int64_t first, int64_t end) const;
  absl::Status RunLoop(Context& context, const RunOptions& options, int loop) const;
  // Runs steps [first, end), among which no loop begins or ends.
  absl::Status RunStraight(Context& context, const RunOptions& options, int64_t first,
                           int64_t end) const;
  absl::Status Launch(Context& context, int64_t step, bool one_thread) const;
  absl::Status Interrupted(const RunOptions& options, int step) const;
  absl::Status Check(Context& context, const RunOptions& options, int step) const;
  absl::Status KernelErrors(const Context& context) const;
  static absl::Status OutOfRange(const std::string& label, const KernelError& error);
  static absl::Status InStep(const std::string& label, const absl::Status& status);
  static absl::Status InKernel(const v1::Plan& plan, int kernel, const absl::Status& status);
  // Completes a launch of a recording, but for its arguments, or a call, but for its buffers.
  RecordedLaunch LaunchOf(const Program::Step& step, int level, RecordedLaunch launch) const;

  Program program_;  // LoadKernels() completes its calls
  Device* const device_;
  const bool host_memory_;  // kernels use the caller's memory in place
  const LoadOptions options_;
  std::vector<std::unique_ptr<DeviceKernel>> kernels_;
  std::unique_ptr<PreparedPool> own_pool_;  // if no pool is shared; else null
  FixedBuffers fixed_;
  UploadedWeights weights_;
};

// The memory and tables of one call at a time.
class Executable::Context {
 public:
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Gives the arena's memory back to the system, unless it was allocated with the context; the next
  // run commits it again. Between runs.
  void Trim();
  // Drops all recordings if they have more launches than so many; runs make those that they need
  // again. Between runs.
  void LimitRecordings(int64_t launches);
  // Bytes of the arena's granules that this context's runs have touched.
  int64_t charged_bytes() const { return arena_.charged_bytes(); }

 private:
  friend class Executable;
  struct Patch {           // a step's use of the caller's memory
    int position, buffer;  // in table_, in plan.buffers
  };
  struct Staged {  // a buffer that goes by copies: an input, an output, a loop's turn
    int buffer;
    int64_t offset;  // in the arena, behind the plan's own buffers; in `block_`, at these sizes
  };
  // Steps [first, end), whether they run on one thread, and the level of their library calls, 0 if
  // they have none of several ways.
  using Span = std::tuple<int64_t, int64_t, bool, int>;

  Context(std::shared_ptr<const Executable> executable, const StateMemory* states);
  absl::Status Allocate();
  // Finds the plan's states in the state memory.
  absl::Status CheckStates();
  // Places what is staged, in order, and returns the bytes of the arena with it.
  absl::StatusOr<int64_t> PlaceStaged();
  void FillTables();
  absl::Status BindSizes(absl::Span<const int64_t> dims);
  absl::Status CheckSizes() const;
  // Charges and commits what the bound sizes touch of the arena; if refused, holds no more than
  // before.
  absl::Status CommitArena();
  // Makes inputs and outputs available to kernels: in place, or by copies of the inputs.
  absl::Status BindTensors(absl::Span<const absl::string_view> inputs,
                           absl::Span<const absl::Span<char>> outputs, bool resident);
  // Makes the counters of all sizes 0, in an arena that is there as a whole.
  absl::Status ZeroCounters();
  absl::Status Poison();
  absl::Status CopyOut(absl::Span<const absl::Span<char>> outputs);
  absl::Status Wait();
  // Where kernels find the buffer; of a WINDOW, in the present iteration.
  void* DeviceAddress(int buffer) const { return addresses_[buffer]; }
  int64_t BytesOf(int buffer) const;
  absl::Status CheckLoops() const;
  // Points the loop's windows to their places in iteration `turn`.
  absl::Status MoveWindows(int loop, int64_t turn);

  // The rest is for a device with recordings (recorded_calls.cc).
  absl::Status AllocateBlock();
  bool IsInBlock(int buffer) const;  // an output
  // Writes the arguments of all steps, for the present sizes, but windows.
  void WriteArguments();
  absl::Status BringInputs(absl::Span<const absl::string_view> inputs);
  // Returns the level of library calls at the bound sizes.
  int LevelNow() const;
  // Returns the level of what is replayed of steps [first, end).
  int LevelOf(int64_t first, int64_t end, int level) const;
  // Records what a run of steps [first, end) will replay, with `loops` as in RunSpan, some of which
  // may lie outside.
  absl::Status RecordSpan(absl::Span<const int> loops, int64_t first, int64_t end);
  // Records steps [first, end) for each level.
  absl::Status RecordLevels(int64_t first, int64_t end, bool one_thread = false);
  // Returns where the buffers of a library call lie, in every run of this level.
  LibraryBuffers CallBuffersOf(const Program::Step& step, int level) const;
  // Returns null for steps that have no work at any size.
  absl::StatusOr<const DeviceRecording*> Recorded(const Span& span);
  absl::Status Replay(int64_t first, int64_t end, bool one_thread);
  // After Wait(): returns how long the last replay took, if its recording keeps times.
  absl::StatusOr<std::optional<double>> ReplayedSeconds() const;
  // Lets a loop go on that is as far ahead of the device as it may be.
  absl::Status MakeRoom();
  void SettleTurns(bool finished);
  // After CopyOut() and Wait(): notes errors, and copies outputs to the caller.
  void NoteErrors();
  void TakeOutputs(absl::Span<const absl::Span<char>> outputs) const;

  const std::shared_ptr<const Executable> executable_;
  const StateMemory* const states_;  // null: the plan has none
  std::vector<int> state_of_;        // by index in Program::states: that in the state memory
  CommittedMemory arena_;
  MemoryCharge scratch_charge_;
  std::unique_ptr<DeviceQueue> queue_;
  std::vector<void*> addresses_;  // by buffer
  std::vector<int64_t> dims_;     // for which the values below were computed
  bool bound_ = false;
  std::vector<int64_t> values_;      // in the order of Program::sizes
  std::vector<KernelError> errors_;  // by step

  // These are empty but for a device of host memory.
  std::vector<void*> table_;          // in the order of Program::buffer_refs
  std::vector<int64_t> bytes_table_;  // of these buffers
  std::vector<int64_t> size_table_;   // in the order of Program::size_refs
  std::vector<Patch> patches_;
  std::vector<int64_t> turns_;  // by loop: number of the iteration

  // These are empty but for a device with recordings.
  std::vector<Staged> staged_;        // in the arena, sorted by offset
  std::unique_ptr<CallBlock> block_;  // its launches are the steps of run
  std::vector<Staged> in_block_, out_of_block_;
  std::vector<int64_t*> words_;  // by position in Program::buffer_refs: address in `block_`
  std::vector<bool> in_loop_;    // by step
  bool turn_failed_ = false;     // the first error of a loop is noted
  bool brought_ = false;         // the device has the last run's inputs, and its slots are empty
  std::map<Span, std::unique_ptr<DeviceRecording>> recordings_;  // null: of no work
  int64_t recorded_launches_ = 0;                                // of all of them
  const DeviceRecording* replayed_ = nullptr;                    // by the last replay
  int replays_ = 0;                                              // of the run
  int level_ = 0;                                                // of the bound sizes
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_EXECUTOR_EXECUTOR_H_
