#include "server/jobs/job_spans.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "server/jobs/compile_job.h"
#include "server/tracing/trace.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// "COMPILING_KERNELS" as "compiling kernels".
std::string Words(const std::string& name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", " "}});
}

}  // namespace

JobSpans::JobSpans(std::shared_ptr<Trace> trace) : trace_(std::move(trace)) {
  if (trace_ != nullptr) entered_ = Clock::now();
}

void JobSpans::Note(const v1::CompileJob& state) {
  if (trace_ == nullptr || state.phase() == phase_) return;
  const Clock::time_point now = Clock::now();
  {
    Trace::Span span = trace_->Child(Words(v1::CompileJob::Phase_Name(phase_)), entered_, now);
    if (phase_ == v1::CompileJob::SEARCHING) {
      span.Set("athanor.search.plans_taken", int64_t{state.search().plans_taken()});
    }
  }
  phase_ = state.phase();
  entered_ = now;
  if (IsFinal(phase_)) End(state);
}

void JobSpans::End(const v1::CompileJob& state) {
  trace_->Set("athanor.job.id", state.id());
  trace_->Set("athanor.model.name", state.model());
  trace_->Set("athanor.model.version", state.version());
  trace_->Set("athanor.job.stop_reason",
              absl::AsciiStrToLower(v1::CompileJob::StopReason_Name(state.stop_reason())));
  trace_->Set("athanor.kernels.total", int64_t{state.kernels_total()});
  trace_->Set("athanor.kernels.from_cache", int64_t{state.kernels_from_cache()});
  if (phase_ == v1::CompileJob::FAILED) {
    trace_->Fail(absl::StatusCodeToString(static_cast<absl::StatusCode>(state.error_code())),
                 state.error());
  }
  trace_->End(entered_);
  trace_.reset();
}

}  // namespace athanor
