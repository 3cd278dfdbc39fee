// The threads that go on with connections, and the thread that waits for clients meanwhile: a
// connection has a thread only while there is something to be done at once, so that clients who say
// nothing, or do not read, hold none. There are so many connections and no more, because each holds
// a descriptor that the rest of the server may need.
//
//   ConnectionQueue queue(limits, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), [](Connection& whole) {
//     ... makes the answer to a request that is whole ...
//   });
//   if (!queue.Push(connection)) ... refuse ...
//
// Requests that are whole when it is destroyed are answered still, as far as that needs no wait.
// Thread-safe.
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

  // `limits` outlive it. Closes `wake_fd`, a non-blocking eventfd of its own.
  ConnectionQueue(const HttpLimits& limits, int wake_fd, Answer answer);
  ~ConnectionQueue();
  ConnectionQueue(const ConnectionQueue&) = delete;
  ConnectionQueue& operator=(const ConnectionQueue&) = delete;

  // False: too many wait for a thread; `connection` stays the caller's.
  bool Push(std::unique_ptr<Connection>& connection);

 private:
  struct Waiting {
    std::unique_ptr<Connection> connection;
    Connection::Wants wants;
  };

  // The thread that waits for clients, and alone has `waiting`.
  void Await();
  // False: it ends.
  bool TakeIn(std::vector<Waiting>* waiting);
  void CloseBeyondLimits(std::vector<Waiting>* waiting) const;
  // Those that are ready, or told that their time is up; the others whose time is up are closed.
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
  std::vector<Waiting> came_ ABSL_GUARDED_BY(mu_);  // for the thread that waits
  std::vector<std::thread> threads_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_CONNECTION_QUEUE_H_
