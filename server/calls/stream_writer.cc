#include "server/calls/stream_writer.h"

#include <pthread.h>

#include <utility>

namespace athanor {

StreamWriter::StreamWriter() : thread_([this] { Loop(); }) {
  pthread_setname_np(thread_.native_handle(), "tokens");
}

void StreamWriter::Stop() {
  std::vector<std::shared_ptr<Stream>> dropped;  // destroyed without the lock
  {
    MutexLock lock(mu_);
    stopping_ = true;
    dropped.swap(asked_);
    cv_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void StreamWriter::Ask(std::shared_ptr<Stream> stream) {
  MutexLock lock(mu_);
  if (stopping_) return;
  asked_.push_back(std::move(stream));
  if (asked_.size() == 1) cv_.NotifyOne();
}

void StreamWriter::Loop() {
  std::vector<std::shared_ptr<Stream>> asked;
  while (true) {
    {
      MutexLock lock(mu_);
      while (asked_.empty() && !stopping_) cv_.Wait(lock);
      if (stopping_) return;
      asked.swap(asked_);
    }
    for (const std::shared_ptr<Stream>& stream : asked) stream->Look();
    asked.clear();
  }
}

}  // namespace athanor
