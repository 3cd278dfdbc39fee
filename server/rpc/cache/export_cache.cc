#include <unistd.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/bundle.h"
#include "compiler/ir/graph/versions.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "deploy/bazel/libs/version.h"
#include "server/base/log.h"
#include "server/plans/bucket_grid.h"
#include "server/rpc/cache/cache_service.h"
#include "server/rpc/call.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "Export";

// Tells people where a bundle comes from.
std::string OriginHere() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat("athanord ", kVersion, " on ", host);
}

// Returns an error if the request cannot be served.
absl::Status CheckAsked(const v1::ExportCacheRequest& asked, const CacheKeys& keys) {
  if (asked.model().empty() && !asked.version().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "version: ", Quoted(asked.version()), " is given without a model; give the model, too"));
  }
  if (!asked.model().empty() && !asked.binaries()) {
    return absl::InvalidArgumentError(
        "binaries: must be true for an export of one model, since a model's entries are plans and "
        "kernels, which contain code; ask for binaries, or leave out the model to export "
        "all recipes");
  }
  if (asked.binaries() && !keys.signing) {
    return absl::FailedPreconditionError(
        "binaries: exports with binaries must be signed, and this server has no signing key "
        "(--cache_signing_key)");
  }
  return absl::OkStatus();
}

// Returns the keys of the plans of the requested versions, in every bucket: the keys of baselines,
// and those that their searches use.
absl::StatusOr<std::vector<PlanKey>> KeysOf(ServerCore& core, const v1::ExportCacheRequest& asked) {
  ASSIGN_OR_RETURN(auto found, core.registry().versions().Find(asked.model(), asked.version()));
  std::vector<std::shared_ptr<ModelVersion>> versions = {found};
  if (asked.version().empty()) versions = core.registry().versions().List(asked.model());
  std::vector<PlanKey> keys;
  for (const std::shared_ptr<ModelVersion>& version : versions) {
    if (const absl::Status known = CheckMachineKnown(core, *version); !known.ok()) {
      return absl::Status(
          known.code(),
          absl::StrCat(known.message(),
                       versions.size() == 1 ? "" : "; name a version whose device is there"));
    }
    const v1::SearchOptions how = core.workers().policies().Of(*version).ToProto();
    const std::shared_ptr<const BucketGrid> grid = version->plans().grid();
    for (int bucket = 0; bucket < grid->size(); ++bucket) {
      const Graph graph = bucket == BucketGrid::kFullRange
                              ? version->graph()
                              : NarrowedTo(version->graph(), grid->box(bucket));
      keys.push_back(core.keeper().KeyOf(*version, graph, {}));
      keys.push_back(core.keeper().KeyOf(*version, graph, how));
    }
  }
  return keys;
}

