#include "server/rpc/call.h"

#include <atomic>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "server/base/log.h"

namespace athanor {
namespace {

constexpr char kRequestIdKey[] = "x-request-id";
constexpr size_t kMaxRequestId = 128;
constexpr int kStatusCodes = 17;

std::string NewRequestId() {
  static const uint32_t process = std::random_device()();
  static std::atomic<uint64_t> last{0};
  return absl::StrFormat("r-%08x-%d", process, ++last);
}

}  // namespace

std::string RequestId(const grpc::CallbackServerContext& context) {
  auto it = context.client_metadata().find(kRequestIdKey);
  if (it == context.client_metadata().end()) return NewRequestId();
  const std::string id(it->second.data(), it->second.size());
  for (unsigned char c : id) {
    if (!absl::ascii_isgraph(c)) return NewRequestId();
  }
  return id.empty() || id.size() > kMaxRequestId ? NewRequestId() : id;
}

grpc::Status SerializeReply(const google::protobuf::Message& message, grpc::ByteBuffer* bytes) {
  bytes->Clear();  // a stream passes the same buffer again
  bool own = false;
  return grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, bytes,
                                                                                    &own);
}

grpc::Status EndCall(absl::string_view method, grpc::CallbackServerContext& context,
                     const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string id = RequestId(context);
  context.AddTrailingMetadata(kRequestIdKey, id);
  const grpc::Status sent = ToGrpc(status);
  // Uses one limit per code, so that refusals in an overload hide no other failures.
  static LogLimit limits[kStatusCodes];
  const auto held_back = limits[static_cast<int>(status.code()) % kStatusCodes].Pass();
  if (!held_back.has_value()) return sent;
  LogInfo("call failed", {{"request", id},
                          {"method", method},
                          {"peer", context.peer()},
                          {"code", absl::StatusCodeToString(status.code())},
                          {"error", sent.error_message()},
                          {"held_back", *held_back}});
  return sent;
}

void UnaryCall::Begin(const grpc::ByteBuffer& bytes, absl::AnyInvocable<absl::Status()> answer) {
  absl::Status admitted = traits_.while_draining ? absl::OkStatus() : slot_.status();
  if (!admitted.ok()) {
    Finish(EndCall(traits_.name, *context_, admitted));
    return;
  }
  auto work = [this, answer = std::move(answer)]() mutable {
    const absl::Status status = answer();
    // The context may be gone as soon as Finish is called, so the answer's captures must not need
    // it.
    Finish(EndCall(traits_.name, *context_, status));
  };
  if (traits_.uses_disk) {
    core_.disk_queue().Submit(std::move(work));
  } else if (traits_.uses_cache) {
    core_.cache_queue().Submit(std::move(work));
  } else if (traits_.queue != nullptr) {
    traits_.queue->Submit(std::move(work));
  } else if (InflatesLong(bytes)) {
    core_.inflate_queue().Submit(std::move(work));
  } else {
    work();
  }
}

}  // namespace athanor
