#include "deploy/bazel/libs/cuda_folders.h"

#include <glob.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace athanor {
namespace {

// Toolkits, and Python packages of the system's own interpreter.
constexpr const char* kPlaces[] = {"/usr/local/cuda*/lib64",
                                   "/usr/local/cuda*/targets/x86_64-linux/lib",
                                   "/usr/local/lib/python3*/*-packages/nvidia/cu13/lib",
                                   "/opt/*/lib/python3*/site-packages/nvidia/cu13/lib",
                                   "/opt/*/.venv/lib/python3*/site-packages/nvidia/cu13/lib"};
// Below the prefix of an interpreter.
constexpr char kInPrefix[] = "lib/python3*/*-packages/nvidia/cu13/lib";

// Returns the prefixes of the interpreters python3 in PATH, and of those that they are links to: an
// environment's python3 is a link to the one that it was made from.
std::vector<std::filesystem::path> PythonPrefixes() {
  const char* const path = std::getenv("PATH");
  std::vector<std::filesystem::path> prefixes;
  for (absl::string_view folder : absl::StrSplit(path ? path : "", ':', absl::SkipEmpty())) {
    std::filesystem::path python = std::filesystem::path(std::string(folder)) / "python3";
    std::error_code error;
    constexpr int kMostLinks = 8;
    for (int i = 0; i < kMostLinks && std::filesystem::exists(python, error); ++i) {
      prefixes.push_back(python.parent_path().parent_path());
      const std::filesystem::path to = std::filesystem::read_symlink(python, error);
      if (error) break;
      python = python.parent_path() / to;  // `to` alone if it is absolute
    }
  }
  return prefixes;
}

}  // namespace

std::vector<std::string> FilesLike(const std::string& pattern) {
  glob_t matches = {};
  absl::Cleanup release = [&] { globfree(&matches); };
  if (glob(pattern.c_str(), 0, nullptr, &matches) != 0) return {};
  return {matches.gl_pathv, matches.gl_pathv + matches.gl_pathc};
}

std::vector<std::string> CudaFolders(const std::string& folder, const char* variable) {
  if (!folder.empty()) return {folder};
  if (const char* named = std::getenv(variable); named && *named) return {named};
  std::vector<std::string> places = {""};
  for (const char* pattern : kPlaces) {
    for (std::string& place : FilesLike(pattern)) places.push_back(std::move(place));
  }
  for (const std::filesystem::path& prefix : PythonPrefixes()) {
    for (std::string& place : FilesLike(prefix / kInPrefix)) places.push_back(std::move(place));
  }
  return places;
}

}  // namespace athanor
