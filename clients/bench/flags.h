// Parses the flags of `athanor-bench run`.
//
//   absl::StatusOr<RunPlan> plan = ParseRunFlags(flags);
#ifndef ATHANOR_CLIENTS_BENCH_FLAGS_H_
#define ATHANOR_CLIENTS_BENCH_FLAGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/bench/figures/metrics.h"
#include "clients/bench/load/inputs.h"
#include "clients/bench/load/load.h"

namespace athanor::bench {

// The flags as given; an empty or absent one has its default.
struct RunFlags {
  Answers answers = Answers::kTensors;
  std::vector<std::string> servers;  // the address, or two addresses to compare
  std::string model;                 // NAME or NAME/VERSION
  InputFlags inputs;
  std::string
      arrival;  // closed, fixed, poisson or gamma; default poisson if there is a rate, else closed
  std::string rate;         // "500" or "500..2500", calls per second
  bool knee = false;        // look for the highest rate that meets the service levels
  std::vector<double> due;  // of a trace: seconds at which calls are due, ascending from 0
  double burstiness = 1;
  std::string concurrency;  // "8"; a sweep: "1,4,16", "1:64:x2" or "4:16:+4"; default 1
  std::string think;        // "2s", "500ms"; default none
  // "60s", "2m"; default 10s, all of a trace, or none with num_prompts.
  std::string duration;
  std::optional<int> num_prompts;   // a run ends after so many calls
  std::vector<std::string> phases;  // "10s:rate=500..2500", "10s:concurrency=64"
  std::string slice;                // length of a slice of a comparison; default 2s
  int64_t warmups = 50;
  std::string timeout;  // default 60s
  int connections = 1;
  std::optional<int> max_outstanding;
  uint64_t seed = 0;
  std::string slo;                    // "e2el:5,queue:2"
  double slo_share = 0.99;            // share of the due calls that must meet the levels
  std::vector<std::string> metadata;  // "commit=1a2b3c"
};

struct RunPlan {
  LoadOptions load;        // for the first server; without requests, which depend on the model
  std::vector<int> sweep;  // numbers of callers to run one after the other; one if no sweep
  // --knee: the highest rate to measure, from that of the phase on; 0: no knee is looked for.
  double knee_most = 0;
  std::string second_server;
  double slice_seconds = 2;
  std::vector<Slo> slos;
  double slo_share = 0.99;
  std::map<std::string, std::string> metadata;
};

// INVALID_ARGUMENT names the flag, what is wrong, and what would be right.
absl::StatusOr<RunPlan> ParseRunFlags(const RunFlags& flags);

// Parses a number of callers, or a sweep of them, in ascending order: "8", "1,4,16", "1:64:x2"
// (each twice the one before, up to 64), "4:16:+4". INVALID_ARGUMENT says what would be right.
absl::StatusOr<std::vector<int>> ParseSweep(const std::string& text);

// Returns how many pairs of slices fit into the plan's duration, from 2 to 10,000.
int Pairs(const RunPlan& plan);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FLAGS_H_