// Writes one chunk after the other. At any time one piece of work or one write is outstanding, and
// only its completion continues the call: no lock is needed.
class ExportCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  ExportCall(ServerCore& core, grpc::CallbackServerContext* context)
      : admission_(core, *context, kMethod), core_(core), context_(context) {}

  void Begin(const grpc::ByteBuffer& bytes) {
    absl::Status status = admission_.status();
    if (status.ok()) status = ParseSmallRequest(core_, bytes, &request_);
    if (status.ok()) status = CheckAsked(request_, core_.cache_keys());
    if (status.ok()) status = MakeWriter(request_.binaries());
    if (!status.ok()) {
      Finish(EndCall(kMethod, *context_, status, &admission_));
      return;
    }
    LogAudited(admission_, *context_, request_.model());
    at_.semantics_version = kSemanticsVersion;
    at_.recipe_format = kRecipeFormat;
    at_.binaries = request_.binaries();
    // Sends the header only once it is known that there is a cache.
    core_.cache_queue().Submit([this] {
      if (FindKeys()) ReadPage();
    });
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(
          EndCall(kMethod, *context_, absl::CancelledError("the caller went away"), &admission_));
    } else if (page_.empty()) {
      core_.cache_queue().Submit([this] { ReadPage(); });
    } else {
      WriteNext();
    }
  }

  void OnDone() override { delete this; }

 private:
  absl::Status MakeWriter(bool binaries) {
    v1::CacheBundleHeader header;
    header.set_semantics_version(kSemanticsVersion);
    header.set_origin(OriginHere());
    header.set_binaries(binaries);
    header.mutable_created()->set_seconds(std::chrono::duration_cast<std::chrono::seconds>(
                                              std::chrono::system_clock::now().time_since_epoch())
                                              .count());
    ASSIGN_OR_RETURN(BundleWriter writer,
                     BundleWriter::Create(std::move(header), core_.cache_keys().signing));
    writer_.emplace(std::move(writer));
    return absl::OkStatus();
  }

  // Returns whether to go on.
  bool FindKeys() {
    if (request_.model().empty()) return true;
    absl::StatusOr<std::vector<PlanKey>> keys = KeysOf(core_, request_);
    if (keys.ok()) {
      at_.of = *std::move(keys);
    } else {
      Finish(EndCall(kMethod, *context_, keys.status(), &admission_));
    }
    return keys.ok();
  }

  void ReadPage() {
    absl::StatusOr<std::vector<v1::CacheBundleRecord>> page =
        core_.cache().maintenance().Export(&at_);
    if (!page.ok()) {
      Finish(EndCall(kMethod, *context_, page.status(), &admission_));
      return;
    }
    page_.assign(std::make_move_iterator(page->begin()), std::make_move_iterator(page->end()));
    if (!std::exchange(begun_, true)) {
      Write(writer_->Header());
    } else if (page_.empty()) {
      WriteTrailer();
    } else {
      WriteNext();
    }
  }

  // REQUIRES: the page has records.
  void WriteNext() {
    v1::CacheBundleRecord record = std::move(page_.front());
    page_.pop_front();
    recipes_ += record.has_recipe() ? 1 : 0;
    plans_ += record.has_plan() ? 1 : 0;
    kernels_ += record.has_kernel() ? 1 : 0;
    absl::StatusOr<v1::CacheBundleChunk> chunk = writer_->Record(std::move(record));
    if (!chunk.ok()) {
      Finish(EndCall(kMethod, *context_, chunk.status(), &admission_));
      return;
    }
    Write(*chunk);
  }

  void Write(const v1::CacheBundleChunk& chunk) {
    const grpc::Status serialized = SerializeReply(chunk, &bytes_);
    if (!serialized.ok()) {
      Finish(serialized);
    } else {
      StartWrite(&bytes_);
    }
  }

  void WriteTrailer() {
    absl::StatusOr<v1::CacheBundleChunk> trailer = writer_->Trailer();
    absl::Status status = trailer.status();
    if (status.ok() && !SerializeReply(*trailer, &bytes_).ok()) {
      status = absl::InternalError("the bundle's trailer does not serialise");
    }
    if (!status.ok()) {
      Finish(EndCall(kMethod, *context_, status, &admission_));
      return;
    }
    LogInfo("cache exported", {{"request", admission_.request_id()},
                               {"model", request_.model()},
                               {"recipes", recipes_},
                               {"plans", plans_},
                               {"kernels", kernels_},
                               {"signed", core_.cache_keys().signing.has_value()}});
    admission_.End();
    StartWriteAndFinish(&bytes_, grpc::WriteOptions(), grpc::Status::OK);
  }

  RpcAdmission admission_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  std::optional<BundleWriter> writer_;
  v1::ExportCacheRequest request_;
  ExportCursor at_;
  std::deque<v1::CacheBundleRecord> page_;
  bool begun_ = false;
  int64_t recipes_ = 0;
  int64_t plans_ = 0;
  int64_t kernels_ = 0;
  grpc::ByteBuffer bytes_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* CacheService::Export(Context* context,
                                                                 const Bytes* request) {
  auto* call = new ExportCall(core_, context);
  call->Begin(*request);
  return call;
}

}  // namespace athanor
