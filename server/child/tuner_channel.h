// Frames with a deadline, for both ends of the tuner's socket, and what else both ends know.
//
//   WriteFrame(fd, request, {.deadline = soon});
//   absl::StatusOr<std::string> bytes = ReadFrame(fd, kMaxTunerFrame, {.deadline = soon});
//
// A frame is a little-endian u32 byte count and a message of tuner.proto.
#ifndef ATHANOR_SERVER_CHILD_TUNER_CHANNEL_H_
#define ATHANOR_SERVER_CHILD_TUNER_CHANNEL_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace athanor {

inline constexpr int64_t kMaxTunerFrame = int64_t{1} << 30;
// The descriptor of the child's end.
inline constexpr int kTunerFd = 3;
// The descriptor of the page of running requests (server/base/traffic.h), if the server has one.
inline constexpr int kTrafficFd = 4;
// The descriptor of a file for data too large for memory (server/tuner/run/scratch.h), if there is
// one, and its size: it takes room on the disk only as it is used.
inline constexpr int kScratchFd = 5;
inline constexpr int64_t kScratchBytes = int64_t{64} << 30;
// The descriptors of the socket to the device worker, and of a file of kScratchBytes in memory that
// tuner and worker share, if the tuner is for a GPU. The worker's own end is kTunerFd.
inline constexpr int kWorkerFd = 6;
inline constexpr int kWorkerMemoryFd = 7;
inline constexpr int kLastTunerFd = kWorkerMemoryFd;
// Begins the child's first line on its standard error, which names its restrictions.
inline constexpr absl::string_view kTunerWalls = "confined: ";
// Exit status of a child that noticed that memory ran out.
inline constexpr int kTunerExitMemory = 86;
// Exit status of a tuner whose device worker is gone. It has no right to start another.
inline constexpr int kTunerExitWorker = 87;

// Reports whether a process gets the signal by its own doing. Others are sent: by somebody who
// stops all processes, or by a system that has no memory left.
bool IsCrash(int signal);

// Reports whether one more try is fair: the call ended with a process, not with a verdict.
bool WorthRetrying(const absl::Status& status);

// Searches a child holds at a time; the one asked least recently makes room.
inline constexpr size_t kMaxTunerSearches = 8;
// Factor by which work may take longer in the background, where others go first.
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

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_TUNER_CHANNEL_H_
