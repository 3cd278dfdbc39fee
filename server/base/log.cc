#include "server/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_format.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace athanor {
namespace {

struct Logging {
  std::shared_ptr<spdlog::logger> logger;
  bool json = false;
  std::unique_ptr<Logging> before;  // of tests that begin anew
};

// Set by InitLog and never freed: threads may log until the very end.
std::atomic<Logging*> logging{nullptr};

bool IsPlain(absl::string_view text) {
  for (unsigned char c : text) {
    if (c <= ' ' || c == '"' || c == '\\' || c == '=' || c >= 0x7f) return false;
  }
  return !text.empty();
}

// Escapes as JSON does; bytes beyond ASCII become \u00XX, so that a line is always valid UTF-8.
std::string Escaped(absl::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < ' ' || c >= 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

void Write(spdlog::level::level_enum level, absl::string_view message, LogFields fields) {
  const Logging* log = logging.load(std::memory_order_acquire);
  if (log == nullptr || !log->logger->should_log(level)) return;
  log->logger->log(level, FormatLog(message, fields, log->json));
}

}  // namespace

std::optional<int64_t> LogLimit::Pass(std::chrono::steady_clock::time_point now) {
  const int64_t second =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  if (second_.exchange(second) != second) passed_ = 0;
  if (passed_.fetch_add(1) < most_) return held_back_.exchange(0);
  held_back_.fetch_add(1);
  return std::nullopt;
}

std::string FormatLog(absl::string_view message, LogFields fields, bool json) {
  std::string line = json ? "\"msg\":" + Escaped(message) : "msg=" + Escaped(message);
  for (const LogField& field : fields) {
    if (field.key.empty()) continue;
    if (json) {
      absl::StrAppend(&line, ",", Escaped(field.key), ":",
                      field.quoted ? Escaped(field.text) : field.text);
    } else {
      absl::StrAppend(&line, " ", field.key, "=",
                      field.quoted && !IsPlain(field.text) ? Escaped(field.text) : field.text);
    }
  }
  return line;
}

void InitLog(absl::string_view level, absl::string_view format) {
  auto log = std::make_unique<Logging>();
  log->json = format == "json";
  log->logger = std::make_shared<spdlog::logger>("athanor",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log->logger->set_level(spdlog::level::from_str(std::string(level)));
  log->logger->set_pattern(log->json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%f","level":"%l",%v})"
                                     : "%Y-%m-%dT%H:%M:%S.%f %l %v");
  log->logger->flush_on(spdlog::level::debug);
  log->before.reset(logging.load(std::memory_order_acquire));
  logging.store(log.release(), std::memory_order_release);
}

absl::Status OpenLogFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const int fd = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
  if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) {
    const absl::Status s = absl::InvalidArgumentError(
        absl::StrCat("--log_file: cannot open '", path, "': ", std::strerror(errno)));
    if (fd >= 0) close(fd);
    return s;
  }
  if (fd != STDERR_FILENO) close(fd);
  return absl::OkStatus();
}

bool DebugLogged() {
  const Logging* log = logging.load(std::memory_order_acquire);
  return log != nullptr && log->logger->should_log(spdlog::level::debug);
}

void LogDebug(absl::string_view message, LogFields fields) {
  Write(spdlog::level::debug, message, fields);
}
void LogInfo(absl::string_view message, LogFields fields) {
  Write(spdlog::level::info, message, fields);
}
void LogWarn(absl::string_view message, LogFields fields) {
  Write(spdlog::level::warn, message, fields);
}
void LogError(absl::string_view message, LogFields fields) {
  Write(spdlog::level::err, message, fields);
}

}  // namespace athanor
