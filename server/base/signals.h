// What each signal does to athanord: one table. A signal that is not in it does what it does by
// default, which is nothing, or the end of a process that is broken or is to be killed.
//
//   TakeSignals();                                  // before any thread begins
//   const SignalRow& row = AwaitDrain([&] { ... });  // until a signal asks for the end
//   EndAtOnceOnAnother();                           // while the server drains
//
// Those of kError are ignored, the others blocked and waited for, so that no call is interrupted. A
// process that this one starts inherits both: TunerProcess gives its children the defaults.
#ifndef ATHANOR_SERVER_BASE_SIGNALS_H_
#define ATHANOR_SERVER_BASE_SIGNALS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

enum class SignalUse : uint8_t {
  kEnd,     // drains; another one ends the process at once
  kDrain,   // drains
  kReload,  // certificate and log file are read and opened again
  kError,   // the call that caused it fails; nothing else
  kNone,    // is logged
};

struct SignalRow {
  int number;
  absl::string_view name;
  SignalUse use;
};

// Without the real-time signals, which are all kNone.
absl::Span<const SignalRow> SignalTable();
// For --help.
std::string SignalHelp();

// Of the calling thread and those it starts.
void TakeSignals();
// Waits for a signal that drains, and returns it; `reload` is called for each that reloads.
// REQUIRES: TakeSignals was called by this thread or one that started it
const SignalRow& AwaitDrain(const std::function<void()>& reload);
// From here on a thread of its own waits: a signal of kEnd ends the process with 1.
void EndAtOnceOnAnother();

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_SIGNALS_H_
