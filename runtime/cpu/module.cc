#include "runtime/cpu/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/blas.h"
#include "runtime/device/elf.h"
#include "runtime/device/kernel_abi.h"

// This program's own ELF header, which the linker puts there.
extern "C" __attribute__((visibility("hidden"))) const ElfW(Ehdr) __ehdr_start;

namespace athanor {
namespace {

// Checks what the system's loader does not: it maps an object without looking at the file's length,
// and touching a page behind its end then kills the process with SIGBUS.
absl::Status CheckObject(absl::string_view object) {
  ASSIGN_OR_RETURN(const ElfObject elf, CheckElf(object));
  if (elf.machine != __ehdr_start.e_machine) {
    return MalformedObject(absl::StrCat("built for ELF machine ", elf.machine,
                                        ", this program is for machine ", __ehdr_start.e_machine));
  }
  if (elf.type != ET_DYN) {
    return MalformedObject(absl::StrCat("ELF type ", elf.type, ", expected a shared object (3)"));
  }
  if (!elf.dynamic) return MalformedObject("not linked: it has no dynamic section");
  return absl::OkStatus();
}

// Returns a path to `fd` that no load in this process has used before. The system's loader takes
// two objects with one path to be the same object, and numbers of file descriptors are reused as
// soon as they are closed. So each path spells a serial number, one bit per component: "/." is 1,
// "/" is 0. A library with its own copy of this counter spells another address of it.
std::string UniquePath(int fd) {
  static std::atomic<uint64_t> serials{0};
  std::string path = "/proc/self/fd";
  const auto spell = [&](uint64_t bit) { path += bit != 0 ? "/." : "/"; };
  for (uint64_t bits = ++serials; bits != 0; bits >>= 1) spell(bits & 1);
  const auto address = reinterpret_cast<uintptr_t>(&serials);
  for (int bit = 0; bit < 64; ++bit) spell(address >> bit & 1);
  absl::StrAppend(&path, "/", fd);
  return path;
}

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory for a kernel object: ", std::strerror(errno)));
    }
    bytes.remove_prefix(n);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuModule>> CpuModule::Load(absl::string_view object) {
  absl::Status status = CheckObject(object);
  if (!status.ok()) return status;
  const int fd = memfd_create("athanor-kernel", MFD_CLOEXEC);
  if (fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("file descriptor for a kernel object: ", std::strerror(errno)));
  }
  absl::Cleanup closer = [fd] { close(fd); };
  status = WriteAll(fd, object);
  if (!status.ok()) return status;

  const std::string path = UniquePath(fd);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    absl::string_view reason = dlerror();
    if (absl::ConsumePrefix(&reason, path)) absl::ConsumePrefix(&reason, ": ");
    return absl::FailedPreconditionError(absl::StrCat("kernel object does not load: ", reason));
  }
  std::unique_ptr<CpuModule> module(new CpuModule(handle));
  status = module->SetLibraryFunctions();
  if (!status.ok()) return status;
  return module;
}

absl::Status CpuModule::SetLibraryFunctions() {
  for (const char* name : {kCpuSgemmSymbol, kCpuDgemmSymbol}) {
    absl::StatusOr<void*> variable = Symbol(name);
    if (!variable.ok()) continue;  // the kernel does not call it
    CpuGemm gemm = BlasGemm(name);
    if (gemm == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("kernel object calls '", name,
                       "', which OpenBLAS computes; this machine has no ", kBlasFile));
    }
    *static_cast<CpuGemm*>(*variable) = gemm;
  }
  return absl::OkStatus();
}

CpuModule::~CpuModule() { dlclose(handle_); }

absl::StatusOr<void*> CpuModule::Symbol(const std::string& name) const {
  void* address = dlsym(handle_, name.c_str());
  // dlsym also finds what the object's libraries define.
  link_map *own = nullptr, *defining = nullptr;
  Dl_info info;
  if (address == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, &own) != 0 ||
      dladdr1(address, &info, reinterpret_cast<void**>(&defining), RTLD_DL_LINKMAP) == 0 ||
      own != defining) {
    return absl::NotFoundError(absl::StrCat("kernel object defines no symbol '", name, "'"));
  }
  return address;
}

}  // namespace athanor
