// Shows a compile job while it runs: redrawn in place on a terminal, as lines otherwise.
//
//   JobProgress progress(&out);
//   progress.Show(job);       // for each state of the job, the final one included
#ifndef ATHANOR_CLIENTS_CPP_TERMINAL_PROGRESS_H_
#define ATHANOR_CLIENTS_CPP_TERMINAL_PROGRESS_H_

#include <string>
#include <vector>

#include "clients/cpp/text/print.h"

namespace athanor::client {

// Follows one job; used by one thread. On a terminal (stderr) draws every state: a bar and, once
// there is one, the search. Otherwise prints a line per phase and, while SEARCHING, one per adopted
// plan and one per kSearchLineSeconds of the budget. As JSON prints every state. The last line says
// why the job ended.
class JobProgress {
 public:
  static constexpr double kSearchLineSeconds = 5;

  explicit JobProgress(Printer* out);
  ~JobProgress();
  void Show(const v1::CompileJob& job);

 private:
  void Draw(const v1::CompileJob& job);
  bool DeservesLine(const v1::CompileJob& job) const;

  Printer* out_;
  bool terminal_;
  size_t drawn_lines_ = 0;
  v1::CompileJob shown_;
};

// Returns the lines for a terminal of `columns` x `rows`, cut to fit.
std::vector<std::string> ProgressLines(const v1::CompileJob& job, int columns, int rows);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TERMINAL_PROGRESS_H_
