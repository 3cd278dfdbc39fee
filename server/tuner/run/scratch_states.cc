#include "server/tuner/run/scratch_states.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/value/dtype.h"
#include "compiler/search/kernels/state_layout.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// More would take the machine's memory from what serves. States of calls with as many rows as
// searches measure stay below.
constexpr int64_t kMostBytes = int64_t{4} << 30;

bool Serves(const Program& program, absl::Span<const int64_t> dims) {
  const std::vector<SizeDim>& ranges = program.sizes.dims();
  if (dims.size() != ranges.size()) return false;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < ranges[d].min || dims[d] > ranges[d].max) return false;
  }
  return true;
}

absl::Status CheckDims(const Program& program, absl::Span<const int64_t> dims) {
  if (Serves(program, dims)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("states: (", absl::StrJoin(dims, ", "),
                                                 ") are no sizes of plan '", program.plan_id, "'"));
}

int64_t BytesOfSlot(const Program& program, const Program::Buffer& buffer) {
  const int64_t slots = program.sizes.range(buffer.shape_sizes[0]).max;
  const int64_t bytes = program.sizes.range(buffer.bytes_size).max;
  return std::max<int64_t>(1, bytes / std::max<int64_t>(1, slots));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchStates>> ScratchStates::Create(
    const v1::Plan& plan, absl::Span<const std::vector<int64_t>> sizes, Device* device) {
  ASSIGN_OR_RETURN(Program program, BuildProgram(plan));
  std::unique_ptr<ScratchStates> made(new ScratchStates(std::move(program), device));
  int64_t slots = 1;
  for (const std::vector<int64_t>& dims : sizes) {
    RETURN_IF_ERROR(CheckDims(made->program_, dims));
    for (const int state : made->program_.states) {
      const int id = made->program_.buffers[state].shape_sizes[0];
      slots = std::max(slots, made->program_.sizes.EvaluateOne(id, dims));
    }
  }
  std::vector<StateMemory::Spec> specs;
  int64_t bytes_of_slot = 0;
  for (const int state : made->program_.states) {
    const Program::Buffer& buffer = made->program_.buffers[state];
    specs.push_back({buffer.name, buffer.layout, BytesOfSlot(made->program_, buffer)});
    bytes_of_slot += specs.back().slot_bytes;
  }
  if (specs.empty()) return made;
  if (slots > kMostBytes / bytes_of_slot) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "states: ", slots, " slots of ", bytes_of_slot, " bytes of plan '", made->program_.plan_id,
        "' are more than the ", kMostBytes >> 30, " GiB of a run; lower the dims' bounds"));
  }
  slots = (slots + kStateGroup - 1) / kStateGroup * kStateGroup;
  ASSIGN_OR_RETURN(made->memory_, StateMemory::Create(device, /*ledger=*/nullptr, std::move(specs),
                                                      slots, kStateGroup));
  for (int64_t block = 0; block < made->memory_->blocks(); ++block) {
    RETURN_IF_ERROR(made->memory_->Commit(block));
  }
  RETURN_IF_ERROR(made->FillAny([](absl::string_view) { return absl::string_view("\0", 1); }));
  return made;
}

absl::StatusOr<ScratchStates::View> ScratchStates::Find(absl::string_view name,
                                                        absl::Span<const int64_t> dims,
                                                        int64_t bytes) const {
  RETURN_IF_ERROR(CheckDims(program_, dims));
  for (size_t s = 0; s < program_.states.size(); ++s) {
    const Program::Buffer& buffer = program_.buffers[program_.states[s]];
    if (buffer.name != name) continue;
    View view{.spec = static_cast<int>(s)};
    for (const int size : buffer.shape_sizes) {
      view.shape.push_back(program_.sizes.EvaluateOne(size, dims));
    }
    const std::optional<DType> dtype = ParseDType(buffer.dtype);
    view.element_bytes = dtype.has_value() ? DTypeBytes(*dtype) : 0;
    view.bytes = program_.sizes.EvaluateOne(buffer.bytes_size, dims);
    int64_t expected = view.element_bytes;
    for (const int64_t size : view.shape) expected *= size;
    const bool room =
        view.shape[0] <= memory_->slots() && view.bytes == expected && view.element_bytes > 0;
    if (room && view.bytes == bytes) return view;
    return absl::InvalidArgumentError(absl::StrCat("state \"", name, "\" has ", view.bytes,
                                                   " bytes in plan '", program_.plan_id,
                                                   "', and not ", bytes));
  }
  return absl::NotFoundError(
      absl::StrCat("plan '", program_.plan_id, "' has no state \"", name, "\""));
}

