// Keeps the open connections of a server, so that it can end them and wait for their ends.
//
//   sessions.Add(session);     // it calls Remove when it closes
//   sessions.CloseAll();
#ifndef ATHANOR_SERVER_HTTP_SESSIONS_H_
#define ATHANOR_SERVER_HTTP_SESSIONS_H_

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class HttpSession;

// Keeps the open sessions of a server and counts those that exist. Thread-safe.
class Sessions {
 public:
  // Counts a session as long as it exists.
  class Place {
   public:
    explicit Place(Sessions* sessions);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    Sessions* const sessions_;
  };

  void Add(std::shared_ptr<HttpSession> session);
  void Remove(const std::shared_ptr<HttpSession>& session);
  // Closes all sessions, and returns when none exists any more. REQUIRES: none is made any more
  void CloseAll();

 private:
  Mutex mu_;
  CondVar cv_;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<std::shared_ptr<HttpSession>> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_SESSIONS_H_
