// Helpers of messages about user input: suggestions for unknown names, lists, length.
//
//   NearestName("Softmx", {"Softmax", "Silu"}) == "Softmax"
#ifndef ATHANOR_COMPILER_FRONTEND_NAMES_H_
#define ATHANOR_COMPILER_FRONTEND_NAMES_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace athanor {

// Returns the candidate with the fewest edits from `name`, ignoring case; empty if none is close.
// Looks at the first few thousand candidates only, so its time is bounded for any input.
std::string NearestName(std::string_view name, absl::Span<const std::string_view> candidates);

// Returns `; did you mean "Softmax"?`, or an empty string.
std::string DidYouMean(std::string_view name, absl::Span<const std::string_view> candidates);

// Returns names as "b, s, t": at most 16 of them, then "...".
std::string JoinNames(absl::Span<const std::string_view> names);

// Returns the status with its message cut to 2 KiB: a reply's status is sent in headers, whose size
// gRPC limits.
absl::Status Shortened(const absl::Status& status);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_NAMES_H_
