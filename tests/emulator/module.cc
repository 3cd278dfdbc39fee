// A device for the driver's functions of this folder whose machine code libnvrtc.so.13 of this
// folder makes: objects of this machine that check each access to memory.
//
// The environment says which device it is, read at each call:
//   ATHANOR_EMULATOR_ARCH=sm_90a      instead of sm_80; sm_75: one that nothing compiles for
//   ATHANOR_EMULATOR_BYTES=N          of memory, instead of 4 GiB
//   ATHANOR_EMULATOR_SHARED=N         bytes of shared memory of a multiprocessor, instead of 128
//   KiB ATHANOR_EMULATOR_VIRTUAL=0        has no virtual memory ATHANOR_EMULATOR_QUEUE=now does
//   work as it is enqueued, not when it is waited for ATHANOR_EMULATOR_ORDER=descending runs the
//   last thread of a launch, and of a team, first;
//                          N: in a random order that the number N gives
//   ATHANOR_EMULATOR_COUNTS=1         counts accesses; those of teams of one where the kernel was
//                                     compiled so, too
//   ATHANOR_EMULATOR_BREAKS=FILE      breaks once there is such a file
#include "runtime/cpu/module.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "tests/emulator/athanor/launch.h"
#include "tests/emulator/device.h"
#include "tests/emulator/faults.h"
#include "tests/emulator/teams.h"

// Tells a driver's users that no GPU is there.
extern "C" __attribute__((visibility("default"))) const int athanor_emulator = 1;

// Tells a test what the last launch that was counted asked of memory.
extern "C" __attribute__((visibility("default"))) void athanor_emulator_counters(
    athanor::emulator::Counters* counters) {
  athanor::MutexLock lock(athanor::emulator::device.mutex);
  *counters = athanor::emulator::TheCounting().counters();
}

namespace athanor::emulator {
namespace {

constexpr int kMultiprocessors = 4, kThreadsPerMultiprocessor = 256;
constexpr size_t kBytes = size_t{4} << 30;

absl::string_view Setting(const char* variable, absl::string_view otherwise) {
  const char* const set = std::getenv(variable);
  return set != nullptr ? set : otherwise;
}

uint64_t Number(const char* variable, uint64_t otherwise) {
  uint64_t number = 0;
  return absl::SimpleAtoi(Setting(variable, ""), &number) ? number : otherwise;
}

absl::string_view Arch() { return Setting("ATHANOR_EMULATOR_ARCH", "sm_80"); }

int Attribute(int attribute) {
  switch (attribute) {
    case kCudaMaxThreadsPerBlock:
      return 1024;
    case kCudaWarpSize:
      return 32;
    case kCudaMultiprocessors:
      return kMultiprocessors;
    case kCudaThreadsPerMultiprocessor:
      return kThreadsPerMultiprocessor;
    case kCudaComputeMajor:
      return Arch() == "sm_75" ? 7 : Arch() == "sm_80" ? 8 : 9;
    case kCudaComputeMinor:
      return Arch() == "sm_75" ? 5 : 0;
    case kCudaL2Bytes:
      return 4 << 20;
    case kCudaClockKilohertz:
    case kCudaMemoryClockKilohertz:
      return 1'000'000;
    case kCudaMemoryBusBits:
      return 256;
    case kCudaSharedBytesPerMultiprocessor:
      return static_cast<int>(Number("ATHANOR_EMULATOR_SHARED", 128 << 10));
    case kCudaSharedBytesPerBlockOptin:
      return 99 << 10;
    case kCudaRegistersPerMultiprocessor:
      return 65536;
    case kCudaVirtualMemory:
      return static_cast<int>(Number("ATHANOR_EMULATOR_VIRTUAL", 1));
    default:
      return 0;
  }
}

std::vector<Range> Ranges() {
  std::vector<Range> ranges;
  for (const auto& [begin, block] : device.blocks) {
    if (!block.access) continue;
    if (block.mapped && !ranges.empty() && ranges.back().end == begin) {
      ranges.back().end += block.bytes;
    } else {
      ranges.push_back({begin, begin + block.bytes});
    }
  }
  return ranges;
}

std::optional<Order> TheOrder() {
  const absl::string_view set = Setting("ATHANOR_EMULATOR_ORDER", "ascending");
  Order order;
  if (set == "ascending") return order;
  order.kind = set == "descending" ? Order::kDescending : Order::kSeeded;
  if (order.kind == Order::kSeeded && !absl::SimpleAtoi(set, &order.seed)) return std::nullopt;
  return order;
}

std::jmp_buf launch_end;

void EndLaunch(const Launch* launch, Fault fault, const Access& access) {
  Lose(ResultOf(fault), TextOf(*launch, fault, access));
  std::longjmp(launch_end, 1);  // over frames of the kernel, which has nothing to destroy
}

// A thread alone meets itself, and who would swap with another has none.
unsigned long MeetAlone(const Launch* launch, const Meeting& meeting, unsigned long value) {
  const long team = meeting.kind == Meeting::kSwap ? 2 * meeting.step : meeting.team;
  if (team != 1) EndLaunch(launch, Fault::kTeam, {0, team, false});
  return value;
}

// Takes the threads of a wave, which are teams of one, for a team: they run at once.
void CountAlone(const Launch* launch, const Access& access) {
  TheCounting().Access(static_cast<int>(launch->thread), __builtin_return_address(0), access,
                       /*shared=*/false);
}

// Runs the threads of a launch one after another; a fault ends them all.
void RunThreads(Entry entry, void** arguments, Launch& launch, const Order& order) {
  launch.fault = EndLaunch;
  launch.meet = MeetAlone;
  if (std::getenv("ATHANOR_EMULATOR_COUNTS") != nullptr) {
    TheCounting().BeginLaunch(static_cast<int>(launch.threads));
    launch.touch = CountAlone;
  }
  if (setjmp(launch_end) != 0) return;
  for (long i = 0; i < launch.threads; ++i) {
    launch.thread = order.At(i, launch.threads);
    entry(arguments, &launch);
  }
  if (launch.touch != nullptr) TheCounting().EndTeam();
}

// Is a kernel of an object.
struct Code {
  std::string name;
  Entry entry = nullptr;
  int team = 1;
  long shared_bytes = 0;

