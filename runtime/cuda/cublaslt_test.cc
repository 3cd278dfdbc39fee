#include "runtime/cuda/cublaslt.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns a new folder.
std::string Folder(const std::string& name) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::filesystem::create_directory(folder);
  return folder;
}

TEST(CublasltTest, AMachineWithoutTheLibraryIsToldSo) {
  const absl::Status status = Cublaslt::Load("/no/such/folder").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no cuBLASLt"), HasSubstr("/no/such/folder/libcublasLt.so.13"),
                    HasSubstr("ATHANOR_CUBLASLT")));
}

TEST(CublasltTest, TheVariableNamesTheFolder) {
  setenv(kCublasltVariable, "/another/folder", 1);
  const absl::Status status = Cublaslt::Load("").status();
  unsetenv(kCublasltVariable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/another/folder/libcublasLt.so.13"));
}

TEST(CublasltTest, ALibraryWithoutAFunctionIsRefusedByName) {
  const std::string folder = Folder("other");
  std::error_code error;
  std::filesystem::create_symlink("/lib/x86_64-linux-gnu/libm.so.6", folder + "/" + kCublasltFile,
                                  error);
  const absl::Status status = Cublaslt::Load(folder).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no cublasLtGetVersion"));
}

TEST(CublasltTest, CodesSayWhatToDoNext) {
  Cublaslt library;
  library.GetStatusName = [](CublasResult result) -> const char* {
    return result == kCublasNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED" : nullptr;
  };
  library.GetVersion = []() -> size_t { return 130207; };
  EXPECT_EQ(library.version(), "cuBLASLt 13.2.7");
  EXPECT_TRUE(CublasStatus(library, kCublasSuccess, "cublasLtCreate").ok());
  EXPECT_EQ(CublasStatus(library, kCublasNotSupported, "cublasLtMatmul"),
            absl::InvalidArgumentError("cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (15)"));
  EXPECT_EQ(CublasStatus(library, kCublasAllocFailed, "cublasLtCreate").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CublasStatus(library, kCublasArchMismatch, "cublasLtMatmul").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CublasStatus(library, 99, "cublasLtMatmul"),
            absl::InternalError("cublasLtMatmul: unknown result (99)"));
}

}  // namespace
}  // namespace athanor
