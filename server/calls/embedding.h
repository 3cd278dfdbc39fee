// A request for embeddings, from its inputs to their vectors: finds the encoder, makes tokens, and
// has inputs of like lengths computed together, each run as a request for tensors of its own.
//
//   auto embedding = Embedding::Make(core, {.client = name}, std::move(request), done);
//   embedding->Begin();
//   embedding->Cancel(status);   // the client has left
//
// Holds itself until `done` has been called. Thread-safe.
#ifndef ATHANOR_SERVER_CALLS_EMBEDDING_H_
#define ATHANOR_SERVER_CALLS_EMBEDDING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/calls/embedding_runs.h"
#include "server/calls/inference.h"
#include "server/core/core.h"
#include "server/models/encoder_model.h"

namespace athanor {

// Most tokens of all inputs of a request, as OpenAI's.
inline constexpr int64_t kMostEmbeddingTokens = 300'000;

struct EmbeddingInput {
  std::string name;  // for errors: "input[3]"
  std::string text;
  std::vector<int32_t> tokens;  // not empty: `text` is not set
};

struct EmbeddingRequest {
  std::string model;
  std::vector<EmbeddingInput> inputs;
  ServerLedger::Reservation memory;  // of `inputs`
};

struct EmbeddingResult {
  ServerLedger::Reservation memory;  // of `values`
  std::vector<float> values;         // `width` of each input, in their order
  int64_t width = 0;
  int64_t tokens = 0;  // of all inputs
};

class Embedding final : public std::enable_shared_from_this<Embedding> {
 public:
  // Called once, on any thread, which may be one that runs calls: it must not wait.
  using Done = absl::AnyInvocable<void(absl::StatusOr<EmbeddingResult>)>;
  // `core` must live until `done` is called. REQUIRES: there are inputs.
  static std::shared_ptr<Embedding> Make(ServerCore& core, InferenceCaller caller,
                                         EmbeddingRequest request, Done done);

  // Called once. Long texts are made into tokens on the queue "text".
  void Begin();
  // Reports that the client has left: the request ends with `status`.
  void Cancel(const absl::Status& status);

 private:
  class Run;

  Embedding(ServerCore& core, InferenceCaller caller, EmbeddingRequest request, Done done);

  absl::Status Accept();
  void Compute();
  absl::Status MakeTokens();
  absl::Status MakeTokensOf(EmbeddingInput* input) const;
  // Takes memory for the results, and plans the runs.
  absl::Status PlanRuns();
  // Starts runs until as many as may be are under way, or there are no more.
  void StartRuns();
  std::shared_ptr<Run> NextRun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Ended(Run* run, const absl::Status& status);
  // Ends the request if no run is under way and none will be.
  void FinishIfOver();
  absl::Status failed() const;
  void Fail(const absl::Status& status);

  ServerCore& core_;
  const InferenceCaller caller_;
  EmbeddingRequest request_;
  std::shared_ptr<ModelVersion> version_;
  std::shared_ptr<const EncoderModel> encoder_;
  std::vector<EmbeddingRun> runs_;
  EmbeddingResult result_;

  mutable Mutex mu_;
  Done done_ ABSL_GUARDED_BY(mu_);  // null: it was called
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  bool planned_ ABSL_GUARDED_BY(mu_) = false;  // the runs are known, or will not be
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;       // run to be started
  std::vector<std::shared_ptr<Run>> active_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_EMBEDDING_H_
