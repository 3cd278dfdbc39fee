#include "clients/cpp/terminal/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/cpp/text/search_text.h"

namespace athanor::client {
namespace {

constexpr int kBarCells = 30;
constexpr int kShownKernels = 5;

winsize TerminalSize() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) size = {};
  if (size.ws_col == 0) size.ws_col = 80;
  if (size.ws_row == 0) size.ws_row = 24;
  return size;
}

std::string BarText(const v1::CompileJob& job) {
  const int cells = std::clamp(static_cast<int>(job.percent() / 100 * kBarCells), 0, kBarCells);
  std::string text = absl::StrFormat("[%s%s] %3.0f %%  %s", std::string(cells, '#'),
                                     std::string(kBarCells - cells, '.'), job.percent(),
                                     v1::CompileJob::Phase_Name(job.phase()));
  if (job.has_search()) {
    absl::StrAppendFormat(&text, ", %.1f s of search", job.search().seconds());
    if (!job.search_bucket().empty()) absl::StrAppend(&text, " for ", job.search_bucket());
  } else {
    absl::StrAppend(&text, ", kernel ", job.kernels_done(), " of ", job.kernels_total());
  }
  return text;
}

}  // namespace

std::vector<std::string> ProgressLines(const v1::CompileJob& job, int columns, int rows) {
  std::vector<std::string> lines = {BarText(job)};
  if (job.has_search()) {
    for (std::string& line : SearchLines(job.search(), kShownKernels)) {
      lines.push_back(std::move(line));
    }
  }
  // The last column is left for the cursor, and one row for the output that follows.
  const size_t width = std::max(columns - 1, 1);
  for (std::string& line : lines) {
    if (line.size() > width) line.resize(width);
  }
  if (lines.size() > static_cast<size_t>(std::max(rows - 1, 1)))
    lines.resize(std::max(rows - 1, 1));
  return lines;
}

JobProgress::JobProgress(Printer* out)
    : out_(out), terminal_(!out->json() && isatty(STDERR_FILENO) != 0) {}

JobProgress::~JobProgress() {
  // If watching broke off, later output starts on a new line.
  if (drawn_lines_ > 0 && !IsFinished(shown_)) std::fputc('\n', stderr);
}

void JobProgress::Draw(const v1::CompileJob& job) {
  const winsize size = TerminalSize();
  std::string text = "\r";
  if (drawn_lines_ > 1) absl::StrAppend(&text, "\x1b[", drawn_lines_ - 1, "A");
  const std::vector<std::string> lines = ProgressLines(job, size.ws_col, size.ws_row);
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "\n" : "", "\x1b[K", lines[i]);
  }
  absl::StrAppend(&text, "\x1b[J", IsFinished(job) ? "\n" : "");
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  drawn_lines_ = lines.size();
}

bool JobProgress::DeservesLine(const v1::CompileJob& job) const {
  if (job.phase() != shown_.phase()) return true;
  if (job.search_bucket() != shown_.search_bucket()) return true;
  if (job.search().plans_taken() != shown_.search().plans_taken()) return true;
  return job.search().seconds() >= shown_.search().seconds() + kSearchLineSeconds;
}

void JobProgress::Show(const v1::CompileJob& job) {
  if (out_->json()) return out_->Job(job);
  if (terminal_) {
    Draw(job);
  } else if (!DeservesLine(job)) {
    return;
  }
  if (!terminal_) {
    out_->Job(job);
  } else if (IsFinished(job)) {
    out_->Line(absl::StrCat(v1::CompileJob::Phase_Name(job.phase()), ": ",
                            StopReasonText(job.stop_reason())));
    if (job.phase() == v1::CompileJob::DONE) out_->Line(job.message());
  }
  shown_ = job;
}

}  // namespace athanor::client
