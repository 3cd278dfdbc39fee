#include "server/storage/fsck.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/disk.h"
#include "server/storage/file_stamp.h"
#include "server/storage/registry_db.h"
#include "server/storage/tensor_store.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using Report = absl::FunctionRef<void(const FsckFinding&)>;

constexpr char kRegistry[] = "registry";

struct Files {
  std::vector<std::string> paths;
  int64_t bytes = 0;
};

Files FilesBelow(const std::string& root) {
  Files files;
  std::error_code error;
  const auto end = fs::recursive_directory_iterator();
  for (auto it = fs::recursive_directory_iterator(root, error); !error && it != end;
       it.increment(error)) {
    std::error_code unknown;
    if (!it->is_regular_file(unknown)) continue;
    files.paths.push_back(it->path());
    files.bytes += static_cast<int64_t>(it->file_size(unknown));
  }
  return files;
}

std::string Counted(const Files& files) {
  return absl::StrCat(files.paths.size(), " files, ", files.bytes, " bytes");
}

class Fsck {
 public:
  Fsck(const std::string& state_dir, Report report) : state_dir_(state_dir), report_(report) {}

  void Run() {
    if (ReadRegistry()) {
      for (const VersionRow& row : rows_) CheckVersion(row);
      for (const auto& [hash, tensor] : tensors_) CheckTensor(hash, tensor);
    }
    CheckUnnamed();
    CheckPins();
    ShowAside();
  }

 private:
  using Verdict = FsckFinding::Verdict;
  struct Tensor {
    TensorRow row;
    std::set<std::string> users;  // versions that use it, "model version"
  };

  void Tell(Verdict verdict, std::string kind, std::string name, std::string detail) {
    report_({verdict, std::move(kind), std::move(name), std::move(detail)});
  }

  // Reads the registry. Returns whether it could list the models.
  bool ReadRegistry() {
    const std::string path = state_dir_ + "/registry.db";
    std::error_code error;
    if (!fs::exists(path, error) || fs::is_empty(path, error)) {
      Files weights = FilesBelow(state_dir_ + "/tensors");
      const Files blobs = FilesBelow(state_dir_ + "/blobs");
      weights.bytes += blobs.bytes;
      weights.paths.insert(weights.paths.end(), blobs.paths.begin(), blobs.paths.end());
      if (weights.paths.empty()) {
        Tell(FsckFinding::kOk, kRegistry, path, "missing or empty, as the weights are: no models");
      } else {
        Tell(FsckFinding::kDamaged, kRegistry, path,
             absl::StrCat("missing or empty, but there are weights, ", Counted(weights),
                          ": put a copy of it back; the next start without one puts them aside"));
      }
      return false;
    }
    absl::Status status;
    auto db = RegistryDb::Open(path);
    if (db.ok()) {
      auto rows = (*db)->ReadVersions();
      if (rows.ok()) rows_ = *std::move(rows);
      status = rows.status();
    } else {
      status = db.status();
    }
    if (!status.ok()) {
      Tell(FsckFinding::kDamaged, kRegistry, path, std::string(status.message()));
      return false;
    }
    Tell(FsckFinding::kOk, kRegistry, path, absl::StrCat(rows_.size(), " model versions"));
    return true;
  }

  void CheckVersion(const VersionRow& row) {
    const std::string name = absl::StrCat(row.name, "/", row.version);
    for (const TensorRow& tensor : row.tensors) {
      Tensor& named = tensors_[tensor.hash];
      named.row = tensor;
      named.users.insert(name);
    }
    if (row.damage.empty()) {
      Tell(FsckFinding::kOk, "version", name,
           absl::StrCat(
               row.tensors.size(), " tensors",
               row.files.empty() ? "" : absl::StrCat(", ", row.files.size(), " of them files")));
    } else {
      Tell(FsckFinding::kDamaged, "version", name,
           absl::StrCat(row.damage, "; upload the model again, and delete this version"));
    }
  }

