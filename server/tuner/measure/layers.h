// Measures a plan as one of many equal layers of a model, so that its time alone matches its time
// in the model. If it were called again and again on the same memory, it would find weights, inputs
// and outputs in the caches of one core. In a whole plan, the other layers run in between.
//
//   LayerCounts counts = CountLayers(plan, weights, sizes, model_bytes).value();
//   Layers model = InLayers(plan, counts.layers);
//   auto executable = Executable::Load(model.plan, objects, parameters, device, {}).value();
//   CallMemory memory = CallMemory::Create(*executable, counts.layers, 3, dims, input).value();
//   LayerCalls calls(executable, executable->NewContext().value(), counts.layers, host_memory);
//
// Each layer has its own weights, in one block like a model's. Calls go from layer to layer, so
// that a weight is read again after as many bytes as in the model. Inputs and outputs rotate
// through as much memory as lies between the steps of the model. Walking through memory, rather
// than flushing caches before a sample, follows Whaley and Castaldo, "Achieving accurate and
// context-sensitive timing for code optimization" (Software: Practice and Experience, 2008). The
// distance is our choice: the size of the model at hand, not of a cache.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_LAYERS_H_
#define ATHANOR_SERVER_TUNER_MEASURE_LAYERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/executor/executor.h"
#include "runtime/memory/arena.h"

namespace athanor {

struct LayerCounts {
  int layers = 1;
  std::vector<int> turns;  // by size: number of memories for inputs and outputs, at most `layers`
};

struct ModelBytes {
  int64_t weights = 0;               // of the whole model; 0: the plan is the whole model
  std::vector<int64_t> activations;  // by size: bytes between the model's steps; empty: as weights
};

// Returns how many layers of `plan`, with `weights` bytes of weights each, make up the model's
// weights, and at each of `sizes` (values of plan.dims) how many memories for inputs and outputs
// make up its activations. Returns fewer if those, or states, would exceed 64 MiB. Returns
// INVALID_ARGUMENT if the plan or its sizes are invalid.
absl::StatusOr<LayerCounts> CountLayers(const v1::Plan& plan, int64_t weights,
                                        absl::Span<const std::vector<int64_t>> sizes,
                                        const ModelBytes& model);

struct Layers {
  v1::Plan plan;
  // Names of parameters and of states that exist for a single layer, and of those that they are
  // copies of.
  std::vector<std::pair<std::string, std::string>> copies, states;
};

// Returns a plan with the steps of `plan` `layers` times. Each layer has its own inputs, outputs,
// states, prepared weights and parameters read by steps of a run. Inputs and outputs are ordered by
// layer. Inputs keep their names. Outputs that the runtime would copy out are omitted, as nobody
// copies them in a model. With one layer this is the plan itself.
Layers InLayers(const v1::Plan& plan, int layers);

// Returns the parameters to load a plan in layers with: `given`, by the names of the original plan,
// and copies of them in one block, `own`, which must outlive the loaded plan. Returns NOT_FOUND if
// a parameter is missing from `given`.
absl::StatusOr<std::vector<ParameterView>> LayerParameters(const Layers& model,
                                                           std::vector<ParameterView> given,
                                                           std::optional<Arena>* own);

// Inputs and outputs of all layers' calls at one size: layer i uses memory i % turns. Movable.
class CallMemory {
 public:
  // `input(name)` returns the bytes to copy there; Create returns its errors.
  static absl::StatusOr<CallMemory> Create(
      const Executable& model, int layers, int turns, absl::Span<const int64_t> dims,
      absl::FunctionRef<absl::StatusOr<absl::string_view>(absl::string_view name)> input);

  absl::Span<const absl::string_view> inputs() const { return inputs_; }
  absl::Span<const absl::Span<char>> outputs() const { return outputs_; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  explicit CallMemory(Arena memory) : memory_(std::move(memory)) {}

  Arena memory_;
  std::vector<absl::string_view> inputs_;
  std::vector<absl::Span<char>> outputs_;
};

// Calls the layers of a loaded model in turn. Used by one thread.
//
//   LayerCalls layers(model, model->NewContext().value(), /*layers=*/5, device->host_memory());
//   absl::Status status = layers.Prepare(dims, memory, 12);
//   status = layers.Call(dims, memory, 12);   // is what is timed
class LayerCalls {
 public:
  // Recordings have at most so many launches, or those of 8 times all layers, before the calls that
  // are prepared: calls begin and end at any layer, which could be a recording for each pair. The
  // memory of these, the driver's and the GPU's, is in no ledger.
  static constexpr int64_t kMostRecorded = 1 << 14;

  LayerCalls(std::shared_ptr<const Executable> model, std::unique_ptr<Executable::Context> context,
             int layers, bool host_memory)
      : model_(std::move(model)),
        context_(std::move(context)),
        layers_(layers),
        host_memory_(host_memory) {}

  // Does for the next calls what a device of its own memory needs only once: brings the inputs, and
  // makes the recordings. `memory` has the same inputs whenever it has these dims.
  absl::Status Prepare(absl::Span<const int64_t> dims, const CallMemory& memory, int64_t calls);
  // Calls layer after layer, as many in one run as there are, so that the fixed cost of a run is
  // shared as in a model. A device with memory of its own keeps the outputs.
  absl::Status Call(absl::Span<const int64_t> dims, const CallMemory& memory, int64_t calls);
  // Returns how long the last Call() took by the device's clock; nullopt if it has none, or the
  // plan was loaded without times or has loops.
  std::optional<double> device_seconds() const { return device_seconds_; }
  // Begins again with the first layer.
  void Restart() { next_ = 0; }

  const Executable& model() const { return *model_; }
  Executable::Context* context() { return context_.get(); }

 private:
  // Calls `use` with the runs that make so many calls.
  absl::Status ForRuns(int64_t calls, absl::FunctionRef<absl::Status(const RunOptions&)> use) const;

  std::shared_ptr<const Executable> model_;
  std::unique_ptr<Executable::Context> context_;
  int layers_;
  bool host_memory_;
  int next_ = 0;  // layer to call
  std::optional<double> device_seconds_;
  // Dims of the inputs that the device has, of which a plan may have none.
  std::optional<std::vector<int64_t>> brought_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_LAYERS_H_
