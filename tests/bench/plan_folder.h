// A plan on disk, for benchmarks that run what was made elsewhere: `plan.pb`, a serialised
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
  std::vector<std::string> objects;  // by plan.kernels; empty where the folder has none
};

// Makes the folder if need be. INVALID_ARGUMENT unless there is one object per kernel; UNAVAILABLE
// names the file that cannot be written.
absl::Status WritePlan(const std::string& folder, const v1::Plan& plan,
                       absl::Span<const std::string> objects);

// NOT_FOUND if the folder has no plan.pb, DATA_LOSS if that is no plan.
absl::StatusOr<SavedPlan> ReadPlan(const std::string& folder);

}  // namespace athanor

#endif  // ATHANOR_TESTS_BENCH_PLAN_FOLDER_H_
