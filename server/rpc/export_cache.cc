#include <unistd.h>

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/cache/bundle.h"
#include "compiler/ir/versions.h"
#include "server/log.h"
#include "server/rpc/cache_service.h"
#include "server/rpc/call.h"
#include "server/version.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "Export";

// For people: whose bundle it is.
std::string OriginHere() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat("athanord ", kVersion, " on ", host);
}

// What cannot be exported as asked.
absl::Status CheckAsked(const v1::ExportCacheRequest& asked, const CacheKeys& keys) {
  if (!asked.model().empty() || !asked.version().empty()) {
    return absl::UnimplementedError(
        "model: the cache does not know yet which recipes are a model's; without one all are "
        "exported");
  }
  if (asked.binaries() && !keys.signing) {
    return absl::FailedPreconditionError(
        "binaries: they leave a server only signed, and this one has no key to sign with "
        "(--cache_signing_key)");
  }
  return absl::OkStatus();
}

// Writes one chunk after the other. At any time a piece of work or a write is outstanding, and only
// its end goes on: nothing here needs a lock.
class ExportCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  ExportCall(ServerCore& core, grpc::CallbackServerContext* context)
      : slot_(core), core_(core), context_(context) {}

  void Begin(const grpc::ByteBuffer& bytes) {
    v1::ExportCacheRequest request;
    absl::Status status = slot_.status();
    if (status.ok()) status = ParseRequest(bytes, &request);
    if (status.ok()) status = CheckAsked(request, core_.cache_keys());
    if (status.ok()) status = MakeWriter(request.binaries());
    if (!status.ok()) {
      Finish(EndCall(kMethod, *context_, status));
      return;
    }
    at_.semantics_version = kSemanticsVersion;
    at_.recipe_format = kRecipeFormat;
    at_.kernels = request.binaries();
    // The header goes once it is known that there is a cache.
    core_.cache_queue().Submit([this] { ReadPage(); });
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(EndCall(kMethod, *context_, absl::CancelledError("the caller went away")));
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
    absl::StatusOr<BundleWriter> writer =
        BundleWriter::Create(std::move(header), core_.cache_keys().signing);
    if (!writer.ok()) return writer.status();
    writer_.emplace(*std::move(writer));
    return absl::OkStatus();
  }

  void ReadPage() {
    absl::StatusOr<std::vector<v1::CacheBundleRecord>> page = core_.cache().Export(&at_);
    if (!page.ok()) {
      Finish(EndCall(kMethod, *context_, page.status()));
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
    if (!record.has_kernel()) {
      ++recipes_;
      return Write(writer_->Record(std::move(*record.mutable_recipe())));
    }
    ++kernels_;
    absl::StatusOr<v1::CacheBundleChunk> chunk =
        writer_->Record(std::move(*record.mutable_kernel()));
    if (!chunk.ok()) {
      Finish(EndCall(kMethod, *context_, chunk.status()));
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
      Finish(EndCall(kMethod, *context_, status));
      return;
    }
    LogInfo("cache exported", {{"request", RequestId(*context_)},
                               {"recipes", recipes_},
                               {"kernels", kernels_},
                               {"signed", core_.cache_keys().signing.has_value()}});
    StartWriteAndFinish(&bytes_, grpc::WriteOptions(), grpc::Status::OK);
  }

  CallSlot slot_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  std::optional<BundleWriter> writer_;
  ExportCursor at_;
  std::deque<v1::CacheBundleRecord> page_;
  bool begun_ = false;
  int64_t recipes_ = 0;
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
