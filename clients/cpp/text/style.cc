#include "clients/cpp/text/style.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace athanor::client {
namespace {

constexpr size_t kGap = 2;

const char* CodeOf(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kBad:
      return "\x1b[31m";
    case Tone::kWait:
      return "\x1b[33m";
    case Tone::kHead:
      return "\x1b[1m";
    case Tone::kPlain:
      break;
  }
  return nullptr;
}

bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Returns the beginning of `text` that takes at most `cells`.
absl::string_view Cut(absl::string_view text, size_t cells) {
  size_t end = 0, taken = 0;
  while (end < text.size()) {
    if (!Continues(text[end]) && ++taken > cells) break;
    ++end;
  }
  return text.substr(0, end);
}

}  // namespace

Style Style::Of(std::FILE* file) {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::strcmp(terminal, "dumb") == 0;
  return Style(isatty(fileno(file)) != 0 && (refused == nullptr || *refused == '\0') && !dumb);
}

std::string Style::Paint(absl::string_view text, Tone tone) const {
  const char* const code = colours_ ? CodeOf(tone) : nullptr;
  if (code == nullptr || text.empty()) return std::string(text);
  return absl::StrCat(code, text, "\x1b[0m");
}

int TerminalColumns(std::FILE* file) {
  winsize size{};
  if (isatty(fileno(file)) == 0 || ioctl(fileno(file), TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

size_t TextWidth(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !Continues(byte); }));
}

std::vector<std::string> TableLines(const std::vector<Row>& rows, int columns, Style style) {
  std::vector<size_t> widths(rows.empty() ? 0 : rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      widths[i] = std::max(widths[i], TextWidth(row[i].text));
    }
  }
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string line;
    size_t left = columns > 0 ? static_cast<size_t>(columns) : std::string::npos;
    for (size_t i = 0; i < std::min(row.size(), widths.size()) && left > 0; ++i) {
      const absl::string_view text = Cut(row[i].text, left);
      const size_t width = TextWidth(text);
      absl::StrAppend(&line, style.Paint(text, &row == &rows.front() ? Tone::kHead : row[i].tone));
      left -= width;
      if (i + 1 == widths.size()) break;
      const size_t gap = std::min(left, widths[i] - width + kGap);
      line.append(gap, ' ');
      left -= gap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace athanor::client
