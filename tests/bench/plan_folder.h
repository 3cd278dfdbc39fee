// Stores a plan on disk, for benchmarks that run plans made elsewhere: `plan.pb`, a serialised
// athanor.v1.Plan, and beside it `<source_hash>.so` for each of its kernels.
//
//   WritePlan("/tmp/p", plan, objects);
//   SavedPlan saved = ReadPlan("/tmp/p").value();
#ifndef ATHANOR_TESTS_BENCH_PLAN_FOLDER_H_
#define ATHANOR_TESTS_BENCH_PLAN_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

struct SavedPlan {
  v1::Plan plan;
  std::vector<std::string>
      objects;  // in the order of plan.kernels; empty for an object that the folder lacks
};

// Writes the plan; creates the folder if needed. INVALID_ARGUMENT unless there is one object per
// kernel; UNAVAILABLE names a file that cannot be written.
absl::Status WritePlan(const std::string& folder, const v1::Plan& plan,
                       absl::Span<const std::string> objects);

// Reads a plan. NOT_FOUND if the folder has no plan.pb, DATA_LOSS if that is no plan.
absl::StatusOr<SavedPlan> ReadPlan(const std::string& folder);

}  // namespace athanor

#endif  // ATHANOR_TESTS_BENCH_PLAN_FOLDER_H_
