// What a launch of the emulator tells a kernel's object: part of the driver, and the first lines of
// the athanor/device.h that the object was compiled with. An object defines, for each kernel NAME,
//   void NAME(void** arguments, const Launch*)  one thread's run
//   const unsigned long NAME_argument_bytes
//   const int NAME_team                         threads of a team
//   const long NAME_shared_bytes                of a team
// and once
//   const char athanor_arch[]                   "sm_80"
#ifndef ATHANOR_TESTS_EMULATOR_ATHANOR_LAUNCH_H_
#define ATHANOR_TESTS_EMULATOR_ATHANOR_LAUNCH_H_

namespace athanor::emulator {

// Is set in every address of the device, so that host code which uses one faults.
inline constexpr unsigned long kDeviceBit = 1UL << 54;
// Fills memory that was never written: NaN in every float type.
inline constexpr unsigned char kUnwritten = 0xff;
// Limits of a kernel whose teams have several threads.
inline constexpr int kMostThreadsOfBlock = 128, kWave = 32;
inline constexpr long kMostSharedBytesOfBlock = 48 << 10;

struct Range {
  unsigned long begin = 0, end = 0;
};

enum class Fault {
  kAddress,     // not all of it is allocated
  kMisaligned,  // its bytes do not divide it
  kArgument,    // it is allocated, but outside the argument that it should lie in
  kLocked,      // a lock is taken, though no other thread runs
  kHolds,       // it waits for others while it holds a lock
  kTeam,        // the text says another team than the kernel has: `bytes` threads
  kShared,      // it is not in the team's shared memory, though only that is loaded and copied so
  kWave,        // the threads of a wave name different matrices
};

struct Access {
  unsigned long address;
  long bytes;
  bool write;
  unsigned long argument = 0;  // where the argument begins
  long argument_bytes = 0;
};

// Says where threads wait for each other.
struct Meeting {
  enum Kind { kBarrier, kSwap, kFromFirst, kMultiply, kTicket } kind;
  int team;  // threads, as the kernel's text says
  int step;  // of a swap; of a product, its Factors; of a ticket, how many teams draw the counter
  const char* file;
  int line, column;
};

// The matrix instructions, by their operands.
enum class Factors { kF16, kBF16, kI8, kU8 };
enum class MatrixSide { kLeft, kRight };

// A thread's registers of a product.
struct Product {
  unsigned left[4], right[2];
  unsigned sums[4];  // and then the result
};

struct Launch {
  long thread = 0;                // of the launch
  long threads = 1;               // in it
  const Range* ranges = nullptr;  // of allocated addresses, their bit set; ascending, apart
  long range_count = 0;
  void (*fault)(const Launch*, Fault, const Access&) = nullptr;  // ends the launch
  const char* kernel = nullptr;
  int team = 1;               // threads of one, which have neighbouring numbers
  bool first_of_team = true;  // no other thread of the team has run
  Range shared;               // memory of the team
  mutable Range workspace;    // of the team; the object sets it
  // Waits until all threads that should meet have come, and returns what the thread gets. Teams of
  // one have nobody to meet: it ends the launch.
  unsigned long (*meet)(const Launch*, const Meeting&, unsigned long value) = nullptr;
  // Lets another thread of the team run, where the order of threads says so; null: none would.
  void (*step)(const Launch*) = nullptr;
  // Counts an access, and of teams of several threads ends the launch if it races. Teams of one
  // tell of accesses only where ATHANOR_COUNTS is defined, and may have null here.
  void (*touch)(const Launch*, const Access&) = nullptr;
  // Do one part of it each: tell of a race, and count a request.
  void (*order)(const Launch*, const Access&) = nullptr;
  void (*count)(const Launch*, const Access&) = nullptr;
  // Says which counter the thread that runs draws at the kTicket that it comes to.
  void (*draw)(const Launch*, const Access&) = nullptr;
  // Tells the row and the column of the element in a slot of the thread that runs, of operands
  // whose elements have so many bytes.
  void (*element)(const Launch*, MatrixSide, int bytes, int slot, int* row, int* column) = nullptr;
  // Begins a copy of 16 bytes, of zeros if `from` is null, on the host, for the thread that runs.
  void (*copy)(const Launch*, const Access& to, const void* from) = nullptr;
  void (*commit)(const Launch*) = nullptr;
  void (*wait)(const Launch*, int groups) = nullptr;  // of the thread's, that may be under way
};

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_ATHANOR_LAUNCH_H_
