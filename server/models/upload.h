// One upload, message by message: a header, the tensors' chunks in order, a commit. Nothing of it
// is kept unless the commit was reached and every check passed.
//
//   Upload upload(&registry, &ledger, options);
//   status = upload.Take(message);             // for each; the first error ends the upload
//   if (upload.committed()) upload.version();  // stored, on disk; of a dry run checked only
//   else status = upload.CutOff();             // the stream ended early: says where
//
// Errors name the tensor, the offset expected and the one got. Used by one thread at a time; its
// destructor removes what was not committed. Knows the messages, not gRPC.
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
#include "server/models/onnx_upload.h"
#include "server/models/registry.h"
#include "server/plans/bucket_grid.h"

namespace athanor {

class Upload {
 public:
  // The arguments outlive the upload.
  // `cancelled` is asked during long work whether anybody waits for it.
  Upload(Registry* registry, ServerLedger* ledger, const ServerOptions& options,
         std::function<bool()> cancelled = nullptr)
      : registry_(registry), ledger_(ledger), options_(options), cancelled_(std::move(cancelled)) {}

  absl::Status Take(const v1::UploadModelRequest& message);
  absl::Status CutOff() const;

  // Its commit imports a model: a matter of seconds.
  bool imports() const { return onnx_.has_value(); }
  bool committed() const { return version_ != nullptr; }
  // Nothing was kept: `version` has no number.
  bool dry_run() const { return dry_run_; }
  // Why an ONNX model was not taken, besides Take's status.
  const std::vector<onnx::Refusal>& refusals() const { return refusals_; }
  const std::shared_ptr<ModelVersion>& version() const { return version_; }
  const std::string& name() const { return row_.name; }

  // Files and memory of what was not stored go now, so that nothing is left of it when the client
  // hears of it. Nothing is taken any more.
  void LetGo() {
    onnx_.reset();
    tensors_.clear();
  }

 private:
  struct Tensor {
    std::unique_ptr<TensorWriter> writer;
    ServerLedger::Reservation reservation;
    // It is held already and may not go while the upload is stored. Asked only once all its bytes
    // have come, so that nothing shows it to who has not got them.
    std::optional<Registry::Pins> held;
  };

  absl::Status TakeHeader(const v1::UploadHeader& header);
  absl::Status CheckHeader(const v1::UploadHeader& header) const;
  absl::Status CheckFormat(const v1::UploadHeader& header) const;
  void FillRow(const v1::UploadHeader& header);
  absl::Status ReadGraph(const v1::UploadHeader& header);
  // The version to be, of what `row_` says.
  absl::Status MakeVersion(ImportedGraph graph, const BucketGrid::Ranges& buckets);
  // Of a model whose files are all there.
  absl::Status ReadOnnx();
  absl::Status ReadParameters();
  absl::Status CheckTensors(const v1::UploadHeader& header);
  // Of tensors that the upload does not send.
  absl::Status CheckProofs(const v1::UploadHeader& header, absl::Span<const std::string> hashes);
  absl::Status BeginTensors(const v1::UploadHeader& header);
  absl::Status TakeChunk(const v1::TensorChunk& chunk);
  absl::Status CheckChunk(const v1::TensorChunk& chunk) const;
  // Ends tensors that have all their bytes, empty ones too.
  absl::Status EndTensors();
  absl::Status Commit();
  absl::StatusOr<std::vector<Registry::NewTensor>> NewTensors();
  // "tensor ab12..., offset 4096 of 8192" or "the commit": what should come next.
  std::string Expected() const;

  Registry* const registry_;
  ServerLedger* const ledger_;
  const ServerOptions& options_;
  const std::function<bool()> cancelled_;

  bool has_header_ = false;
  bool dry_run_ = false;
  BucketGrid::Ranges buckets_;      // as given
  std::optional<OnnxUpload> onnx_;  // of that format
  std::vector<onnx::Refusal> refusals_;
  VersionRow row_;
  std::shared_ptr<ModelVersion> pending_;
  absl::flat_hash_map<std::string, int64_t> parameters_;  // hash to bytes
  std::vector<Tensor> tensors_;
  size_t current_ = 0;
  Registry::Pins pins_;
  ServerLedger::Reservation buffers_;
  std::shared_ptr<ModelVersion> version_;
};

// Empty, or as search_policy.h has it. `what` names the field.
absl::Status CheckSearchBudget(std::string_view what, const std::string& text);
absl::Status CheckRuleNames(std::string_view what,
                            const google::protobuf::RepeatedPtrField<std::string>& names);
// Whether they make a BucketGrid of the graph.
absl::Status CheckBuckets(std::string_view what, const BucketGrid::Ranges& buckets,
                          const Graph& graph, int64_t max_buckets);

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_UPLOAD_H_
