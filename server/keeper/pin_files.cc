#include "server/keeper/pin_files.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNameDigits = 32;  // digits taken from the hash of a model's name

absl::Status CheckFileName(const std::string& plan_id) {
  const bool fits = !plan_id.empty() && plan_id.size() <= 128 &&
                    std::all_of(plan_id.begin(), plan_id.end(),
                                [](char c) { return absl::ascii_isalnum(c) || c == '-'; });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("plan id \"", absl::CHexEscape(plan_id), "\": expected letters, digits and -"));
}

// REQUIRES: CheckFileName(plan_id) is OK.
std::string FileNameOf(const ModelVersion& version, const std::string& plan_id) {
  return absl::StrCat(Sha256Hex(version.name()).substr(0, kNameDigits), "-", version.version(), "-",
                      plan_id);
}

// Returns nullopt if the file cannot be read.
std::optional<std::string> BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  return bytes;
}

}  // namespace

std::string PinFiles::PathOf(const ModelVersion& version, const std::string& plan_id) const {
  return absl::StrCat(folder_, "/", FileNameOf(version, plan_id));
}

// The file holds the SHA-256 of the rest, the key's GateHash and the serialised StoredPlan.
absl::Status PinFiles::Write(const ModelVersion& version, const PlanKey& key,
                             const internal::StoredPlan& stored) {
  const std::string& id = stored.plan().plan_id();
  RETURN_IF_ERROR(CheckFileName(id));
  RETURN_IF_ERROR(disk_.MakeDirectory(folder_));
  const std::string rest = GateHash(key.Fields()) + stored.SerializeAsString();
  return WriteBytes(PathOf(version, id), Sha256Of(rest) + rest);
}

absl::Status PinFiles::WriteBytes(const std::string& path, absl::string_view bytes) {
  const std::string begun = path + ".new";
  unlink(begun.c_str());
  ASSIGN_OR_RETURN(int fd, disk_.Create(begun));
  absl::Cleanup remove = [&] { unlink(begun.c_str()); };
  absl::Status written = disk_.Write(fd, bytes, begun);
  if (written.ok()) written = disk_.Sync(fd, begun);
  close(fd);
  if (!written.ok()) return written;
  RETURN_IF_ERROR(disk_.Rename(begun, path));
  std::move(remove).Cancel();
  RETURN_IF_ERROR(disk_.SyncDirectory(folder_));
  return disk_.SyncDirectory(fs::path(folder_).parent_path());  // the first pin created the folder
}

std::optional<internal::StoredPlan> PinFiles::Read(const ModelVersion& version, const PlanKey& key,
                                                   const std::string& plan_id) const {
  if (!CheckFileName(plan_id).ok()) return std::nullopt;
  const std::string path = PathOf(version, plan_id);
  const std::optional<std::string> bytes = BytesOf(path);
  if (!bytes.has_value()) return std::nullopt;
  const absl::string_view text = *bytes;
  const absl::string_view rest = text.substr(std::min<size_t>(kSha256Bytes, text.size()));
  internal::StoredPlan stored;
  const absl::string_view body = rest.substr(std::min<size_t>(kSha256Bytes, rest.size()));
  const bool whole = Sha256Of(rest) == text.substr(0, kSha256Bytes) &&
                     stored.ParseFromArray(body.data(), static_cast<int>(body.size()));
  if (!whole) {
    LogWarn("a pinned plan's file is damaged", {{"file", path}});
    return std::nullopt;
  }
  if (rest.substr(0, kSha256Bytes) != GateHash(key.Fields())) {
    LogWarn("a pinned plan was made for another machine or server", {{"file", path}});
    return std::nullopt;
  }
  if (stored.plan().plan_id() != plan_id) {
    LogWarn("a pinned plan's file holds another plan",
            {{"file", path}, {"plan", stored.plan().plan_id()}});
    return std::nullopt;
  }
  return stored;
}

void PinFiles::Remove(const ModelVersion& version, const std::string& plan_id) {
  if (CheckFileName(plan_id).ok()) unlink(PathOf(version, plan_id).c_str());
}

bool PinFiles::Adopt(const ModelVersion& version, const std::string& plan_id) {
  const std::string path = PathOf(version, plan_id);
  std::error_code error;
  if (fs::exists(path, error)) return true;
  // Copies the file for each version: which of them it was made for is only known once the key is,
  // which needs the machine's compiler.
  const std::optional<std::string> bytes = BytesOf(absl::StrCat(folder_, "/", plan_id));
  if (!bytes.has_value()) return true;
  const absl::Status written = WriteBytes(path, *bytes);
  if (written.ok()) return true;
  LogWarn("a pinned plan's file keeps its old name: its plan is not found",
          {{"model", version.name()},
           {"version", version.version()},
           {"plan", plan_id},
           {"error", written.message()}});
  return false;
}

void PinFiles::Take(absl::Span<const std::shared_ptr<ModelVersion>> versions) {
  std::set<std::string> wanted;
  for (const std::shared_ptr<ModelVersion>& version : versions) {
    std::vector<std::string> pinned = version->plans().pinned_boxes();
    pinned.push_back(version->pinned_plan());
    for (const std::string& plan_id : pinned) {
      if (!CheckFileName(plan_id).ok()) continue;  // no valid id: not pinned
      wanted.insert(FileNameOf(*version, plan_id));
      if (!Adopt(*version, plan_id)) wanted.insert(plan_id);  // the next start tries again
    }
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (!wanted.contains(entry.path().filename().string())) fs::remove(entry.path(), error);
  }
}

}  // namespace athanor
