// Runs a plan against one server or two and writes what came out: the part that all commands which
// measure have in common.
//
//   absl::StatusOr<RunPlan> plan = PlanRun(options);  // run_options.h
//   return Measure(options, *plan, std::move(sides));
#ifndef ATHANOR_CLIENTS_BENCH_MEASURING_H_
#define ATHANOR_CLIENTS_BENCH_MEASURING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/bench/commands.h"
#include "clients/bench/flags.h"
#include "clients/bench/load/load.h"
#include "clients/bench/run_options.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

// Names a server of a run.
struct Side {
  std::unique_ptr<Load> load;
  // Added to its summaries: "backend", "server", and "options" beside those of the load.
  nlohmann::json about;
  std::vector<std::string> assumed;  // sentences about its requests, for people
};

// Runs the plan once, once per point of its sweep, or until its knee is found; two sides take
// turns. Prints figures and progress.
absl::StatusOr<ExitCode> Measure(const RunOptions& options, const RunPlan& plan,
                                 const std::vector<Side>& sides);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_MEASURING_H_
