// A plan as one of many equal layers of a model, so that what it takes alone is what it takes in a
// model: called again and again on the same memory it would find weights, inputs and outputs in the
// caches of one core, where a whole plan has had the other layers in between.
//
//   LayerCounts counts = CountLayers(plan, weights, sizes, model_bytes).value();
//   Layers model = InLayers(plan, counts.layers);
//   auto executable = Executable::Load(model.plan, objects, parameters, device, {}).value();
//   CallMemory memory = CallMemory::Create(*executable, counts.layers, 3, dims, input).value();
//   ... of layer i: RunOptions{.first_step = i * steps, .steps = steps}
//
// Each layer has weights of its own, in one block as a model's are, and calls go from layer to
// layer, so that a weight comes back after as many bytes as in the model. Inputs and outputs take
// turns in as much memory as lies between the steps of the model. That memory is walked through
// rather than flushed before a sample is after Whaley and Castaldo, "Achieving accurate and
// context-sensitive timing for code optimization" (Software: Practice and Experience, 2008); how
// far to walk is ours: what the model at hand has, not the size of a cache.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_LAYERS_H_
#define ATHANOR_SERVER_TUNER_MEASURE_LAYERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/arena.h"
#include "runtime/executor.h"

namespace athanor {

struct LayerCounts {
  int layers = 1;
  std::vector<int> turns;  // by size: memories for inputs and outputs, at most `layers`
};

struct ModelBytes {
  int64_t weights = 0;               // of the whole model; 0: the plan is all of it
  std::vector<int64_t> activations;  // by size, between the model's steps; none: as weights
};

// Layers of `plan` until their weights, of `weights` bytes each, are the model's, and their inputs
// and outputs at each of `sizes` (values of plan.dims) its activations; fewer where that is more
// than is worth holding, in all 96 MiB of weights. INVALID_ARGUMENT: no plan, or no sizes of it.
absl::StatusOr<LayerCounts> CountLayers(const v1::Plan& plan, int64_t weights,
                                        absl::Span<const std::vector<int64_t>> sizes,
                                        const ModelBytes& model);

struct Layers {
  v1::Plan plan;
  // Names of parameters that are there for one layer alone, and of what they are copies.
  std::vector<std::pair<std::string, std::string>> copies;
};

// A plan of `layers` times the steps of `plan`. Inputs, outputs, prepared weights and those
// parameters that steps of a run read are each layer's own; inputs and outputs follow each other
// layer by layer. Inputs keep their names. Outputs that the runtime would copy out are none: in a
// model nobody does. One layer is the plan itself.
Layers InLayers(const v1::Plan& plan, int layers);

// What a plan in layers is loaded with: `given`, by the names of the plan before, and copies of it
// in one block, `own`, which outlives what is loaded. NOT_FOUND: a parameter that is not given.
absl::StatusOr<std::vector<ParameterView>> LayerParameters(const Layers& model,
                                                           std::vector<ParameterView> given,
                                                           std::optional<Arena>* own);

// Inputs and outputs of all layers' calls at one size: layer i has memory i % turns. Movable.
class CallMemory {
 public:
  // `input(name)`: the bytes to be there; its errors come through.
  static absl::StatusOr<CallMemory> Create(
      const Executable& model, int layers, int turns, absl::Span<const int64_t> dims,
      absl::FunctionRef<absl::StatusOr<absl::string_view>(absl::string_view name)> input);

  absl::Span<const absl::string_view> inputs() const { return inputs_; }
  absl::Span<const absl::Span<char>> outputs() const { return outputs_; }

 private:
  explicit CallMemory(Arena memory) : memory_(std::move(memory)) {}

  Arena memory_;
  std::vector<absl::string_view> inputs_;
  std::vector<absl::Span<char>> outputs_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_LAYERS_H_
