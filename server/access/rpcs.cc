#include "server/access/rpcs.h"

#include "absl/container/flat_hash_map.h"

namespace athanor {
namespace {

constexpr absl::string_view kInference = "inference.GRPCInferenceService";
constexpr absl::string_view kModels = "athanor.v1.ModelService";
constexpr absl::string_view kCompile = "athanor.v1.CompileService";
constexpr absl::string_view kGenerate = "athanor.v1.GenerateService";
constexpr absl::string_view kCache = "athanor.v1.CacheService";
constexpr absl::string_view kHealth = "grpc.health.v1.Health";

constexpr Roles kPublic;
constexpr Roles kInfers = {Role::kInfer};
constexpr Roles kUploads = {Role::kUpload};
constexpr Roles kReads = {Role::kInfer, Role::kUpload};
constexpr Roles kWatches = {Role::kInfer, Role::kUpload, Role::kMonitor};
constexpr Roles kMonitors = {Role::kMonitor};
constexpr Roles kAdmins = {Role::kAdmin};
constexpr bool kAudited = true;

constexpr RpcRow kRows[] = {
    {kInference, "ServerLive", kPublic, ""},
    {kInference, "ServerReady", kPublic, ""},
    {kInference, "ServerMetadata", kPublic, ""},
    {kInference, "ModelReady", kReads, "name"},
    {kInference, "ModelMetadata", kReads, "name"},
    {kInference, "ModelInfer", kInfers, "model_name"},
    {kInference, "ModelStreamInfer", kInfers, "model_name"},
    {kInference, "ModelConfig", kReads, "name"},
    // Without a name: of the models that the caller may use.
    {kInference, "ModelStatistics", kReads, ""},
    {kInference, "RepositoryIndex", kReads, ""},
    {kInference, "RepositoryModelLoad", kUploads, "model_name", kAudited},
    {kInference, "RepositoryModelUnload", kUploads, "model_name", kAudited},
    {kInference, "SystemSharedMemoryStatus", kInfers, ""},
    {kInference, "SystemSharedMemoryRegister", kInfers, "", kAudited},
    {kInference, "SystemSharedMemoryUnregister", kInfers, ""},
    {kInference, "CudaSharedMemoryStatus", kInfers, ""},
    {kInference, "CudaSharedMemoryRegister", kInfers, ""},
    {kInference, "CudaSharedMemoryUnregister", kInfers, ""},
    {kInference, "TraceSetting", kAdmins, ""},
    {kInference, "LogSettings", kAdmins, ""},
    {kModels, "MissingTensors", kUploads, ""},
    {kModels, "UploadModel", kUploads, "", kAudited},
    {kModels, "GetModel", kReads, "name"},
    {kModels, "GetPlan", kReads, "name"},
    {kModels, "GetEGraph", kReads, "name"},
    {kModels, "ListModels", kReads, ""},
    {kModels, "DeleteModel", kUploads, "name", kAudited},
    {kModels, "PinPlan", kUploads, "name", kAudited},
    {kModels, "Rollback", kUploads, "name", kAudited},
    {kModels, "ListDevices", kWatches, ""},
    {kCompile, "StartCompile", kUploads, "model", kAudited},
    {kCompile, "GetCompileJob", kReads, ""},
    {kCompile, "ListCompileJobs", kReads, ""},
    {kCompile, "CancelCompileJob", kUploads, "", kAudited},
    {kCompile, "WatchCompileJob", kReads, ""},
    {kGenerate, "Generate", kInfers, "model"},
    {kGenerate, "Tokenize", kInfers, "model"},
    {kGenerate, "Detokenize", kInfers, "model"},
    {kGenerate, "RenderChat", kInfers, "model"},
    {kGenerate, "GetEngine", kReads, "model"},
    // Tells of the models that others compile.
    {kCache, "Stat", kMonitors, ""},
    {kCache, "Explain", kUploads, "model"},
    {kCache, "Verify", kAdmins, "", kAudited},
    {kCache, "CollectGarbage", kAdmins, "", kAudited},
    {kCache, "Export", kAdmins, "", kAudited},
    {kCache, "Import", kAdmins, "", kAudited},
    // Tell of the whole server; of a model only to those who may use it.
    {kHealth, "Check", kPublic, ""},
    {kHealth, "Watch", kPublic, ""},
    // gRPC's own: tells the protos, which are public.
    {"grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", kPublic, ""},
};

}  // namespace

absl::Span<const RpcRow> RpcTable() { return kRows; }

const RpcRow& RpcNamed(absl::string_view method) {
  static const auto* const kByMethod = [] {
    auto* rows = new absl::flat_hash_map<absl::string_view, const RpcRow*>();
    for (const RpcRow& row : kRows) rows->emplace(row.method, &row);
    return rows;
  }();
  static constexpr RpcRow kUnknown = {"", "", kAdmins, "", kAudited};
  const auto found = kByMethod->find(method);
  return found == kByMethod->end() ? kUnknown : *found->second;
}

}  // namespace athanor
