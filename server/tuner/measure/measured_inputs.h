// Random inputs and parameters that plans are measured on, at every size of a request.
//
//   std::shared_ptr<const MeasuredInputs> inputs = MeasuredInputs::Draw(request).value();
//   absl::string_view x = inputs->at(/*size=*/0, /*tensor=*/0);
//
// Parameters are the same at every size and held once. Schedules of one task are measured on the
// same inputs, so the last ones are remembered (InputMemory). A remembered tensor lies in this
// process's own memory: what a kernel's process writes there, its siblings do not see.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_MEASURED_INPUTS_H_
#define ATHANOR_SERVER_TUNER_MEASURE_MEASURED_INPUTS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/tuner/measure/walked_memory.h"
#include "server/tuner/run/inputs.h"
#include "server/tuner/run/repeated_bytes.h"

namespace athanor {

class MeasuredInputs {
 public:
  // INVALID_ARGUMENT: graph, plans and sizes do not fit together. RESOURCE_EXHAUSTED: a tensor is
  // too large.
  static absl::StatusOr<std::shared_ptr<const MeasuredInputs>> Draw(
      const internal::MeasureRequest& request);

  // Inputs, then parameters, as the graph has them.
  const std::vector<std::string>& names() const { return names_; }
  // Returns some elements of a state, to fill it with: it matters to no time which of them lie
  // where. Empty: the graph has no such state.
  absl::string_view state(absl::string_view name) const;
  size_t parameters() const { return parameters_; }
  // By parameter: the one whose contents it has (weight_turns.h).
  const std::vector<int>& turns() const { return turns_; }
  absl::string_view at(int size, size_t tensor) const { return views_[size][tensor]; }
  // Memory of weights that are too many to be held; null: there are none.
  WalkedMemory* walked() const { return walked_.get(); }
  // Returns the bytes held. nullopt: weights may lie in walked memory, which depends on the plan
  // and is shared with the processes that kernels run in.
  std::optional<int64_t> own_bytes() const;

 private:
  MeasuredInputs() = default;

  absl::Status ReadGraph(const internal::MeasureRequest& request);
  absl::Status DrawSize(const internal::MeasureRequest& request, int size);
  absl::Status HoldWhole(const DrawnInput& input, absl::string_view* view);
  // A parameter; `read`: by runs, where it lies.
  absl::Status Hold(const DrawnInput& input, bool read, absl::string_view* view);
  // Memory for weights that are too many to be held, if they can be walked through.
  absl::Status ChooseWalked(const internal::MeasureRequest& request,
                            absl::Span<const DrawnInput> parameters);

  Graph graph_;
  std::vector<std::string> names_;
  size_t parameters_ = 0;
  std::vector<int> turns_;
  std::vector<std::pair<std::string, std::string>> states_;  // names, and elements of each
  std::deque<std::string> whole_;
  std::deque<RepeatedBytes> repeated_;
  bool large_ = false;  // parameters are too many to be held
  std::unique_ptr<WalkedMemory> walked_;
  std::optional<DType> walked_dtype_;                  // of parameters that may lie there
  std::vector<std::vector<absl::string_view>> views_;  // by size, in the order of the names
};

// Remembers the inputs drawn last. Used by one thread at a time.
class InputMemory {
 public:
  static constexpr int64_t kMostBytes = int64_t{64} << 20;

  // As MeasuredInputs::Draw.
  absl::StatusOr<std::shared_ptr<const MeasuredInputs>> For(
      const internal::MeasureRequest& request);

 private:
  std::string key_;
  std::shared_ptr<const MeasuredInputs> inputs_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_MEASURED_INPUTS_H_
