#include "clients/cpp/terminal/ask.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/ascii.h"
#include "clients/cpp/terminal/interrupts.h"

namespace athanor::client {

bool CanAsk() { return isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0; }

bool Ask(absl::string_view question) {
  std::fprintf(stderr, "%s [y/N] ", std::string(question).c_str());
  std::fflush(stderr);
  LineReader lines(STDIN_FILENO, /*interrupts=*/nullptr);
  const LineReader::Result answer = lines.Next();
  if (answer.kind != LineReader::kLine) std::fputc('\n', stderr);
  const std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer.line));
  return answer.kind == LineReader::kLine && (word == "y" || word == "yes");
}

}  // namespace athanor::client
