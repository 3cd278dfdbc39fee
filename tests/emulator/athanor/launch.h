// What a launch of the emulator tells a kernel's object: part of the driver, and the first lines of
// the athanor/device.h that the object was compiled with. An object defines, for each kernel NAME,
//   void NAME(void** arguments, const Launch*)  one thread's run
//   const unsigned long NAME_argument_bytes
// and once
//   const char athanor_arch[]                   "sm_80"
#ifndef ATHANOR_TESTS_EMULATOR_ATHANOR_LAUNCH_H_
#define ATHANOR_TESTS_EMULATOR_ATHANOR_LAUNCH_H_

namespace athanor::emulator {

// Is set in every address of the device, so that host code which uses one faults.
inline constexpr unsigned long kDeviceBit = 1UL << 54;
// Fills memory that was never written: NaN in every float type.
inline constexpr unsigned char kUnwritten = 0xff;

struct Range {
  unsigned long begin, end;
};

enum class Fault {
  kAddress,     // not all of it is allocated
  kMisaligned,  // its bytes do not divide it
  kArgument,    // it is allocated, but outside the argument that it should lie in
  kLocked,      // a lock is taken, though no other thread runs
};

struct Access {
  unsigned long address;
  long bytes;
  bool write;
  unsigned long argument = 0;  // where the argument begins
  long argument_bytes = 0;
};

struct Launch {
  long thread = 0;                // of the launch
  long threads = 1;               // in it
  const Range* ranges = nullptr;  // of allocated addresses, their bit set; ascending, apart
  long range_count = 0;
  void (*fault)(const Launch*, Fault, const Access&) = nullptr;  // ends the launch
  const char* kernel = nullptr;
};

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_ATHANOR_LAUNCH_H_
