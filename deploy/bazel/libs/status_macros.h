// Early returns for absl::Status and absl::StatusOr.
//
//   RETURN_IF_ERROR(Check(graph));                              // returns the error, if any
//   ASSIGN_OR_RETURN(v1::Plan plan, Lower(graph));              // declares plan, or returns
//   ASSIGN_OR_RETURN(result.plan, Lower(graph));                // assigns, or returns
//
// A declaration whose type has a comma needs an alias. Both are statements: the second one
// declares, so it stands in a block of its own, never behind an `if` without braces.
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_STATUS_MACROS_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(...)                                                 \
  do {                                                                       \
    if (absl::Status athanor_status = (__VA_ARGS__); !athanor_status.ok()) { \
      return athanor_status;                                                 \
    }                                                                        \
  } while (false)

#define ASSIGN_OR_RETURN(target, ...) \
  ATHANOR_ASSIGN_OR_RETURN(ATHANOR_JOIN(athanor_status_or_, __LINE__), target, __VA_ARGS__)

#define ATHANOR_ASSIGN_OR_RETURN(result, target, ...)  \
  auto result = (__VA_ARGS__);                         \
  if (!result.ok()) return std::move(result).status(); \
  target = *std::move(result)

#define ATHANOR_JOIN(a, b) ATHANOR_JOIN_EXPANDED(a, b)
#define ATHANOR_JOIN_EXPANDED(a, b) a##b

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_STATUS_MACROS_H_
