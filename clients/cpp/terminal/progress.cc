#include "clients/cpp/terminal/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
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

// Reports whether the job has brought a plan that serves its model.
bool Serves(const v1::CompileJob& job) {
  return job.phase() == v1::CompileJob::SEARCHING || job.phase() == v1::CompileJob::DONE;
}

std::string BarText(const v1::CompileJob& job, absl::Duration elapsed) {
  const int cells = std::clamp(static_cast<int>(job.percent() / 100 * kBarCells), 0, kBarCells);
  std::string text = absl::StrFormat("[%s%s] %3.0f %%  %s", std::string(cells, '#'),
                                     std::string(kBarCells - cells, '.'), job.percent(),
                                     v1::CompileJob::Phase_Name(job.phase()));
  if (job.has_search()) {
    absl::StrAppend(&text, ", ", SearchExtentText(job.search(), job.search_options().budget()));
    if (!job.search_bucket().empty()) absl::StrAppend(&text, " for ", job.search_bucket());
  } else {
    absl::StrAppend(&text, ", kernel ", job.kernels_done(), " of ", job.kernels_total());
    absl::StrAppendFormat(&text, ", %.0f s", absl::ToDoubleSeconds(elapsed));
  }
  return text;
}

}  // namespace

std::string SearchExtentText(const v1::SearchProgress& search, const std::string& budget) {
  const std::string seconds = absl::StrFormat("%.1f", search.seconds());
  // "exhaust:5m" and "fast:200c" are bounded as "5m" and "200c" are.
  const std::string limit = budget.substr(budget.find(':') + 1);
  absl::Duration most;
  if (absl::ParseDuration(limit, &most) && most > absl::ZeroDuration()) {
    return absl::StrFormat("%s of %g s of search", seconds, absl::ToDoubleSeconds(most));
  }
  int64_t candidates = 0;
  if (absl::EndsWith(limit, "c") &&
      absl::SimpleAtoi(limit.substr(0, limit.size() - 1), &candidates)) {
    return absl::StrCat(search.candidates(), " of ", candidates, " candidates, ", seconds,
                        " s of search");
  }
  return seconds + " s of search";
}

std::vector<std::string> ProgressLines(const v1::CompileJob& job, absl::Duration elapsed,
                                       int columns, int rows) {
  std::vector<std::string> lines = {BarText(job, elapsed)};
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
    : out_(out), terminal_(!out->json() && isatty(STDERR_FILENO) != 0), style_(Style::Of(stderr)) {}

JobProgress::~JobProgress() {
  // If watching broke off, later output starts on a new line.
  if (drawn_lines_ > 0 && !IsFinished(shown_)) std::fputc('\n', stderr);
}

void JobProgress::Draw(const v1::CompileJob& job) {
  const winsize size = TerminalSize();
  std::string text = "\r";
  if (drawn_lines_ > 1) absl::StrAppend(&text, "\x1b[", drawn_lines_ - 1, "A");
  const std::vector<std::string> lines =
      ProgressLines(job, absl::Now() - *began_, size.ws_col, size.ws_row);
  Tone tone = Tone::kWait;
  if (Serves(job)) tone = Tone::kGood;
  if (job.phase() == v1::CompileJob::FAILED) tone = Tone::kBad;
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "\n" : "", "\x1b[K",
                    i == 0 ? style_.Paint(lines[i], tone) : lines[i]);
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

void JobProgress::TellServing(const v1::CompileJob& job) {
  serves_ = true;
  const std::string line = absl::StrFormat(
      "%s/%s serves after %.1f s%s", job.model(), job.version(),
      absl::ToDoubleSeconds(absl::Now() - *began_),
      job.phase() == v1::CompileJob::SEARCHING ? ", by its baseline plan; the search goes on" : "");
  if (!terminal_) return out_->Line(line);
  // Takes the place of what was drawn, which is drawn anew below it.
  std::string text = "\r";
  if (drawn_lines_ > 1) absl::StrAppend(&text, "\x1b[", drawn_lines_ - 1, "A");
  absl::StrAppend(&text, "\x1b[J", line, "\n");
  std::fputs(text.c_str(), stderr);
  drawn_lines_ = 0;
}

void JobProgress::Show(const v1::CompileJob& job) {
  if (out_->json()) return out_->Job(job);
  if (!began_.has_value()) {
    began_ = absl::Now();
    serves_ = Serves(job) || job.taps_size() > 0;
  }
  if (!serves_ && Serves(job)) TellServing(job);
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
