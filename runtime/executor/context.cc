#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/executor/executor.h"

namespace athanor {
namespace {

// Larger inputs and outputs are copied by themselves, from and to the caller's memory: staging them
// would take as much memory of the host that pages cannot leave, and saves little.
constexpr int64_t kMostInBlock = 256 << 10;
constexpr int64_t kMostBytes = std::numeric_limits<int64_t>::max() / 2;

}  // namespace

Executable::Context::Context(std::shared_ptr<const Executable> executable,
                             const StateMemory* states)
    : executable_(std::move(executable)),
      states_(states),
      arena_(executable_->options_.ledger, MemoryKind::kArena),
      scratch_charge_(executable_->options_.ledger, MemoryKind::kScratch) {}

Executable::Context::~Context() = default;

absl::Status Executable::Context::Allocate() {
  const Program& program = executable_->program_;
  Device& device = *executable_->device_;
  RETURN_IF_ERROR(CheckStates());
  RETURN_IF_ERROR(scratch_charge_.Raise(device.ScratchBytes(program.scratch_bytes)));
  ASSIGN_OR_RETURN(queue_, device.NewQueue(program.scratch_bytes));
  if (executable_->options_.timed) queue_->TimeRecordings();
  ASSIGN_OR_RETURN(const int64_t arena_bytes, PlaceStaged());
  RETURN_IF_ERROR(arena_.Allocate(device, arena_bytes));
  dims_.resize(program.sizes.dims().size());
  values_.resize(program.sizes.size());
  errors_.resize(program.run.size());
  turns_.resize(program.loops.size());
  if (!executable_->host_memory_) RETURN_IF_ERROR(AllocateBlock());
  FillTables();
  // What is committed as runs touch it is zero then.
  if (arena_.granule() == 0) RETURN_IF_ERROR(ZeroCounters());
  if (executable_->host_memory_) return absl::OkStatus();
  return RecordSpan(program.outer_loops, 0, program.run.size());
}

absl::Status Executable::Context::CheckStates() {
  const Program& program = executable_->program_;
  const auto unfit = [&](const Program::Buffer& buffer, absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat("plan '", program.plan_id, "', state '", buffer.name, "': ", what));
  };
  for (const int index : program.states) {
    const Program::Buffer& buffer = program.buffers[index];
    if (states_ == nullptr) return unfit(buffer, "its context needs a state memory, and has none");
    const std::vector<StateMemory::Spec>& specs = states_->specs();
    const auto found = std::find_if(specs.begin(), specs.end(), [&](const StateMemory::Spec& spec) {
      return spec.name == buffer.name;
    });
    if (found == specs.end()) return unfit(buffer, "is not in the state memory");
    if (found->layout != buffer.layout) {
      return unfit(buffer, absl::StrCat("has the layout '", buffer.layout,
                                        "', in the state memory '", found->layout, "'"));
    }
    const SizeRange slots = program.sizes.range(buffer.shape_sizes[0]);
    const SizeRange bytes = program.sizes.range(buffer.bytes_size);
    int64_t expected = 0;
    if (__builtin_mul_overflow(slots.max, found->slot_bytes, &expected) || expected != bytes.max) {
      return unfit(
          buffer, absl::StrCat("has at most ", slots.max, " slots in ", bytes.max,
                               " bytes, in the state memory ", found->slot_bytes, " bytes a slot"));
    }
    state_of_.push_back(static_cast<int>(found - specs.begin()));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Executable::Context::PlaceStaged() {
  const Program& program = executable_->program_;
  int64_t end = program.arena_bytes;
  if (executable_->host_memory_) return end;
  const auto place = [&](int buffer, int64_t bytes) {
    const int64_t offset = CallBlock::Aligned(end);
    staged_.push_back({buffer, offset});
    // Half of all addresses leaves room for the alignment.
    return !__builtin_add_overflow(offset, bytes, &end) && end < kMostBytes;
  };
  bool fits = true;
  for (size_t i = 0; i < program.buffers.size() && fits; ++i) {
    const Program::Buffer& buffer = program.buffers[i];
    if (buffer.kind != v1::Buffer::INPUT && buffer.kind != v1::Buffer::OUTPUT) continue;
    const int64_t most = std::max<int64_t>(0, program.sizes.range(buffer.bytes_size).max);
    // In the block, places move with the sizes.
    if (most > kMostInBlock || !buffer.touched.empty()) {
      fits = place(static_cast<int>(i), most);
    } else {
      auto& staged = buffer.kind == v1::Buffer::INPUT ? in_block_ : out_of_block_;
      staged.push_back({static_cast<int>(i), 0});
    }
  }
  for (size_t l = 0; l < program.loops.size() && fits; ++l) {
    if (program.loops[l].turn >= 0) fits = place(program.loops[l].turn, sizeof(int64_t));
  }
  if (fits) return end;
  return absl::ResourceExhaustedError(absl::StrCat(
      "plan '", program.plan_id, "' needs more than ", kMostBytes, " bytes on device '",
      executable_->device_->name(), "' for its arena, inputs and outputs at the largest dims"));
}

// Only inputs and outputs in the caller's memory, and windows, have no lasting address.
void Executable::Context::FillTables() {
  const Program& program = executable_->program_;
  char* const arena = arena_.data();
  addresses_.resize(program.buffers.size());
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Program::Buffer& buffer = program.buffers[i];
    if (buffer.kind == v1::Buffer::ARENA) {
      addresses_[i] = arena + buffer.place;
    } else if (buffer.kind == v1::Buffer::PARAMETER || buffer.kind == v1::Buffer::CONSTANT ||
               buffer.kind == v1::Buffer::PREPARED) {
      addresses_[i] = executable_->FixedAddress(buffer);
    } else if (buffer.kind == v1::Buffer::STATE) {
      addresses_[i] = states_->data(state_of_[buffer.place]);
    }
  }
  for (size_t l = 0; l < program.loops.size(); ++l) {
    if (program.loops[l].turn >= 0) addresses_[program.loops[l].turn] = &turns_[l];
  }
  for (const Staged& staged : staged_) addresses_[staged.buffer] = arena + staged.offset;
  if (!executable_->host_memory_) return;
  bytes_table_.resize(program.buffer_refs.size());
  size_table_.resize(program.size_refs.size());
  for (size_t i = 0; i < program.buffer_refs.size(); ++i) {
    const int index = program.buffer_refs[i];
    const v1::Buffer::Kind kind = program.buffers[index].kind;
    table_.push_back(addresses_[index]);
    if (kind == v1::Buffer::INPUT || kind == v1::Buffer::OUTPUT) {
      patches_.push_back({static_cast<int>(i), index});
    }
  }
}

absl::Status Executable::Context::MoveWindows(int index, int64_t turn) {
  const Program::Loop& loop = executable_->program_.loops[index];
  const int64_t count = values_[loop.count_size];
  const auto at = [&](int buffer) { return static_cast<char*>(DeviceAddress(buffer)); };
  for (const Program::Loop::Slice& slice : loop.slices) {
    const int64_t number = slice.reverse ? count - 1 - turn : turn;
    addresses_[slice.buffer] = at(slice.of) + number * BytesOf(slice.buffer);
  }
  for (const Program::Loop::Carry& carry : loop.carries) {
    // Iterations write two buffers alternately, so none overwrites what it reads. Counting from
    // the end puts the last result into `last`.
    const bool last = (count - 1 - turn) % 2 == 0;
    addresses_[carry.next] = at(last ? carry.last : carry.other);
    addresses_[carry.read] = turn == 0 ? at(carry.initial) : at(last ? carry.other : carry.last);
  }
  turns_[index] = turn;
  if (executable_->host_memory_) {
    for (const Program::Loop::Use& use : loop.uses) table_[use.position] = addresses_[use.buffer];
    return absl::OkStatus();
  }
  // The copy of a call's arguments may not have read these yet. SendTurn() brings them before each
  // replay that reads them.
  for (const Program::Loop::Use& use : loop.uses) {
    *words_[use.position] = reinterpret_cast<int64_t>(addresses_[use.buffer]);
  }
  if (loop.turn < 0) return absl::OkStatus();
  RETURN_IF_ERROR(MakeRoom());
  return block_->SendNumber(*queue_, DeviceAddress(loop.turn), turn);
}

absl::Status Executable::Context::BindTensors(absl::Span<const absl::string_view> inputs,
                                              absl::Span<const absl::Span<char>> outputs,
                                              bool resident) {
  const Program& program = executable_->program_;
  std::fill(errors_.begin(), errors_.end(), KernelError());
  turn_failed_ = false;
  if (executable_->host_memory_) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      addresses_[program.inputs[i]] = const_cast<char*>(inputs[i].data());
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!program.outputs[i].copied) addresses_[program.outputs[i].buffer] = outputs[i].data();
    }
    for (const Patch& patch : patches_) table_[patch.position] = addresses_[patch.buffer];
    return absl::OkStatus();
  }
  if (resident && brought_) return absl::OkStatus();
  brought_ = false;
  return BringInputs(inputs);
}

