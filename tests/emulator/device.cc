#include "tests/emulator/device.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace athanor::emulator {

Device& device = *new Device;  // lives as long as the process

void* Reach(CudaPointer pointer, size_t bytes) {
  auto block = device.blocks.upper_bound(pointer);
  if (block == device.blocks.begin()) return nullptr;
  --block;
  const CudaPointer end = pointer + bytes;
  if (end < pointer) return nullptr;
  for (;;) {
    const CudaPointer block_end = block->first + block->second.bytes;
    if (!block->second.access || pointer >= block_end) return nullptr;
    if (end <= block_end) return HostAddress(pointer);
    const auto next = std::next(block);
    if (!block->second.mapped || next == device.blocks.end() || next->first != block_end ||
        !next->second.mapped) {
      return nullptr;
    }
    block = next;
  }
}

void Lose(CudaResult result, std::string why) {
  if (device.lost != kCudaSuccess) return;
  device.lost = result;
  device.fault = std::move(why);
}

Stream* FindStream(CudaStream handle) {
  if (handle == nullptr) return &device.null_stream;
  auto* const stream = reinterpret_cast<Stream*>(handle);
  return device.streams.count(stream) != 0 ? stream : nullptr;
}

void Enqueue(Stream& stream, std::function<void()> work) {
  if (stream.capture != nullptr) return stream.capture->work.push_back(std::move(work));
  stream.waiting.push_back(std::move(work));
  ++stream.enqueued;
  if (!TheMachine().late()) RunUntil(stream, stream.enqueued);
}

void RunUntil(Stream& stream, int64_t number) {
  while (stream.done < number) {
    const std::function<void()> work = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    ++stream.done;
    if (device.lost == kCudaSuccess) work();
  }
}

void RunAll() {
  RunUntil(device.null_stream, device.null_stream.enqueued);
  for (Stream* stream : device.streams) RunUntil(*stream, stream->enqueued);
}

CudaResult TakeArguments(const Kernel& kernel, void** arguments, void** extra,
                         std::vector<std::vector<char>>* kept) {
  if (extra != nullptr) return kCudaInvalidValue;
  if (arguments == nullptr && !kernel.argument_bytes.empty()) return kCudaInvalidValue;
  for (size_t i = 0; i < kernel.argument_bytes.size(); ++i) {
    const auto* bytes = static_cast<const char*>(arguments[i]);
    kept->emplace_back(bytes, bytes + kernel.argument_bytes[i]);
  }
  return kCudaSuccess;
}

CudaResult EnqueueKernel(Stream& stream, Kernel* kernel, Threads threads,
                         std::vector<std::vector<char>> arguments) {
  Enqueue(stream, [=, kept = std::move(arguments)]() mutable {
    device.now_ms += 0.002;
    if (!kernel->run) return;
    std::vector<void*> pointers;
    for (std::vector<char>& argument : kept) pointers.push_back(argument.data());
    kernel->run(pointers.data(), threads);
  });
  return kCudaSuccess;
}

namespace {

void* HostSide(const CopyEnd& end, size_t bytes) {
  return end.host != nullptr ? end.host : Reach(end.device, bytes);
}

bool CanReach(const CopyEnd& end, size_t bytes) {
  if (end.host == nullptr) return Reach(end.device, bytes) != nullptr;
  return (reinterpret_cast<CudaPointer>(end.host) & kDeviceBit) == 0;
}

thread_local bool has_context = false;

}  // namespace

CudaResult CheckCopy(const CopyEnd& to, const CopyEnd& from, size_t bytes) {
  if (bytes == 0) return kCudaSuccess;
  return CanReach(to, bytes) && CanReach(from, bytes) ? kCudaSuccess : kCudaInvalidValue;
}

void Copy(const CopyEnd& to, const CopyEnd& from, size_t bytes) {
  if (bytes == 0) return;
  if (CheckCopy(to, from, bytes) != kCudaSuccess) {
    return Lose(kCudaIllegalAddress, "a copy's memory was freed before the copy was waited for");
  }
  // Within the device it is faster than over the bus.
  device.now_ms += 0.001 + double(bytes) / (to.host || from.host ? 5e7 : 1.5e9);
  std::memmove(HostSide(to, bytes), HostSide(from, bytes),
               std::min(bytes, TheMachine().most_moved));
}

void SetContextOfThread(bool current) { has_context = current; }

CudaResult OnDevice(absl::FunctionRef<CudaResult()> call) {
  MutexLock lock(device.mutex);
  if (!device.initialised) return kCudaNotInitialized;
  if (TheMachine().breaks()) Lose(kCudaEccUncorrectable, "a bit of the memory has flipped");
  return device.lost != kCudaSuccess ? device.lost : call();
}

CudaResult InContext(absl::FunctionRef<CudaResult()> call) {
  return OnDevice(
      [&] { return has_context && device.retained > 0 ? call() : kCudaInvalidContext; });
}

}  // namespace athanor::emulator
