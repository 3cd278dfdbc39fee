#include "tests/emulator/faults.h"

#include "absl/strings/str_cat.h"

namespace athanor::emulator {
namespace {

bool Holds(const Range& range, unsigned long address) {
  return range.begin <= address && address < range.end;
}

// Says where an address lies, from the nearest block below it.
std::string Place(const Launch& launch, unsigned long address) {
  if ((address & kDeviceBit) == 0) return "which is no address of the device";
  const Range* below = nullptr;
  for (const Range* range = launch.ranges; range < launch.ranges + launch.range_count; ++range) {
    if (range->begin <= address) below = range;
  }
  if (below == nullptr) return "before all that is allocated";
  return absl::StrCat(address - below->begin, " bytes into a block of ", below->end - below->begin);
}

std::string AccessText(const Launch& launch, const Access& access) {
  return absl::StrCat(ThreadText(launch), " ", access.write ? "writes " : "reads ", access.bytes,
                      " bytes ");
}

}  // namespace

CudaResult ResultOf(Fault fault) {
  switch (fault) {
    case Fault::kMisaligned:
      return kCudaMisalignedAddress;
    case Fault::kHolds:
    case Fault::kTeam:
    case Fault::kWave:
      return kCudaLaunchFailed;
    case Fault::kShared:
    case Fault::kAddress:
    case Fault::kArgument:
    case Fault::kLocked:
      return kCudaIllegalAddress;
  }
  return kCudaLaunchFailed;
}

std::string PlaceOf(const Launch& launch, const Access& access) {
  if (access.argument == 0) return Place(launch, access.address);
  const std::string place =
      absl::StrCat(static_cast<long>(access.address - access.argument), " bytes into ");
  for (const auto& [range, name] :
       {std::pair(launch.shared, "shared memory"), std::pair(launch.workspace, "workspace")}) {
    if (!Holds(range, access.argument)) continue;
    return absl::StrCat(place, access.argument_bytes, " bytes of the team's ", name, ", from byte ",
                        access.argument - range.begin, " on");
  }
  return absl::StrCat(place, "an argument of ", access.argument_bytes);
}

std::string ThreadText(const Launch& launch) {
  if (launch.team == 1) {
    return absl::StrCat(launch.kernel, ": thread ", launch.thread, " of ", launch.threads);
  }
  return absl::StrCat(launch.kernel, ": thread ", launch.thread % launch.team, " of team ",
                      launch.thread / launch.team);
}

std::string TextOf(const Launch& launch, const Access& access) {
  return AccessText(launch, access) + PlaceOf(launch, access);
}

std::string TextOf(const Launch& launch, Fault fault, const Access& access) {
  switch (fault) {
    case Fault::kAddress:
      return AccessText(launch, access) + Place(launch, access.address);
    case Fault::kMisaligned:
      return AccessText(launch, access) + "at an address that they do not divide";
    case Fault::kArgument:
      return TextOf(launch, access);
    case Fault::kLocked:
      return AccessText(launch, access) + "of a lock that no other thread can hold";
    case Fault::kHolds:
      return ThreadText(launch) + " waits for others while it holds a lock";
    case Fault::kTeam:
      return absl::StrCat(ThreadText(launch), " takes its team for one of ", access.bytes,
                          " threads; the kernel's teams have ", launch.team);
    case Fault::kShared:
      return AccessText(launch, access) + PlaceOf(launch, access) +
             ", which is not the team's shared memory";
    case Fault::kWave:
      return ThreadText(launch) + " names another matrix than the first thread of its wave";
  }
  return "";
}

}  // namespace athanor::emulator
