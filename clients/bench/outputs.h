// Where the figures of a run go: JSON, a page, a results file.
//
//   absl::Status s = CheckOutputs(outputs);               // before minutes of measuring
//   Kept kept = Keep(outputs, {{&summary, &result}}, json());
//
// Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_OUTPUTS_H_
#define ATHANOR_CLIENTS_BENCH_OUTPUTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "clients/bench/load.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

// Paths as given; "" is not asked for. `out` may be "-", stdout.
struct Outputs {
  std::string out, html, db;
  bool detailed = false;    // every call in `out`
  bool save_calls = false;  // and in `db`
};

struct Measured {
  const nlohmann::json* summary;
  const LoadResult* result;
};

struct Kept {
  std::vector<std::string> names;  // "results.db:3", as `compare` wants it, a run each
  absl::Status status;             // of the first that could not be written
};

// INVALID_ARGUMENT names a flag that does nothing or a path that another one has too; what the
// system says of a file that cannot be written. Leaves files as they are; a results file that is
// not there yet is made.
absl::Status CheckOutputs(const Outputs& outputs);

// Writes all that it can. `comparison` of the two runs that there are then, or null.
Kept Keep(const Outputs& outputs, const std::vector<Measured>& runs,
          const nlohmann::json& comparison);

// Pretty JSON; bytes that are no UTF-8 are replaced. "-" is stdout.
absl::Status WriteJson(const std::string& path, const nlohmann::json& value);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_OUTPUTS_H_
