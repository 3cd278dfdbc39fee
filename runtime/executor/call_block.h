// Holds what a call brings to a device that reads no host memory, and what it takes back, in one
// region of the device's memory with a copy on the host, so that each way is one transfer.
//
//   inputs | arguments of launches | error slots | outputs
//   '---------------- in ----------------'
//                                    '------ out -----'
//
// Inputs end, and outputs begin, at fixed places, so that what is between does not move with the
// sizes of a call: recordings keep the addresses of arguments and slots.
//
//   auto block = CallBlock::Create(device, *queue, launches, {.most_in = 4096, ...}).value();
//   block->Resize(in_bytes, out_bytes);
//   block->arguments(0).items() = 8;  memcpy(block->in(0), ...);
//   block->CopyIn(*queue);  queue->Replay(*recording);  block->CopyOut(*queue);  queue->Wait();
//   block->Error(0).code;  block->out(0);
//
// Inside a loop the arguments change from turn to turn, while the host runs ahead of the device:
// SendTurn() brings those of some launches as they are now, and FetchTurn() their errors.
#ifndef ATHANOR_RUNTIME_EXECUTOR_CALL_BLOCK_H_
#define ATHANOR_RUNTIME_EXECUTOR_CALL_BLOCK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/device/kernel_abi.h"
#include "runtime/device/memory_ledger.h"

namespace athanor {

// For one thread. Create allocates; nothing else does.
class CallBlock {
 public:
  // Returns where what follows so many bytes begins.
  static int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  struct Launch {
    int buffers = 0, sizes = 0;
  };
  struct Limits {
    int64_t most_in = 0, most_out = 0;  // bytes of inputs, of outputs
    int most_of_turn = 0;               // launches that one SendTurn() brings; 0: there is no loop
  };

  // Charges the device's memory to `ledger` and the host's to `host_ledger`; either may be null.
  // RESOURCE_EXHAUSTED: one of them refuses, or there is no memory.
  static absl::StatusOr<std::unique_ptr<CallBlock>> Create(Device& device, const DeviceQueue& queue,
                                                           absl::Span<const Launch> launches,
                                                           const Limits& limits,
                                                           MemoryLedger* ledger,
                                                           MemoryLedger* host_ledger = nullptr);

  // The arguments that the next copy brings. The block has set workspace and error.
  ArgumentWords arguments(int launch) const;
  // The launch of a kernel with these arguments.
  RecordedLaunch Recorded(int launch) const;

  // Sets the bytes that inputs and outputs take from now on. REQUIRES: no more than the limits
  void Resize(int64_t in, int64_t out);
  // Byte `offset` of the inputs, of the outputs: on the host, and on the device.
  char* in(int64_t offset) const { return host_ + arguments_at_ - in_bytes_ + offset; }
  char* out(int64_t offset) const { return host_ + outputs_at_ + offset; }
  void* in_on_device(int64_t offset) const { return OnDevice(in(offset)); }
  void* out_on_device(int64_t offset) const { return OnDevice(out(offset)); }

  // Brings inputs, arguments and empty slots.
  absl::Status CopyIn(DeviceQueue& queue);
  // Fetches slots and outputs; they are there when the queue was waited for.
  absl::Status CopyOut(DeviceQueue& queue);
  const KernelError& Error(int launch) const { return slots()[launch].error; }

  // Reports whether the next of the three calls below needs a Wait() and Settle() before it.
  bool Full() const { return used_ == kEntries; }
  // Brings the arguments of launches [first, end), and clears their slots. REQUIRES: !Full()
  absl::Status SendTurn(DeviceQueue& queue, int first, int end);
  // Fetches the slots of the launches that SendTurn() brought last.
  absl::Status FetchTurn(DeviceQueue& queue);
  // Brings a number. REQUIRES: !Full()
  absl::Status SendNumber(DeviceQueue& queue, void* to, int64_t number);
  // After a Wait(): tells the errors that were fetched, in the order of turns, and forgets them.
  void Settle(absl::FunctionRef<void(int launch, const KernelError& error)> failed);

 private:
  static constexpr int kEntries = 64;  // turns that the host is ahead at most
  struct Entry {                       // of `turns_`; without launches: a number
    int first = 0, end = 0;
  };

  CallBlock(MemoryLedger* ledger, MemoryLedger* host_ledger)
      : charge_(ledger, MemoryKind::kStaging), host_charge_(host_ledger, MemoryKind::kStaging) {}
  absl::Status Allocate(Device& device, absl::Span<const Launch> launches, const Limits& limits);
  ErrorSlot* slots() const { return reinterpret_cast<ErrorSlot*>(host_ + slots_at_); }
  void* OnDevice(const void* on_host) const {
    return static_cast<char*>(device_->data()) + (static_cast<const char*>(on_host) - host_);
  }
  int64_t WordsBytes(int first, int end) const;
  char* EntryAt(int i) const { return static_cast<char*>(turns_->data()) + i * entry_bytes_; }

  MemoryCharge charge_, host_charge_;
  std::unique_ptr<DeviceMemory> device_, staging_;
  char* host_ = nullptr;  // staging_'s
  std::vector<Launch> launches_;
  std::vector<int64_t> first_word_;  // by launch; and the end
  int64_t arguments_at_ = 0, slots_at_ = 0, outputs_at_ = 0;
  int64_t in_bytes_ = 0, out_bytes_ = 0;
  std::unique_ptr<DeviceMemory> turns_;  // kEntries of entry_bytes_, on the host
  int64_t entry_bytes_ = 0;
  Entry entries_[kEntries];
  int used_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_EXECUTOR_CALL_BLOCK_H_
