#include "server/tuner/measure/layers.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/program/program.h"

namespace athanor {
namespace {

// Bytes of weights, and of inputs and outputs at a size: beyond the caches.
constexpr int64_t kMaxHeld = int64_t{64} << 20;
constexpr int64_t kMaxLayers = 128;
// Reserves as much as a plan's arena at its bucket's largest sizes: enough for huge pages.
constexpr int64_t kLeastReserved = int64_t{8} << 20;

int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Returns the parameters that steps of a run read in place.
std::set<uint32_t> ReadWhereTheyLie(const v1::Plan& plan) {
  std::set<uint32_t> read;
  for (const v1::Step& step : plan.run()) {
    for (uint32_t buffer : step.buffers()) {
      if (plan.buffers(static_cast<int>(buffer)).kind() == v1::Buffer::PARAMETER) {
        read.insert(buffer);
      }
    }
  }
  const auto add = [&](uint32_t buffer) {
    if (plan.buffers(static_cast<int>(buffer)).kind() == v1::Buffer::PARAMETER) read.insert(buffer);
  };
  for (const v1::Loop& loop : plan.loops()) {
    for (const v1::Loop::Slice& slice : loop.slices()) add(slice.of());
    for (const v1::Loop::Carry& carry : loop.carries()) add(carry.initial());
  }
  return read;
}

bool IsState(const v1::Buffer& buffer) { return buffer.kind() == v1::Buffer::STATE; }

bool OfItsOwn(const v1::Buffer& buffer) {
  return buffer.kind() == v1::Buffer::INPUT || buffer.kind() == v1::Buffer::OUTPUT ||
         buffer.kind() == v1::Buffer::PREPARED || buffer.kind() == v1::Buffer::WINDOW;
}

// Adds a layer's own buffers; returns the new index of each of the plan's buffers for that layer.
std::vector<uint32_t> AddBuffers(const v1::Plan& plan, const std::set<uint32_t>& read, int layer,
                                 std::set<std::string>* names, Layers* model) {
  std::vector<uint32_t> place;
  for (int b = 0; b < plan.buffers_size(); ++b) {
    const v1::Buffer& buffer = plan.buffers(b);
    const bool weight = read.contains(static_cast<uint32_t>(b));
    if (layer == 0 || !(weight || IsState(buffer) || OfItsOwn(buffer))) {
      place.push_back(static_cast<uint32_t>(b));
      continue;
    }
    place.push_back(static_cast<uint32_t>(model->plan.buffers_size()));
    v1::Buffer* copy = model->plan.add_buffers();
    *copy = buffer;
    if (!weight && !IsState(buffer)) continue;
    std::string name = absl::StrCat(buffer.name(), "#", layer);
    while (!names->insert(name).second) name += '#';
    copy->set_name(name);
    (weight ? model->copies : model->states).emplace_back(std::move(name), buffer.name());
  }
  return place;
}

void AddSteps(const google::protobuf::RepeatedPtrField<v1::Step>& from,
              const std::vector<uint32_t>& place,
              google::protobuf::RepeatedPtrField<v1::Step>* to) {
  for (const v1::Step& step : from) {
    v1::Step* copy = to->Add();
    *copy = step;
    for (uint32_t& buffer : *copy->mutable_buffers()) buffer = place[buffer];
  }
}

void AddLoops(const v1::Plan& plan, const std::vector<uint32_t>& place, int first,
              v1::Plan* model) {
  for (const v1::Loop& loop : plan.loops()) {
    v1::Loop* copy = model->add_loops();
    *copy = loop;
    copy->set_first(loop.first() + static_cast<uint32_t>(first));
    for (v1::Loop::Slice& slice : *copy->mutable_slices()) {
      slice.set_buffer(place[slice.buffer()]);
      slice.set_of(place[slice.of()]);
    }
    for (v1::Loop::Carry& carry : *copy->mutable_carries()) {
      carry.set_initial(place[carry.initial()]);
      carry.set_read(place[carry.read()]);
      carry.set_next(place[carry.next()]);
      carry.set_last(place[carry.last()]);
      carry.set_other(place[carry.other()]);
    }
    if (loop.has_turn()) copy->set_turn(place[loop.turn()]);
  }
}

void AddOutputs(const v1::Plan& plan, const std::vector<uint32_t>& place, v1::Plan* model) {
  std::set<uint32_t> written;
  for (const v1::PlanOutput& output : plan.outputs()) {
    const bool own = plan.buffers(static_cast<int>(output.buffer())).kind() == v1::Buffer::OUTPUT;
    if (!own || !written.insert(output.buffer()).second) continue;
    v1::PlanOutput* copy = model->add_outputs();
    *copy = output;
    copy->set_buffer(place[output.buffer()]);
  }
}

bool Serves(const v1::Plan& plan, absl::Span<const int64_t> dims) {
  if (static_cast<int>(dims.size()) != plan.dims_size()) return false;
  for (int d = 0; d < plan.dims_size(); ++d) {
    if (dims[d] < plan.dims(d).min() || dims[d] > plan.dims(d).max()) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<LayerCounts> CountLayers(const v1::Plan& plan, int64_t weights,
                                        absl::Span<const std::vector<int64_t>> sizes,
                                        const ModelBytes& model) {
  ASSIGN_OR_RETURN(Program program, BuildProgram(plan));
  LayerCounts counts;
  int64_t layers = 1, states = 0;  // states: bytes of a layer's
  for (size_t s = 0; s < sizes.size(); ++s) {
    if (!Serves(plan, sizes[s])) {
      return absl::InvalidArgumentError(absl::StrCat("measure: (", absl::StrJoin(sizes[s], ", "),
                                                     ") are no sizes of plan '", plan.plan_id(),
                                                     "'"));
    }
    int64_t bytes = 0;
    int64_t of_states = 0;
    for (const int state : program.states) {
      of_states += program.sizes.EvaluateOne(program.buffers[state].bytes_size, sizes[s]);
    }
    states = std::max(states, of_states);
    for (const Program::Buffer& buffer : program.buffers) {
      if (buffer.kind != v1::Buffer::INPUT && buffer.kind != v1::Buffer::OUTPUT) continue;
      bytes += Aligned(program.sizes.EvaluateOne(buffer.bytes_size, sizes[s]));
    }
    const int64_t between =
        s < model.activations.size() ? std::min(model.activations[s], kMaxHeld) : 0;
    const int64_t turns = std::clamp<int64_t>(between / std::max<int64_t>(bytes, 1), 1, kMaxLayers);
    counts.turns.push_back(static_cast<int>(turns));
    layers = std::max(layers, turns);
  }
  if (weights > 0) {
    layers = std::max(layers, std::min(model.weights, kMaxHeld) / weights);
    layers = std::min(layers, kMaxHeld / weights);
  }
  if (states > 0) layers = std::min(layers, kMaxHeld / states);
  counts.layers = static_cast<int>(std::clamp<int64_t>(layers, 1, kMaxLayers));
  for (int& turns : counts.turns) turns = std::min(turns, counts.layers);
  return counts;
}

Layers InLayers(const v1::Plan& plan, int layers) {
  Layers model{plan, {}, {}};
  if (layers <= 1) return model;
  model.plan.clear_prepare();
  model.plan.clear_run();
  model.plan.clear_outputs();
  model.plan.clear_loops();
  const std::set<uint32_t> read = ReadWhereTheyLie(plan);
  std::set<std::string> names;
  for (const v1::Buffer& buffer : plan.buffers()) names.insert(buffer.name());
  for (int layer = 0; layer < layers; ++layer) {
    const std::vector<uint32_t> place = AddBuffers(plan, read, layer, &names, &model);
    AddSteps(plan.prepare(), place, model.plan.mutable_prepare());
    AddLoops(plan, place, model.plan.run_size(), &model.plan);
    AddSteps(plan.run(), place, model.plan.mutable_run());
    AddOutputs(plan, place, &model.plan);
  }
  return model;
}

absl::StatusOr<std::vector<ParameterView>> LayerParameters(const Layers& model,
                                                           std::vector<ParameterView> given,
                                                           std::optional<Arena>* own) {
  std::map<std::string, absl::string_view> bytes;
  for (const ParameterView& parameter : given) bytes[parameter.name] = parameter.data;
  int64_t total = 0;
  for (const auto& [name, of] : model.copies) {
    if (!bytes.contains(of)) {
      return absl::NotFoundError(absl::StrCat("measure: no bytes for the parameter \"", of, "\""));
    }
    total += Aligned(static_cast<int64_t>(bytes[of].size()));
  }
  if (total == 0) return given;
  ASSIGN_OR_RETURN(Arena block, Arena::Reserve(total));
  char* next = block.data();
  for (const auto& [name, of] : model.copies) {
    const absl::string_view from = bytes[of];
    std::memcpy(next, from.data(), from.size());
    given.push_back({name, {next, from.size()}, nullptr});
    next += Aligned(static_cast<int64_t>(from.size()));
  }
  *own = std::move(block);
  return given;
}

absl::StatusOr<CallMemory> CallMemory::Create(
    const Executable& model, int layers, int turns, absl::Span<const int64_t> dims,
    absl::FunctionRef<absl::StatusOr<absl::string_view>(absl::string_view name)> input) {
  RETURN_IF_ERROR(model.CheckDims(dims));
  const int inputs = model.inputs() / layers, outputs = model.outputs() / layers;
  int64_t bytes = 0;  // bytes of one memory
  for (int i = 0; i < inputs; ++i) bytes += Aligned(model.input_bytes(i, dims));
  for (int i = 0; i < outputs; ++i) bytes += Aligned(model.output_bytes(i, dims));
  ASSIGN_OR_RETURN(Arena memory, Arena::Reserve(std::max(bytes * turns, kLeastReserved)));
  for (int turn = 0; turn < turns; ++turn) {
    char* next = memory.data() + turn * bytes;
    for (int i = 0; i < inputs; ++i) {
      ASSIGN_OR_RETURN(absl::string_view from, input(model.input_name(i)));
      const auto room = static_cast<size_t>(Aligned(model.input_bytes(i, dims)));
      std::memcpy(next, from.data(), std::min(from.size(), room));
      next += room;
    }
  }
  CallMemory calls(std::move(memory));
  for (int layer = 0; layer < layers; ++layer) {
    char* next = calls.memory_.data() + layer % turns * bytes;
    for (int i = 0; i < inputs; ++i) {
      const int64_t size = model.input_bytes(i, dims);
      calls.inputs_.emplace_back(next, static_cast<size_t>(size));
      next += Aligned(size);
    }
    for (int i = 0; i < outputs; ++i) {
      const int64_t size = model.output_bytes(i, dims);
      // No sample touches a page first.
      constexpr int64_t kPage = 4096;
      for (int64_t at = 0; at < size; at += kPage) next[at] = 0;
      if (size > 0) next[size - 1] = 0;
      calls.outputs_.emplace_back(next, static_cast<size_t>(size));
      next += Aligned(size);
    }
  }
  return calls;
}

absl::Status LayerCalls::ForRuns(int64_t calls,
                                 absl::FunctionRef<absl::Status(const RunOptions&)> use) const {
  const int steps = model_->steps() / layers_;
  for (int next = next_; calls > 0;) {
    const int layers = static_cast<int>(std::min<int64_t>(calls, layers_ - next));
    RETURN_IF_ERROR(use({.first_step = next * steps, .steps = layers * steps, .resident = true}));
    next = (next + layers) % layers_;
    calls -= layers;
  }
  return absl::OkStatus();
}

absl::Status LayerCalls::Prepare(absl::Span<const int64_t> dims, const CallMemory& memory,
                                 int64_t calls) {
  if (host_memory_) return absl::OkStatus();
  if (!brought_.has_value() || absl::MakeConstSpan(*brought_) != dims) {
    brought_.reset();
    RETURN_IF_ERROR(
        model_->Run(context_.get(), dims, memory.inputs(), memory.outputs(), {.steps = 0}));
    brought_.emplace(dims.begin(), dims.end());
  }
  context_->LimitRecordings(std::max<int64_t>(kMostRecorded, 8 * model_->steps()));
  return ForRuns(calls, [&](const RunOptions& run) { return model_->Record(context_.get(), run); });
}

absl::Status LayerCalls::Call(absl::Span<const int64_t> dims, const CallMemory& memory,
                              int64_t calls) {
  std::optional<double> sum = 0;
  RETURN_IF_ERROR(ForRuns(calls, [&](RunOptions run) {
    std::optional<double> seconds;
    run.device_seconds = &seconds;
    RETURN_IF_ERROR(model_->Run(context_.get(), dims, memory.inputs(), memory.outputs(), run));
    sum = sum && seconds ? std::optional<double>(*sum + *seconds) : std::nullopt;
    return absl::OkStatus();
  }));
  device_seconds_ = sum;
  next_ = static_cast<int>((next_ + calls) % layers_);
  return absl::OkStatus();
}

}  // namespace athanor
