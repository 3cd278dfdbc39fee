// Shows a compile job while it runs: redrawn in place on a terminal, as lines otherwise.
//
//   JobProgress progress(&out);
//   progress.Show(job);       // for each state of the job, the final one included
#ifndef ATHANOR_CLIENTS_CPP_TERMINAL_PROGRESS_H_
#define ATHANOR_CLIENTS_CPP_TERMINAL_PROGRESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "clients/cpp/text/print.h"
#include "clients/cpp/text/style.h"

namespace athanor::client {

// Follows one job; used by one thread. On a terminal (stderr) draws every state: a bar and, once
// there is one, the search. Otherwise prints a line per phase and, while SEARCHING, one per adopted
// plan and one per kSearchLineSeconds of the budget. Both tell when the first plan serves, if it
// did not when the watch began. As JSON prints every state. The last line says why the job ended.
class JobProgress {
 public:
  static constexpr double kSearchLineSeconds = 5;

  explicit JobProgress(Printer* out);
  ~JobProgress();
  void Show(const v1::CompileJob& job);

 private:
  void Draw(const v1::CompileJob& job);
  void TellServing(const v1::CompileJob& job);
  bool DeservesLine(const v1::CompileJob& job) const;

  Printer* out_;
  bool terminal_;
  const Style style_;
  size_t drawn_lines_ = 0;
  std::optional<absl::Time> began_;  // when the first state came
  bool serves_ = true;               // its plan serves, and that was told
  v1::CompileJob shown_;
};

// Returns the lines for a terminal of `columns` x `rows`, cut to fit, `elapsed` after the watch
// began.
std::vector<std::string> ProgressLines(const v1::CompileJob& job, absl::Duration elapsed,
                                       int columns, int rows);

// Says how much of its budget a search has used: "12.3 of 30 s of search", "98 of 200 candidates,
// 12.3 s of search"; "12.3 s of search" where the budget has no end.
std::string SearchExtentText(const v1::SearchProgress& search, const std::string& budget);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TERMINAL_PROGRESS_H_