int64_t Executable::Context::BytesOf(int index) const {
  return values_[executable_->program_.buffers[index].bytes_size];
}

absl::Status Executable::Context::BindSizes(absl::Span<const int64_t> dims) {
  // Sizes equal to those of the call before need no evaluation.
  if (bound_ && std::equal(dims.begin(), dims.end(), dims_.begin())) {
    return absl::OkStatus();
  }
  bound_ = brought_ = false;
  const Program& program = executable_->program_;
  program.sizes.Evaluate(dims, absl::MakeSpan(values_));
  RETURN_IF_ERROR(CheckSizes());
  level_ = LevelNow();
  RETURN_IF_ERROR(CommitArena());
  for (size_t i = 0; i < bytes_table_.size(); ++i) {
    bytes_table_[i] = BytesOf(program.buffer_refs[i]);
  }
  for (size_t i = 0; i < size_table_.size(); ++i) {
    size_table_[i] = values_[program.size_refs[i]];
  }
  if (!executable_->host_memory_) WriteArguments();
  std::copy(dims.begin(), dims.end(), dims_.begin());
  bound_ = true;
  return absl::OkStatus();
}

// The plan comes from outside this layer: a wrong one may fail a call, but must never write outside
// the arena.
absl::Status Executable::Context::CheckSizes() const {
  const Program& program = executable_->program_;
  const auto broken = [&](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat("plan '", program.plan_id, "': ", what));
  };
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const int64_t bytes = BytesOf(i);
    if (bytes < 0) {
      return broken(absl::StrCat("buffer ", i, " has ", bytes, " bytes"));
    }
    if (program.buffers[i].kind == v1::Buffer::ARENA &&
        bytes > program.arena_bytes - program.buffers[i].place) {
      return broken(absl::StrCat("buffer ", i, " of ", bytes, " bytes at ",
                                 program.buffers[i].place, " leaves the arena of ",
                                 program.arena_bytes));
    }
  }
  for (const int index : program.states) {
    const Program::Buffer& buffer = program.buffers[index];
    const int64_t slots = values_[buffer.shape_sizes[0]];
    const int64_t slot_bytes = states_->specs()[state_of_[buffer.place]].slot_bytes;
    if (slots < 0 || slots > states_->slots() || BytesOf(index) != slots * slot_bytes) {
      return broken(absl::StrCat("state '", buffer.name, "' has ", slots, " slots in ",
                                 BytesOf(index), " bytes, the state memory ", states_->slots(),
                                 " slots of ", slot_bytes, " bytes"));
    }
  }
  for (const Program::Step& step : program.run) {
    if (values_[step.grid_size] < 0) {
      return broken(
          absl::StrCat("step '", step.label, "' has a grid of ", values_[step.grid_size]));
    }
  }
  return CheckLoops();
}

