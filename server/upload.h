// One upload, message by message: a header, the tensors' chunks in order, a commit. Nothing of it
// is kept unless the commit was reached and every check passed.
//
//   Upload upload(&registry, &ledger, options);
//   status = upload.Take(message);             // for each; the first error ends the upload
//   if (upload.committed()) upload.version();  // stored, on disk
//   else status = upload.CutOff();             // the stream ended early: says where
//
// Errors name the tensor, the offset expected and the one got. Used by one thread at a time; its
// destructor removes what was not committed. Knows the messages, not gRPC.
#ifndef ATHANOR_SERVER_UPLOAD_H_
#define ATHANOR_SERVER_UPLOAD_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/bucket_grid.h"
#include "server/options.h"
#include "server/registry.h"
#include "server/server_ledger.h"

namespace athanor {

class Upload {
 public:
  // The arguments outlive the upload.
  Upload(Registry* registry, ServerLedger* ledger, const ServerOptions& options)
      : registry_(registry), ledger_(ledger), options_(options) {}

  absl::Status Take(const v1::UploadModelRequest& message);
  absl::Status CutOff() const;

  bool committed() const { return version_ != nullptr; }
  const std::shared_ptr<ModelVersion>& version() const { return version_; }
  const std::string& name() const { return row_.name; }

 private:
  struct Tensor {
    std::unique_ptr<TensorWriter> writer;
    // Either it is held already and may not go before the commit, or memory for it.
    std::optional<Registry::Pins> held;
    ServerLedger::Reservation reservation;
  };

  absl::Status TakeHeader(const v1::UploadHeader& header);
  absl::Status CheckHeader(const v1::UploadHeader& header) const;
  absl::Status ReadGraph(const v1::UploadHeader& header);
  absl::Status ReadParameters();
  absl::Status CheckTensors(const v1::UploadHeader& header);
  absl::Status BeginTensors(const v1::UploadHeader& header);
  absl::Status TakeChunk(const v1::TensorChunk& chunk);
  absl::Status CheckChunk(const v1::TensorChunk& chunk) const;
  // Ends tensors that have all their bytes, empty ones too.
  absl::Status EndTensors();
  absl::Status Commit();
  // "tensor ab12..., offset 4096 of 8192" or "the commit": what should come next.
  std::string Expected() const;

  Registry* const registry_;
  ServerLedger* const ledger_;
  const ServerOptions& options_;

  bool has_header_ = false;
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

#endif  // ATHANOR_SERVER_UPLOAD_H_
