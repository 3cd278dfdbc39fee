// The right answers of a check: inputs, and what the reference evaluator makes of them.
//
//   ReferenceMemory memory;
//   std::shared_ptr<const References> right = memory.For(request).value();
//   right->cases[0].wanted[0];   // the tensor that the first output has to be
//
// They follow from a request's graph, sizes and seed. All schedules of a task are checked with the
// same ones, so the last few sets are remembered. No memory of theirs is shared with the processes
// that kernels run in: a kernel cannot change what its siblings are compared with.
#ifndef ATHANOR_SERVER_TUNER_CHECK_REFERENCES_H_
#define ATHANOR_SERVER_TUNER_CHECK_REFERENCES_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/tuner/run/inputs.h"
#include "server/tuner/run/repeated_bytes.h"

namespace athanor {

// A set of sizes with one seed: inputs and expected outputs.
struct ReferenceCase {
  std::vector<int64_t> dims;
  Expr::Env env;
  std::string text;  // "b=7 s=11 seed=3"
  uint64_t seed = 0;
  bool sampled = false;
  IndexChoice choice = IndexChoice::kAny;  // by which inputs are drawn
  // Inputs, parameters, then states: `inputs` where every element is compared, else `repeated`.
  std::vector<Tensor> inputs;
  std::vector<RepeatedBytes> repeated;
  bool index_error = false;    // the reference finds an index out of range
  bool in_range = true;        // every index was looked at, and none is
  std::vector<Tensor> wanted;  // by graph.outputs; not of sampled cases
  std::vector<std::vector<double>> bounds;
};

struct References {
  Graph graph;  // with the states that it writes as outputs (state_outputs.h)
  std::vector<ReferenceCase> cases;
};

// Draws the case's inputs by its sizes, seed and choice: every process draws the same.
absl::Status DrawInputsOf(const Graph& graph, ReferenceCase* c);

// INVALID_ARGUMENT: the request does not fit together. Besides, the reference evaluator's errors.
absl::StatusOr<References> MakeReferences(const internal::CheckRequest& request);

// Remembers the references made last, at most kMostBytes of them. Used by one thread at a time.
class ReferenceMemory {
 public:
  static constexpr int64_t kMostBytes = int64_t{32} << 20;

  // As MakeReferences.
  absl::StatusOr<std::shared_ptr<const References>> For(const internal::CheckRequest& request);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const References> references;
    int64_t bytes = 0;
  };

  std::list<Entry> entries_;  // the one used last is the first
  int64_t bytes_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_REFERENCES_H_
