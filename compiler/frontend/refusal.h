// Reasons to refuse a model from a file of another format. An import collects all of them, so that
// a user sees at once what is in the way.
#ifndef ATHANOR_COMPILER_FRONTEND_REFUSAL_H_
#define ATHANOR_COMPILER_FRONTEND_REFUSAL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace athanor {

// A reason to refuse a node, key or tensor of a file, or the model as a whole.
struct ImportRefusal {
  // Or kInvalidArgument, or kResourceExhausted for a limit.
  absl::StatusCode code = absl::StatusCode::kUnimplemented;
  // ONNX: as NodeName; inside others "loop1/then_branch/add_3". Checkpoints: a key or a tensor. May
  // be empty.
  std::string node;
  std::string domain, op;  // may be empty
  int64_t version = 0;     // version of the schema that applies; 0: there is none
  std::string reason;      // without the node's name
  // Graph inputs whose values, given at upload, would avoid the refusal.
  std::vector<std::string> inputs;
};

// Appends a refusal. Behind kMostRefusals comes one that stands for all others, so that a hostile
// file has no more of them; it has INVALID_ARGUMENT if any of them does.
inline constexpr size_t kMostRefusals = 1000;
void AddRefusal(ImportRefusal refusal, std::vector<ImportRefusal>* refusals);

// Returns INVALID_ARGUMENT if any refusal has that code, else RESOURCE_EXHAUSTED if any has that,
// else UNIMPLEMENTED. The message has at most `bytes` bytes. Refusals are grouped by op, version
// and reason; every group is named, with as many of its nodes as fit and the number of the others.
absl::Status ToStatus(absl::Span<const ImportRefusal> refusals, size_t bytes);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_REFUSAL_H_
