#include "runtime/cuda/cublaslt.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/cuda_folders.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {
namespace {

// Returns an empty message if the library of `folder` fills the table; "": by bare name.
std::string Open(const std::string& folder, Cublaslt* table) {
  const std::string file =
      folder.empty() ? kCublasltFile : absl::StrCat(folder, "/", kCublasltFile);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  struct Entry {
    const char* symbol;
    void** member;
  };
#define ATHANOR_ENTRY(result, member, symbol, arguments) \
  {symbol, reinterpret_cast<void**>(&table->member)},
  const Entry entries[] = {ATHANOR_CUBLASLT(ATHANOR_ENTRY)};
#undef ATHANOR_ENTRY
  for (const Entry& entry : entries) {
    *entry.member = dlsym(library, entry.symbol);
    if (*entry.member == nullptr) {
      dlclose(library);
      return absl::StrCat(file, " has no ", entry.symbol);
    }
  }
  return "";
}

absl::StatusCode CodeOf(CublasResult result) {
  switch (result) {
    case kCublasAllocFailed:
      return absl::StatusCode::kResourceExhausted;
    case kCublasInvalidValue:
    case kCublasNotSupported:
      return absl::StatusCode::kInvalidArgument;
    case kCublasNotInitialized:
    case kCublasArchMismatch:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<const Cublaslt*> Cublaslt::Load(const std::string& folder) {
  static Mutex mutex;
  static auto* const loaded = new std::map<std::string, std::unique_ptr<Cublaslt>>;
  MutexLock lock(mutex);
  std::unique_ptr<Cublaslt>& library = (*loaded)[folder];
  if (library != nullptr) return library.get();
  std::vector<std::string> reasons;
  for (const std::string& place : CudaFolders(folder, kCublasltVariable)) {
    auto opened = std::make_unique<Cublaslt>();
    std::string why = Open(place, opened.get());
    if (why.empty()) {
      library = std::move(opened);
      return library.get();
    }
    reasons.push_back(std::move(why));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this machine has no cuBLASLt: ", absl::StrJoin(reasons, "; "),
                   "; name its folder in ", kCublasltVariable));
}

std::string Cublaslt::version() const {
  const size_t number = GetVersion();
  return absl::StrCat("cuBLASLt ", number / 10000, ".", number / 100 % 100, ".", number % 100);
}

absl::Status CublasStatus(const Cublaslt& library, CublasResult result, absl::string_view call) {
  if (result == kCublasSuccess) return absl::OkStatus();
  const char* const name = library.GetStatusName(result);
  return absl::Status(CodeOf(result),
                      absl::StrCat(call, ": ", name ? name : "unknown result", " (", result, ")"));
}

}  // namespace athanor
