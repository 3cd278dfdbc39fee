// A flag that any thread can set, and that wakes a thread waiting in poll.
#ifndef ATHANOR_SERVER_CHILD_WAKE_EVENT_H_
#define ATHANOR_SERVER_CHILD_WAKE_EVENT_H_

namespace athanor {

// Thread-safe.
class WakeEvent {
 public:
  WakeEvent();
  ~WakeEvent();
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  int fd() const { return fd_; }  // readable while set; -1: there was no descriptor left
  void Set();
  void Clear();
  bool IsSet() const;

 private:
  const int fd_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_WAKE_EVENT_H_
