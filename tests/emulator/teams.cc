#include "tests/emulator/teams.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulator/counters.h"
#include "tests/emulator/faults.h"
#include "tests/emulator/fibres.h"
#include "tests/emulator/matrices.h"
#include "tests/emulator/races.h"

namespace athanor::emulator {
namespace {

// Shuffles a number (splitmix64).
uint64_t Shuffled(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr int kCopyBytes = 16;

// Is a set of numbers below 128.
class Set {
 public:
  void Add(int i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void Remove(int i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  bool empty() const { return (words_[0] | words_[1]) == 0; }
  // Returns the lowest that is not below `from`; where there is none, the lowest.
  int Next(int from) const {
    const int word = from / 64;
    const uint64_t rest = words_[word] >> (from % 64);
    if (rest != 0) return from + std::countr_zero(rest);
    if (word == 0 && words_[1] != 0) return 64 + std::countr_zero(words_[1]);
    return words_[0] != 0 ? std::countr_zero(words_[0]) : 64 + std::countr_zero(words_[1]);
  }

 private:
  uint64_t words_[2] = {};
};

bool Same(const Meeting& a, const Meeting& b) {
  return a.kind == b.kind && a.step == b.step && a.line == b.line && a.column == b.column &&
         (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string MeetingText(const Meeting& meeting) {
  const char* const what = meeting.kind == Meeting::kBarrier    ? "a barrier"
                           : meeting.kind == Meeting::kSwap     ? "a swap"
                           : meeting.kind == Meeting::kMultiply ? "a product of matrices"
                           : meeting.kind == Meeting::kTicket   ? "a ticket"
                                                                : "lane 0's value";
  return absl::StrCat(what, " at ", meeting.file, ":", meeting.line, ":", meeting.column);
}

// Returns "thread 1" or "threads 0, 2-31".
std::string NumbersText(const std::vector<int>& numbers) {
  std::string text = numbers.size() == 1 ? "thread " : "threads ";
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t first = i;
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    absl::StrAppend(&text, first == 0 ? "" : ", ", numbers[first]);
    if (i > first) absl::StrAppend(&text, "-", numbers[i]);
  }
  return text;
}

struct Thread {
  std::unique_ptr<Fibre> fibre = std::make_unique<Fibre>();
  enum { kGoesOn, kWaits, kEnded } state = kEnded;
  Meeting meeting;                      // where it waits
  unsigned long value = 0, result = 0;  // what it brings there and takes from there
  Access counter;                       // that it draws there
  struct Copy {
    Access to;
    const void* from;  // null: zeros
  };
  std::vector<Copy> begun;  // and in no group yet
  std::deque<std::vector<Copy>> groups;
};

// Counts who waits at the meeting of a wave, or of the team.
struct Group {
  int begin = 0, threads = 0;
  int waiting = 0;
  Meeting meeting;
};

// Is kept between launches. Guarded by the driver's mutex, as all here.
struct Kept {
  std::vector<Thread> threads;
  Races races;
  Counting counting;
  void* const shared = std::aligned_alloc(256, kMostSharedBytesOfBlock);
};
Kept& TheKept() {
  static auto& kept = *new Kept;
  return kept;
}

class Teams {
 public:
  Teams(Entry entry, void** arguments, const Launch& launch, long block, long shared_bytes,
        const Order& order);
  Stop Run();

 private:
  static void Fail(const Launch* launch, Fault fault, const Access& access);
  static void Touch(const Launch* launch, const Access& access);
  static void CheckOrder(const Launch* launch, const Access& access);
  static void Count(const Launch* launch, const Access& access);
  static void Draw(const Launch* launch, const Access& counter);
  static unsigned long Meet(const Launch* launch, const Meeting& meeting, unsigned long value);
  static void Copy(const Launch* launch, const Access& to, const void* from);
  static void Commit(const Launch* launch);
  static void Wait(const Launch* launch, int groups);

  void RunTeam(long team);
  void BeginTeam(long team);
  int PickThread();
  int TurnOf(int thread) const;
  Group& GroupOf(const Meeting& meeting, int thread);
  void Complete(Group& group);
  void Multiply(const Group& group);
  void DrawTicket(const Group& group);
  void CheckCounters();
  void CheckMeeting(const Meeting& meeting);
  bool InShared(const Access& access) const {
    return launch_.shared.begin <= access.address && access.address < launch_.shared.end;
  }
  std::string StandstillText() const;
  // Ends the launch. What the caller holds is not destroyed.
  [[noreturn]] void Leave(CudaResult result, std::string why);
  int thread() const { return launch_.thread % launch_.team; }

  const Entry entry_;
  void** const arguments_;
  Launch launch_;
  const long teams_of_block_, shared_bytes_;
  const Order order_;
  uint64_t picks_ = 0;
  std::vector<Range> ranges_;
  Range* shared_ = nullptr;  // of them; null: teams have no shared memory
  std::vector<Thread>& threads_;
  Races& races_;
  Counting& counting_;
  const bool counts_ = std::getenv("ATHANOR_EMULATOR_COUNTS") != nullptr;
  std::map<unsigned long, Access> drawn_;      // counters, by their address
  Set turns_;                                  // of the threads that go on
  absl::flat_hash_set<unsigned long> copied_;  // pieces of 16 bytes that copies will write
  Group team_;
  std::vector<Group> waves_;
  Stop stop_;
};

Teams* running = nullptr;

Teams::Teams(Entry entry, void** arguments, const Launch& launch, long block, long shared_bytes,
             const Order& order)
    : entry_(entry),
      arguments_(arguments),
      launch_(launch),
      teams_of_block_(block / launch.team),
      shared_bytes_(shared_bytes),
      order_(order),
      ranges_(launch.ranges, launch.ranges + launch.range_count),
      threads_(TheKept().threads),
      races_(TheKept().races),
      counting_(TheKept().counting),
      team_{.threads = launch.team} {
  while (threads_.size() < static_cast<size_t>(launch_.team)) threads_.emplace_back();
  const int wave = std::min(kWave, launch_.team);
  for (int i = 0; i < launch_.team; i += wave) waves_.push_back({.begin = i, .threads = wave});
  if (shared_bytes_ > 0) {
    const unsigned long begin = reinterpret_cast<unsigned long>(TheKept().shared) | kDeviceBit;
    const auto place = std::find_if(ranges_.begin(), ranges_.end(),
                                    [&](const Range& range) { return range.begin > begin; });
    shared_ = &*ranges_.insert(place, {begin, begin});
  }
  launch_.ranges = ranges_.data();
  launch_.range_count = ranges_.size();
  launch_.fault = Fail;
  launch_.touch = Touch;
  launch_.order = CheckOrder;
  launch_.count = Count;
  launch_.draw = Draw;
  launch_.meet = Meet;
  launch_.element = ElementOf;
  launch_.copy = Copy;
  launch_.commit = Commit;
  launch_.wait = Wait;
  // In the other orders the thread that runs is the one that goes on.
  if (order_.kind == Order::kSeeded) {
    launch_.step = [](const Launch*) { Fibre::Suspend(); };
  }
}

Stop Teams::Run() {
  running = this;
  races_.BeginLaunch();
  counting_.BeginLaunch(launch_.team);
  const long teams = launch_.threads / launch_.team;
  for (long i = 0; i < teams && stop_.result == kCudaSuccess; ++i) RunTeam(order_.At(i, teams));
  if (stop_.result == kCudaSuccess) CheckCounters();
  running = nullptr;
  return std::move(stop_);
}

void Teams::RunTeam(long team) {
  BeginTeam(team);
  while (!turns_.empty() && stop_.result == kCudaSuccess) {
    const int picked = PickThread();
    launch_.thread = team * launch_.team + picked;
    Thread& thread = threads_[picked];
    if (!thread.fibre->Resume()) {
      thread.state = Thread::kEnded;
      turns_.Remove(TurnOf(picked));
    }
    launch_.first_of_team = false;
  }
  const auto waits = [](const Thread& thread) { return thread.state == Thread::kWaits; };
  if (stop_.result == kCudaSuccess && std::any_of(threads_.begin(), threads_.end(), waits)) {
    stop_ = {kCudaLaunchFailed, StandstillText()};
  }
  if (stop_.result == kCudaSuccess && !copied_.empty()) {
    stop_ = {kCudaLaunchFailed,
             absl::StrCat(launch_.kernel, ": team ", team, " ends while copies are under way")};
  }
  counting_.EndTeam();
  for (Thread& thread : threads_) {
    thread.fibre->End();
    thread.state = Thread::kEnded;
    thread.begun.clear();
    thread.groups.clear();
  }
}

void Teams::BeginTeam(long team) {
  races_.BeginTeam(team);
  launch_.first_of_team = true;
  launch_.workspace = {};
  copied_.clear();
  if (shared_ != nullptr) {
    // A block's teams have theirs side by side, so that alignment is a GPU's.
    char* const host =
        static_cast<char*>(TheKept().shared) + team % teams_of_block_ * shared_bytes_;
    std::memset(host, kUnwritten, shared_bytes_);
    shared_->begin = reinterpret_cast<unsigned long>(host) | kDeviceBit;
    shared_->end = shared_->begin + shared_bytes_;
    launch_.shared = *shared_;
  }
  team_.waiting = 0;
  for (Group& wave : waves_) wave.waiting = 0;
  for (int i = 0; i < launch_.team; ++i) {
    threads_[i].state = Thread::kGoesOn;
    turns_.Add(i);
    threads_[i].fibre->Start(
        [](void* teams) {
          const auto& self = *static_cast<Teams*>(teams);
          self.entry_(self.arguments_, &self.launch_);
        },
        this);
  }
}

int Teams::TurnOf(int thread) const {
  return order_.kind == Order::kDescending ? launch_.team - 1 - thread : thread;
}

int Teams::PickThread() {
  if (order_.kind != Order::kSeeded) return TurnOf(turns_.Next(0));
  return turns_.Next(Shuffled(order_.seed + ++picks_) % launch_.team);
}

void Teams::Leave(CudaResult result, std::string why) {
  stop_.result = result;
  stop_.why = std::move(why);
  Fibre::Leave();
}

void Teams::Fail(const Launch* launch, Fault fault, const Access& access) {
  running->Leave(ResultOf(fault), TextOf(*launch, fault, access));
}

void Teams::Touch(const Launch* launch, const Access& access) {
  Count(launch, access);
  CheckOrder(launch, access);
}

void Teams::Count(const Launch*, const Access& access) {
  Teams& self = *running;
  if (!self.counts_) return;
  self.counting_.Access(self.thread(), __builtin_return_address(0), access, self.InShared(access));
}

void Teams::CheckOrder(const Launch* launch, const Access& access) {
  Teams& self = *running;
  const Range& workspace = launch->workspace;
  const bool shared = self.InShared(access);
  const bool own = shared || (workspace.begin <= access.address && access.address < workspace.end);
  if (shared && self.copied_.contains(access.address / kCopyBytes)) {
    self.Leave(kCudaLaunchFailed, TextOf(*launch, access) +
                                      ", to which a copy is under way: no wait for it came before");
  }
  if (!self.drawn_.empty() && self.drawn_.contains(access.address & ~3UL)) {
    self.Leave(kCudaLaunchFailed,
               TextOf(*launch, access) + ", a counter of tickets: only they may touch it");
  }
  const std::optional<Race> race =
      self.races_.Touch(self.thread(), access.address, access.bytes, access.write,
                        {.of_team = shared, .defined = !own});
  if (!race) return;
  std::string why = TextOf(*launch, access);
  const char* const did = race->kind == Race::kRead ? " read" : " wrote";
  if (race->kind == Race::kUndefined) {
    absl::StrAppend(&why, ", which no thread of the team has written");
  } else if (race->team == launch->thread / launch->team) {
    absl::StrAppend(&why, ", which thread ", race->thread, did,
                    " since the last barrier: between them a barrier is missing");
  } else {
    absl::StrAppend(&why, ", which thread ", race->thread, " of team ", race->team, did,
                    " in the same launch: teams do not wait for each other");
  }
  self.Leave(kCudaLaunchFailed, std::move(why));
}

void Teams::CheckMeeting(const Meeting& meeting) {
  if (meeting.team != launch_.team) {
    std::string why =
        absl::StrCat(ThreadText(launch_), " waits for ", MeetingText(meeting), " of a team of ",
                     meeting.team, " threads; the kernel's teams have ", launch_.team);
    Leave(kCudaLaunchFailed, std::move(why));
  }
  const int most = std::min(kWave, launch_.team) / 2;
  if (meeting.kind == Meeting::kSwap &&
      (meeting.step < 1 || meeting.step > most || !std::has_single_bit(unsigned(meeting.step)))) {
    std::string why = absl::StrCat(ThreadText(launch_), " waits for ", MeetingText(meeting), " by ",
                                   meeting.step, "; it may be a power of two up to ", most);
    Leave(kCudaLaunchFailed, std::move(why));
  }
}

// Keeps the copy until the wait for its group; meanwhile nobody may touch where it writes.
void Teams::Copy(const Launch* launch, const Access& to, const void* from) {
  Teams& self = *running;
  Access half = to;
  half.bytes = kCopyBytes / 2;
  CheckOrder(launch, half);
  half.address += half.bytes;
  CheckOrder(launch, half);
  Count(launch, to);
  self.copied_.insert(to.address / kCopyBytes);
  self.threads_[self.thread()].begun.push_back({to, from});
}

void Teams::Commit(const Launch*) {
  Thread& thread = running->threads_[running->thread()];
  thread.groups.push_back(std::move(thread.begun));
  thread.begun.clear();
}

void Teams::Wait(const Launch* launch, int groups) {
  Teams& self = *running;
  Thread& thread = self.threads_[self.thread()];
  while (thread.groups.size() > static_cast<size_t>(groups)) {
    for (const Thread::Copy& copy : thread.groups.front()) {
      self.copied_.erase(copy.to.address / kCopyBytes);
      Access half = copy.to;
      half.bytes = kCopyBytes / 2;
      CheckOrder(launch, half);
      half.address += half.bytes;
      CheckOrder(launch, half);
      void* const to = reinterpret_cast<void*>(copy.to.address & ~kDeviceBit);
      if (copy.from != nullptr) {
        std::memcpy(to, copy.from, kCopyBytes);
      } else {
        std::memset(to, 0, kCopyBytes);
      }
    }
    thread.groups.pop_front();
  }
}

Group& Teams::GroupOf(const Meeting& meeting, int thread) {
  const bool of_team = meeting.kind == Meeting::kBarrier || meeting.kind == Meeting::kTicket;
  return of_team ? team_ : waves_[thread / kWave];
}

// Lets a group go on: the last thread that came computes for all.
void Teams::Complete(Group& group) {
  group.waiting = 0;
  if (group.meeting.kind == Meeting::kMultiply) Multiply(group);
  if (group.meeting.kind == Meeting::kTicket) DrawTicket(group);
  for (int i = group.begin; i < group.begin + group.threads; ++i) {
    Thread& thread = threads_[i];
    const int from = group.meeting.kind == Meeting::kSwap ? i ^ group.meeting.step : group.begin;
    thread.result = threads_[from].value;
    thread.state = Thread::kGoesOn;
    turns_.Add(TurnOf(i));
  }
  if (group.meeting.kind == Meeting::kBarrier || group.meeting.kind == Meeting::kTicket) {
    races_.Barrier();
    counting_.Barrier();
  } else if (group.meeting.kind == Meeting::kMultiply) {
    counting_.Product();
  } else {
    counting_.Exchange();
  }
}

void Teams::Multiply(const Group& group) {
  std::vector<Product*> wave;
  for (int i = group.begin; i < group.begin + group.threads; ++i) {
    wave.push_back(reinterpret_cast<Product*>(threads_[i].value));
  }
  MultiplyMatrices(static_cast<Factors>(group.meeting.step), wave);
}

void Teams::Draw(const Launch* launch, const Access& counter) {
  Teams& self = *running;
  self.threads_[self.thread()].counter = counter;
  if (self.thread() == 0) Count(launch, counter);
}

// Draws the counter that all threads name; each gets what it held.
void Teams::DrawTicket(const Group& group) {
  const Access& counter = threads_[group.begin].counter;
  for (int i = 0; i < group.threads; ++i) {
    if (threads_[i].value == counter.address) continue;
    Leave(kCudaLaunchFailed,
          absl::StrCat(launch_.kernel, ": thread ", i, " of team ", launch_.thread / launch_.team,
                       " draws another counter than the first thread"));
  }
  auto* const cell = reinterpret_cast<uint32_t*>(counter.address & ~kDeviceBit);
  const uint32_t before = *cell, teams = static_cast<uint32_t>(group.meeting.step);
  if (!drawn_.contains(counter.address)) {
    Access look = counter;
    look.write = false;
    CheckOrder(&launch_, look);
    if (before != 0) {
      Leave(kCudaLaunchFailed,
            absl::StrCat(ThreadText(launch_), " draws a counter that holds ", before,
                         " when the launch begins, ", PlaceOf(launch_, counter),
                         ": only zeros may lie there"));
    }
    drawn_[counter.address] = counter;
  }
  *cell = before + 1 < teams ? before + 1 : 0;
  threads_[group.begin].value = before;
  races_.Draw(counter.address);
  counting_.Barrier();  // a GPU's threads meet before they draw, too
}

void Teams::CheckCounters() {
  for (const auto& [address, counter] : drawn_) {
    uint32_t left;
    std::memcpy(&left, reinterpret_cast<const void*>(address & ~kDeviceBit), sizeof(left));
    if (left == 0) continue;
    stop_ = {kCudaLaunchFailed, absl::StrCat(launch_.kernel, ": counter not reset: it holds ", left,
                                             " when the launch ends, ", PlaceOf(launch_, counter))};
    return;
  }
}

unsigned long Teams::Meet(const Launch*, const Meeting& meeting, unsigned long value) {
  Teams& self = *running;
  self.CheckMeeting(meeting);
  const int number = self.thread();
  Thread& thread = self.threads_[number];
  thread.state = Thread::kWaits;
  thread.meeting = meeting;
  thread.value = value;
  self.turns_.Remove(self.TurnOf(number));
  Group& group = self.GroupOf(meeting, number);
  if (group.waiting == 0) group.meeting = meeting;
  // A thread that comes to another place waits in vain, and with it those who came here.
  if (Same(group.meeting, meeting) && ++group.waiting == group.threads) self.Complete(group);
  Fibre::Suspend();
  return thread.result;
}

std::string Teams::StandstillText() const {
  std::vector<std::pair<std::string, std::vector<int>>> places;
  for (int i = 0; i < launch_.team; ++i) {
    const Thread& thread = threads_[i];
    const bool ended = thread.state == Thread::kEnded;
    std::string place = ended ? "ended" : "wait for " + MeetingText(thread.meeting);
    const auto known = std::find_if(places.begin(), places.end(),
                                    [&](const auto& other) { return other.first == place; });
    if (known != places.end()) {
      known->second.push_back(i);
    } else {
      places.push_back({std::move(place), {i}});
    }
  }
  std::string text = absl::StrCat(launch_.kernel, ": team ", launch_.thread / launch_.team,
                                  " stands still, since its threads do not meet:");
  for (const auto& [place, numbers] : places) {
    absl::string_view verb = place;
    std::string singular;
    if (numbers.size() == 1 && verb.substr(0, 4) == "wait") {
      singular = absl::StrCat("waits", verb.substr(4));
      verb = singular;
    }
    absl::StrAppend(&text, &place == &places[0].first ? " " : "; ", NumbersText(numbers), " ",
                    verb);
  }
  return text;
}

}  // namespace

Counting& TheCounting() { return TheKept().counting; }

long Order::At(long i, long n) const {
  if (kind == kAscending) return i;
  if (kind == kDescending) return n - 1 - i;
  // A step that has no divisor with n comes past each once.
  const uint64_t random = Shuffled(seed);
  uint64_t step = random % n;
  while (std::gcd(step, uint64_t(n)) != 1) ++step;
  return (random / n % n + static_cast<unsigned __int128>(i) * step) % n;
}

Stop RunTeams(Entry entry, void** arguments, const Launch& launch, long block, long shared_bytes,
              const Order& order) {
  if (block % launch.team != 0 || block > kMostThreadsOfBlock) {
    return {
        kCudaLaunchFailed,
        absl::StrCat(launch.kernel, ": blocks of ", block, " threads; its teams of ", launch.team,
                     " need blocks of whole teams, of at most ", kMostThreadsOfBlock, " threads")};
  }
  return Teams(entry, arguments, launch, block, shared_bytes, order).Run();
}

}  // namespace athanor::emulator
