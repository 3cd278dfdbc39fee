#include "clients/bench/progress_line.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace athanor::bench {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(500);
constexpr auto kNextLine = std::chrono::seconds(10);

}  // namespace

std::string ProgressText(const std::string& name, const ProgressCounts& counts) {
  std::string text = name.empty() ? "" : absl::StrCat(name, ": ");
  absl::StrAppendFormat(&text, "%.0f", counts.seconds);
  if (counts.whole > 0) absl::StrAppendFormat(&text, " of %.0f", counts.whole);
  absl::StrAppendFormat(&text, " s, %d answered", counts.answered);
  if (counts.failed > 0) absl::StrAppend(&text, ", ", counts.failed, " failed");
  if (counts.tokens > 0) absl::StrAppend(&text, ", ", counts.tokens, " tokens");
  return text;
}

ProgressLine::ProgressLine(std::vector<const Progress*> loads, std::string name, double whole)
    : loads_(std::move(loads)),
      name_(std::move(name)),
      whole_(whole),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()) {
  before_ = Now();
  thread_ = std::thread([this] { Work(); });
}

ProgressLine::~ProgressLine() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  if (terminal_) std::fputs("\r\033[K", stderr);
}

ProgressCounts ProgressLine::Now() const {
  ProgressCounts counts{.whole = whole_};
  counts.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  for (const Progress* load : loads_) {
    counts.answered += load->answered;
    counts.failed += load->failed;
    counts.tokens += load->tokens;
  }
  counts.answered -= before_.answered;
  counts.failed -= before_.failed;
  counts.tokens -= before_.tokens;
  return counts;
}

void ProgressLine::Work() {
  MutexLock lock(mu_);
  Clock::time_point next = start_;
  while (!stopped_) {
    next += terminal_ ? std::chrono::milliseconds(kRedraw) : std::chrono::milliseconds(kNextLine);
    while (!stopped_ && Clock::now() < next) changed_.WaitUntil(lock, next);
    if (stopped_) return;
    const std::string text = ProgressText(name_, Now());
    std::fputs(
        terminal_ ? absl::StrCat("\r\033[K", text).c_str() : absl::StrCat(text, "\n").c_str(),
        stderr);
  }
}

}  // namespace athanor::bench
