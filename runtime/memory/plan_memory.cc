#include "runtime/memory/plan_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Adds a part after its length, so that no two lists of parts hash the same bytes.
void Add(Sha256& hash, absl::string_view part) {
  hash.Update(absl::StrCat(part.size(), ":"));
  hash.Update(part);
}

class KeyMaker {
 public:
  KeyMaker(const v1::Plan& plan, const Program& program, const ParameterHashes& hashes)
      : plan_(plan), program_(program), hashes_(hashes), keys_(program.fixed.size()) {}

  std::vector<PreparedKey> Make() {
    // Steps that make several buffers, or change one, must not be left out for one of these.
    if (!program_.prepares_once) return std::move(keys_);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const Program::Fixed& fixed = program_.fixed[i];
      if (program_.buffers[fixed.buffer].kind == v1::Buffer::CONSTANT) {
        Sha256 hash;
        Add(hash, "constant");
        Add(hash, plan_.buffers(fixed.buffer).literal());
        keys_[i] = hash.Finish();
      }
    }
    for (size_t s = 0; s < program_.prepare.size(); ++s) AddStep(static_cast<int>(s));
    return std::move(keys_);
  }

 private:
  // Returns the key of what a step reads; empty: it has none.
  std::string OperandKey(const Program::Buffer& buffer) const {
    if (buffer.kind != v1::Buffer::PARAMETER) return keys_[buffer.place];
    const auto hash = hashes_.find(buffer.name);
    return hash == hashes_.end() || hash->second.empty() ? "" : "parameter " + hash->second;
  }

  void AddStep(int index) {
    const Program::Step& step = program_.prepare[index];
    const std::string& source = plan_.kernels(step.kernel).source_hash();
    if (source.empty()) return;
    Sha256 hash;
    Add(hash, "prepare");
    Add(hash, source);
    Add(hash, absl::StrCat(program_.sizes.range(step.grid_size).min));
    for (int i = 0; i < step.sizes; ++i) {
      Add(hash, absl::StrCat(program_.sizes.range(program_.size_refs[step.first_size + i]).min));
    }
    Add(hash, "buffers");
    int made = -1;
    for (int i = 0; i < step.buffers; ++i) {
      const Program::Buffer& buffer = program_.buffers[program_.buffer_refs[step.first_buffer + i]];
      if (buffer.kind == v1::Buffer::PREPARED && program_.fixed[buffer.place].step == index) {
        made = static_cast<int>(buffer.place);
        Add(hash, absl::StrCat("made ", program_.fixed[made].bytes));
        continue;
      }
      const std::string operand = OperandKey(buffer);
      // Contents that depend on something without a key cannot be recognised again.
      if (operand.empty()) return;
      Add(hash, operand);
    }
    keys_[made] = hash.Finish();
  }

  const v1::Plan& plan_;
  const Program& program_;
  const ParameterHashes& hashes_;
  std::vector<PreparedKey> keys_;
};

}  // namespace

std::vector<PreparedKey> PreparedKeys(const v1::Plan& plan, const Program& program,
                                      const ParameterHashes& hashes) {
  return KeyMaker(plan, program, hashes).Make();
}

PreparedKey WeightKey(const std::string& content_hash) {
  if (content_hash.empty()) return {};
  Sha256 hash;
  Add(hash, "weight");
  Add(hash, content_hash);
  return hash.Finish();
}

int64_t PlanMemory::WeightBytes() const {
  int64_t bytes = 0;
  for (const Weight& weight : weights) bytes += weight.bytes;
  return bytes;
}

int64_t PlanMemory::NewBytes(const PreparedPool& pool) const {
  int64_t bytes = 0;
  for (const Weight& weight : weights) {
    if (!pool.Find(weight.key).has_value()) bytes += weight.bytes;
  }
  return bytes;
}

PlanMemory MemoryOf(const Program& program, const std::vector<PreparedKey>& keys,
                    const ParameterHashes& hashes, bool host_memory) {
  PlanMemory memory{.arena = program.arena_bytes, .scratch = program.scratch_bytes};
  absl::flat_hash_set<PreparedKey> seen;
  const auto hold = [&](int buffer, const PreparedKey& key, int64_t bytes) {
    if (!program.buffers[buffer].kept || (!key.empty() && !seen.insert(key).second)) return;
    memory.weights.push_back({key, PreparedPool::Rounded(bytes)});
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    hold(program.fixed[i].buffer, keys[i], program.fixed[i].bytes);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (program.buffers[program.fixed[i].buffer].kept) continue;
    if (!keys[i].empty() && !seen.insert(keys[i]).second) continue;
    memory.brief += PreparedPool::Rounded(program.fixed[i].bytes);
  }
  if (host_memory) return memory;
  const auto most = [&](int buffer) {
    return std::max<int64_t>(0, program.sizes.range(program.buffers[buffer].bytes_size).max);
  };
  for (const int parameter : program.parameters) {
    const auto hash = hashes.find(program.buffers[parameter].name);
    hold(parameter, hash == hashes.end() ? PreparedKey() : WeightKey(hash->second),
         most(parameter));
  }
  // Making a context refuses what no memory holds.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto stage = [&](int64_t bytes) {
    if (bytes > kMost - PreparedPool::kAlignment ||
        __builtin_add_overflow(memory.arena, PreparedPool::Rounded(bytes), &memory.arena)) {
      memory.arena = kMost;
    }
  };
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const v1::Buffer::Kind kind = program.buffers[i].kind;
    if (kind == v1::Buffer::INPUT || kind == v1::Buffer::OUTPUT) stage(most(static_cast<int>(i)));
  }
  for (const Program::Loop& loop : program.loops) {
    if (loop.turn >= 0) stage(sizeof(int64_t));
  }
  return memory;
}

absl::StatusOr<PlanMemory> MemoryOf(const v1::Plan& plan, const ParameterHashes& hashes,
                                    bool host_memory) {
  ASSIGN_OR_RETURN(Program program, BuildProgram(plan));
  return MemoryOf(program, PreparedKeys(plan, program, hashes), hashes, host_memory);
}

}  // namespace athanor
