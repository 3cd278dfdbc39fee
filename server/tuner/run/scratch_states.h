// Memory for the states of plans that are checked or measured, which no other run sees.
//
//   auto states = ScratchStates::Create(plan, {{7, 4}}, &device).value();
//   auto context = executable->NewContext(states->memory()).value();
//   RETURN_IF_ERROR(states->Fill("k", {7, 4}, logical));   // row-major, [slots][heads][width]
//   RETURN_IF_ERROR(executable->Run(context.get(), {7, 4}, inputs, outputs, {}));
//   RETURN_IF_ERROR(states->Read("k", {7, 4}, absl::MakeSpan(result)));
//
// A state lies in memory as its plan's layout says (compiler/search/kernels/state_layout.h), and is
// filled and compared in logical form. All blocks are committed. Used by one thread at a time.
#ifndef ATHANOR_SERVER_TUNER_RUN_SCRATCH_STATES_H_
#define ATHANOR_SERVER_TUNER_RUN_SCRATCH_STATES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/device/device.h"
#include "runtime/memory/state_memory.h"
#include "runtime/program/program.h"

namespace athanor {

class ScratchStates {
 public:
  // Makes room for the slots that the plan has at each of `sizes`, values of plan.dims, and fills
  // it with zeros. `device` must outlive it. INVALID_ARGUMENT: the plan or a size is invalid.
  // RESOURCE_EXHAUSTED: it would be more than 4 GiB.
  static absl::StatusOr<std::unique_ptr<ScratchStates>> Create(
      const v1::Plan& plan, absl::Span<const std::vector<int64_t>> sizes, Device* device);

  // For the plan's contexts; null: it has no states.
  const StateMemory* memory() const { return memory_.get(); }

  // Puts a state's elements at these dims where kernels expect them. NOT_FOUND: the plan has no
  // such state. INVALID_ARGUMENT: other bytes than it has.
  absl::Status Fill(absl::string_view name, absl::Span<const int64_t> dims,
                    absl::string_view logical);
  // Takes them from there. Errors are Fill()'s.
  absl::Status Read(absl::string_view name, absl::Span<const int64_t> dims,
                    absl::Span<char> logical) const;
  // Fills all slots of each state with `bytes(name)` again and again, in no order: for measuring.
  absl::Status FillAny(absl::FunctionRef<absl::string_view(absl::string_view name)> bytes);
  // Returns the names of the plan's states.
  std::vector<std::string> names() const;

 private:
  // A state at some dims.
  struct View {
    int spec = 0;
    std::vector<int64_t> shape;
    int64_t element_bytes = 0, bytes = 0;
  };

  ScratchStates(Program program, Device* device) : program_(std::move(program)), device_(device) {}

  absl::StatusOr<View> Find(absl::string_view name, absl::Span<const int64_t> dims,
                            int64_t bytes) const;
  absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) const;
  // Calls `move` for each element with its places in logical form and in memory, in elements.
  void ForElements(const View& view,
                   absl::FunctionRef<void(int64_t logical, int64_t place)> move) const;

  const Program program_;
  Device* const device_;
  std::unique_ptr<StateMemory> memory_;  // its specs are those of program_.states
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_SCRATCH_STATES_H_
