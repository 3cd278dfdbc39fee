#include <chrono>
#include <optional>

#include "server/rpc/call.h"
#include "server/rpc/compile_service.h"
#include "server/upload.h"

namespace athanor {
namespace {

absl::Status Start(ServerCore& core, const v1::StartCompileRequest& asked, v1::CompileJob* answer) {
  auto version = core.registry().Find(asked.model(), asked.version());
  if (!version.ok()) return version.status();
  if (absl::Status s = CheckSearchBudget("search_budget", asked.search_budget()); !s.ok()) return s;
  absl::Status buckets = CheckBuckets("buckets", asked.buckets(), (*version)->graph());
  if (!buckets.ok()) return buckets;
  std::optional<std::chrono::milliseconds> budget;
  if (!asked.search_budget().empty()) {
    budget = std::chrono::milliseconds(ParseDuration(asked.search_budget()).value());
  }
  auto job = core.workers().Start(*version, budget);
  if (!job.ok()) return job.status();
  *answer = (*job)->state();
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* CompileService::StartCompile(Context* context, const Bytes* request,
                                                       Bytes* reply) {
  return AnswerUnary<v1::StartCompileRequest, v1::CompileJob>(
      core_, {.name = "StartCompile"}, context, request, reply,
      [this](const v1::StartCompileRequest& asked, v1::CompileJob* answer) {
        return Start(core_, asked, answer);
      });
}

}  // namespace athanor
