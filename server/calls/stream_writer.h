// The thread that begins the writes of all streams of tokens: an engine's thread only says that
// there is something to send, and goes on with its next step.
//
//   auto writer = std::make_shared<StreamWriter>();
//   writer->Ask(stream);       // calls stream->Look() soon, on the thread
//   writer->Stop();
//
// Thread-safe. Streams share it, because an engine may still tell one that has ended.
#ifndef ATHANOR_SERVER_CALLS_STREAM_WRITER_H_
#define ATHANOR_SERVER_CALLS_STREAM_WRITER_H_

#include <memory>
#include <thread>
#include <vector>

#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class StreamWriter {
 public:
  class Stream {
   public:
    virtual ~Stream() = default;
    // Begins to write what is there. Must not wait.
    virtual void Look() = 0;
  };

  StreamWriter();
  ~StreamWriter() { Stop(); }

  void Ask(std::shared_ptr<Stream> stream);
  // Ends the thread: no stream is looked at any more. Call it before a stream can be the last to
  // hold the writer, which its own thread cannot destroy.
  void Stop();

 private:
  void Loop();

  Mutex mu_;
  CondVar cv_;
  std::vector<std::shared_ptr<Stream>> asked_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_STREAM_WRITER_H_
