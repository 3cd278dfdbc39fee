// Structured log lines on standard error: a message and named values, one line each.
//
//   InitLog("info", "text");
//   LogInfo("model uploaded", {{"request", id}, {"model", name}, {"bytes", n}});
//   // 2026-11-21T04:00:00.123456 info msg="model uploaded" request=r-1 model=digits bytes=123
//
// Quotes and escapes values that come from outside. Thread-safe; drops lines below the level.
#ifndef ATHANOR_SERVER_BASE_LOG_H_
#define ATHANOR_SERVER_BASE_LOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace athanor {

struct LogField {
  // Left out where the text is empty.
  static LogField Optional(absl::string_view k, absl::string_view v) {
    return v.empty() ? LogField("", v) : LogField(k, v);
  }
  LogField(absl::string_view k, absl::string_view v) : key(k), text(v), quoted(true) {}
  LogField(absl::string_view k, const char* v) : LogField(k, absl::string_view(v)) {}
  LogField(absl::string_view k, const std::string& v) : LogField(k, absl::string_view(v)) {}
  template <typename Number>
    requires std::is_arithmetic_v<Number>
  LogField(absl::string_view k, Number v) : key(k), text(absl::StrCat(v)), quoted(false) {}

  absl::string_view key;
  std::string text;
  bool quoted;
};
using LogFields = std::initializer_list<LogField>;

// Sets the level ("debug", "info", "warn", "error") and the format ("text", "json"). Lines logged
// before this call are dropped.
void InitLog(absl::string_view level, absl::string_view format);
bool DebugLogged();
// Redirects standard error, and with it the log, to the end of `path`. Call it again to reopen a
// file that has been rotated away. Does nothing if `path` is empty. Returns INVALID_ARGUMENT if the
// file cannot be opened; the log then goes on where it went before.
absl::Status OpenLogFile(const std::string& path);

void LogDebug(absl::string_view message, LogFields fields = {});
void LogInfo(absl::string_view message, LogFields fields = {});
void LogWarn(absl::string_view message, LogFields fields = {});
void LogError(absl::string_view message, LogFields fields = {});

// Limits log lines of one kind that clients can trigger at will to `most` a second.
//
//   static LogLimit limit;
//   if (auto held_back = limit.Pass()) LogInfo("refused", {..., {"held_back", *held_back}});
class LogLimit {
 public:
  explicit LogLimit(int64_t most = 20) : most_(most) {}

  // Returns how many lines were held back since the last one that passed, or nothing if this line
  // is held back too.
  std::optional<int64_t> Pass(
      std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

 private:
  const int64_t most_;
  std::atomic<int64_t> second_{-1};
  std::atomic<int64_t> passed_{0};  // in second_
  std::atomic<int64_t> held_back_{0};
};

// Formats the line without time and level, the way InitLog's format prints it.
std::string FormatLog(absl::string_view message, LogFields fields, bool json);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_LOG_H_
