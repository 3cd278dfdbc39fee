// An empty folder for one test.
#ifndef ATHANOR_COMPILER_CACHE_SQLITE_FRESH_FOLDER_H_
#define ATHANOR_COMPILER_CACHE_SQLITE_FRESH_FOLDER_H_

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace athanor {

// Returns a new folder named after the running test and its process; the caller removes it.
inline std::string FreshFolder() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = absl::StrCat(info->test_suite_name(), info->name(), getpid());
  std::replace(name.begin(), name.end(), '/', '_');
  std::string folder = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_SQLITE_FRESH_FOLDER_H_
