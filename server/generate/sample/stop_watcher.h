// Finds stop strings in text that comes in pieces, and holds back what may become one.
//
//   RETURN_IF_ERROR(StopWatcher::Check(stops));
//   StopWatcher watcher(stops);
//   StopWatcher::Found found = watcher.Add(piece);   // found.text may leave
//   if (found.stop) ...                              // the text ends here
//   std::string rest = watcher.End();                // the sequence ended otherwise
//
// The text ends ahead of the stop string that is complete first; of those complete at the same
// byte, ahead of the longest. So it does not depend on how the text is cut into pieces. Not
// thread-safe.
#ifndef ATHANOR_SERVER_GENERATE_SAMPLE_STOP_WATCHER_H_
#define ATHANOR_SERVER_GENERATE_SAMPLE_STOP_WATCHER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

class StopWatcher {
 public:
  // Most stop strings, and most bytes of one.
  static constexpr int64_t kMostStops = 16, kMostBytes = 1024;

  // Returns INVALID_ARGUMENT if there are too many, or one is empty or too long.
  static absl::Status Check(absl::Span<const std::string> stops);

  // REQUIRES: Check(stops) is OK.
  explicit StopWatcher(absl::Span<const std::string> stops);

  struct Found {
    std::string text;   // what may leave of the text so far
    bool stop = false;  // a stop string follows it
    std::string stop_text;
  };
  // Takes the next piece, of whole code points. REQUIRES: no stop string was found yet.
  Found Add(absl::string_view piece);
  // Returns what is held back: no stop string came of it.
  std::string End() { return std::move(held_); }

 private:
  // A stop string and how much of it the text ends with (D. Knuth, J. Morris, V. Pratt, "Fast
  // pattern matching in strings", 1977).
  struct Pattern {
    std::string stop;
    // By length of a beginning of `stop`: the longest shorter beginning that it ends with.
    std::vector<int32_t> shorter;
    int32_t matched = 0;
  };
  static void Match(char byte, Pattern* pattern);

  std::vector<Pattern> patterns_;
  std::string held_;  // ends the text so far, and begins a stop string
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SAMPLE_STOP_WATCHER_H_
