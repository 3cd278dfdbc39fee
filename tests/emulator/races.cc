#include "tests/emulator/races.h"

#include <algorithm>
#include <iterator>

namespace athanor::emulator {
namespace {

// Pages beyond these are forgotten between launches, and epochs before they have no number left.
constexpr size_t kMostPages = 8192;
constexpr uint32_t kMostEpochs = uint32_t{1} << 31;

}  // namespace

void Races::BeginLaunch() {
  if (pages_.size() > kMostPages || epoch_ > kMostEpochs) {
    pages_.clear();
    cache_ = {};
    epoch_ = 0;
  }
  teams_.clear();
  drawn_.clear();
  launch_begin_ = ++epoch_;
}

void Races::BeginTeam(long team) {
  team_begin_ = ++epoch_;
  teams_.emplace_back(team_begin_, team);
  known_.clear();
}

void Races::Barrier() { ++epoch_; }

void Races::Draw(uint64_t counter) {
  Known& drawn = drawn_[counter];
  known_.resize(teams_.size());
  drawn.resize(teams_.size());
  for (size_t i = 0; i < known_.size(); ++i) known_[i] = std::max(known_[i], drawn[i]);
  known_.back() = epoch_;
  drawn = known_;
}

std::optional<Race> Races::Touch(int thread, uint64_t address, int bytes, bool write,
                                 Region region) {
  Page& page = PageOf(address >> kPageBits);
  if (page.cell_bits != 0 && bytes < 4) {  // what a cell knows, each of its bytes knows
    std::vector<Cell> cells;
    for (const Cell& cell : page.cells) cells.insert(cells.end(), 4, cell);
    page = {0, std::move(cells)};
  }
  const uint64_t within = address & ((1 << kPageBits) - 1);
  Cell* cell = &page.cells[within >> page.cell_bits];
  Cell* const last = &page.cells[(within + bytes - 1) >> page.cell_bits];
  for (; cell <= last; ++cell) {
    if (write ? Write(*cell, thread, region) : Read(*cell, thread, region)) continue;
    return write ? BeforeWrite(*cell, thread, region) : BeforeRead(*cell, region);
  }
  return std::nullopt;
}

Races::Page& Races::PageOf(uint64_t number) {
  // Buffers often lie a power of two apart.
  auto& [cached_number, cached] = cache_[number * 0x9e3779b97f4a7c15 >> (64 - kCacheBits)];
  if (cached == nullptr || cached_number != number) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) page = std::make_unique<Page>();
    cached_number = number;
    cached = page.get();
  }
  return *cached;
}

bool Races::Drew(uint32_t epoch) const {
  const size_t team = TeamOf(epoch) - teams_.begin();
  return team < known_.size() && epoch <= known_[team];
}

std::vector<std::pair<uint32_t, long>>::const_iterator Races::TeamOf(uint32_t epoch) const {
  const auto next = std::upper_bound(
      teams_.begin(), teams_.end(), epoch,
      [](uint32_t wanted, const std::pair<uint32_t, long>& team) { return wanted < team.first; });
  return std::prev(next);
}

Race Races::Of(Race::Kind kind, uint32_t epoch, int thread) const {
  return {kind, TeamOf(epoch)->second, thread};
}

inline bool Races::Read(Cell& cell, int thread, Region region) const {
  const bool by_team = cell.written >= team_begin_;
  if (by_team ? cell.written == epoch_ && cell.writer != thread
              : !region.defined ||
                    (cell.written >= launch_begin_ && !region.of_team && !Drew(cell.written))) {
    return false;
  }
  if (cell.read != epoch_) {
    if (cell.read >= launch_begin_ && cell.read < team_begin_) {
      cell.read_else = cell.read;
      cell.else_reader = cell.reader;
    }
    cell.read = epoch_;
    cell.reader = thread;
    cell.second_reader = kNobody;
  } else if (cell.reader != thread && cell.second_reader == kNobody) {
    cell.second_reader = thread;
  }
  return true;
}

inline bool Races::Write(Cell& cell, int thread, Region region) const {
  if ((cell.written == epoch_ && cell.writer != thread) ||
      (cell.read == epoch_ && (cell.reader != thread || cell.second_reader != kNobody)) ||
      (!region.of_team && (ByTeamBefore(cell.written) || ByTeamBefore(cell.read) ||
                           cell.read_else >= launch_begin_))) {
    return false;
  }
  cell.written = epoch_;
  cell.writer = thread;
  return true;
}

bool Races::ByTeamBefore(uint32_t epoch) const {
  return epoch >= launch_begin_ && epoch < team_begin_;
}

Race Races::BeforeRead(const Cell& cell, Region region) const {
  if (cell.written < team_begin_ && !region.defined) return {Race::kUndefined};
  return Of(Race::kWritten, cell.written, cell.writer);
}

Race Races::BeforeWrite(const Cell& cell, int thread, Region region) const {
  const auto before = [&](uint32_t epoch) {
    return epoch == epoch_ || (!region.of_team && ByTeamBefore(epoch));
  };
  if (before(cell.written) && !(cell.written == epoch_ && cell.writer == thread)) {
    return Of(Race::kWritten, cell.written, cell.writer);
  }
  if (!before(cell.read)) return Of(Race::kRead, cell.read_else, cell.else_reader);
  if (cell.read == epoch_ && cell.reader == thread && cell.second_reader != kNobody) {
    return Of(Race::kRead, cell.read, cell.second_reader);
  }
  if (cell.read == epoch_ && cell.reader == thread) {
    return Of(Race::kRead, cell.read_else, cell.else_reader);
  }
  return Of(Race::kRead, cell.read, cell.reader);
}

}  // namespace athanor::emulator
