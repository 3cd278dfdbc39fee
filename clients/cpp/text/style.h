// Colours of text on a terminal, and tables whose columns are aligned.
//
//   for (const std::string& line : TableLines(rows, TerminalColumns(stdout), Style::Of(stdout)))
//     out.Line(line);
#ifndef ATHANOR_CLIENTS_CPP_TEXT_STYLE_H_
#define ATHANOR_CLIENTS_CPP_TEXT_STYLE_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace athanor::client {

enum class Tone : uint8_t { kPlain, kGood, kBad, kWait, kHead };

// Colours text, or leaves it as it is.
class Style {
 public:
  explicit Style(bool colours) : colours_(colours) {}
  // Colours what is written to a terminal, unless NO_COLOR is set and not empty (no-color.org) or
  // TERM is "dumb".
  static Style Of(std::FILE* file);

  std::string Paint(absl::string_view text, Tone tone) const;

 private:
  bool colours_;
};

// Returns the width of the terminal that `file` is; 0 if it is none, or does not tell.
int TerminalColumns(std::FILE* file);

// Returns how many cells of a terminal UTF-8 takes, at one per code point.
size_t TextWidth(absl::string_view text);

struct Cell {
  std::string text;
  Tone tone = Tone::kPlain;
};
using Row = std::vector<Cell>;

// Returns a line per row, with two spaces between columns, cut to `columns` cells; 0: not cut. The
// first row is the heading. Rows may have fewer cells than it.
std::vector<std::string> TableLines(const std::vector<Row>& rows, int columns, Style style);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TEXT_STYLE_H_
