// The threads that answer connections, and the connections that wait for one of them: so many, and
// no more, because each holds a descriptor that the rest of the server may need.
//
//   ConnectionQueue queue(4, 64, [](int fd) { ... answers, closes ... });
//   if (!queue.Push(fd)) ... refuse ...
//
// Those that wait when it is destroyed are answered still. Thread-safe.
#ifndef ATHANOR_SERVER_HTTP_CONNECTION_QUEUE_H_
#define ATHANOR_SERVER_HTTP_CONNECTION_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class ConnectionQueue {
 public:
  ConnectionQueue(size_t threads, size_t most_waiting, std::function<void(int fd)> answer);
  ~ConnectionQueue();
  ConnectionQueue(const ConnectionQueue&) = delete;
  ConnectionQueue& operator=(const ConnectionQueue&) = delete;

  // False: too many wait; `fd` stays the caller's.
  bool Push(int fd);

 private:
  void Loop();

  const size_t most_waiting_;
  const std::function<void(int fd)> answer_;
  Mutex mu_;
  CondVar cv_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<int> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_CONNECTION_QUEUE_H_
