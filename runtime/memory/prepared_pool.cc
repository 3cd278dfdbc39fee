#include "runtime/memory/prepared_pool.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "deploy/bazel/libs/mutex.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

// State that blocks need even after the pool is gone.
struct PreparedPool::State {
  State(Device* device, MemoryLedger* ledger, Device* large)
      : device(device), ledger(ledger), large(large) {}

  Device* const device;
  MemoryLedger* const ledger;
  Device* const large;
  std::atomic<int64_t> bytes{0};
  Mutex mu;
  absl::flat_hash_map<PreparedKey, std::weak_ptr<Block::Memory>> by_key ABSL_GUARDED_BY(mu);
};

struct PreparedPool::Slab {
  explicit Slab(std::unique_ptr<DeviceMemory> memory) : memory(std::move(memory)) {}

  // Gives back the pages that no other block shares.
  void Drop(int64_t offset) {
    MutexLock lock(mu);
    const auto gone = live.find(offset);
    const auto after = std::next(gone);
    const int64_t begin = gone == live.begin() ? 0 : std::prev(gone)->second;
    const int64_t end = after == live.end() ? memory->bytes() : after->first;
    live.erase(gone);
    memory->Decommit(begin, end - begin);
  }

  const std::unique_ptr<DeviceMemory> memory;
  Mutex mu;
  std::map<int64_t, int64_t> live ABSL_GUARDED_BY(mu);  // blocks: offset to end
};

struct PreparedPool::Block::Memory {
  Memory(std::shared_ptr<State> state, std::shared_ptr<Slab> slab, MemoryKind kind, int64_t offset,
         int64_t bytes)
      : state(std::move(state)), slab(std::move(slab)), kind(kind), offset(offset), bytes(bytes) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  ~Memory() {
    if (!key.empty()) {
      MutexLock lock(state->mu);
      const auto found = state->by_key.find(key);
      // Another block may have taken the key since the last copy of this one was released.
      if (found != state->by_key.end() && found->second.expired()) state->by_key.erase(found);
    }
    slab->Drop(offset);
    slab.reset();
    state->bytes -= bytes;
    if (state->ledger != nullptr) state->ledger->Release(kind, bytes);
  }

  const std::shared_ptr<State> state;
  std::shared_ptr<Slab> slab;
  const MemoryKind kind;
  const int64_t offset, bytes;
  PreparedKey key;  // set once, before others see the block
};

void* PreparedPool::Block::data() const {
  return static_cast<char*>(memory_->slab->memory->data()) + memory_->offset;
}

int64_t PreparedPool::Block::bytes() const { return memory_->bytes; }

PreparedPool::PreparedPool(Device* device, MemoryLedger* ledger, Device* large)
    : state_(std::make_shared<State>(device, ledger, large)) {}

int64_t PreparedPool::Rounded(int64_t bytes) {
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

int64_t PreparedPool::BytesOf(absl::Span<const Block> blocks) {
  int64_t bytes = 0;
  absl::flat_hash_set<const Block::Memory*> seen;
  for (const Block& block : blocks) {
    if (block && seen.insert(block.memory_.get()).second) bytes += block.bytes();
  }
  return bytes;
}

std::optional<PreparedPool::Block> PreparedPool::Find(const PreparedKey& key) const {
  if (key.empty()) return std::nullopt;
  MutexLock lock(state_->mu);
  const auto found = state_->by_key.find(key);
  if (found == state_->by_key.end()) return std::nullopt;
  std::shared_ptr<Block::Memory> memory = found->second.lock();
  if (memory == nullptr) return std::nullopt;
  return Block(std::move(memory));
}

absl::Status PreparedPool::AllocateSlab(Device* device, absl::Span<const int64_t> bytes,
                                        MemoryKind kind, std::vector<Block>* blocks) {
  if (bytes.empty()) return absl::OkStatus();
  int64_t total = 0;
  for (const int64_t b : bytes) total += Rounded(b);
  MemoryCharge charge(state_->ledger, kind);
  RETURN_IF_ERROR(charge.Raise(total));
  ASSIGN_OR_RETURN(auto memory, device->Allocate(kind, total));
  RETURN_IF_ERROR(memory->Commit(0, total));
  auto slab = std::make_shared<Slab>(std::move(memory));
  int64_t offset = 0;
  MutexLock lock(slab->mu);
  for (const int64_t b : bytes) {
    const int64_t end = offset + Rounded(b);
    slab->live.emplace(offset, end);
    blocks->push_back(
        Block(std::make_shared<Block::Memory>(state_, slab, kind, offset, end - offset)));
    offset = end;
  }
  state_->bytes += total;
  charge.HandOver();  // each block gives back its own
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PreparedPool::Block>> PreparedPool::Allocate(
    absl::Span<const Wanted> wanted, MemoryKind kind) {
  const auto is_large = [&](const Wanted& w) {
    return state_->large != nullptr && w.bytes >= kLargeBlock;
  };
  std::vector<Block> together[2];  // of those that stay, and of brief ones
  for (const bool brief : {false, true}) {
    std::vector<int64_t> bytes;
    for (const Wanted& w : wanted) {
      if (!is_large(w) && w.brief == brief) bytes.push_back(w.bytes);
    }
    RETURN_IF_ERROR(AllocateSlab(state_->device, bytes, kind, &together[brief]));
  }
  std::vector<Block> blocks;
  auto stays = together[false].begin(), brief = together[true].begin();
  for (const Wanted& w : wanted) {
    if (!is_large(w)) {
      blocks.push_back(std::move(w.brief ? *brief++ : *stays++));
    } else if (absl::Status s = AllocateSlab(state_->large, {w.bytes}, kind, &blocks); !s.ok()) {
      return s;
    }
  }
  return blocks;
}

PreparedPool::Block PreparedPool::Publish(const PreparedKey& key, Block block) {
  MutexLock lock(state_->mu);
  std::weak_ptr<Block::Memory>& held = state_->by_key[key];
  // Two loads may make the same block at the same time: the first to publish it wins, and the
  // other's memory is freed.
  if (std::shared_ptr<Block::Memory> first = held.lock(); first != nullptr) {
    return Block(std::move(first));
  }
  block.memory_->key = key;
  held = block.memory_;
  return block;
}

int64_t PreparedPool::bytes() const { return state_->bytes; }

const MemoryLedger* PreparedPool::ledger() const { return state_->ledger; }

bool PreparedPool::host_memory() const { return state_->device->host_memory(); }

}  // namespace athanor
