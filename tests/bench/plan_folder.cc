#include "tests/bench/plan_folder.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

std::string ObjectPath(const std::string& folder, const v1::Kernel& kernel) {
  return absl::StrCat(folder, "/", kernel.source_hash(), ".so");
}

absl::Status Write(const std::string& path, absl::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path, " cannot be written"));
  return absl::OkStatus();
}

std::optional<std::string> Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

absl::Status WritePlan(const std::string& folder, const v1::Plan& plan,
                       absl::Span<const std::string> objects) {
  if (static_cast<int>(objects.size()) != plan.kernels_size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan ", plan.plan_id(), ": ", objects.size(),
                                                   " objects for ", plan.kernels_size(),
                                                   " kernels; there must be one each"));
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  for (int i = 0; i < plan.kernels_size(); ++i) {
    if (absl::Status s = Write(ObjectPath(folder, plan.kernels(i)), objects[i]); !s.ok()) return s;
  }
  return Write(absl::StrCat(folder, "/plan.pb"), plan.SerializeAsString());
}

absl::StatusOr<SavedPlan> ReadPlan(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/plan.pb");
  const std::optional<std::string> bytes = Read(path);
  if (!bytes) return absl::NotFoundError(absl::StrCat(path, " is not there"));
  SavedPlan saved;
  if (!saved.plan.ParseFromString(*bytes) || saved.plan.plan_id().empty()) {
    return absl::DataLossError(absl::StrCat(path, " is no serialised athanor.v1.Plan"));
  }
  for (const v1::Kernel& k : saved.plan.kernels()) {
    saved.objects.push_back(Read(ObjectPath(folder, k)).value_or(""));
  }
  return saved;
}

}  // namespace athanor
