#include "server/base/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace athanor {
namespace {

constexpr int kEndedAtOnce = 1;  // the process's exit code

constexpr SignalRow kSignals[] = {
    {SIGTERM, "SIGTERM", SignalUse::kEnd},      {SIGINT, "SIGINT", SignalUse::kEnd},
    {SIGQUIT, "SIGQUIT", SignalUse::kEnd},      {SIGXCPU, "SIGXCPU", SignalUse::kDrain},
    {SIGPWR, "SIGPWR", SignalUse::kDrain},      {SIGHUP, "SIGHUP", SignalUse::kReload},
    {SIGPIPE, "SIGPIPE", SignalUse::kError},    {SIGXFSZ, "SIGXFSZ", SignalUse::kError},
    {SIGUSR1, "SIGUSR1", SignalUse::kNone},     {SIGUSR2, "SIGUSR2", SignalUse::kNone},
    {SIGALRM, "SIGALRM", SignalUse::kNone},     {SIGVTALRM, "SIGVTALRM", SignalUse::kNone},
    {SIGPROF, "SIGPROF", SignalUse::kNone},     {SIGIO, "SIGIO", SignalUse::kNone},
    {SIGSTKFLT, "SIGSTKFLT", SignalUse::kNone},
};

absl::string_view HelpOf(SignalUse use) {
  switch (use) {
    case SignalUse::kEnd:
      return "end: running requests finish within --drain; another one ends at once, with 1";
    case SignalUse::kDrain:
      return "end: running requests finish within --drain";
    case SignalUse::kReload:
      return "reads --tls_cert, --tls_key, --tls_client_ca, --auth and --openai_keys again, and "
             "opens --log_file "
             "again";
    case SignalUse::kError:
      return "nothing: the write that it is for fails";
    case SignalUse::kNone:
      return "nothing but a line in the log, as real-time signals";
  }
  return "";
}

sigset_t Awaited() {
  sigset_t set;
  sigemptyset(&set);
  for (const SignalRow& row : kSignals) {
    if (row.use != SignalUse::kError) sigaddset(&set, row.number);
  }
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) sigaddset(&set, number);
  return set;
}

// Waits for the next signal. Returns a kNone row for one that the table does not name.
const SignalRow& Next() {
  static constexpr SignalRow kOther = {0, "a real-time signal", SignalUse::kNone};
  const sigset_t set = Awaited();
  int number = 0;
  while (sigwait(&set, &number) != 0) {
  }
  for (const SignalRow& row : kSignals) {
    if (row.number == number) return row;
  }
  return kOther;
}

void LogNothing(const SignalRow& row) {
  static LogLimit limit;
  if (const auto held_back = limit.Pass()) {
    LogInfo("signal ignored", {{"signal", row.name}, {"held_back", *held_back}});
  }
}

}  // namespace

absl::Span<const SignalRow> SignalTable() { return kSignals; }

std::vector<SignalHelp> SignalHelps() {
  std::vector<SignalHelp> helps;
  for (const SignalUse use : {SignalUse::kEnd, SignalUse::kDrain, SignalUse::kReload,
                              SignalUse::kError, SignalUse::kNone}) {
    std::string names;
    for (const SignalRow& row : kSignals) {
      if (row.use == use) absl::StrAppend(&names, names.empty() ? "" : ", ", row.name);
    }
    helps.push_back({std::move(names), HelpOf(use)});
  }
  return helps;
}

void TakeSignals() {
  const sigset_t set = Awaited();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (const SignalRow& row : kSignals) {
    if (row.use == SignalUse::kError) signal(row.number, SIG_IGN);
  }
}

const SignalRow& AwaitDrain(const std::function<void()>& reload) {
  while (true) {
    const SignalRow& row = Next();
    switch (row.use) {
      case SignalUse::kEnd:
      case SignalUse::kDrain:
        return row;
      case SignalUse::kReload:
        reload();
        break;
      case SignalUse::kError:
      case SignalUse::kNone:
        LogNothing(row);
        break;
    }
  }
}

void EndAtOnceOnAnother() {
  std::thread([] {
    while (true) {
      const SignalRow& row = Next();
      if (row.use != SignalUse::kEnd) continue;
      LogWarn("ended at once", {{"signal", row.name}});
      _exit(kEndedAtOnce);
    }
  }).detach();
}

}  // namespace athanor
