#include "server/models/challenges.h"

#include <unistd.h>

#include "deploy/bazel/libs/sha256.h"

namespace athanor {

void Challenges::Forget(Clock::time_point now) {
  while (!given_.empty() && (given_.size() > kMost || given_.front().first + kLifetime <= now)) {
    good_.erase(given_.front().second);
    given_.pop_front();
  }
}

std::string Challenges::New(Clock::time_point now) {
  std::string nonce(kSha256Bytes, '\0');
  if (getentropy(nonce.data(), nonce.size()) != 0) return "";
  MutexLock lock(mu_);
  given_.emplace_back(now, nonce);
  good_.insert(nonce);
  Forget(now);
  return nonce;
}

bool Challenges::IsGood(const std::string& nonce, Clock::time_point now) {
  MutexLock lock(mu_);
  Forget(now);
  return good_.contains(nonce);
}

bool Challenges::Take(const std::string& nonce, Clock::time_point now) {
  MutexLock lock(mu_);
  Forget(now);
  return good_.erase(nonce) > 0;
}

}  // namespace athanor
