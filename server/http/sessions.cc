#include "server/http/sessions.h"

#include <utility>
#include <vector>

#include "server/http/session.h"

namespace athanor {

Sessions::Place::Place(Sessions* sessions) : sessions_(sessions) {
  MutexLock lock(sessions_->mu_);
  ++sessions_->count_;
}

Sessions::Place::~Place() {
  MutexLock lock(sessions_->mu_);
  if (--sessions_->count_ == 0) sessions_->cv_.NotifyAll();
}

void Sessions::Add(std::shared_ptr<HttpSession> session) {
  MutexLock lock(mu_);
  open_.insert(std::move(session));
}

void Sessions::Remove(const std::shared_ptr<HttpSession>& session) {
  MutexLock lock(mu_);
  open_.erase(session);
}

void Sessions::CloseAll() {
  std::vector<std::shared_ptr<HttpSession>> open;
  {
    MutexLock lock(mu_);
    open.assign(open_.begin(), open_.end());
  }
  for (const auto& session : open) session->Close();
  open.clear();
  MutexLock lock(mu_);
  while (count_ > 0) cv_.Wait(lock);
}

}  // namespace athanor
