// What both ends of the tuner's socket share: frames with a deadline, and the flags kernels are
// compiled with.
//
//   WriteFrame(fd, request, {.deadline = soon});
//   absl::StatusOr<std::string> bytes = ReadFrame(fd, kMaxTunerFrame, {.deadline = soon});
//
// A frame is a little-endian u32 byte count and a message of tuner.proto.
#ifndef ATHANOR_SERVER_SEARCH_TUNER_CHANNEL_H_
#define ATHANOR_SERVER_SEARCH_TUNER_CHANNEL_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

inline constexpr int64_t kMaxTunerFrame = int64_t{1} << 30;
// The descriptor of the child's end.
inline constexpr int kTunerFd = 3;
// That of the page of running requests (server/base/traffic.h), where the server has one.
inline constexpr int kTrafficFd = 4;
// That of a file for what is too large for memory (server/tuner/run/scratch.h), where there is one,
// and its size: nothing of it is on the disk before it is used.
inline constexpr int kScratchFd = 5;
inline constexpr int64_t kScratchBytes = int64_t{64} << 30;
// How the child's first line on its standard error begins: which walls are around it.
inline constexpr absl::string_view kTunerWalls = "confined: ";
// How the child says that memory ran out where it could notice it.
inline constexpr int kTunerExitMemory = 86;

// Whether a process gets the signal by what it does. Others are sent: by who stops all processes,
// or by a system that has no memory left.
bool IsCrash(int signal);

// Searches a child holds at a time; the one asked least recently makes room.
inline constexpr size_t kMaxTunerSearches = 8;
// How much longer work may take in the background, where others go first.
inline constexpr int kBackgroundPatience = 4;

struct FrameWait {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  int wake_fd = -1;  // ends the wait with CANCELLED when readable
};

// DEADLINE_EXCEEDED, CANCELLED; UNAVAILABLE: the other end has closed; DATA_LOSS: what came is no
// frame of at most `max_bytes`.
absl::Status WriteFrame(int fd, const google::protobuf::MessageLite& message,
                        const FrameWait& wait);
absl::StatusOr<std::string> ReadFrame(int fd, int64_t max_bytes, const FrameWait& wait);

// The flags of every kernel for a target, as the tuner passes them on and as the kernel store's key
// holds them.
struct CompileFlags {
  int opt_level = 3;
  int prefer_vector_width = 512;  // bits

  static CompileFlags For(const v1::Target& target);
  std::string ToString() const;  // "-O3 -mprefer-vector-width=512 -ffp-contract=off"
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_TUNER_CHANNEL_H_
