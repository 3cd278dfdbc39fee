// Accounts for the runtime's memory: asked before bytes are taken, told when they are given back.
// The server implements it; without one nothing is limited.
//
//   MemoryCharge charge(ledger, MemoryKind::kArena);
//   absl::Status status = charge.Raise(bytes);  // RESOURCE_EXHAUSTED if refused
//   // ...given back when `charge` dies
#ifndef ATHANOR_RUNTIME_DEVICE_MEMORY_LEDGER_H_
#define ATHANOR_RUNTIME_DEVICE_MEMORY_LEDGER_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"

namespace athanor {

enum class MemoryKind : uint8_t {
  kPrepared,  // constants and prepared weights: held as long as an Executable holds them
  kArena,     // values between steps: held as long as their execution context
  kScratch,   // per-thread working space of kernels
  kWeights,   // weights as uploaded, on a device that does not read the host's: as kPrepared
  kStaging,   // what a call brings to a device that reads no host memory, in the device's ledger,
              // and its copy on the host, in the host's: as kArena
  kStates,    // what runs keep for later runs: keys and values of tokens
};

// Implementations are thread-safe and do not call back into the runtime.
class MemoryLedger {
 public:
  virtual ~MemoryLedger() = default;
  // Returns RESOURCE_EXHAUSTED, with what is held and the limit, if refused.
  virtual absl::Status Reserve(MemoryKind kind, int64_t bytes) = 0;
  virtual void Release(MemoryKind kind, int64_t bytes) = 0;
  // Returns how many bytes may be reserved now.
  virtual int64_t free() const { return std::numeric_limits<int64_t>::max(); }
  // Returns what limits them, for messages.
  virtual std::string limit_name() const { return "no limit"; }
};

// Bytes held at a ledger, which may be null and must outlive the charge. Not thread-safe.
class MemoryCharge {
 public:
  MemoryCharge(MemoryLedger* ledger, MemoryKind kind) : ledger_(ledger), kind_(kind) {}
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;
  ~MemoryCharge() { Clear(); }

  // Raises the held bytes to at least `bytes`; if refused, they stay as they were.
  absl::Status Raise(int64_t bytes) {
    if (bytes <= bytes_) return absl::OkStatus();
    if (ledger_ != nullptr) {
      absl::Status status = ledger_->Reserve(kind_, bytes - bytes_);
      if (!status.ok()) return status;
    }
    bytes_ = bytes;
    return absl::OkStatus();
  }

  // Lowers the held bytes to at most `bytes`. REQUIRES: bytes >= 0
  void Lower(int64_t bytes) {
    if (bytes >= bytes_) return;
    if (ledger_ != nullptr) ledger_->Release(kind_, bytes_ - bytes);
    bytes_ = bytes;
  }
  void Clear() { Lower(0); }

  // Leaves the release of the held bytes to somebody else.
  void HandOver() { bytes_ = 0; }

  int64_t bytes() const { return bytes_; }

 private:
  MemoryLedger* const ledger_;
  const MemoryKind kind_;
  int64_t bytes_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_MEMORY_LEDGER_H_
