#include "runtime/memory/state_memory.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// States begin at cache lines, as arenas' buffers do.
constexpr int64_t kAlignment = 64;

absl::Status CheckSpecs(const std::vector<StateMemory::Spec>& specs, int64_t slots, int64_t block) {
  if (specs.empty()) return absl::InvalidArgumentError("a state memory without states");
  if (block < 1 || slots < block || slots % block != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a state memory of ", slots,
                                                   " slots in blocks of ", block,
                                                   ": give whole blocks, one at least"));
  }
  std::set<std::string> names;
  for (const StateMemory::Spec& spec : specs) {
    if (spec.slot_bytes < 1) {
      return absl::InvalidArgumentError(absl::StrCat("state '", spec.name, "' has slots of ",
                                                     spec.slot_bytes, " bytes: give 1 at least"));
    }
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("state '", spec.name, "' is given twice"));
    }
  }
  return absl::OkStatus();
}

int64_t StrideOf(const std::vector<StateMemory::Spec>& specs, int64_t block) {
  const bool alike = std::all_of(specs.begin(), specs.end(), [&](const StateMemory::Spec& spec) {
    return spec.slot_bytes == specs[0].slot_bytes;
  });
  return alike && block * specs[0].slot_bytes % kAlignment == 0 ? std::ssize(specs) : 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateMemory>> StateMemory::Create(Device* device,
                                                                 MemoryLedger* ledger,
                                                                 std::vector<Spec> specs,
                                                                 int64_t slots, int64_t block,
                                                                 Order order) {
  RETURN_IF_ERROR(CheckSpecs(specs, slots, block));
  std::unique_ptr<StateMemory> made(new StateMemory(ledger, std::move(specs), block));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  int64_t end = 0;
  for (const Spec& spec : made->specs_) {
    made->places_.push_back(end);
    int64_t bytes = 0;
    if (__builtin_mul_overflow(slots, spec.slot_bytes, &bytes) || bytes > kMost - end) {
      return absl::ResourceExhaustedError(absl::StrCat("states of ", slots, " slots up to '",
                                                       spec.name, "' take more than ", kMost,
                                                       " bytes: give fewer slots"));
    }
    end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (order == Order::kByBlock) made->stride_ = StrideOf(made->specs_, block);
  if (made->stride_ > 1) {
    const int64_t bytes = block * made->specs_[0].slot_bytes;
    for (int64_t s = 0; s < made->stride_; ++s) made->places_[s] = s * bytes;
    // No slot that a kernel may name lies outside, not even those behind the last block's own.
    end += (made->stride_ - 1) * bytes;
  }
  RETURN_IF_ERROR(made->memory_.Allocate(*device, end));
  made->committed_.resize(slots / block);
  made->users_.resize(made->memory_.granules());
  return made;
}

void StateMemory::RangesOf(int64_t block, CommittedMemory::Range range) const {
  for (size_t s = 0; s < specs_.size(); ++s) {
    const int64_t bytes = slots_of_block_ * specs_[s].slot_bytes;
    range(places_[s] + block * stride_ * bytes, bytes);
  }
}

void StateMemory::ForGranules(int64_t block, absl::FunctionRef<void(int64_t granule)> use) const {
  const int64_t granule = memory_.granule();
  if (granule == 0) return;
  RangesOf(block, [&](int64_t offset, int64_t bytes) {
    for (int64_t g = offset / granule; g * granule < offset + bytes; ++g) use(g);
  });
}

absl::Status StateMemory::Commit(int64_t block) {
  if (committed_[block]) return absl::OkStatus();
  RETURN_IF_ERROR(memory_.Use([&](CommittedMemory::Range range) { RangesOf(block, range); }));
  ForGranules(block, [&](int64_t granule) { ++users_[granule]; });
  committed_[block] = true;
  return absl::OkStatus();
}

void StateMemory::Decommit(int64_t block) {
  if (!committed_[block]) return;
  committed_[block] = false;
  int64_t first = 0, end = 0;  // a run that nothing uses any more
  ForGranules(block, [&](int64_t granule) {
    if (--users_[granule] > 0) return;
    if (granule != end) {
      memory_.Release(first, end);
      first = granule;
    }
    end = granule + 1;
  });
  memory_.Release(first, end);
}

}  // namespace athanor
