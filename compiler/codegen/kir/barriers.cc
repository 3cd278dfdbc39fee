// Races are found by a forward data flow over the structured program (Kildall; Aho et al.,
// Compilers, 9.2): the fact at a point is which accesses may have been reached since the last
// barrier. A fact says by which loop it was carried: the outermost one whose back edge was passed
// since, if that loop goes on. So it knows which loop variables and registers have the same value
// in both accesses, which only range over the same values, and that the carrying loop's was
// smaller: the direction vectors of dependence analysis (Allen and Kennedy, Optimizing Compilers
// for Modern Architectures, 2.2). Facts pass a loop's back edge and the item loop's; a barrier ends
// them all, on its path alone; conditions and loops that may not run join the path around them.
//
// A copy writes at some time between its begin and the wait for its group. A fact about it has the
// group's age, so that it outlives barriers until a wait covers it; meanwhile no thread may touch
// what it writes, its own neither.
#include "compiler/codegen/kir/barriers.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/kir/memory_accesses.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

struct Race {
  int earlier, carrier, later;
  bool pending;  // the earlier is a copy that may be under way
};

// Finds a race of a kernel body. Walks it in rounds, each with what the last one found to be
// carried by each loop, until nothing is added; what is found on the way is on some path already.
class RaceFinder {
 public:
  RaceFinder(const Kernel& kernel, Accesses* accesses)
      : kernel_(kernel), accesses_(*accesses), carried_(accesses->loops()) {}

  std::optional<Race> Find() {
    do {
      added_ = false;
      access_ = 0;
      loop_ = kItems;
      Facts facts = carried_[kItems];
      Block(kernel_.body, &facts);
      std::erase_if(facts, [&](const Fact& f) {
        return kernel_.buffers[accesses_.access(f.access).buffer].space != Space::kScratch;
      });
      Carry(facts, kItems);
    } while (added_ && !race_);
    return race_;
  }

 private:
  // Ages of copies' groups: copies whose group is not made are of age 1, and beyond kMostAge age no
  // longer matters.
  static constexpr int kDone = 0, kMostAge = 9;

  struct Fact {
    int access, carrier;  // the loop that carried it
    int age = kDone;      // of a copy's group; it is under way
    auto operator<=>(const Fact&) const = default;
  };
  using Facts = std::set<Fact>;

  // Gives each fact another age.
  template <typename Age>
  static void SetAges(Facts* facts, const Age& age) {
    Facts all;
    for (const Fact& f : *facts) all.insert({f.access, f.carrier, age(f.age)});
    *facts = std::move(all);
  }

  void Block(const std::vector<Stmt>& block, Facts* facts) {
    for (const Stmt& s : block) {
      if (race_) return;
      if (s.opcode == Opcode::kBarrier || s.opcode == Opcode::kTicket) {
        std::erase_if(*facts, [](const Fact& f) { return f.age == kDone; });
      } else if (s.opcode == Opcode::kCommit) {
        SetAges(facts, [](int age) { return age == kDone ? kDone : std::min(age + 1, kMostAge); });
      } else if (s.opcode == Opcode::kWait) {
        SetAges(facts, [&](int age) { return age >= s.step + 2 ? kDone : age; });
      } else if (s.opcode == Opcode::kIf) {
        Facts inside = *facts;
        Block(s.body, &inside);
        facts->insert(inside.begin(), inside.end());
      } else if (s.opcode == Opcode::kFor) {
        For(s, facts);
      } else if (IsAccess(kernel_, s)) {
        Touch(access_++, s.opcode == Opcode::kCopy, facts);
      }
    }
  }

  void Touch(int later, bool copies, Facts* facts) {
    for (const auto& [earlier, carrier, age] : *facts) {
      if (!accesses_.Race(earlier, carrier, later, age != kDone)) continue;
      race_ = {earlier, carrier, later, age != kDone};
      return;
    }
    facts->insert({later, kNoLoop, copies ? 1 : kDone});
  }

  void For(const Stmt& s, Facts* facts) {
    const int number = ++loop_;
    const Loop& loop = accesses_.loop(number);
    Facts inside = *facts;
    if (loop.runs) facts->clear();
    inside.insert(carried_[number].begin(), carried_[number].end());
    Block(s.body, &inside);
    Carry(inside, number);
    for (const auto& [access, carrier, age] : inside) {
      const bool over = carrier >= number && carrier < loop.end_loop;
      facts->insert({access, over ? kNoLoop : carrier, age});
    }
  }

  void Carry(const Facts& facts, int number) {
    const Loop& loop = accesses_.loop(number);
    if (loop.counter.empty()) return;
    for (const auto& [access, carrier, age] : facts) {
      if (!accesses_.IsIn(access, number)) continue;
      const bool outer = carrier != kNoLoop && carrier < number;
      if (carried_[number].insert({access, outer ? carrier : number, age}).second) added_ = true;
    }
  }

  const Kernel& kernel_;
  Accesses& accesses_;
  std::vector<Facts> carried_;  // by loop
  std::optional<Race> race_;
  bool added_ = false;
  int access_ = 0, loop_ = 0;
};