absl::Status Executable::Context::CheckLoops() const {
  const Program& program = executable_->program_;
  for (size_t l = 0; l < program.loops.size(); ++l) {
    const Program::Loop& loop = program.loops[l];
    const auto broken = [&](absl::string_view what) {
      return absl::FailedPreconditionError(
          absl::StrCat("plan '", program.plan_id, "': loop ", l, " ", what));
    };
    const int64_t count = values_[loop.count_size];
    if (count < 0) return broken(absl::StrCat("has ", count, " turns"));
    for (const Program::Loop::Slice& slice : loop.slices) {
      int64_t bytes = 0;
      // The slices must cover the buffer exactly, so that none lies outside.
      if (__builtin_mul_overflow(count, BytesOf(slice.buffer), &bytes) ||
          bytes != BytesOf(slice.of)) {
        return broken(absl::StrCat("has ", count, " slices of ", BytesOf(slice.buffer),
                                   " bytes in buffer ", slice.of, " of ", BytesOf(slice.of)));
      }
    }
    for (const Program::Loop::Carry& carry : loop.carries) {
      for (const int buffer : {carry.initial, carry.read, carry.next, carry.other}) {
        if (BytesOf(buffer) == BytesOf(carry.last)) continue;
        return broken(absl::StrCat("carries ", BytesOf(carry.last), " bytes through buffer ",
                                   buffer, " of ", BytesOf(buffer)));
      }
    }
    if (loop.turn >= 0 && BytesOf(loop.turn) != static_cast<int64_t>(sizeof(int64_t))) {
      return broken(
          absl::StrCat("stores its iteration number in ", BytesOf(loop.turn), " bytes, not 8"));
    }
  }
  return absl::OkStatus();
}

