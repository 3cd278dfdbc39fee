// An upload, message by message: a header, the tensors' chunks in order, a commit. Nothing is kept
// unless the commit was reached and every check passed.
//
//   Upload upload(&registry, &ledger, options);
//   status = upload.Take(message);             // for each; the first error ends the upload
//   if (upload.committed()) upload.version();  // stored on disk; only checked in a dry run
//   else status = upload.CutOff();             // the stream ended early: says where
//
// Errors name the tensor, the expected offset and the one received. Used by one thread at a time;
// the destructor removes everything not committed. Uses the messages but not gRPC.
#ifndef ATHANOR_SERVER_MODELS_UPLOAD_H_
#define ATHANOR_SERVER_MODELS_UPLOAD_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/models/language_models.h"
#include "server/models/model_import.h"
#include "server/models/registry.h"
#include "server/plans/bucket_grid.h"

namespace athanor {

class Upload {
 public:
  // The arguments must outlive the upload. `cancelled` is polled during long work; true if nobody
  // waits for the result any more.
  Upload(Registry* registry, ServerLedger* ledger, const ServerOptions& options,
         std::function<bool()> cancelled = nullptr)
      : registry_(registry), ledger_(ledger), options_(options), cancelled_(std::move(cancelled)) {}

  // Makes it a version of a model repository, of this number. Call it before Take.
  void SetSource(int64_t version, RepositorySource source) {
    row_.version = version;
    row_.source = std::move(source);
  }
  absl::Status Take(const v1::UploadModelRequest& message);
  absl::Status CutOff() const;
  // Returns inputs and outputs as the uploaded files state them, before the commit; without any for
  // a checkpoint. Sizes are texts, as ModelTensor has them. REQUIRES: the files are complete
  absl::StatusOr<v1::Model> Outline() const;
  // Gives dims and the batch dim of an ONNX model after the header. REQUIRES: the header had none
  absl::Status Give(const google::protobuf::RepeatedPtrField<v1::DimGiven>& dims,
                    const std::string& batch_dim);

  // Reports whether its commit imports a model, which may take seconds.
  bool imports() const { return import_ != nullptr; }
  bool committed() const { return version_ != nullptr; }
  // Reports whether this is a dry run: nothing is stored, and `version` has no number.
  bool dry_run() const { return dry_run_; }
  // Reasons why an imported model was refused, in addition to Take's status.
  const std::vector<ImportRefusal>& refusals() const { return refusals_; }
  const std::shared_ptr<ModelVersion>& version() const { return version_; }
  const std::string& name() const { return row_.name; }

  // Frees files and memory of an upload that was not stored, so that nothing is left when its
  // client is answered. Take must not be called afterwards.
  void LetGo() {
    import_.reset();
    tensors_.clear();
  }

 private:
  struct Tensor {
    std::unique_ptr<TensorWriter> writer;
    ServerLedger::Reservation reservation;
    // Set if the registry holds the tensor already; keeps it from being removed while the upload is
    // stored. Looked up only once all its bytes have arrived, so that a client without the bytes
    // cannot learn whether it is held.
    std::optional<HeldTensors::Pins> held;
  };

  absl::Status TakeHeader(const v1::UploadHeader& header);
  absl::Status CheckHeader(const v1::UploadHeader& header) const;
  absl::Status CheckFormat(const v1::UploadHeader& header) const;
  void FillRow(const v1::UploadHeader& header);
  absl::Status ReadGraph(const v1::UploadHeader& header);
  // Makes the version described by `row_`.
  absl::Status MakeVersion(ImportedGraph graph, const BucketGrid::Ranges& buckets);
  // Imports a model whose files are complete.
  absl::Status ReadImported();
  absl::Status ReadParameters();
  absl::Status CheckTensors(const v1::UploadHeader& header);
  // Checks the proofs of tensors that the upload does not send.
  absl::Status CheckProofs(const v1::UploadHeader& header, absl::Span<const std::string> hashes);
  absl::Status BeginTensors(const v1::UploadHeader& header);
  absl::Status TakeChunk(const v1::TensorChunk& chunk);
  absl::Status CheckChunk(const v1::TensorChunk& chunk) const;
  // Finishes tensors that have all their bytes, including empty ones.
  absl::Status EndTensors();
  absl::Status Commit();
  absl::StatusOr<std::vector<HeldTensors::NewTensor>> NewTensors();
  // Returns the expected next message: "tensor ab12..., offset 4096 of 8192" or "the commit".
  std::string Expected() const;

  Registry* const registry_;
  ServerLedger* const ledger_;
  const ServerOptions& options_;
  const std::function<bool()> cancelled_;

  bool has_header_ = false;
  bool dry_run_ = false;
  BucketGrid::Ranges buckets_;           // as given by the client
  std::unique_ptr<ModelImport> import_;  // of uploads of files
  std::vector<ImportRefusal> refusals_;
  VersionRow row_;
  std::shared_ptr<ModelVersion> pending_;
  std::optional<HostedModel> hosted_;                     // of a language model
  absl::flat_hash_map<std::string, int64_t> parameters_;  // hash to bytes
  std::vector<Tensor> tensors_;
  size_t current_ = 0;
  HeldTensors::Pins pins_;
  ServerLedger::Reservation buffers_;
  std::shared_ptr<ModelVersion> version_;
};

// Checks that `text` is empty or a budget (search_policy.h). `what` names the field.
absl::Status CheckSearchBudget(std::string_view what, const std::string& text);
absl::Status CheckRuleNames(std::string_view what,
                            const google::protobuf::RepeatedPtrField<std::string>& names);
// Checks that the ranges form a BucketGrid of the graph.
absl::Status CheckBuckets(std::string_view what, const BucketGrid::Ranges& buckets,
                          const Graph& graph, int64_t max_buckets);
// Checks that approximate rules may be used: not in a graph with states.
absl::Status CheckApproximate(std::string_view what, bool approximate, const Graph& graph);

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_UPLOAD_H_