  void CheckTensor(const std::string& hash, const Tensor& tensor) {
    std::optional<TensorStore::Range> range;
    if (!tensor.row.blob.empty()) {
      range = TensorStore::Range{tensor.row.blob, tensor.row.blob_offset};
    }
    const TensorStore::Location location =
        TensorStore::Locate(state_dir_, hash, tensor.row.bytes, range);
    named_.insert(location.path);
    const std::string hex = absl::BytesToHexString(hash);
    const absl::StatusOr<HashedFile> read =
        HashFile(location.path, location.range, [] { return false; });
    if (read.ok() && read->hash == hash) {
      Tell(FsckFinding::kOk, "tensor", hex, absl::StrCat(tensor.row.bytes, " bytes"));
      if (tensor.row.seal.empty() || tensor.row.seal == read->seal) return;
      Tell(FsckFinding::kNote, "seal", hex,
           "it is not that of the tensor's bytes, so clients that have them send them again; a "
           "start with --verify_weights mends it");
      return;
    }
    Tell(FsckFinding::kDamaged, "tensor", hex,
         absl::StrCat(read.ok()
                          ? absl::StrCat(location.path, ", from byte ", location.range.offset,
                                         " on, has SHA-256 ", absl::BytesToHexString(read->hash))
                          : std::string(read.status().message()),
                      "; of ", absl::StrJoin(tensor.users, ", "),
                      ": upload one of them again, which brings its bytes back"));
  }

  void CheckUnnamed() {
    for (const char* folder : {"/tensors", "/blobs"}) {
      for (const std::string& path : FilesBelow(state_dir_ + folder).paths) {
        if (named_.contains(path)) continue;
        Tell(FsckFinding::kNote, "file", path, "no model names it: the next start puts it aside");
      }
    }
  }

  // Checks pin files: each holds the SHA-256 of the rest, then the rest (keeper/pin_files.cc).
  void CheckPins() {
    for (const std::string& path : FilesBelow(state_dir_ + "/plans").paths) {
      std::ifstream file(path, std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      const absl::string_view text = bytes;
      const bool whole = text.size() > kSha256Bytes &&
                         text.substr(0, kSha256Bytes) == Sha256Of(text.substr(kSha256Bytes));
      if (absl::EndsWith(path, ".new")) {
        Tell(FsckFinding::kNote, "pinned plan", path, "left by a pin that was not acknowledged");
      } else if (whole) {
        Tell(FsckFinding::kOk, "pinned plan", path, absl::StrCat(bytes.size(), " bytes"));
      } else {
        Tell(
            FsckFinding::kDamaged, "pinned plan", path,
            "its bytes do not have the SHA-256 that it begins with: the model is served by another "
            "plan; pin it again");
      }
    }
  }

  void ShowAside() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(state_dir_ + "/aside", error)) {
      Tell(FsckFinding::kNote, "aside", entry.path(),
           absl::StrCat(Counted(FilesBelow(entry.path())),
                        " that no model named: a start takes them back where registry.db names "
                        "them again; rm -r to be rid of them"));
    }
    const std::string quarantine = state_dir_ + "/quarantine";
    const Files damaged = FilesBelow(quarantine);
    if (damaged.paths.empty()) return;
    Tell(FsckFinding::kNote, "quarantine", quarantine,
         absl::StrCat(Counted(damaged), " that were damaged; nothing needs them"));
  }

  const std::string& state_dir_;
  const Report report_;
  std::vector<VersionRow> rows_;
  std::map<std::string, Tensor> tensors_;  // by hash
  std::set<std::string> named_;            // paths
};

}  // namespace

absl::string_view VerdictText(FsckFinding::Verdict verdict) {
  constexpr absl::string_view kTexts[] = {"ok", "note", "damaged"};
  return kTexts[verdict];
}

absl::Status CheckStateDirectory(const std::string& state_dir, Report report) {
  std::error_code error;
  if (!fs::is_directory(state_dir, error)) {
    return absl::FailedPreconditionError(absl::StrCat(state_dir, " is not a directory"));
  }
  RETURN_IF_ERROR(DirectoryLock::Take(state_dir).status());
  Fsck(state_dir, report).Run();
  return absl::OkStatus();
}

}  // namespace athanor
