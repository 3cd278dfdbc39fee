// Parses the arguments of this folder's programs: pairs of a name and a value.
//
//   absl::Status s = ReadArguments(argc, argv, {
//       {"--graph", {.set = AsText(&graph), .needed = true}},
//       {"--threads", {AsNumber(&threads, 1)}},
//   });
//   if (s.ok()) s = Main(graph, threads);
//   return ExitStatus("search_plan", s);
#ifndef ATHANOR_TESTS_BENCH_ARGUMENTS_H_
#define ATHANOR_TESTS_BENCH_ARGUMENTS_H_

#include <functional>
#include <limits>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"

namespace athanor {

struct Argument {
  // Stores the value; returns false if it is invalid.
  std::function<bool(const std::string& value)> set;
  bool needed = false;
};

inline auto AsText(std::string* to) {
  return [to](const std::string& value) {
    *to = value;
    return true;
  };
}

// Accepts an integer of at least `least`.
template <typename Int>
auto AsNumber(Int* to, Int least = std::numeric_limits<Int>::min()) {
  return
      [to, least](const std::string& value) { return absl::SimpleAtoi(value, to) && *to >= least; };
}

// Parses argv. INVALID_ARGUMENT names an unknown name, a name without a value, an invalid value, or
// a missing argument.
absl::Status ReadArguments(int argc, const char* const* argv,
                           const std::map<std::string, Argument>& arguments);

// Returns main()'s exit status; writes an error to standard error.
int ExitStatus(const char* program, const absl::Status& status);

}  // namespace athanor

#endif  // ATHANOR_TESTS_BENCH_ARGUMENTS_H_
