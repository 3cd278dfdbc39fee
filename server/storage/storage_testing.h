// Helpers for tests that change the files of a state directory or the disk under it.
#ifndef ATHANOR_SERVER_STORAGE_STORAGE_TESTING_H_
#define ATHANOR_SERVER_STORAGE_STORAGE_TESTING_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/disk.h"
#include "server/storage/file_stamp.h"
#include "server/storage/tensor_store.h"

namespace athanor {

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Also creates the parent directories.
inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::vector<std::string> FilesBelow(const std::string& root) {
  std::vector<std::string> files;
  if (!std::filesystem::exists(root)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  return files;
}

// Returns the path of a tensor with a file of its own.
inline std::string TensorPath(const std::string& state_dir, const std::string& hash) {
  return TensorStore::Locate(state_dir, hash, 0, std::nullopt).path;
}

// Changes the byte at `offset` in place. Returns once the clock of file stamps has advanced.
inline void DamageFile(const std::string& path, int64_t offset = 3) {
  const FileStamp before = StampOf(path).value();
  const char changed = static_cast<char>(ReadFile(path)[static_cast<size_t>(offset)] ^ 0x40);
  do {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset);
    file.put(changed);
  } while (StampOf(path).value() == before);
}

// Calls `before` once, when the next file is about to be renamed; its error is returned as the
// disk's.
class PausedDisk final : public Disk {
 public:
  std::function<absl::Status()> before;
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (auto once = std::exchange(before, nullptr)) {
      RETURN_IF_ERROR(once());
    }
    return Disk::Rename(from, to);
  }
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_STORAGE_TESTING_H_
