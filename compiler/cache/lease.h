// Leases on keys, so that only one of a machine's processes compiles or searches for a key. A lease
// is a row of the cache's file. A holder whose process has ended loses it at once, one that stalls
// after a while.
//
//   LeaseTable leases(file, {});
//   absl::StatusOr<Lease> lease = leases.Take(key, "plan", "model bert, version 2");
//   if (!lease.ok()) return Park(lease.status());  // "process 71 holds the plan lease of ..."
//   ... compile; put ...                           // released with its scope
//
// The owner of the writer thread calls Beat() when it is due, and at once when `wake` asks for it.
// Times are of CLOCK_BOOTTIME, and rows of another boot are free, so jumps of the wall clock do
// nothing.
//
// A lease saves work and protects nothing: a holder that lost it may still put what it made.
#ifndef ATHANOR_COMPILER_CACHE_LEASE_H_
#define ATHANOR_COMPILER_CACHE_LEASE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

// The machine's processes, as far as this one sees them. Tests use their own.
struct ProcessTable {
  std::string boot_id;        // of the running kernel; empty: not known
  int64_t pid_namespace = 0;  // namespace of the pids; 0: not known
  int pid = 0;                // of this process
  // Returns when a process began, in clock ticks since the boot; 0: it has ended or is a zombie;
  // nullopt: unknown. Pids are reused: a pid with another start is another process.
  std::function<std::optional<int64_t>(int pid)> start_of;

  static ProcessTable OfThisMachine();  // reads /proc
};

struct LeaseOptions {
  std::chrono::milliseconds timeout{10000};    // after the last beat, then the lease is free
  std::function<int64_t()> boot_microseconds;  // null: CLOCK_BOOTTIME
  std::optional<ProcessTable> processes;       // nullopt: OfThisMachine
  std::function<void()> wake;  // called when a first lease is held: Beat is due from now on
};

// Runs `body` on the file, in any thread, while nobody else uses it, and returns its status;
// another error if there is no file to write to.
using LeaseFile =
    std::function<absl::Status(absl::FunctionRef<absl::Status(SqliteFile& file)> body)>;

class LeaseTable;

// A lease held until it is destroyed or released. Movable; used by one thread at a time. REQUIRES:
// its table lives.
class Lease {
 public:
  Lease() = default;  // holds nothing
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Release(); }

  // False if it holds nothing, or a Beat has found that another process took it over.
  bool valid() const;
  void Release();

 private:
  friend class LeaseTable;
  struct Held;
  Lease(LeaseTable* table, std::shared_ptr<Held> held);

  LeaseTable* table_ = nullptr;
  std::shared_ptr<Held> held_;
};

// Thread-safe. Holds none of its locks while it uses the file.
class LeaseTable {
 public:
  struct Holder {
    std::string kind, about;
    int pid = 0;             // in its own pid namespace
    double age_seconds = 0;  // since it was taken
    bool ours = false;       // held through this table
  };

  LeaseTable(LeaseFile file, LeaseOptions options);
  LeaseTable(const LeaseTable&) = delete;
  LeaseTable& operator=(const LeaseTable&) = delete;

  // Takes the lease of a key. `kind`: "plan" or "search". `about` describes the key to people.
  // UNAVAILABLE names the holder. If the file cannot be written, every Take succeeds: the lease
  // then concerns nobody else, and the worst is work done twice.
  absl::StatusOr<Lease> Take(absl::string_view key, absl::string_view kind,
                             absl::string_view about);

  // Returns the holder that would refuse a Take now. Writes nothing.
  std::optional<Holder> HolderOf(absl::string_view key, absl::string_view kind);
  std::vector<Holder> Holders();  // of all leases, oldest first

  // Renews this table's leases, and notices those that were lost. Returns the time until the next
  // call is due; nullopt: not before `wake`.
  std::optional<std::chrono::milliseconds> Beat();

 private:
  friend class Lease;
  using Held = Lease::Held;
  struct Row;

  // Returns all rows, or the one with that key and kind.
  static absl::StatusOr<std::vector<Row>> Read(SqliteFile& file, const Held* only);
  absl::StatusOr<std::optional<Holder>> TryTake(SqliteFile& file, const std::shared_ptr<Held>& held,
                                                absl::string_view about, bool* first);
  absl::Status Insert(SqliteFile& file, const Held& held, absl::string_view about) const;
  bool IsFree(const Row& row) const;
  Holder HolderFrom(const Row& row) const;
  std::vector<Holder> HoldersOf(const Held* only);
  void Release(const std::shared_ptr<Held>& held);
  std::shared_ptr<Held> MakeHeld(absl::string_view key, absl::string_view kind);
  bool Remember(const std::shared_ptr<Held>& held);  // returns whether it is the first
  bool Forget(const std::string& owner);             // returns whether it was held

  const LeaseFile file_;
  const std::chrono::milliseconds timeout_;
  const std::function<int64_t()> boot_microseconds_;
  const ProcessTable processes_;
  const int64_t pid_start_;
  const std::function<void()> wake_;
  const std::string id_;  // prefix of the owner in this table's rows

  mutable Mutex mu_;
  int64_t serial_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<Held>> held_ ABSL_GUARDED_BY(mu_);  // by owner
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_LEASE_H_
