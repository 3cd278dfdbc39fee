// Counts the requests that plans are running for, in a page of memory shared with the child
// processes. Measuring waits for gaps between requests (server/tuner/measure/pacer.h).
//
//   std::unique_ptr<Traffic> traffic = Traffic::Create().value();
//   { Traffic::Request running(traffic.get()); ... }            // in the server
//   TrafficReader reader = TrafficReader::Open(fd).value();     // in a child, of traffic->fd()
//   TrafficState before = reader.Read();
//
// Both counts share one atomic word, so a read is never torn: two equal words with nothing running
// mean that no request ran in between. A request's two additions cost 5 ns, or 7 ns if another
// thread keeps doing the same. A call takes tens of microseconds, so per-thread counters would not
// pay for their registry. Children can read the page but not write it.
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

// Thread-safe. Must outlive the requests counted in it; a child's mapping outlives it.
class Traffic {
 public:
  // Returns UNAVAILABLE if there is no descriptor or no memory left.
  static absl::StatusOr<std::unique_ptr<Traffic>> Create();
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // Counts a request for as long as it lives; counts nothing if `traffic` is null.
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
  // The descriptor that children inherit for TrafficReader::Open; close-on-exec.
  int fd() const { return fd_; }

 private:
  Traffic(int fd, std::atomic<uint64_t>* word) : fd_(fd), word_(word) {}

  const int fd_;
  std::atomic<uint64_t>* const word_;
};

// A child's read-only view of the page. Thread-safe; inherited by processes forked later.
class TrafficReader {
 public:
  // Reads as if no request ever ran.
  TrafficReader() = default;
  // Maps the page; the descriptor may be closed afterwards. Returns INVALID_ARGUMENT if it is not a
  // descriptor of Traffic's.
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
