#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compiler/cache/bundle.h"
#include "compiler/ir/graph/versions.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/rpc/cache/cache_service.h"
#include "server/rpc/call.h"
#include "server/rpc/chunk_reads.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "Import";
constexpr int64_t kReserveBytes = int64_t{1} << 20;  // reserved at a time, at least

BundleTerms TermsOf(ServerCore& core) {
  BundleTerms terms;
  terms.semantics_version = kSemanticsVersion;
  terms.recipe_format = kRecipeFormat;
  terms.trusted_keys = core.cache_keys().trusted;
  terms.max_bytes = core.options().max_import_bytes;
  // Rejects bundles that are too large to stay in the cache.
  const int64_t limit = core.options().cache_limit;
  const bool lower = limit > 0 && limit < terms.max_bytes;
  if (lower) terms.max_bytes = limit;
  terms.max_bytes_by = lower ? "--cache_limit" : "--max_import_bytes";
  return terms;
}

// Processes chunks on the cache's queue; holds the records until the trailer proves them.
class ImportCall final : public ChunkReads {
 public:
  ImportCall(ServerCore& core, grpc::CallbackServerContext* context, grpc::ByteBuffer* reply)
      : ChunkReads(core, context, core.cache_queue(), "import", kMethod),
        reply_bytes_(reply),
        reader_(TermsOf(core)) {}

  void OnDone() override { delete this; }

 private:
  void Work(bool ok) override {
    if (!ok) {
      End(context_->IsCancelled() ? absl::CancelledError("the import was cancelled") : Keep());
      return;
    }
    absl::Status status = Take();
    status.ok() ? Read() : End(status);
  }

  absl::Status Take() {
    ServerLedger::Reservation held;
    v1::CacheBundleChunk chunk;
    RETURN_IF_ERROR(ParseRequest(core_, bytes_, &chunk, &held));
    RETURN_IF_ERROR(Reserve(static_cast<int64_t>(chunk.ByteSizeLong())));
    return reader_.Take(std::move(chunk));
  }

  // Reserves room for `bytes` more than the records that are held.
  absl::Status Reserve(int64_t bytes) {
    if (reader_.bytes() + bytes <= reserved_bytes_) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto more,
                     core_.ledger().Reserve(HeldKind::kUploads, std::max(bytes, kReserveBytes),
                                            "import of a bundle"));
    reserved_bytes_ += more.bytes();
    reserved_.push_back(std::move(more));
    return absl::OkStatus();
  }

  // Keeps the records once everything has arrived.
  absl::Status Keep() {
    RETURN_IF_ERROR(reader_.Finish());
    ASSIGN_OR_RETURN(v1::ImportCacheReply kept,
                     core_.cache().maintenance().Import(reader_.records(),
                                                        {.semantics_version = kSemanticsVersion,
                                                         .origin = reader_.header().origin(),
                                                         .digest = reader_.digest()}));
    kept.set_signed_by(absl::BytesToHexString(reader_.signed_by()));
    LogAudited(admission_, *context_, "");
    LogInfo("cache imported", {{"request", admission_.request_id()},
                               {"origin", kept.origin()},
                               {"signed_by", kept.signed_by()},
                               {"recipes_added", kept.recipes_added()},
                               {"plans_added", kept.plans_added()},
                               {"kernels_added", kept.kernels_added()}});
    const grpc::Status sent = SerializeReply(kept, reply_bytes_);
    return sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message());
  }

  void End(const absl::Status& status) override {
    FinishUpload(EndCall(kMethod, *context_, status, &admission_));
  }

  grpc::ByteBuffer* const reply_bytes_;
  // Declared before the reader, so destroyed after its records.
  std::vector<ServerLedger::Reservation> reserved_;
  int64_t reserved_bytes_ = 0;
  BundleReader reader_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* CacheService::Import(Context* context, Bytes* reply) {
  auto* call = new ImportCall(core_, context, reply);
  call->Begin();
  return call;
}

}  // namespace athanor
