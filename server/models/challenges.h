// Issues nonces for proofs of possession (deploy/bazel/libs/possession.h). Each is issued once and
// is valid for one upload, for a limited time.
//
//   const std::string nonce = challenges.New(now);   // to the client
//   if (challenges.Take(nonce, now)) ...             // true once; false again or too late
//
// Nonces are kept in memory only, so none is valid after a restart. At most kMost are kept at a
// time, the oldest being forgotten first, so a client that asks for many takes only little memory.
// Thread-safe.
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

  // Returns 32 random bytes; empty if the system has none.
  std::string New(Clock::time_point now);
  bool IsGood(const std::string& nonce, Clock::time_point now);
  // Reports whether the nonce is valid, and invalidates it.
  bool Take(const std::string& nonce, Clock::time_point now);

 private:
  void Forget(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  // By age; includes taken nonces until they expire.
  std::deque<std::pair<Clock::time_point, std::string>> given_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<std::string> good_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_CHALLENGES_H_
