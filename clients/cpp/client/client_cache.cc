// The calls of CacheService.
#include <optional>
#include <utility>

#include "clients/cpp/client/client.h"
#include "clients/cpp/client/client_call.h"

namespace athanor::client {

using Stub = v1::CacheService::Stub;

CacheCalls Client::cache() { return CacheCalls(services_.get()); }

absl::StatusOr<v1::CacheStat> CacheCalls::Stat(const CallOptions& options) {
  return Call(services_.cache.get(), &Stub::Stat, v1::CacheStatRequest(), options, /*retry=*/true);
}

absl::StatusOr<v1::CacheExplanation> CacheCalls::Explain(const v1::ExplainCacheRequest& request,
                                                         const CallOptions& options) {
  return Call(services_.cache.get(), &Stub::Explain, request, options, /*retry=*/true);
}

absl::StatusOr<v1::CacheVerification> CacheCalls::Verify(const v1::VerifyCacheRequest& request,
                                                         const CallOptions& options) {
  return Call(services_.cache.get(), &Stub::Verify, request, options,
              /*retry=*/!request.quarantine());
}

absl::StatusOr<v1::CollectGarbageReply> CacheCalls::CollectGarbage(
    const v1::CollectGarbageRequest& request, const CallOptions& options) {
  return Call(services_.cache.get(), &Stub::CollectGarbage, request, options,
              /*retry=*/request.dry_run());
}

absl::Status CacheCalls::Export(const v1::ExportCacheRequest& request,
                                absl::FunctionRef<absl::Status(const v1::CacheBundleChunk&)> take,
                                const CallOptions& options) {
  CallScope scope(options);
  auto reader = services_.cache->Export(scope.context(), request);
  v1::CacheBundleChunk chunk;
  absl::Status taken;
  while (taken.ok() && reader->Read(&chunk)) taken = take(chunk);
  if (!taken.ok()) scope.context()->TryCancel();
  const grpc::Status status = reader->Finish();
  return taken.ok() ? ToStatus(status, *scope.context()) : taken;
}

absl::StatusOr<v1::ImportCacheReply> CacheCalls::Import(
    absl::FunctionRef<absl::StatusOr<std::optional<v1::CacheBundleChunk>>()> next,
    const CallOptions& options) {
  CallScope scope(options);
  v1::ImportCacheReply reply;
  auto writer = services_.cache->Import(scope.context(), &reply);
  absl::Status given;
  for (;;) {
    absl::StatusOr<std::optional<v1::CacheBundleChunk>> chunk = next();
    given = chunk.status();
    // A failed write means that the server stopped reading; Finish returns the reason.
    if (!given.ok() || !chunk->has_value() || !writer->Write(**chunk)) break;
  }
  if (given.ok()) {
    writer->WritesDone();
  } else {
    scope.context()->TryCancel();
  }
  const grpc::Status status = writer->Finish();
  if (!given.ok()) return given;
  if (!status.ok()) return ToStatus(status, *scope.context());
  return reply;
}

}  // namespace athanor::client
