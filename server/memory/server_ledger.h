// Counts the memory that the server holds, by kind, under one limit. Memory is reserved before it
// is allocated, and refused before the machine runs out. The runtime's allocations go through it
// too.
//
//   ServerLedger ledger(int64_t{8} << 30);
//   absl::StatusOr<ServerLedger::Reservation> r =
//       ledger.Reserve(HeldKind::kArenas, bytes, "model digits");
//
// Thread-safe; reserving is one atomic addition. The ledger outlives its reservations.
#ifndef ATHANOR_SERVER_MEMORY_SERVER_LEDGER_H_
#define ATHANOR_SERVER_MEMORY_SERVER_LEDGER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/device/memory_ledger.h"

namespace athanor {

enum class HeldKind : uint8_t {
  kParameters,
  kPrepared,
  kArenas,
  kScratch,
  kUploads,
  kRequests,
  kStates
};
inline constexpr int kHeldKinds = 7;
absl::string_view HeldKindName(HeldKind kind);

class ServerLedger final : public MemoryLedger {
 public:
  using Clock = std::chrono::steady_clock;

  // Gives its bytes back when destroyed.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept { *this = std::move(other); }
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(ledger_, other.ledger_);
      std::swap(kind_, other.kind_);
      std::swap(bytes_, other.bytes_);
      std::swap(since_, other.since_);
      return *this;
    }
    ~Reservation() {
      if (ledger_ == nullptr) return;
      if (kind_ == HeldKind::kRequests) ledger_->Learn(Clock::now() - since_);
      ledger_->Drop(kind_, bytes_);
    }
    int64_t bytes() const { return bytes_; }

   private:
    friend class ServerLedger;
    ServerLedger* ledger_ = nullptr;
    HeldKind kind_ = HeldKind::kParameters;
    int64_t bytes_ = 0;
    Clock::time_point since_;  // of kRequests
  };

  // Called with the bytes of each dropped reservation of a model or an upload, on the thread that
  // drops it. Must be short and thread-safe, and valid as long as the ledger.
  using Freed = std::function<void(int64_t bytes)>;
  // Called with each refused reservation, under the same conditions.
  using Refused = std::function<void(HeldKind kind, int64_t bytes)>;

  // Messages name the limit `name`.
  explicit ServerLedger(int64_t limit, Freed freed = nullptr, Refused refused = nullptr,
                        std::string name = "--memory_limit")
      : limit_(limit),
        freed_(std::move(freed)),
        refused_(std::move(refused)),
        name_(std::move(name)) {}
  ServerLedger(const ServerLedger&) = delete;
  ServerLedger& operator=(const ServerLedger&) = delete;

  // Reserves `bytes`. Returns RESOURCE_EXHAUSTED, with the bytes needed for `what`, the bytes held
  // and the limit; and where it fits once requests have ended, with when to come again
  // (server/base/retry_after.h): the time for which requests have held their memory lately.
  // REQUIRES: bytes >= 0
  absl::StatusOr<Reservation> Reserve(HeldKind kind, int64_t bytes, absl::string_view what);

  // The runtime's interface.
  absl::Status Reserve(MemoryKind kind, int64_t bytes) override;
  void Release(MemoryKind kind, int64_t bytes) override;
  int64_t free() const override { return limit_ - used(); }
  std::string limit_name() const override { return absl::StrCat(limit_, " bytes (", name_, ")"); }

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  int64_t used(HeldKind kind) const {
    return by_kind_[static_cast<int>(kind)].load(std::memory_order_relaxed);
  }
  // Returns "parameters 10, prepared 0, ..." for messages and logs.
  std::string Describe() const;

 private:
  absl::Status Hold(HeldKind kind, int64_t bytes, absl::string_view what);
  void Drop(HeldKind kind, int64_t bytes);
  // Learns that a request has held memory for so long.
  void Learn(Clock::duration held);
  // Returns what models and uploads hold.
  int64_t used_by_models() const;

  const int64_t limit_;
  const Freed freed_;
  const Refused refused_;
  const std::string name_;
  std::atomic<int64_t> used_{0};
  std::array<std::atomic<int64_t>, kHeldKinds> by_kind_{};
  std::atomic<int64_t> request_ns_{0};  // moving average of Learn's
};

// Returns the bytes of memory in this machine.
int64_t MachineMemoryBytes();

}  // namespace athanor

#endif  // ATHANOR_SERVER_MEMORY_SERVER_LEDGER_H_