// Calls `visit` with each block and the number of loops around, outer blocks first.
template <typename Visit>
void ForEachBlock(std::vector<Stmt>* block, int depth, const Visit& visit) {
  visit(block, depth);
  for (Stmt& s : *block) {
    if (!s.body.empty()) ForEachBlock(&s.body, depth + (s.opcode == Opcode::kFor), visit);
  }
}

// A place in program order: an access or a loop, by its number.
struct Place {
  bool loop;
  int number;
};

// Adds a barrier before a place. `access` and `loop`: the last ones passed.
bool AddBarrier(const Kernel& kernel, Place place, std::vector<Stmt>* block, int* access,
                int* loop) {
  for (size_t i = 0; i < block->size(); ++i) {
    Stmt& s = (*block)[i];
    const bool found = s.opcode == Opcode::kFor ? ++*loop == place.number && place.loop
                       : IsAccess(kernel, s)    ? ++*access == place.number && !place.loop
                                                : false;
    if (found) {
      block->insert(block->begin() + static_cast<std::ptrdiff_t>(i), {.opcode = Opcode::kBarrier});
      return true;
    }
    if (AddBarrier(kernel, place, &s.body, access, loop)) return true;
  }
  return false;
}

// Adds a barrier between the two accesses: before the later one, or before the outermost loop
// around it that is not around both, in one iteration of the carrying loop. What a copy wrote is
// there only behind a wait, which those loops may contain.
void Separate(Kernel* kernel, const Accesses& accesses, const Race& race) {
  Place place{false, race.later};
  const bool copied = accesses.access(race.earlier).elements > 1;
  for (const int loop : accesses.access(race.later).loops) {
    if (copied) break;
    const bool inner =
        race.carrier == kNoLoop ? !accesses.IsIn(race.earlier, loop) : loop > race.carrier;
    if (!inner) continue;
    place = {true, loop};
    break;
  }
  int access = -1, loop = kItems;
  AddBarrier(*kernel, place, &kernel->body, &access, &loop);
}

// Returns the kernel with those of its barriers that `keep` says.
Kernel With(Kernel kernel, const std::vector<bool>& keep) {
  size_t number = 0;
  ForEachBlock(&kernel.body, 0, [&](std::vector<Stmt>* block, int) {
    std::erase_if(*block,
                  [&](const Stmt& s) { return s.opcode == Opcode::kBarrier && !keep[number++]; });
  });
  return kernel;
}

// Leaves out barriers that the others make superfluous, first those in inner loops.
void Thin(Kernel* kernel, Accesses* accesses) {
  std::vector<std::pair<int, size_t>> order;  // depth, negative, and number
  ForEachBlock(&kernel->body, 0, [&](const std::vector<Stmt>* block, int depth) {
    for (const Stmt& s : *block) {
      if (s.opcode == Opcode::kBarrier) order.emplace_back(-depth, order.size());
    }
  });
  std::sort(order.begin(), order.end());
  std::vector<bool> keep(order.size(), true);
  for (const auto& [depth, number] : order) {
    keep[number] = false;
    keep[number] = RaceFinder(With(*kernel, keep), accesses).Find().has_value();
  }
  *kernel = With(*kernel, keep);
}

}  // namespace

void PlaceBarriers(Kernel* kernel) {
  if (kernel->team == 1) return;
  const Kernel given = *kernel;  // borrowed by its accesses
  Accesses accesses(given);
  while (std::optional<Race> race = RaceFinder(*kernel, &accesses).Find()) {
    if (race->pending) return;  // no barrier helps; CheckBarriers says so
    Separate(kernel, accesses, *race);
  }
  Thin(kernel, &accesses);
}

absl::Status CheckBarriers(const Kernel& kernel) {
  if (kernel.team == 1) return absl::OkStatus();
  Accesses accesses(kernel);
  for (int i = 0; i < accesses.size(); ++i) {
    const MemoryAccess& a = accesses.access(i);
    if (!a.store || !a.vector || accesses.LanesDiffer(i)) continue;
    return Invalid("b", a.buffer, ": two threads of the team may be at one element in \"", a.text,
                   "\"; each lane needs one of its own, at a multiple of the lane");
  }
  const std::optional<Race> race = RaceFinder(kernel, &accesses).Find();
  if (!race) return absl::OkStatus();
  const MemoryAccess &earlier = accesses.access(race->earlier),
                     &later = accesses.access(race->later);
  const std::string when =
      race->carrier == kNoLoop ? "" : Cat(" of a later ", accesses.loop(race->carrier).name);
  if (race->pending) {
    return Invalid("b", later.buffer, ": no wait between \"", earlier.text, "\" and \"", later.text,
                   "\"", when, "; the copy may be under way");
  }
  return Invalid("b", later.buffer, ": no barrier between \"", earlier.text, "\" and \"",
                 later.text, "\"", when, "; two threads of the team may touch one element");
}

}  // namespace athanor::kir
