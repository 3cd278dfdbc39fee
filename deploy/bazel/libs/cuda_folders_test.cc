#include "deploy/bazel/libs/cuda_folders.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kVariable[] = "ATHANOR_FOLDER_OF_A_TEST";

TEST(CudaFoldersTest, WhatIsNamedIsAlone) {
  unsetenv(kVariable);
  EXPECT_THAT(CudaFolders("/given", kVariable), ElementsAre("/given"));
  setenv(kVariable, "/set", 1);
  EXPECT_THAT(CudaFolders("", kVariable), ElementsAre("/set"));
  EXPECT_THAT(CudaFolders("/given", kVariable), ElementsAre("/given"));
  setenv(kVariable, "", 1);
  EXPECT_EQ(CudaFolders("", kVariable).front(), "") << "the loader is asked first";
}

TEST(CudaFoldersTest, PythonsPackagesAreFoundByItsPath) {
  unsetenv(kVariable);
  const std::filesystem::path root = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "env";
  const std::filesystem::path lib = root / "lib/python3.11/site-packages/nvidia/cu13/lib";
  std::filesystem::create_directories(lib);
  std::filesystem::create_directories(root / "bin");
  std::ofstream(root / "bin/python3").close();
  const std::string path = std::getenv("PATH");
  EXPECT_THAT(CudaFolders("", kVariable), Not(Contains(lib.string())));
  setenv("PATH", ((root / "bin").string() + ":" + path).c_str(), 1);
  EXPECT_THAT(CudaFolders("", kVariable), Contains(lib.string()));
  setenv("PATH", path.c_str(), 1);
}

TEST(CudaFoldersTest, PatternsNameWhatIsThere) {
  const std::string root = std::getenv("TEST_TMPDIR");
  std::ofstream(root + "/libone.so.1").close();
  EXPECT_THAT(FilesLike(root + "/lib*.so.*"), ElementsAre(root + "/libone.so.1"));
  EXPECT_THAT(FilesLike(root + "/none*"), IsEmpty());
}

}  // namespace
}  // namespace athanor
