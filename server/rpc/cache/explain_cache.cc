#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/plans/bucket_grid.h"
#include "server/rpc/cache/cache_service.h"
#include "server/rpc/call.h"

namespace athanor {
namespace {

using Ranges = google::protobuf::RepeatedPtrField<v1::DimRange>;

std::string TextOf(const Ranges& ranges) {
  return absl::StrJoin(ranges, " ", [](std::string* out, const v1::DimRange& range) {
    absl::StrAppend(out, range.name(), "=", range.min(), "..", range.max());
  });
}

Ranges RangesOf(const BucketGrid& grid, int bucket) {
  const std::vector<v1::DimRange> ranges = grid.ToProto(bucket);
  return Ranges(ranges.begin(), ranges.end());
}

absl::Status ExplainBuckets(ServerCore& core, const v1::ExplainCacheRequest& asked,
                            v1::CacheExplanation* answer) {
  ASSIGN_OR_RETURN(auto found, core.registry().versions().Find(asked.model(), asked.version()));
  const ModelVersion& version = *found;
  RETURN_IF_ERROR(CheckMachineKnown(core, version));
  const v1::SearchOptions how = core.workers().policies().Of(version).ToProto();
  const std::shared_ptr<const BucketGrid> grid = version.plans().grid();
  std::vector<std::string> there;
  for (int i = 0; i < grid->size(); ++i) {
    const Ranges ranges = RangesOf(*grid, i);
    there.push_back(TextOf(ranges));
    if (!asked.bucket().empty() && TextOf(asked.bucket()) != there.back()) continue;
    const PlanKey key =
        i == BucketGrid::kFullRange
            ? core.keeper().KeyOf(version, version.graph(), how)
            : core.keeper().KeyOf(version, NarrowedTo(version.graph(), grid->box(i)), how);
    v1::BucketExplanation& bucket = *answer->add_buckets();
    bucket = core.cache().Explain(key);
    *bucket.mutable_bucket() = ranges;
  }
  if (!answer->buckets().empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("bucket: ", version.Describe(), " has no bucket ",
                                          TextOf(asked.bucket()), "; it has ",
                                          absl::StrJoin(there, ", ")));
}

}  // namespace

absl::Status CheckMachineKnown(ServerCore& core, const ModelVersion& version) {
  if (core.keeper().ready(version)) return absl::OkStatus();
  const absl::Status device = core.backends().loss(version.device());
  if (!device.ok()) {
    return absl::Status(device.code(), absl::StrCat(version.Describe(), ": ", device.message()));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(version.Describe(),
                   ": no plan was looked up since the server started: the machine it would be for "
                   "is not known yet"));
}

grpc::ServerUnaryReactor* CacheService::Explain(Context* context, const Bytes* request,
                                                Bytes* reply) {
  return AnswerUnary<v1::ExplainCacheRequest, v1::CacheExplanation>(
      core_, {.name = "Explain", .uses_cache = true}, context, request, reply,
      [this](const v1::ExplainCacheRequest& asked, v1::CacheExplanation* answer) {
        return ExplainBuckets(core_, asked, answer);
      });
}

}  // namespace athanor
