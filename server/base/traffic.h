// The requests that plans are being run for, in a page of memory that the child processes see too:
// measuring waits for gaps between them (server/tuner/measure/pacer.h).
//
//   std::unique_ptr<Traffic> traffic = Traffic::Create().value();
//   { Traffic::Request running(traffic.get()); ... }            // in the server
//   TrafficReader reader = TrafficReader::Open(fd).value();     // in a child, of traffic->fd()
//   TrafficState before = reader.Read();
//
// Both counts are one atomic word, so that a read of it is never torn: equal words with nothing
// running mean that no request ran in between. The two additions of a request cost 5 ns, and 7
// where another thread does nothing but the same; a call costs tens of microseconds, so counters by
// thread were not worth their registry. Children can read the page, and never write it.
#ifndef ATHANOR_SERVER_BASE_TRAFFIC_H_
#define ATHANOR_SERVER_BASE_TRAFFIC_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace athanor {

struct TrafficState {
  uint64_t started = 0;  // since the server started, modulo 2^44
  uint32_t running = 0;

  bool operator==(const TrafficState&) const = default;
};

// Thread-safe. Outlives the requests counted in it; those that children mapped stay theirs.
class Traffic {
 public:
  // UNAVAILABLE: no descriptor or no memory left.
  static absl::StatusOr<std::unique_ptr<Traffic>> Create();
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // A request for as long as this lives; `traffic` may be null, and then nothing is counted.
  class Request {
   public:
    explicit Request(Traffic* traffic);
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

   private:
    Traffic* const traffic_;
  };

  TrafficState Read() const;
  // To be inherited by children, for TrafficReader::Open; close-on-exec.
  int fd() const { return fd_; }

 private:
  Traffic(int fd, std::atomic<uint64_t>* word) : fd_(fd), word_(word) {}

  const int fd_;
  std::atomic<uint64_t>* const word_;
};

// The page as a child sees it. Thread-safe; processes forked later see it too.
class TrafficReader {
 public:
  // Nothing ever runs.
  TrafficReader() = default;
  // Maps the page; the descriptor may be closed then. INVALID_ARGUMENT: it is none of Traffic's.
  static absl::StatusOr<TrafficReader> Open(int fd);
  ~TrafficReader();
  TrafficReader(TrafficReader&& other) noexcept;
  TrafficReader& operator=(TrafficReader&& other) noexcept;

  TrafficState Read() const;

 private:
  const std::atomic<uint64_t>* word_ = nullptr;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_TRAFFIC_H_
