// The words of the status page and what they mean: their tooltips, and the list at its end.
#ifndef ATHANOR_SERVER_HTTP_PAGES_WORDS_H_
#define ATHANOR_SERVER_HTTP_PAGES_WORDS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

struct WordRow {
  absl::string_view word;
  absl::string_view meaning;
};

// Returns all rows, in the order of the page.
absl::Span<const WordRow> WordTable();
// Returns the meaning of a word; empty for one without a row.
absl::string_view MeaningOf(absl::string_view word);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_WORDS_H_
