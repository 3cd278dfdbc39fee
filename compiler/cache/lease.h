// Who compiles or searches for a key, so that N processes of a machine do it once. A lease is a row
// of the cache's file; a holder whose process is gone loses it at once, one that stalls after a
// while.
//
//   LeaseTable leases(file, {});
//   absl::StatusOr<Lease> lease = leases.Take(key, "plan", "model bert, version 2");
//   if (!lease.ok()) return Park(lease.status());  // "process 71 holds the plan lease of ..."
//   ... compile; put ...                           // released with its scope
//
// The owner of the writer thread calls Beat() when it says so, and at once when `wake` asks. Times
// are of CLOCK_BOOTTIME, and rows of another boot are nobody's: jumps of the wall clock do nothing.
//
// A lease saves work and protects nothing: one that was lost may still put what it made.
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
#include "compiler/cache/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

// The processes of this machine, as far as this one sees them. Tests give their own.
struct ProcessTable {
  std::string boot_id;        // of the kernel's run; empty: not known
  int64_t pid_namespace = 0;  // in which pids mean the same; 0: not known
  int pid = 0;                // this process
  // When a process began, in clock ticks since the boot; 0: it is gone, or a zombie; nullopt: that
  // cannot be told. Pids are used again: a pid with another start is another process.
  std::function<std::optional<int64_t>(int pid)> start_of;

  static ProcessTable OfThisMachine();  // of /proc
};

struct LeaseOptions {
  std::chrono::milliseconds timeout{10000};    // without a beat a lease is anybody's
  std::function<int64_t()> boot_microseconds;  // none: CLOCK_BOOTTIME
  std::optional<ProcessTable> processes;       // none: OfThisMachine
  std::function<void()> wake;                  // a first lease is held: Beat is due from now on
};

// Runs `body` on the file, which nobody else uses meanwhile, in any thread, and returns what it
// returned; another error where there is no file to write to.
using LeaseFile =
    std::function<absl::Status(absl::FunctionRef<absl::Status(SqliteFile& file)> body)>;

class LeaseTable;

// Held until destroyed or released. Movable; one thread at a time. REQUIRES: its table lives.
class Lease {
 public:
  Lease() = default;  // of nothing
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Release(); }

  // False for a lease of nothing, and as soon as a Beat has found that another one took it over.
  bool valid() const;
  void Release();

 private:
  friend class LeaseTable;
  struct Held;
  Lease(LeaseTable* table, std::shared_ptr<Held> held);

  LeaseTable* table_ = nullptr;
  std::shared_ptr<Held> held_;
};

// Thread-safe. Calls into the file hold no lock of the table's.
class LeaseTable {
 public:
  struct Holder {
    std::string kind, about;
    int pid = 0;             // as its own pid namespace has it
    double age_seconds = 0;  // since it was taken
    bool ours = false;       // of this table
  };

  LeaseTable(LeaseFile file, LeaseOptions options);
  LeaseTable(const LeaseTable&) = delete;
  LeaseTable& operator=(const LeaseTable&) = delete;

  // `kind`: "plan" or "search". `about` names what the key is of, to people.
  // UNAVAILABLE names the holder. Where the file cannot be written, every Take succeeds: such a
  // lease is nobody else's concern, and what it guards against is only work done twice.
  absl::StatusOr<Lease> Take(absl::string_view key, absl::string_view kind,
                             absl::string_view about);

  // Who would refuse a Take now. Writes nothing.
  std::optional<Holder> HolderOf(absl::string_view key, absl::string_view kind);
  std::vector<Holder> Holders();  // of all leases, oldest first

  // Says that the leases of this table are still wanted, and notices those that were lost. How long
  // until the next call is due; nullopt: not before `wake`.
  std::optional<std::chrono::milliseconds> Beat();

  // Deletes the rows that nobody holds any more; returns how many.
  int64_t Sweep();

 private:
  friend class Lease;
  using Held = Lease::Held;
  struct Row;

  // All rows, or the one of that key and kind.
  static absl::StatusOr<std::vector<Row>> Read(SqliteFile& file, const Held* only);
  absl::StatusOr<std::optional<Holder>> TryTake(SqliteFile& file, const std::shared_ptr<Held>& held,
                                                absl::string_view about, bool* first);
  absl::Status Insert(SqliteFile& file, const Held& held, absl::string_view about) const;
  bool IsFree(const Row& row) const;
  Holder HolderFrom(const Row& row) const;
  std::vector<Holder> HoldersOf(const Held* only);
  void Release(const std::shared_ptr<Held>& held);
  std::shared_ptr<Held> MakeHeld(absl::string_view key, absl::string_view kind);
  bool Remember(const std::shared_ptr<Held>& held);  // whether it is the first
  bool Forget(const std::string& owner);             // whether it was held

  const LeaseFile file_;
  const std::chrono::milliseconds timeout_;
  const std::function<int64_t()> boot_microseconds_;
  const ProcessTable processes_;
  const int64_t pid_start_;
  const std::function<void()> wake_;
  const std::string id_;  // begins the owner of each of this table's rows

  mutable Mutex mu_;
  int64_t serial_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<Held>> held_ ABSL_GUARDED_BY(mu_);  // by owner
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_LEASE_H_
