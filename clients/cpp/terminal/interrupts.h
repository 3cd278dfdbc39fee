// Makes Ctrl-C (SIGINT) something to wait for, instead of the end of the program.
//
//   Interrupts interrupts;
//   LineReader lines(STDIN_FILENO, &interrupts);
//   while (lines.Next().kind == LineReader::kLine) {
//     const bool stopped = interrupts.CancelDuring(&cancellation, [&] { Answer(&cancellation); });
//   }
#ifndef ATHANOR_CLIENTS_CPP_TERMINAL_INTERRUPTS_H_
#define ATHANOR_CLIENTS_CPP_TERMINAL_INTERRUPTS_H_

#include <csignal>
#include <string>

#include "absl/functional/function_ref.h"
#include "clients/cpp/client/client.h"

namespace athanor::client {

// Keeps the process's SIGINT while it lives; at most one may live at a time. Used by one thread. If
// the process has no file descriptor left for it, SIGINT stays as it was.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;

  // Can be read once an interrupt has come that nobody took.
  int fd() const { return pipe_[0]; }
  // Takes all interrupts that came; returns false if there was none.
  bool Take();
  // Runs `work`, and cancels `cancellation` if an interrupt comes meanwhile. Returns whether one
  // did.
  bool CancelDuring(Cancellation* cancellation, absl::FunctionRef<void()> work);

 private:
  int pipe_[2] = {-1, -1};
  struct sigaction before_;
};

// Reads lines of a file, a pipe or a terminal. Used by one thread, which alone reads `fd`.
class LineReader {
 public:
  enum Kind { kLine, kInterrupt, kEnd };
  struct Result {
    Kind kind;
    std::string line;  // without its line feed
  };

  // `interrupts` may be null: then there are only lines.
  LineReader(int fd, Interrupts* interrupts) : fd_(fd), interrupts_(interrupts) {}

  // Waits for a line or an interrupt, which it takes, and which goes before lines that were read;
  // these are then dropped. The last line may lack its line feed.
  Result Next();

 private:
  int fd_;
  Interrupts* interrupts_;
  std::string read_;  // beyond the lines that were returned
};

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TERMINAL_INTERRUPTS_H_
