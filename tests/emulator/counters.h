// Counts what a launch asks of memory: the only measure of speed where no GPU is.
//
//   counting.Access(/*thread=*/3, place, {.address = a, .bytes = 4, .write = false},
//   /*shared=*/false); counting.EndTeam(); counting.counters().loads.sectors
#ifndef ATHANOR_TESTS_EMULATOR_COUNTERS_H_
#define ATHANOR_TESTS_EMULATOR_COUNTERS_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/emulator/athanor/launch.h"

namespace athanor::emulator {

// Of one launch. A request is an access of the threads of a wave that belong to one team, at once;
// threads of teams of one are requested for by waves.
struct Counters {
  struct Global {
    int64_t requests = 0;
    int64_t sectors = 0;  // of 32 bytes, that the requests touch
    int64_t bytes = 0;    // that threads asked for
  } loads, stores;
  struct Shared {
    int64_t requests = 0;
    int64_t bytes = 0;
    // Turns that banks need beyond those in which 128 bytes go each.
    int64_t bank_conflicts = 0;
  } shared;
  int64_t barriers = 0;   // of a team
  int64_t exchanges = 0;  // swaps and first lanes, of a wave's part
  int64_t products = 0;   // of matrices, of a wave
};

// Puts accesses of single threads together to requests: the n-th that each thread makes at a place
// of the machine code is one. So a thread that leaves an access out, and later makes one at the
// same place, is taken for late.
class Counting {
 public:
  // `team`: its threads; of teams of one, all threads of the launch.
  void BeginLaunch(int team);
  void Access(int thread, const void* place, const emulator::Access& access, bool shared);
  void EndTeam();
  void Barrier() { ++counters_.barriers; }
  void Exchange() { ++counters_.exchanges; }
  void Product() { ++counters_.products; }
  const Counters& counters() const { return counters_; }

 private:
  struct Request {
    bool write = false, shared = false;
    std::vector<std::pair<uint64_t, int>> accesses;  // addresses and bytes
  };
  using Key = std::tuple<const void*, int, int64_t>;  // place, wave, n

  void Count(const Request& request);

  Counters counters_;
  size_t part_ = 1;  // threads of a wave that belong to one team
  std::vector<absl::flat_hash_map<const void*, int64_t>> made_;  // accesses, by thread and place
  absl::flat_hash_map<Key, Request> open_;                       // that not all threads have made
};

// Returns the counters as lines of text.
std::string CountersText(const Counters& counters);

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_COUNTERS_H_