absl::Status Executable::Context::CommitArena() {
  const Program& program = executable_->program_;
  // A library call may round its rows up.
  const auto bytes = [&](int index) {
    const std::vector<int64_t>& touched = program.buffers[index].touched;
    return touched.empty() ? BytesOf(index) : std::max(BytesOf(index), touched[level_]);
  };
  return arena_.Use([&](CommittedMemory::Range range) {
    for (const int index : program.arena_buffers) range(program.buffers[index].place, bytes(index));
    for (const Staged& staged : staged_) range(staged.offset, bytes(staged.buffer));
  });
}

absl::Status Executable::Context::ZeroCounters() {
  const Program& program = executable_->program_;
  for (const int index : program.arena_buffers) {
    const Program::Buffer& buffer = program.buffers[index];
    if (!buffer.zeroed) continue;
    const int64_t most = program.sizes.range(buffer.bytes_size).max;
    const int64_t bytes = std::clamp<int64_t>(most, 0, program.arena_bytes - buffer.place);
    const absl::Status filled = queue_->Fill(DeviceAddress(index), 0, bytes);
    const absl::Status waited = queue_->Wait();
    if (!filled.ok() || !waited.ok()) return filled.ok() ? waited : filled;
  }
  return absl::OkStatus();
}

absl::Status Executable::Context::Poison() {
  // All bits set is a NaN in each float type, and -1 in integers.
  const auto poison = [&](int buffer) {
    return queue_->Fill(DeviceAddress(buffer), 0xFF, BytesOf(buffer));
  };
  const Program& program = executable_->program_;
  for (const int index : program.arena_buffers) {
    // The run before has left zeros there.
    if (!program.buffers[index].zeroed) RETURN_IF_ERROR(poison(index));
  }
  // An output that no step writes must not show the call before.
  for (const Staged& staged : staged_) {
    if (program.buffers[staged.buffer].kind != v1::Buffer::OUTPUT) continue;
    RETURN_IF_ERROR(poison(staged.buffer));
  }
  for (const Staged& staged : out_of_block_) RETURN_IF_ERROR(poison(staged.buffer));
  return absl::OkStatus();
}

absl::Status Executable::Context::CopyOut(absl::Span<const absl::Span<char>> outputs) {
  const Program& program = executable_->program_;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int buffer = program.outputs[i].buffer;
    if (executable_->host_memory_ ? !program.outputs[i].copied : IsInBlock(buffer)) continue;
    RETURN_IF_ERROR(
        queue_->Copy(outputs[i].data(), DeviceAddress(buffer), BytesOf(buffer), CopyKind::kToHost));
  }
  return executable_->host_memory_ ? absl::OkStatus() : block_->CopyOut(*queue_);
}

absl::Status Executable::Context::Wait() {
  const absl::Status status = queue_->Wait();
  if (!executable_->host_memory_) SettleTurns(status.ok());
  return status;
}

void Executable::Context::Trim() {
  if (arena_.granule() == 0) return;
  arena_.Release();
  bound_ = brought_ = false;
}

}  // namespace athanor
