// Draws parts of the status page: numbers that the script finds again, bars, marks, and words
// that explain themselves.
//
//   Drawing draw(status);
//   draw.Field("models.0.memory.all", "bytes");   // <span data-path=... data-as=...>1.5 KiB</span>
//   Word("queue");                                // <span class="word" title="...">queue</span>
//
// Escapes every text. Immutable, so thread-safe; the status must outlive it.
#ifndef ATHANOR_SERVER_HTTP_PAGES_DRAWING_H_
#define ATHANOR_SERVER_HTTP_PAGES_DRAWING_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace athanor {

// Shown where there is no number.
inline constexpr char kMissing[] = "\u2013";

// Escapes text for HTML text and for attributes in double quotes.
std::string Escaped(absl::string_view text);

// Formats a number for people, null as a dash. `as`: "count", "bytes" (1.5 KiB), "share" (of 1, as
// percent), "mean", "seconds" (73 µs, 1.25 ms), "duration" (2 h 5 min). page.js has the same
// function.
std::string Shown(const nlohmann::json& value, absl::string_view as);

// Returns a name in lower case with spaces: "compile job" for "COMPILE_JOB".
std::string Spaced(absl::string_view name);

// Draws a word of the page with its explanation (words.h) as its tooltip; one that has none is
// drawn plain.
std::string Word(absl::string_view word);

// Draws a text in a rounded frame; `kind` is good, busy, bad or quiet.
std::string Mark(absl::string_view text, absl::string_view kind);

class Drawing {
 public:
  explicit Drawing(const nlohmann::json& status) : status_(status) {}

  // Returns what is at a path such as "models.0.name"; null where there is nothing.
  const nlohmann::json& At(absl::string_view path) const;
  // Returns the text there, escaped; empty if it is none.
  std::string Text(absl::string_view path) const;
  bool Is(absl::string_view path) const;
  bool IsNull(absl::string_view path) const { return At(path).is_null(); }

  // Draw the number there; its speed, which only the script knows; a bar of it.
  std::string Field(absl::string_view path, absl::string_view as) const;
  static std::string Rate(absl::string_view path);
  std::string Bar(absl::string_view path, double max, absl::string_view label) const;

  // Draw a row of a list: a word and a number, or a text that is escaped already.
  std::string Row(absl::string_view word, absl::string_view path, absl::string_view as) const;
  static std::string TextRow(absl::string_view word, absl::string_view text);

 private:
  const nlohmann::json& status_;
};

// Draws a list that is closed until somebody opens it. The script keeps it open by its key when it
// draws the page anew.
std::string Closed(absl::string_view key, absl::string_view summary, absl::string_view content);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_DRAWING_H_
