// Compiled kernels and passed checks that outlive a server: one SQLite file, shareable by the
// processes of one machine.
//
//   std::unique_ptr<KernelStore> store = KernelStore::Open(path, [](absl::string_view m) { ... });
//   if (std::optional<std::string> object = store->Get(key)) return *object;
//   ... compile ...
//   store->Put(key, object).IgnoreError();   // a cache that cannot write is only slower
//
// A row is believed only if its checksum, over key and object, fits: any other is a miss and goes
// to quarantine. A file that is no database or is damaged is moved aside, reported, and begun anew;
// one that cannot be opened or written is reported once and then done without.
#ifndef ATHANOR_COMPILER_CACHE_KERNEL_STORE_H_
#define ATHANOR_COMPILER_CACHE_KERNEL_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// All that a kernel object depends on. Each component is a column, so a miss can be explained.
struct KernelKey {
  std::string source_hash;  // SHA-256 of the C text, 64 hex digits
  std::string flags;        // of the compiler, as text
  std::string triple;
  std::string cpu;
  std::string features;          // joined with commas
  std::string compiler_version;  // "19.1.7"
  int64_t codegen_version = 0;   // the meaning of the calling convention (runtime/kernel_abi.h)

  std::string Hash() const;  // SHA-256 over the components, each with its length; 32 bytes
};

KernelKey MakeKernelKey(absl::string_view source, const v1::Target& target, absl::string_view flags,
                        absl::string_view compiler_version);

// SHA-256 over the whole request, objects included; 32 bytes.
std::string CheckKey(const internal::CheckRequest& request);

// Thread-safe, and safe beside other processes on the same file. A hit writes nothing.
class KernelStore {
 public:
  using Report = SqliteFile::Report;  // from any thread that calls

  // Never fails: without a usable file every Get is a miss. An empty path is such a store,
  // silently.
  static std::unique_ptr<KernelStore> Open(std::string path, Report report);
  ~KernelStore();
  KernelStore(const KernelStore&) = delete;
  KernelStore& operator=(const KernelStore&) = delete;

  std::optional<std::string> Get(const KernelKey& key);
  // The newest row of a key wins. RESOURCE_EXHAUSTED: no space. FAILED_PRECONDITION: read-only.
  // UNAVAILABLE: no usable file.
  absl::Status Put(const KernelKey& key, absl::string_view object);

  // Whether the check with this CheckKey has passed before.
  bool HasPassed(absl::string_view check_key);
  absl::Status PutPassed(absl::string_view check_key);

  struct Stats {
    int64_t hits = 0, misses = 0, bad_rows = 0;  // of Get, since Open
    int64_t kernels = 0, bytes = 0;              // in the file
  };
  Stats GetStats();
  bool usable();

  // For tests of bad rows and full disks.
  absl::Status ExecuteForTest(const std::string& sql);

 private:
  KernelStore(std::string path, Report report);

  absl::Status Quarantine(absl::string_view key, absl::string_view about, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  SqliteFile file_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_KERNEL_STORE_H_
