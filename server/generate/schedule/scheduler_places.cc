// The part of Scheduler that gives sequences places and blocks, and takes them away.
#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "server/generate/schedule/scheduler.h"

namespace athanor {
namespace {

// A sequence that generated fewer tokens since it was admitted is preempted after the others.
constexpr int64_t kLeastGain = 16;
// So many of a client's oldest waiting sequences are looked at for the one that shares most blocks.
constexpr int64_t kLookedAt = 8;
// So many later ones of its client may be admitted before a sequence.
constexpr int64_t kMostPassed = 8;
constexpr int64_t kMostRestarts = 3;

}  // namespace

void Scheduler::Admit() {
  const int64_t pauses = paused();
  // Nobody gives way: spares the walk over those that wait.
  if (running() >= most_running_ && pauses == 0 && fair_.working() <= 1) return;
  while (Sequence* sequence = FirstWaiting()) {
    if (!MakeRoomFor(sequence)) return;
    Place(sequence);
  }
}

Sequence* Scheduler::FirstWaiting() {
  // A client with its share would have to give way to one without.
  const auto turn = [this](const Sequence* sequence) {
    const FairOrder::Client& client = *sequence->client;
    return std::pair(!fair_.IsBelow(client), client.time + static_cast<double>(client.owed));
  };
  while (true) {
    const Sequence* first = nullptr;
    for (Sequence* sequence : waiting_) {
      if (first != nullptr && sequence->priority > first->priority) break;
      if (sequence->paused.has_value() || StillAwaits(sequence)) continue;
      if (first == nullptr || turn(sequence) < turn(first)) first = sequence;
      if (fair_.working() <= 1) break;  // all are of one client
    }
    if (first == nullptr) return nullptr;
    // If all that FirstOf looks at wait for others' blocks, they are known to next time.
    if (Sequence* found = FirstOf(first->client, first->priority)) return found;
  }
}

Sequence* Scheduler::FirstOf(const FairOrder::Client* client, int64_t priority) {
  Sequence* oldest = nullptr;
  Sequence* best = nullptr;
  int64_t most = 0, looked_at = 0;
  for (Sequence* sequence : waiting_) {
    if (sequence->priority > priority || looked_at == kLookedAt) break;
    if (sequence->priority < priority || sequence->client != client) continue;
    if (sequence->paused.has_value() || Awaits(sequence)) continue;
    ++looked_at;
    if (oldest == nullptr) oldest = sequence;
    const int64_t hits = std::ssize(Hits(sequence));
    if (best != nullptr && hits <= most) continue;
    best = sequence;
    most = hits;
  }
  return oldest != nullptr && oldest->passed >= kMostPassed ? oldest : best;
}

const std::vector<int32_t>& Scheduler::Hits(Sequence* sequence) const {
  std::vector<int32_t>& hits = sequence->hits;
  if (const auto gone = pool_->GoneSince(sequence->hits_at)) {
    for (const int32_t block : *gone) {
      hits.erase(std::find(hits.begin(), hits.end(), block), hits.end());
    }
  } else {
    hits.clear();
  }
  sequence->hits_at = pool_->gone();
  while (IsSharable(*sequence, std::ssize(hits))) {
    const std::optional<int32_t> next = pool_->Find(sequence->keys[hits.size()]);
    if (!next.has_value()) break;
    hits.push_back(*next);
  }
  return hits;
}

bool Scheduler::IsAboutToStore(const Sequence& sequence, int64_t block) const {
  return sequence.running && !sequence.paused.has_value() &&
         block < static_cast<int64_t>(sequence.keys.size()) &&
         sequence.stored < (block + 1) * options_.block;
}

bool Scheduler::StillAwaits(Sequence* sequence) const {
  if (!sequence->awaits.has_value()) return false;
  auto& [id, block] = *sequence->awaits;
  const Sequence* other = Find(id);
  if (other == nullptr) return false;
  // Equal keys are equal up to there: where it has stored further ones, it may be about to store
  // the next.
  block = std::max(block, other->stored / options_.block);
  return IsSharable(*sequence, block) && IsAboutToStore(*other, block) &&
         sequence->keys[block] == other->keys[block];
}

bool Scheduler::IsSharable(const Sequence& sequence, int64_t block) const {
  return block < static_cast<int64_t>(sequence.keys.size()) &&
         (block + 1) * options_.block < static_cast<int64_t>(sequence.tokens.size());
}

bool Scheduler::Awaits(Sequence* sequence) const {
  if (StillAwaits(sequence)) return true;
  sequence->awaits.reset();
  const int64_t next = std::ssize(Hits(sequence));
  if (!IsSharable(*sequence, next)) return false;
  for (const Sequence* other : running_) {
    // Nobody waits for those of a later priority.
    if (other->priority > sequence->priority) break;
    if (!IsAboutToStore(*other, next) || other->keys[next] != sequence->keys[next]) continue;
    sequence->awaits = {other->id, next};
    return true;
  }
  return false;
}

bool Scheduler::MakeRoomFor(Sequence* sequence) {
  while (!HasRoomFor(sequence)) {
    Sequence* victim = Victim();
    if (victim == nullptr || !victim->paused.has_value()) {
      if (gave_way_) return false;
      victim = GivesWayTo(*sequence);
      if (victim == nullptr) return false;
      gave_way_ = true;
    }
    Preempt(victim);
  }
  return true;
}

bool Scheduler::HasRoomFor(Sequence* sequence) const {
  if (running() >= most_running_) return false;
  const std::vector<int32_t>& hits = Hits(sequence);
  int64_t needed = BlocksFor(std::ssize(sequence->tokens)) - std::ssize(hits);
  for (const int32_t block : hits) {
    if (pool_->IsKept(block)) ++needed;  // it is among the free ones
  }
  return needed + running() <= pool_->free();
}

Sequence* Scheduler::GivesWayTo(const Sequence& sequence) const {
  if (!fair_.IsBelow(*sequence.client)) return nullptr;
  Sequence* victim = nullptr;
  for (Sequence* other : running_) {
    const bool loses_little = other->gained() >= kLeastGain || other->stored == other->found;
    if (other->paused.has_value() || !fair_.IsAbove(*other->client) || !loses_little ||
        other->priority < sequence.priority || other->preemptions >= options_.max_preemptions ||
        IsFirstInOrder(other)) {
      continue;
    }
    // Those behind it in order are younger.
    if (victim == nullptr || other->client->places >= victim->client->places) victim = other;
  }
  return victim;
}

void Scheduler::Place(Sequence* sequence) {
  for (Sequence* other : waiting_) {
    if (other == sequence) break;
    if (other->priority == sequence->priority && other->client == sequence->client) {
      ++other->passed;
    }
  }
  const bool first = sequence->admitted == 0;
  waiting_.erase(sequence);
  running_.insert(sequence);
  sequence->running = true;
  sequence->awaits.reset();
  sequence->admitted = static_cast<int64_t>(sequence->tokens.size());
  Hits(sequence);
  sequence->blocks = std::exchange(sequence->hits, {});
  for (const int32_t block : sequence->blocks) pool_->Share(block);
  sequence->stored = sequence->found = std::ssize(sequence->blocks) * options_.block;
  while (std::ssize(sequence->blocks) < BlocksFor(sequence->admitted)) {
    sequence->blocks.push_back(*pool_->Take());
  }
  sequence->computed = std::max(sequence->computed, sequence->stored);
  ++sequence->client->places;
  sequence->client->owed += sequence->owed();
  if (!first || !sequence->root.has_value()) return;
  sequence->cached = sequence->stored;
  counts_.queried_tokens += sequence->prompt;
  counts_.cached_tokens += sequence->cached;
}

void Scheduler::MakeRoomForRows(absl::Span<Sequence* const> decoding) {
  const auto needs_block = [this](const Sequence* sequence) {
    return sequence->running &&
           BlocksFor(sequence->stored + 1) > static_cast<int64_t>(sequence->blocks.size());
  };
  while (std::count_if(decoding.begin(), decoding.end(), needs_block) > pool_->free()) {
    Preempt(Victim());  // there is one: a sequence alone has room
  }
}

bool Scheduler::IsFirstInOrder(const Sequence* sequence) const {
  const auto first = std::find_if(running_.begin(), running_.end(),
                                  [](const Sequence* one) { return !one->paused.has_value(); });
  return first != running_.end() && *first == sequence;
}

Sequence* Scheduler::Victim() const {
  // The least is the first to go.
  const auto order = [this](const Sequence* sequence) {
    const bool paused = sequence->paused.has_value();
    return std::tuple(!paused, paused ? *sequence->paused : SequenceTime(),
                      sequence->preemptions >= options_.max_preemptions,
                      sequence->gained() < kLeastGain, -sequence->priority,
                      -sequence->client->places, -sequence->arrival);
  };
  Sequence* victim = nullptr;
  for (Sequence* sequence : running_) {
    if (IsFirstInOrder(sequence)) continue;
    if (victim == nullptr || order(sequence) < order(victim)) victim = sequence;
  }
  return victim;
}

void Scheduler::Preempt(Sequence* sequence) {
  Displace(sequence);
  sequence->stored = 0;
  ++sequence->preemptions;
  ++counts_.preemptions;
  waiting_.insert(sequence);
}

bool Scheduler::StartAnew() {
  if (running() != 1) return false;
  Sequence* const sequence = *running_.begin();
  if (sequence->in_step || sequence->restarts == kMostRestarts) return false;
  ++sequence->restarts;
  Preempt(sequence);
  return true;
}

void Scheduler::Displace(Sequence* sequence) {
  running_.erase(sequence);
  sequence->client->owed -= sequence->owed();
  if (!sequence->paused.has_value()) --sequence->client->places;
  sequence->running = false;
  // The last first: of its kept blocks those are given away before those that lead to them.
  for (; !sequence->blocks.empty(); sequence->blocks.pop_back()) {
    pool_->Drop(sequence->blocks.back());
  }
}

}  // namespace athanor
