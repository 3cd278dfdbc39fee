#include "tests/emulator/counters.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace athanor::emulator {
namespace {

constexpr int kSectorBytes = 32, kBankBytes = 4, kBanks = 32;

// Returns the pieces of so many bytes that a request touches.
std::set<uint64_t> Pieces(const std::vector<std::pair<uint64_t, int>>& accesses, int bytes) {
  std::set<uint64_t> pieces;
  for (const auto& [address, count] : accesses) {
    for (uint64_t piece = address / bytes; piece <= (address + count - 1) / bytes; ++piece) {
      pieces.insert(piece);
    }
  }
  return pieces;
}

// Returns the turns that banks need beyond the fewest. Threads that touch one word share it.
int64_t BankConflicts(const std::vector<std::pair<uint64_t, int>>& accesses) {
  const std::set<uint64_t> words = Pieces(accesses, kBankBytes);
  int64_t turns = 0;
  std::vector<int64_t> of_bank(kBanks);
  for (const uint64_t word : words) turns = std::max(turns, ++of_bank[word % kBanks]);
  const int64_t fewest = (int64_t(words.size()) + kBanks - 1) / kBanks;
  return turns - fewest;
}

}  // namespace

void Counting::BeginLaunch(int team) {
  counters_ = {};
  part_ = std::min(team, kWave);
  made_.assign(team, {});
  open_.clear();
}

void Counting::Access(int thread, const void* place, const emulator::Access& access, bool shared) {
  const Key key = {place, thread / kWave, made_[thread][place]++};
  Request& request = open_[key];
  request.write = access.write;
  request.shared = shared;
  request.accesses.emplace_back(access.address, access.bytes);
  if (request.accesses.size() < part_) return;
  Count(request);
  open_.erase(key);
}

void Counting::EndTeam() {
  for (const auto& [key, request] : open_) Count(request);
  open_.clear();
  for (auto& made : made_) made.clear();
}

void Counting::Count(const Request& request) {
  int64_t bytes = 0;
  for (const auto& [address, count] : request.accesses) bytes += count;
  if (request.shared) {
    ++counters_.shared.requests;
    counters_.shared.bytes += bytes;
    counters_.shared.bank_conflicts += BankConflicts(request.accesses);
    return;
  }
  Counters::Global& global = request.write ? counters_.stores : counters_.loads;
  ++global.requests;
  global.bytes += bytes;
  global.sectors += Pieces(request.accesses, kSectorBytes).size();
}

std::string CountersText(const Counters& c) {
  const auto global = [](const char* name, const Counters::Global& of) {
    return absl::StrCat(name, " ", of.requests, " requests ", of.sectors, " sectors ", of.bytes,
                        " bytes\n");
  };
  return absl::StrCat(global("loads", c.loads), global("stores", c.stores), "shared ",
                      c.shared.requests, " requests ", c.shared.bytes, " bytes ",
                      c.shared.bank_conflicts, " conflicts\nbarriers ", c.barriers, " exchanges ",
                      c.exchanges, "\n");
}

}  // namespace athanor::emulator
