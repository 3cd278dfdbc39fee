#include "server/memory/server_ledger.h"

#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/retry_after.h"

namespace athanor {

namespace {

HeldKind KindOf(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kPrepared:
      return HeldKind::kPrepared;
    case MemoryKind::kArena:
    case MemoryKind::kStaging:
      return HeldKind::kArenas;
    case MemoryKind::kScratch:
      return HeldKind::kScratch;
    case MemoryKind::kWeights:
      return HeldKind::kParameters;
    case MemoryKind::kStates:
      return HeldKind::kStates;
  }
  return HeldKind::kScratch;
}

// Reports whether memory of this kind comes and goes with models rather than with each request.
bool IsOfModels(HeldKind kind) {
  return kind == HeldKind::kParameters || kind == HeldKind::kPrepared ||
         kind == HeldKind::kUploads || kind == HeldKind::kStates;
}

}  // namespace

absl::string_view HeldKindName(HeldKind kind) {
  static constexpr absl::string_view kNames[kHeldKinds] = {
      "parameters", "prepared", "arenas", "scratch", "uploads", "requests", "states"};
  return kNames[static_cast<int>(kind)];
}

absl::Status ServerLedger::Hold(HeldKind kind, int64_t bytes, absl::string_view what) {
  int64_t held = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - held) {
      if (refused_) refused_(kind, bytes);
      const absl::Status refusal = absl::ResourceExhaustedError(
          absl::StrCat(what, ": needs ", bytes, " bytes for ", HeldKindName(kind), ", ", held,
                       " of the limit of ", limit_name(), " are held: ", Describe()));
      const bool later = !IsOfModels(kind) && bytes <= limit_ - used_by_models();
      return later ? WithRetryAfter(refusal, std::chrono::nanoseconds(request_ns_)) : refusal;
    }
  } while (!used_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  by_kind_[static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

void ServerLedger::Drop(HeldKind kind, int64_t bytes) {
  by_kind_[static_cast<int>(kind)].fetch_sub(bytes, std::memory_order_relaxed);
  used_.fetch_sub(bytes, std::memory_order_relaxed);
  if (freed_ && IsOfModels(kind)) freed_(bytes);
}

int64_t ServerLedger::used_by_models() const {
  int64_t bytes = 0;
  for (int i = 0; i < kHeldKinds; ++i) {
    const auto kind = static_cast<HeldKind>(i);
    if (IsOfModels(kind)) bytes += used(kind);
  }
  return bytes;
}

void ServerLedger::Learn(Clock::duration held) {
  constexpr int64_t kWeight = 8;
  // Others may learn at the same time, and one of both be lost: it is an average.
  const int64_t before = request_ns_.load(std::memory_order_relaxed);
  const int64_t now = std::chrono::nanoseconds(held).count();
  request_ns_.store(before == 0 ? now : before + (now - before) / kWeight,
                    std::memory_order_relaxed);
}

absl::StatusOr<ServerLedger::Reservation> ServerLedger::Reserve(HeldKind kind, int64_t bytes,
                                                                absl::string_view what) {
  RETURN_IF_ERROR(Hold(kind, bytes, what));
  Reservation reservation;
  reservation.ledger_ = this;
  reservation.kind_ = kind;
  reservation.bytes_ = bytes;
  if (kind == HeldKind::kRequests) reservation.since_ = Clock::now();
  return reservation;
}

absl::Status ServerLedger::Reserve(MemoryKind kind, int64_t bytes) {
  return Hold(KindOf(kind), bytes, "plan");
}

void ServerLedger::Release(MemoryKind kind, int64_t bytes) { Drop(KindOf(kind), bytes); }

std::string ServerLedger::Describe() const {
  std::string text;
  for (int i = 0; i < kHeldKinds; ++i) {
    const auto kind = static_cast<HeldKind>(i);
    absl::StrAppend(&text, i == 0 ? "" : ", ", HeldKindName(kind), " ", used(kind));
  }
  return text;
}

int64_t MachineMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace athanor
