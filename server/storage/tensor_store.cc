#include "server/storage/tensor_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

// Data of an empty tensor: mmap accepts no empty range.
alignas(64) constexpr char kEmpty[64] = {};

std::string PathBelow(const std::string& root, const std::string& hash) {
  const std::string hex = absl::BytesToHexString(hash);
  // A damaged row may hold an empty hash.
  return absl::StrCat(root, "/", hex.substr(0, 2), "/",
                      hex.substr(std::min<size_t>(2, hex.size())));
}

// Returns the files under `root` whose names are hex, with the bytes that the names encode.
std::vector<std::pair<std::string, std::string>> FilesBelow(const std::string& root) {
  std::vector<std::pair<std::string, std::string>> files;
  std::error_code error;
  const auto end = fs::recursive_directory_iterator();
  for (auto it = fs::recursive_directory_iterator(root, error); !error && it != end;
       it.increment(error)) {
    const fs::directory_entry& entry = *it;
    std::error_code unknown;
    if (!entry.is_regular_file(unknown)) continue;
    const std::string hex =
        entry.path().parent_path().filename().string() + entry.path().filename().string();
    const bool named = hex.size() == 2 * kSha256Bytes &&
                       hex.find_first_not_of("0123456789abcdef") == std::string::npos;
    files.emplace_back(entry.path(), named ? absl::HexStringToBytes(hex) : "");
  }
  return files;
}

// Returns a name not yet in use: "PREFIX20261122T104500Z", "PREFIX20261122T104500Z-1", ...
std::string NewName(const std::string& prefix) {
  const std::string name =
      absl::StrCat(prefix, absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()));
  std::string chosen = name;
  std::error_code error;
  for (int i = 1; fs::exists(chosen, error); ++i) chosen = absl::StrCat(name, "-", i);
  return chosen;
}

}  // namespace

MappedTensor::~MappedTensor() {
  if (bytes_ > 0) munmap(const_cast<void*>(map_), skip_ + bytes_);
}

TensorWriter::TensorWriter(Disk* disk, std::string path, std::string hash, int64_t bytes)
    : disk_(disk), path_(std::move(path)), hash_(std::move(hash)), bytes_(bytes) {}

TensorWriter::~TensorWriter() {
  CloseFile();
  if (!published_) unlink(path_.c_str());
}

absl::Status TensorWriter::OpenFile() {
  if (fd_ >= 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(fd_, disk_->Create(path_));
  return absl::OkStatus();
}

void TensorWriter::CloseFile() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

absl::Status TensorWriter::Append(absl::string_view data) {
  RETURN_IF_ERROR(OpenFile());
  RETURN_IF_ERROR(disk_->Write(fd_, data, path_));
  sha256_.Update(data);
  written_ += static_cast<int64_t>(data.size());
  return absl::OkStatus();
}

absl::Status TensorWriter::Verify() {
  RETURN_IF_ERROR(OpenFile());  // no Append was called for an empty tensor
  CloseFile();
  seal_ = sha256_.With(kSealSuffix);
  const std::string found = sha256_.Finish();
  if (found != hash_) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", absl::BytesToHexString(hash_),
                                                   ": the bytes received have SHA-256 ",
                                                   absl::BytesToHexString(found)));
  }
  return absl::OkStatus();
}

absl::Status TensorWriter::Sync() {
  const int fd = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return DiskError(errno, "open", path_);
  absl::Status status = disk_->Sync(fd, path_);
  close(fd);
  return status;
}

absl::StatusOr<std::unique_ptr<TensorStore>> TensorStore::Open(const std::string& state_dir,
                                                               Disk* disk) {
  std::unique_ptr<TensorStore> store(new TensorStore(state_dir, disk));
  for (const std::string& path : {store->root_, store->blobs_, store->temporary_}) {
    RETURN_IF_ERROR(disk->MakeDirectory(path));
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(store->temporary_, error)) {
    fs::remove_all(entry.path(), error);
    if (error) return DiskError(error.value(), "remove", entry.path().string());
  }
  if (error) return DiskError(error.value(), "empty", store->temporary_);
  return store;
}

std::string TensorStore::PathOf(const std::string& hash) const { return PathBelow(root_, hash); }

std::string TensorStore::BlobPathOf(const std::string& hash) const {
  return PathBelow(blobs_, hash);
}

std::string TensorStore::NewTemporary() {
  MutexLock lock(mu_);
  return absl::StrCat(temporary_, "/", next_temporary_++);
}

std::unique_ptr<TensorWriter> TensorStore::Begin(const std::string& hash, int64_t bytes) {
  return std::unique_ptr<TensorWriter>(new TensorWriter(disk_, NewTemporary(), hash, bytes));
}

std::unique_ptr<SpooledFile> TensorStore::BeginSpool(int64_t bytes) {
  return std::unique_ptr<SpooledFile>(new SpooledFile(disk_, NewTemporary(), bytes));
}

absl::Status TensorStore::PublishAll(const std::string& root, absl::Span<const Publishing> files) {
  std::set<std::string> directories;
  bool made = false;
  for (const Publishing& file : files) {
    const std::string directory = fs::path(file.to).parent_path();
    if (directories.insert(directory).second && !fs::exists(directory)) {
      RETURN_IF_ERROR(disk_->MakeDirectory(directory));
      made = true;
    }
    RETURN_IF_ERROR(disk_->Rename(file.from, file.to));
    *file.published = true;
  }
  for (const std::string& directory : directories) {
    RETURN_IF_ERROR(disk_->SyncDirectory(directory));
  }
  return made ? disk_->SyncDirectory(root) : absl::OkStatus();
}

