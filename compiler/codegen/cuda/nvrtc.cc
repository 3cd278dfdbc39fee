#include "compiler/codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/cuda_folders.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {
namespace {

constexpr char kFile[] = "libnvrtc.so.13";

}  // namespace

std::string Nvrtc::Open(const std::string& folder) {
  const std::string prefix = folder.empty() ? "" : folder + "/";
  // NVRTC asks for its builtins by bare name at the first compilation; whatever is loaded by then
  // under that name is taken, wherever it lies.
  if (!folder.empty()) {
    for (const std::string& file : FilesLike(prefix + "libnvrtc-builtins.so.*")) {
      dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    }
  }
  void* const library = dlopen((prefix + kFile).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  struct Entry {
    const char* symbol;
    void** member;
  };
#define ATHANOR_ENTRY(member, symbol, arguments) {symbol, reinterpret_cast<void**>(&member##_)},
  const Entry entries[] = {ATHANOR_NVRTC(ATHANOR_ENTRY)};
#undef ATHANOR_ENTRY
  for (const Entry& entry : entries) {
    *entry.member = dlsym(library, entry.symbol);
    if (*entry.member == nullptr) {
      dlclose(library);
      return absl::StrCat(prefix, kFile, " has no ", entry.symbol);
    }
  }
  return "";
}

absl::StatusOr<const Nvrtc*> Nvrtc::Load(const std::string& folder) {
  static Mutex mutex;
  static auto* const loaded = new std::map<std::string, std::unique_ptr<Nvrtc>>;
  MutexLock lock(mutex);
  std::unique_ptr<Nvrtc>& nvrtc = (*loaded)[folder];
  if (nvrtc != nullptr) return nvrtc.get();
  std::vector<std::string> reasons;
  for (const std::string& place : CudaFolders(folder, kNvrtcVariable)) {
    auto opened = std::make_unique<Nvrtc>();
    std::string why = opened->Open(place);
    if (why.empty()) {
      nvrtc = std::move(opened);
      return nvrtc.get();
    }
    reasons.push_back(std::move(why));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this machine has no CUDA compiler (NVRTC): ", absl::StrJoin(reasons, "; "),
                   "; name its folder in ", kNvrtcVariable));
}

std::string Nvrtc::version() const {
  int major = 0, minor = 0;
  Version_(&major, &minor);
  return absl::StrCat(major, ".", minor);
}

absl::StatusOr<Cubin> Nvrtc::Compile(const CudaSource& source) const {
  std::vector<const char*> names, texts;
  for (const CudaSource::Header& header : source.headers) {
    names.push_back(header.name.c_str());
    texts.push_back(header.text.c_str());
  }
  const std::string arch = "--gpu-architecture=" + source.arch;
  // NVRTC's own cache would open the driver, initialise it, and write to the user's folder.
  std::vector<const char*> options = {arch.c_str(), "--std=c++17", "--ptxas-options=-v",
                                      "--no-cache"};
  for (const std::string& option : source.options) options.push_back(option.c_str());

  void* program = nullptr;
  if (CreateProgram_(&program, source.source.c_str(), source.name.c_str(),
                     static_cast<int>(names.size()), texts.data(), names.data()) != 0) {
    return absl::InternalError(absl::StrCat(source.name, ": NVRTC takes no program"));
  }
  absl::Cleanup destroy = [&] { DestroyProgram_(&program); };
  const int result = CompileProgram_(program, static_cast<int>(options.size()), options.data());
  Cubin cubin;
  size_t bytes = 0;
  if (GetLogSize_(program, &bytes) == 0 && bytes > 1) {
    cubin.log_text.resize(bytes);
    GetLog_(program, cubin.log_text.data());
    cubin.log_text.pop_back();  // the closing zero
  }
  if (result != 0) {
    constexpr int kCompilation = 6, kInvalidOption = 5;
    const std::string message = absl::StrCat(source.name, " does not compile for ", source.arch,
                                             " (NVRTC ", result, "): ", cubin.log_text);
    return result == kCompilation || result == kInvalidOption ? absl::InvalidArgumentError(message)
                                                              : absl::InternalError(message);
  }
  if (GetCubinSize_(program, &bytes) != 0 || bytes == 0) {
    return absl::InternalError(absl::StrCat(source.name, ": NVRTC made no machine code for ",
                                            source.arch, "; is it an architecture's real name?"));
  }
  cubin.code.resize(bytes);
  if (GetCubin_(program, cubin.code.data()) != 0) {
    return absl::InternalError(absl::StrCat(source.name, ": NVRTC withholds its machine code"));
  }
  cubin.log = ParseCompileLog(cubin.log_text);
  return cubin;
}

}  // namespace athanor
