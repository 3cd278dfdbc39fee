// Finds accesses of two threads to one place of the device's memory that nothing orders.
//
//   races.BeginLaunch();
//   races.BeginTeam(0);
//   if (const std::optional<Race> race = races.Touch(3, address, 4, /*write=*/true, {})) ...
//   races.Barrier();
//
// A barrier ends an epoch of its team. Within an epoch, of two threads that touch a byte none may
// write it. Teams of a launch do not wait for each other: of two that touch a byte none may write
// it in the whole launch. But a team that draws a counter may read what those that drew it before
// had written when they drew, and what these might read.
#ifndef ATHANOR_TESTS_EMULATOR_RACES_H_
#define ATHANOR_TESTS_EMULATOR_RACES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace athanor::emulator {

// Says who touched the same byte before.
struct Race {
  enum Kind {
    kWritten,    // by another thread
    kRead,       // by another thread
    kUndefined,  // nobody wrote it: the race is with what is not there
  } kind;
  long team = 0;
  int thread = 0;  // of the team
};

// Remembers of each cell of 4 bytes, or of each byte where narrower elements are accessed, who
// touched it last. Epochs are never used again, so what earlier launches left is old by itself.
class Races {
 public:
  void BeginLaunch();
  void BeginTeam(long team);    // one after another
  void Barrier();               // of all threads of the team
  void Draw(uint64_t counter);  // by the team, at a barrier

  struct Region {
    bool of_team = false;  // no other team has it: what teams before left in it is nothing
    bool defined = true;   // holds something before the launch's first write
  };
  // Remembers an access, aligned to its bytes (1, 2, 4 or 8), of the current team.
  std::optional<Race> Touch(int thread, uint64_t address, int bytes, bool write, Region region);
  // Counts the pages of which it remembers accesses.
  size_t pages() const { return pages_.size(); }

 private:
  static constexpr int kPageBits = 12, kCacheBits = 8;
  static constexpr uint8_t kNobody = 0xff;

  struct Cell {
    uint32_t written = 0;    // epochs; 0: never
    uint32_t read = 0;       // by this team's threads
    uint32_t read_else = 0;  // by a team before the one of `read`
    uint8_t writer = kNobody;
    uint8_t reader = kNobody, second_reader = kNobody;  // in the epoch `read`
    uint8_t else_reader = kNobody;
  };
  struct Page {
    int cell_bits = 2;
    std::vector<Cell> cells = std::vector<Cell>(1 << (kPageBits - cell_bits));
  };

  Page& PageOf(uint64_t number);
  std::vector<std::pair<uint32_t, long>>::const_iterator TeamOf(uint32_t epoch) const;
  Race Of(Race::Kind kind, uint32_t epoch, int thread) const;
  // Remember an access; false: it races with an access before.
  bool Read(Cell& cell, int thread, Region region) const;
  bool Write(Cell& cell, int thread, Region region) const;
  bool ByTeamBefore(uint32_t epoch) const;  // of this launch
  bool Drew(uint32_t epoch) const;          // was it before a draw ahead of one of this team's?
  // Return who was there before.
  Race BeforeRead(const Cell& cell, Region region) const;
  Race BeforeWrite(const Cell& cell, int thread, Region region) const;

  uint32_t epoch_ = 0, launch_begin_ = 0, team_begin_ = 0;
  std::vector<std::pair<uint32_t, long>> teams_;  // the launch's: first epoch, number
  // The last epoch of each of these teams that a draw makes known; teams behind the end: none.
  using Known = std::vector<uint32_t>;
  Known known_;                                 // to this team
  absl::flat_hash_map<uint64_t, Known> drawn_;  // to whoever draws a counter
  absl::flat_hash_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::array<std::pair<uint64_t, Page*>, 1 << kCacheBits> cache_ = {};
};

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_RACES_H_