absl::Status TensorStore::Publish(absl::Span<TensorWriter* const> writers) {
  std::vector<Publishing> files;
  for (TensorWriter* writer : writers) {
    files.push_back({writer->path_, PathOf(writer->hash_), &writer->published_});
  }
  return PublishAll(root_, files);
}

absl::Status TensorStore::PublishBlobs(absl::Span<SpooledFile* const> spooled) {
  std::vector<Publishing> files;
  for (SpooledFile* file : spooled) {
    files.push_back({file->path_, BlobPathOf(file->name_), &file->published_});
  }
  return PublishAll(blobs_, files);
}

absl::StatusOr<std::shared_ptr<const MappedTensor>> TensorStore::Map(
    const std::string& hash, int64_t bytes, const std::optional<Range>& range) {
  MutexLock lock(mu_);
  std::weak_ptr<const MappedTensor>& slot = mapped_[hash];
  if (std::shared_ptr<const MappedTensor> mapped = slot.lock()) return mapped;
  const Location location = Locate(hash, bytes, range);
  const std::string& path = location.path;
  const int64_t offset = location.range.offset;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return DiskError(errno, "open", path);
  struct stat info{};
  const bool found = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!found || (range.has_value() ? info.st_size - offset < bytes : info.st_size != bytes)) {
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has ", info.st_size, " bytes, the tensor has ", bytes,
                     offset > 0 ? absl::StrCat(" behind the first ", offset) : ""));
  }
  const int64_t skip = bytes > 0 ? offset % sysconf(_SC_PAGESIZE) : 0;
  void* map = const_cast<char*>(kEmpty);
  if (bytes > 0) map = mmap(nullptr, skip + bytes, PROT_READ, MAP_PRIVATE, fd, offset - skip);
  const int error = errno;
  close(fd);
  if (map == MAP_FAILED) return DiskError(error, "map", path);
  auto mapped = std::make_shared<const MappedTensor>(map, bytes, hash, skip);
  slot = mapped;
  return mapped;
}

void TensorStore::Remove(const std::string& hash) {
  unlink(PathOf(hash).c_str());
  MutexLock lock(mu_);
  mapped_.erase(hash);
}

TensorStore::Location TensorStore::Locate(const std::string& state_dir, const std::string& hash,
                                          int64_t bytes, const std::optional<Range>& range) {
  if (!range.has_value()) return {PathBelow(state_dir + "/tensors", hash), {0, bytes, true}};
  return {PathBelow(state_dir + "/blobs", range->blob), {range->offset, bytes, false}};
}

absl::StatusOr<std::string> TensorStore::Quarantine(const Location& location) {
  const fs::path path(location.path);
  RETURN_IF_ERROR(disk_->MakeDirectory(quarantine_));
  const std::string to = NewName(absl::StrCat(
      quarantine_, "/", path.parent_path().filename().string(), path.filename().string(), "-"));
  if (location.range.whole) {
    RETURN_IF_ERROR(disk_->Rename(location.path, to));
  } else if (link(location.path.c_str(), to.c_str()) != 0) {
    return DiskError(errno, "link to", to);
  }
  return to;
}

void TensorStore::Forget(const std::string& hash) {
  MutexLock lock(mu_);
  mapped_.erase(hash);
}

void TensorStore::RemoveBlob(const std::string& hash) { unlink(BlobPathOf(hash).c_str()); }

absl::Status TensorStore::Move(const std::string& from, const std::string& root,
                               const std::string& folder) {
  const std::string to = folder + from.substr(root.size());
  RETURN_IF_ERROR(disk_->MakeDirectory(fs::path(to).parent_path()));
  return disk_->Rename(from, to);
}

TensorStore::Aside TensorStore::PutAside(const Named& named) {
  Aside aside;
  const std::string folder = NewName(aside_ + "/");
  const auto move = [&](const std::string& root, const char* name,
                        const absl::flat_hash_set<std::string>& keep) {
    for (const auto& [path, hash] : FilesBelow(root)) {
      if (keep.contains(hash)) continue;
      std::error_code error;
      const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
      aside.status.Update(Move(path, root, absl::StrCat(folder, "/", name)));
      if (!aside.status.ok()) return;
      aside.folder = folder;
      ++aside.files;
      aside.bytes += bytes;
    }
  };
  move(root_, "tensors", named.tensors);
  move(blobs_, "blobs", named.blobs);
  return aside;
}

int64_t TensorStore::TakeBack(const Named& named) {
  int64_t taken = 0;
  std::error_code error;
  for (const auto& [path, hash] : FilesBelow(aside_)) {
    if (hash.empty()) continue;
    const bool blob = fs::path(path).parent_path().parent_path().filename() == "blobs";
    const std::string place = blob ? BlobPathOf(hash) : PathOf(hash);
    if (!(blob ? named.blobs : named.tensors).contains(hash) || fs::exists(place, error)) continue;
    const std::string& root = blob ? blobs_ : root_;
    const absl::Status moved =
        Move(path, path.substr(0, path.size() - (place.size() - root.size())), root);
    if (moved.ok()) ++taken;
  }
  return taken;
}

}  // namespace athanor
