// Loads a kernel's finished shared object from memory.
//
//   absl::StatusOr<std::unique_ptr<CpuModule>> module = CpuModule::Load(bytes);
//   absl::StatusOr<void*> kernel = (*module)->Symbol("k0");
#ifndef ATHANOR_RUNTIME_CPU_MODULE_H_
#define ATHANOR_RUNTIME_CPU_MODULE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

// A loaded object, unloaded on destruction: pointers from Symbol() must not be used after that.
// Every Load gives a module of its own, with its own data, even for equal objects. Thread-safe.
class CpuModule {
 public:
  // Copies `object` into the process; it is not needed afterwards. Binds all of the object's own
  // symbols now, and sets variables named as CpuGemm's symbols (runtime/device/kernel_abi.h).
  //
  // INVALID_ARGUMENT if it is no complete ELF shared object for this machine's architecture.
  // FAILED_PRECONDITION if this machine lacks a library or symbol that the object needs; the
  // message names it. RESOURCE_EXHAUSTED if memory or file descriptors run out.
  static absl::StatusOr<std::unique_ptr<CpuModule>> Load(absl::string_view object);

  CpuModule(const CpuModule&) = delete;
  CpuModule& operator=(const CpuModule&) = delete;
  ~CpuModule();

  // Returns the address of a symbol that the object itself defines; NOT_FOUND names it.
  absl::StatusOr<void*> Symbol(const std::string& name) const;

 private:
  explicit CpuModule(void* handle) : handle_(handle) {}

  // Sets the library functions that the system's loader does not bind.
  absl::Status SetLibraryFunctions();

  void* const handle_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CPU_MODULE_H_
