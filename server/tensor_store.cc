#include "server/tensor_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

// What an empty tensor points to: mmap takes no empty range.
alignas(64) constexpr char kEmpty[64] = {};

std::string PathBelow(const std::string& root, const std::string& hash) {
  const std::string hex = absl::BytesToHexString(hash);
  return absl::StrCat(root, "/", hex.substr(0, 2), "/", hex.substr(2));
}

int64_t RemoveFilesBut(const std::string& root, const absl::flat_hash_set<std::string>& keep) {
  int64_t removed = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root, error)) {
    if (!entry.is_regular_file(error)) continue;
    const std::string hex =
        entry.path().parent_path().filename().string() + entry.path().filename().string();
    if (hex.size() == 2 * kSha256Bytes && keep.contains(absl::HexStringToBytes(hex))) continue;
    removed += fs::remove(entry.path(), error) ? 1 : 0;
  }
  return removed;
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
  absl::StatusOr<int> fd = disk_->Create(path_);
  if (!fd.ok()) return fd.status();
  fd_ = *fd;
  return absl::OkStatus();
}

void TensorWriter::CloseFile() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

absl::Status TensorWriter::Append(absl::string_view data) {
  if (absl::Status s = OpenFile(); !s.ok()) return s;
  if (absl::Status s = disk_->Write(fd_, data, path_); !s.ok()) return s;
  sha256_.Update(data);
  written_ += static_cast<int64_t>(data.size());
  return absl::OkStatus();
}

absl::Status TensorWriter::Verify() {
  if (absl::Status s = OpenFile(); !s.ok()) return s;  // an empty tensor has seen no Append
  CloseFile();
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
  const std::string root = state_dir + "/tensors", blobs = state_dir + "/blobs",
                    temporary = state_dir + "/tmp";
  for (const std::string& path : {root, blobs, temporary}) {
    if (absl::Status s = disk->MakeDirectory(path); !s.ok()) return s;
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(temporary, error)) {
    fs::remove(entry.path(), error);
  }
  if (error) return DiskError(error.value(), "empty", temporary);
  return std::unique_ptr<TensorStore>(new TensorStore(root, blobs, temporary, disk));
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

absl::Status TensorStore::PublishAll(const std::string& root, absl::Span<const Named> files) {
  std::set<std::string> directories;
  bool made = false;
  for (const Named& file : files) {
    const std::string directory = fs::path(file.to).parent_path();
    if (directories.insert(directory).second && !fs::exists(directory)) {
      if (absl::Status s = disk_->MakeDirectory(directory); !s.ok()) return s;
      made = true;
    }
    if (absl::Status s = disk_->Rename(file.from, file.to); !s.ok()) return s;
    *file.published = true;
  }
  for (const std::string& directory : directories) {
    if (absl::Status s = disk_->SyncDirectory(directory); !s.ok()) return s;
  }
  return made ? disk_->SyncDirectory(root) : absl::OkStatus();
}

absl::Status TensorStore::Publish(absl::Span<TensorWriter* const> writers) {
  std::vector<Named> files;
  for (TensorWriter* writer : writers) {
    files.push_back({writer->path_, PathOf(writer->hash_), &writer->published_});
  }
  return PublishAll(root_, files);
}

absl::Status TensorStore::PublishBlobs(absl::Span<SpooledFile* const> spooled) {
  std::vector<Named> files;
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
  const std::string path = range.has_value() ? BlobPathOf(range->blob) : PathOf(hash);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return DiskError(errno, "open", path);
  struct stat info{};
  const int64_t offset = range.has_value() ? range->offset : 0;
  const bool found = fstat(fd, &info) == 0;
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

int64_t TensorStore::RemoveAllBut(const absl::flat_hash_set<std::string>& keep) {
  return RemoveFilesBut(root_, keep);
}

void TensorStore::RemoveBlob(const std::string& hash) { unlink(BlobPathOf(hash).c_str()); }

int64_t TensorStore::RemoveBlobsBut(const absl::flat_hash_set<std::string>& keep) {
  return RemoveFilesBut(blobs_, keep);
}

}  // namespace athanor
