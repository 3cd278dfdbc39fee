#include "runtime/executor/call_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::StatusOr<std::unique_ptr<CallBlock>> CallBlock::Create(
    Device& device, const DeviceQueue& queue, absl::Span<const Launch> launches,
    const Limits& limits, MemoryLedger* ledger, MemoryLedger* host_ledger) {
  std::unique_ptr<CallBlock> block(new CallBlock(ledger, host_ledger));
  RETURN_IF_ERROR(block->Allocate(device, launches, limits));
  const Workspace workspace = queue.workspace();
  for (size_t i = 0; i < launches.size(); ++i) {
    const ArgumentWords arguments = block->arguments(i);
    arguments.workspace() = reinterpret_cast<int64_t>(workspace.data);
    arguments.bytes_per_team() = workspace.bytes_per_team;
    arguments.error() = reinterpret_cast<int64_t>(block->OnDevice(block->slots() + i));
  }
  return block;
}

absl::Status CallBlock::Allocate(Device& device, absl::Span<const Launch> launches,
                                 const Limits& limits) {
  launches_.assign(launches.begin(), launches.end());
  first_word_.push_back(0);
  for (const Launch& launch : launches) {
    first_word_.push_back(first_word_.back() +
                          ArgumentWords{nullptr, launch.buffers, launch.sizes}.count());
  }
  arguments_at_ = Aligned(limits.most_in);
  slots_at_ = Aligned(arguments_at_ + first_word_.back() * sizeof(int64_t));
  outputs_at_ = slots_at_ + launches.size() * sizeof(ErrorSlot);
  const int64_t bytes = outputs_at_ + limits.most_out;
  for (int first = 0; limits.most_of_turn > 0 && first < static_cast<int>(launches.size());
       ++first) {
    const int end = std::min<int>(first + limits.most_of_turn, launches.size());
    entry_bytes_ = std::max<int64_t>(
        entry_bytes_, Aligned(WordsBytes(first, end)) + (end - first) * sizeof(ErrorSlot));
  }
  const int64_t turns_bytes = kEntries * entry_bytes_;
  RETURN_IF_ERROR(charge_.Raise(bytes));
  RETURN_IF_ERROR(host_charge_.Raise(bytes + turns_bytes));
  ASSIGN_OR_RETURN(device_, device.Allocate(MemoryKind::kScratch, bytes));
  ASSIGN_OR_RETURN(staging_, device.Allocate(MemoryKind::kStaging, bytes));
  if (turns_bytes > 0) {
    ASSIGN_OR_RETURN(turns_, device.Allocate(MemoryKind::kStaging, turns_bytes));
  }
  host_ = static_cast<char*>(staging_->data());
  return absl::OkStatus();
}

ArgumentWords CallBlock::arguments(int launch) const {
  return {reinterpret_cast<int64_t*>(host_ + arguments_at_) + first_word_[launch],
          launches_[launch].buffers, launches_[launch].sizes};
}

RecordedLaunch CallBlock::Recorded(int launch) const {
  return {.arguments = OnDevice(arguments(launch).words),
          .buffers = launches_[launch].buffers,
          .sizes = launches_[launch].sizes};
}

void CallBlock::Resize(int64_t in, int64_t out) {
  in_bytes_ = Aligned(in);
  out_bytes_ = out;
}

absl::Status CallBlock::CopyIn(DeviceQueue& queue) {
  // Clears errors of the call before, which most have not.
  for (size_t i = 0; i < launches_.size(); ++i) {
    if (slots()[i].error.code != 0) slots()[i] = ErrorSlot();
  }
  return queue.Copy(OnDevice(in(0)), in(0), outputs_at_ - arguments_at_ + in_bytes_,
                    CopyKind::kToDevice);
}

absl::Status CallBlock::CopyOut(DeviceQueue& queue) {
  return queue.Copy(slots(), OnDevice(slots()), outputs_at_ - slots_at_ + out_bytes_,
                    CopyKind::kToHost);
}

int64_t CallBlock::WordsBytes(int first, int end) const {
  return (first_word_[end] - first_word_[first]) * sizeof(int64_t);
}

absl::Status CallBlock::SendTurn(DeviceQueue& queue, int first, int end) {
  char* const entry = EntryAt(used_);
  entries_[used_++] = {first, end};
  const int64_t* const words = arguments(first).words;
  std::memcpy(entry, words, WordsBytes(first, end));
  // Leaves nothing to settle if the call fails before FetchTurn().
  std::memset(entry + Aligned(WordsBytes(first, end)), 0, (end - first) * sizeof(ErrorSlot));
  RETURN_IF_ERROR(queue.Copy(OnDevice(words), entry, WordsBytes(first, end), CopyKind::kToDevice));
  return queue.Fill(OnDevice(slots() + first), 0, (end - first) * sizeof(ErrorSlot));
}

absl::Status CallBlock::FetchTurn(DeviceQueue& queue) {
  const Entry& sent = entries_[used_ - 1];
  return queue.Copy(EntryAt(used_ - 1) + Aligned(WordsBytes(sent.first, sent.end)),
                    OnDevice(slots() + sent.first), (sent.end - sent.first) * sizeof(ErrorSlot),
                    CopyKind::kToHost);
}

absl::Status CallBlock::SendNumber(DeviceQueue& queue, void* to, int64_t number) {
  char* const entry = EntryAt(used_);
  entries_[used_++] = {};
  std::memcpy(entry, &number, sizeof(number));
  return queue.Copy(to, entry, sizeof(number), CopyKind::kToDevice);
}

void CallBlock::Settle(absl::FunctionRef<void(int, const KernelError&)> failed) {
  for (int i = 0; i < used_; ++i) {
    const Entry& entry = entries_[i];
    const auto* const slots = reinterpret_cast<const ErrorSlot*>(
        EntryAt(i) + Aligned(WordsBytes(entry.first, entry.end)));
    for (int launch = entry.first; launch < entry.end; ++launch) {
      const KernelError& error = slots[launch - entry.first].error;
      if (error.code != 0) failed(launch, error);
    }
  }
  used_ = 0;
}

}  // namespace athanor
