// Nonces for proofs of possession (deploy/bazel/libs/possession.h): each is given out once, good
// for one upload, and only for a time.
//
//   const std::string nonce = challenges.New(now);   // to the client
//   if (challenges.Take(nonce, now)) ...             // once; then, or too late: false
//
// They are in memory only: none of them is good after a restart. Of more than kMost at a time the
// oldest is forgotten, so that who asks for many costs nothing but bytes of others. Thread-safe.
#ifndef ATHANOR_SERVER_MODELS_CHALLENGES_H_
#define ATHANOR_SERVER_MODELS_CHALLENGES_H_

#include <chrono>
#include <deque>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class Challenges {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::minutes kLifetime{10};
  static constexpr size_t kMost = 1 << 16;

  // 32 random bytes; empty if the system has none.
  std::string New(Clock::time_point now);
  bool IsGood(const std::string& nonce, Clock::time_point now);
  // As IsGood, and it is good no more.
  bool Take(const std::string& nonce, Clock::time_point now);

 private:
  void Forget(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  // By age; those that were taken too, until their time is up.
  std::deque<std::pair<Clock::time_point, std::string>> given_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<std::string> good_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_CHALLENGES_H_
