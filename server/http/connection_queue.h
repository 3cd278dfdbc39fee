// Threads that serve connections, and one thread that waits for clients. A connection occupies a
// thread only while there is work to do at once, so clients that send nothing or do not read occupy
// none. The number of connections is limited, because each holds a descriptor that the rest of the
// server may need.
//
//   ConnectionQueue queue(limits, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), [](Connection& whole) {
//     ... makes the answer to a complete request ...
//   });
//   if (!queue.Push(connection)) ... refuse ...
//
// The destructor still answers complete requests, as far as that needs no waiting. Thread-safe.
#ifndef ATHANOR_SERVER_HTTP_CONNECTION_QUEUE_H_
#define ATHANOR_SERVER_HTTP_CONNECTION_QUEUE_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "deploy/bazel/libs/mutex.h"
#include "server/http/connection.h"

namespace athanor {

class ConnectionQueue {
 public:
  using Answer = std::function<void(Connection& whole)>;

  // `limits` must outlive it. Takes ownership of `wake_fd`, a non-blocking eventfd used by nobody
  // else.
  ConnectionQueue(const HttpLimits& limits, int wake_fd, Answer answer);
  ~ConnectionQueue();
  ConnectionQueue(const ConnectionQueue&) = delete;
  ConnectionQueue& operator=(const ConnectionQueue&) = delete;

  // Returns false, and leaves `connection` to the caller, if too many wait for a thread.
  bool Push(std::unique_ptr<Connection>& connection);

 private:
  struct Waiting {
    std::unique_ptr<Connection> connection;
    Connection::Wants wants;
  };

  // Runs on the thread that waits for clients; only that thread uses `waiting`.
  void Await();
  // Moves new connections to `waiting`. Returns false when the thread must end.
  bool TakeIn(std::vector<Waiting>* waiting);
  void CloseBeyondLimits(std::vector<Waiting>* waiting) const;
  // Waits, then removes and returns the connections that are ready or have something to send on
  // expiry; closes other expired ones.
  std::vector<std::unique_ptr<Connection>> TakeReady(std::vector<Waiting>* waiting) const;
  void Wake() const;

  void Work();
  void GiveBack(Waiting waiting);

  const HttpLimits& limits_;
  const int wake_fd_;
  const Answer answer_;
  Mutex mu_;
  CondVar cv_;
  CondVar taken_in_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::unique_ptr<Connection>> ready_ ABSL_GUARDED_BY(mu_);
  std::vector<Waiting> came_ ABSL_GUARDED_BY(mu_);  // for the thread that waits for clients
  std::vector<std::thread> threads_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_CONNECTION_QUEUE_H_
