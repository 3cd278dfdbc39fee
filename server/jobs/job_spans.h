// The spans of a compile job that is recorded: one for each phase that it was in.
//
//   JobSpans spans(tracer->BeginOwn("compile", now));
//   spans.Note(state);   // after each change of the job
//
// Not thread-safe.
#ifndef ATHANOR_SERVER_JOBS_JOB_SPANS_H_
#define ATHANOR_SERVER_JOBS_JOB_SPANS_H_

#include <chrono>
#include <memory>

#include "proto/athanor/v1/compile.pb.h"

namespace athanor {

class Trace;

class JobSpans {
 public:
  // `trace` may be null: then it does nothing.
  explicit JobSpans(std::shared_ptr<Trace> trace);

  // Ends the trace with a final phase.
  void Note(const v1::CompileJob& state);

 private:
  void End(const v1::CompileJob& state);

  std::shared_ptr<Trace> trace_;  // null: it is not recorded, or has ended
  v1::CompileJob::Phase phase_ = v1::CompileJob::QUEUED;
  std::chrono::steady_clock::time_point entered_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_JOB_SPANS_H_
