// Splits text into words ahead of merges ("pre-tokenizer").
//
//   Splitter splitter = Splitter::Create(data.split).value();
//   std::deque<std::string> owned;
//   std::vector<std::string_view> words;
//   RETURN_IF_ERROR(splitter.Run(text, /*first=*/true, &owned, &words));
#ifndef ATHANOR_SERVER_TEXT_TOKENS_SPLIT_H_
#define ATHANOR_SERVER_TEXT_TOKENS_SPLIT_H_

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/base/regex.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// Immutable, so thread-safe.
class Splitter {
 public:
  // Returns what Regex::Compile says of a pattern.
  static absl::StatusOr<Splitter> Create(std::vector<SplitStep> steps);

  // Sets `words` to the words of `text`, none of them empty: views of `text` or of strings that are
  // added to `owned`. `first`: the text is at the beginning of the prompt. Returns
  // RESOURCE_EXHAUSTED if a pattern takes too many steps.
  absl::Status Run(std::string_view text, bool first, std::deque<std::string>* owned,
                   std::vector<std::string_view>* words) const;

 private:
  struct Step {
    SplitStep step;
    std::optional<Regex> regex;
  };
  std::vector<Step> steps_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_SPLIT_H_