void ScratchStates::ForElements(
    const View& view, absl::FunctionRef<void(int64_t logical, int64_t place)> move) const {
  const std::string& layout = memory_->specs()[view.spec].layout;
  const int64_t elements = view.bytes / view.element_bytes;
  if (elements == 0) return;
  // Groups of slots lie one behind the other, each like the first.
  const int64_t group = std::min(elements, elements / view.shape[0] * kStateGroup);
  std::vector<int64_t> places(group);
  for (int64_t i = 0; i < group; ++i) places[i] = StatePlace(layout, view.shape, i);
  for (int64_t first = 0; first < elements; first += group) {
    const int64_t count = std::min(group, elements - first);
    for (int64_t i = 0; i < count; ++i) move(first + i, first + places[i]);
  }
}

absl::Status ScratchStates::Copy(void* to, const void* from, int64_t bytes, CopyKind kind) const {
  if (device_->host_memory()) {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, device_->NewQueue(/*scratch_bytes=*/0));
  RETURN_IF_ERROR(queue->Copy(to, from, bytes, kind));
  return queue->Wait();
}

absl::Status ScratchStates::Fill(absl::string_view name, absl::Span<const int64_t> dims,
                                 absl::string_view logical) {
  ASSIGN_OR_RETURN(const View view, Find(name, dims, static_cast<int64_t>(logical.size())));
  std::string placed(logical.size(), '\0');
  const int64_t size = view.element_bytes;
  ForElements(view, [&](int64_t from, int64_t to) {
    std::memcpy(placed.data() + to * size, logical.data() + from * size, size);
  });
  return Copy(memory_->data(view.spec), placed.data(), view.bytes, CopyKind::kToDevice);
}

absl::Status ScratchStates::Read(absl::string_view name, absl::Span<const int64_t> dims,
                                 absl::Span<char> logical) const {
  ASSIGN_OR_RETURN(const View view, Find(name, dims, static_cast<int64_t>(logical.size())));
  std::string placed(logical.size(), '\0');
  RETURN_IF_ERROR(Copy(placed.data(), memory_->data(view.spec), view.bytes, CopyKind::kToHost));
  const int64_t size = view.element_bytes;
  ForElements(view, [&](int64_t to, int64_t from) {
    std::memcpy(logical.data() + to * size, placed.data() + from * size, size);
  });
  return absl::OkStatus();
}

absl::Status ScratchStates::FillAny(
    absl::FunctionRef<absl::string_view(absl::string_view name)> bytes) {
  for (size_t s = 0; memory_ != nullptr && s < memory_->specs().size(); ++s) {
    const StateMemory::Spec& spec = memory_->specs()[s];
    const absl::string_view some = bytes(spec.name);
    if (some.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("no bytes for state \"", spec.name, "\""));
    }
    std::string whole(memory_->slots() * spec.slot_bytes, '\0');
    for (size_t at = 0; at < whole.size(); at += some.size()) {
      std::memcpy(whole.data() + at, some.data(), std::min(some.size(), whole.size() - at));
    }
    RETURN_IF_ERROR(Copy(memory_->data(static_cast<int>(s)), whole.data(),
                         static_cast<int64_t>(whole.size()), CopyKind::kToDevice));
  }
  return absl::OkStatus();
}

std::vector<std::string> ScratchStates::names() const {
  std::vector<std::string> names;
  for (const int state : program_.states) names.push_back(program_.buffers[state].name);
  return names;
}

}  // namespace athanor
