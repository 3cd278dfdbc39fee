// Computes the logits of a step's rows. The one that serves runs a version's plans over its states;
// tests put a script in its place.
//
//   ASSIGN_OR_RETURN(absl::Span<const float> logits, runner->Run(step, tables));
#ifndef ATHANOR_SERVER_GENERATE_STEP_RUNNER_H_
#define ATHANOR_SERVER_GENERATE_STEP_RUNNER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/generate/schedule/scheduler.h"

namespace athanor {

// Used by its engine's thread alone.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Computes all rows of the step, and writes their keys and values to the blocks of `tables`, by
  // index in Step::tables. Returns the logits of the wanted rows, in order, `vocabulary` each,
  // valid until the next call. An error leaves a step that may run again, whole or in parts.
  virtual absl::StatusOr<absl::Span<const float>> Run(
      const Step& step, absl::Span<const absl::Span<const int32_t>> tables) = 0;
  // Makes a block's memory usable before a run writes it; RESOURCE_EXHAUSTED if there is none.
  virtual absl::Status Commit(int32_t block) = 0;
  // Gives it back.
  virtual void Decommit(int32_t block) = 0;

  // Lets go of what no step will use again. Reports whether there is something left that may become
  // so: then call it again after a while without steps.
  virtual bool Trim() = 0;

  // Bytes of keys and values committed now.
  virtual int64_t committed_bytes() const = 0;
  // Says by what the next step computes keys and values: where it differs from that of the last
  // one, sequences may not share those stored so far. Empty: not known yet.
  virtual std::string signature() = 0;
  // Id of the plan that ran the last step; empty: none yet.
  virtual const std::string& plan_id() const = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_STEP_RUNNER_H_
