#include "server/http/connection_queue.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace athanor {
namespace {

using Wants = Connection::Wants;

constexpr int64_t kLongestWaitMs = 1'000'000;

}  // namespace

ConnectionQueue::ConnectionQueue(const HttpLimits& limits, int wake_fd, Answer answer)
    : limits_(limits), wake_fd_(wake_fd), answer_(std::move(answer)) {
  threads_.emplace_back([this] { Await(); });
  pthread_setname_np(threads_.back().native_handle(), "http-wait");
  for (size_t i = 0; i < limits_.threads; ++i) {
    threads_.emplace_back([this] { Work(); });
    pthread_setname_np(threads_.back().native_handle(), "http");
  }
}

ConnectionQueue::~ConnectionQueue() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  cv_.NotifyAll();
  Wake();
  for (std::thread& thread : threads_) thread.join();
  close(wake_fd_);
}

bool ConnectionQueue::Push(std::unique_ptr<Connection>& connection) {
  {
    MutexLock lock(mu_);
    if (ready_.size() >= limits_.most_waiting) return false;
    // The wait is short: the thread that empties `came_` never blocks on a client.
    while (came_.size() >= limits_.most_waiting) taken_in_.Wait(lock);
    came_.push_back({std::move(connection), Wants::kRead});
  }
  Wake();
  return true;
}

void ConnectionQueue::Wake() const {
  const uint64_t one = 1;
  while (write(wake_fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void ConnectionQueue::Await() {
  std::vector<Waiting> waiting;
  while (TakeIn(&waiting)) {
    CloseBeyondLimits(&waiting);
    std::vector<std::unique_ptr<Connection>> ready = TakeReady(&waiting);
    if (ready.empty()) continue;
    MutexLock lock(mu_);
    for (std::unique_ptr<Connection>& connection : ready) ready_.push_back(std::move(connection));
    cv_.NotifyAll();
  }
}

bool ConnectionQueue::TakeIn(std::vector<Waiting>* waiting) {
  MutexLock lock(mu_);
  for (Waiting& came : came_) waiting->push_back(std::move(came));
  came_.clear();
  taken_in_.NotifyAll();
  return !stopping_;
}

void ConnectionQueue::CloseBeyondLimits(std::vector<Waiting>* waiting) const {
  const auto close_oldest = [waiting](auto of, size_t most) {
    while (static_cast<size_t>(std::count_if(waiting->begin(), waiting->end(), of)) > most) {
      auto oldest = waiting->end();
      for (auto it = waiting->begin(); it != waiting->end(); ++it) {
        if (!of(*it)) continue;
        if (oldest == waiting->end() || it->connection->began() < oldest->connection->began()) {
          oldest = it;
        }
      }
      oldest->connection->Refuse("503 Service Unavailable");
      oldest->connection->Advance();
      waiting->erase(oldest);
    }
  };
  close_oldest([](const Waiting& each) { return each.wants == Wants::kWrite; },
               limits_.most_unread);
  close_oldest([](const Waiting&) { return true; }, limits_.most_waiting);
}

std::vector<std::unique_ptr<Connection>> ConnectionQueue::TakeReady(
    std::vector<Waiting>* waiting) const {
  std::vector<pollfd> waits = {{wake_fd_, POLLIN, 0}};
  auto next = Connection::Clock::time_point::max();
  for (const Waiting& each : *waiting) {
    const short events = each.wants == Wants::kWrite ? POLLOUT : POLLIN;
    waits.push_back({each.connection->fd(), events, 0});
    next = std::min(next, each.connection->deadline());
  }
  int64_t wait_ms = -1;
  if (!waiting->empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Connection::Clock::now());
    wait_ms = std::clamp<int64_t>(left.count(), 0, kLongestWaitMs);
  }
  if (poll(waits.data(), waits.size(), static_cast<int>(wait_ms)) < 0) return {};
  uint64_t woken = 0;
  if (waits[0].revents != 0 && read(wake_fd_, &woken, sizeof(woken)) < 0) woken = 0;
  std::vector<std::unique_ptr<Connection>> ready;
  std::vector<Waiting> left;
  const auto now = Connection::Clock::now();
  for (size_t i = 0; i < waiting->size(); ++i) {
    Waiting& each = (*waiting)[i];
    const bool late = each.connection->deadline() <= now;
    if (late ? each.connection->Expire() : waits[i + 1].revents != 0) {
      ready.push_back(std::move(each.connection));
    } else if (!late) {
      left.push_back(std::move(each));
    }
  }
  *waiting = std::move(left);
  return ready;
}

void ConnectionQueue::Work() {
  while (true) {
    std::unique_ptr<Connection> connection;
    {
      MutexLock lock(mu_);
      while (ready_.empty() && !stopping_) cv_.Wait(lock);
      if (ready_.empty()) return;
      connection = std::move(ready_.front());
      ready_.pop_front();
    }
    Wants wants = connection->Advance();
    if (wants == Wants::kAnswer) {
      answer_(*connection);
      wants = connection->Answered();
    }
    if (wants != Wants::kNothing) GiveBack({std::move(connection), wants});
  }
}

void ConnectionQueue::GiveBack(Waiting waiting) {
  {
    MutexLock lock(mu_);
    if (stopping_) return;
    came_.push_back(std::move(waiting));
  }
  Wake();
}

}  // namespace athanor
