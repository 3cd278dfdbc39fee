// The table of what each signal does to athanord. A signal missing from the table keeps its default
// action: it is ignored, or ends a process that is broken or being killed.
//
//   TakeSignals();                                  // before any thread begins
//   const SignalRow& row = AwaitDrain([&] { ... });  // until a signal asks for the end
//   EndAtOnceOnAnother();                           // while the server drains
//
// kError signals are ignored; the others are blocked and waited for, so that no call is
// interrupted. Child processes inherit both; TunerProcess resets its children to the defaults.
#ifndef ATHANOR_SERVER_BASE_SIGNALS_H_
#define ATHANOR_SERVER_BASE_SIGNALS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

enum class SignalUse : uint8_t {
  kEnd,     // drains; a second one ends the process at once
  kDrain,   // drains
  kReload,  // reloads the certificates and reopens the log file
  kError,   // the call that caused it fails; nothing else happens
  kNone,    // only logged
};

struct SignalRow {
  int number;
  absl::string_view name;
  SignalUse use;
};

// Leaves out the real-time signals, which are all kNone.
absl::Span<const SignalRow> SignalTable();

// Tells people what signals of one use do.
struct SignalHelp {
  std::string names;  // "SIGTERM, SIGINT"
  absl::string_view help;
};
std::vector<SignalHelp> SignalHelps();

// Ignores and blocks the table's signals for the calling thread and those it starts.
void TakeSignals();
// Waits for a signal that drains and returns it. Calls `reload` for each kReload signal before
// that.
// REQUIRES: TakeSignals was called by this thread or one that started it
const SignalRow& AwaitDrain(const std::function<void()>& reload);
// Starts a thread that ends the process with status 1 at the next kEnd signal.
void EndAtOnceOnAnother();

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_SIGNALS_H_