  void Run(void** arguments, Threads threads) const {
    const std::optional<Order> order = TheOrder();
    if (!order) {
      return Lose(kCudaLaunchFailed,
                  "ATHANOR_EMULATOR_ORDER may be ascending, descending or a number");
    }
    const std::vector<Range> ranges = Ranges();
    Launch launch = {.threads = threads.blocks * threads.threads,
                     .ranges = ranges.data(),
                     .range_count = static_cast<long>(ranges.size()),
                     .kernel = name.c_str(),
                     .team = team};
    if (team == 1) return RunThreads(entry, arguments, launch, *order);
    Stop stop = RunTeams(entry, arguments, launch, threads.threads, shared_bytes, *order);
    if (stop.result != kCudaSuccess) Lose(stop.result, std::move(stop.why));
  }
};

class Loaded : public Program {
 public:
  explicit Loaded(std::unique_ptr<CpuModule> module) : module_(std::move(module)) {}

  Kernel* Find(std::string_view name) override {
    Kernel& kernel = kernels_[std::string(name)];
    if (kernel.run) return &kernel;
    kernel.name = name;
    const auto* const bytes = Symbol<const unsigned long>(kernel.name + "_argument_bytes");
    const auto* const team = Symbol<const int>(kernel.name + "_team");
    const auto* const shared_bytes = Symbol<const long>(kernel.name + "_shared_bytes");
    Code code = {.name = kernel.name, .entry = reinterpret_cast<Entry>(Symbol<void>(kernel.name))};
    if (code.entry == nullptr || bytes == nullptr) return nullptr;
    if (team != nullptr) code.team = *team;
    if (shared_bytes != nullptr) code.shared_bytes = *shared_bytes;
    kernel.argument_bytes = {*bytes};
    // A block has room for all teams that it can hold.
    kernel.shared_bytes = kMostThreadsOfBlock / code.team * code.shared_bytes;
    kernel.run = [code = std::move(code)](void** arguments, Threads threads) {
      // A kernel takes as long as the host needs for it.
      const auto start = std::chrono::steady_clock::now();
      code.Run(arguments, threads);
      device.now_ms +=
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count();
    };
    return &kernel;
  }

 private:
  // Null: the object has none of this name.
  template <typename T>
  T* Symbol(const std::string& name) const {
    const absl::StatusOr<void*> symbol = module_->Symbol(name);
    return symbol.ok() ? static_cast<T*>(*symbol) : nullptr;
  }

  const std::unique_ptr<CpuModule> module_;
  std::map<std::string, Kernel> kernels_;
};

// Returns the bytes of an image as its headers say; 0: it is no object.
size_t ImageBytes(const void* image) {
  Elf64_Ehdr header;
  if (std::memcmp(image, ELFMAG, SELFMAG) != 0) return 0;
  std::memcpy(&header, image, sizeof(header));
  uint64_t bytes = std::max<uint64_t>(
      sizeof(header), header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize);
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, static_cast<const char*>(image) + header.e_phoff + i * sizeof(segment),
                sizeof(segment));
    bytes = std::max(bytes, segment.p_offset + segment.p_filesz);
  }
  return bytes;
}

// A GPU's own machine code, and that for another architecture, is none for this device.
CudaResult Load(const void* image, std::unique_ptr<Program>* program) {
  const size_t bytes = ImageBytes(image);
  if (bytes == 0) return kCudaInvalidImage;
  absl::StatusOr<std::unique_ptr<CpuModule>> module =
      CpuModule::Load({static_cast<const char*>(image), bytes});
  if (!module.ok()) return kCudaNoBinaryForGpu;
  const absl::StatusOr<void*> arch = (*module)->Symbol("athanor_arch");
  if (!arch.ok() || static_cast<const char*>(*arch) != Arch()) return kCudaNoBinaryForGpu;
  *program = std::make_unique<Loaded>(*std::move(module));
  return kCudaSuccess;
}

}  // namespace

const Machine& TheMachine() {
  static const auto& machine = *new Machine{
      .name = "emulator",
      .bytes = Number("ATHANOR_EMULATOR_BYTES", kBytes),
      .attribute = Attribute,
      .load = Load,
      .late = [] { return Setting("ATHANOR_EMULATOR_QUEUE", "late") != "now"; },
      .breaks =
          [] {
            const char* const file = std::getenv("ATHANOR_EMULATOR_BREAKS");
            return file != nullptr && access(file, F_OK) == 0;
          },
  };
  return machine;
}

}  // namespace athanor::emulator
