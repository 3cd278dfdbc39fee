#include "compiler/cache/lease.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

int64_t BootMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t{now.tv_sec} * 1000000 + now.tv_nsec / 1000;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Parses proc_pid_stat(5): "pid (name) state ...", the start is field 22; names may hold any
// character.
std::optional<int64_t> StartOf(int pid) {
  constexpr size_t kState = 0, kStart = 19;
  const std::string text = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = text.rfind(") ");
  if (name_end != std::string::npos) {
    const std::vector<absl::string_view> fields =
        absl::StrSplit(absl::string_view(text).substr(name_end + 2), ' ');
    int64_t start = 0;
    if (fields[kState] == "Z" || fields[kState] == "X") return 0;
    if (fields.size() > kStart && absl::SimpleAtoi(fields[kStart], &start)) return start;
  }
  // /proc may hide the processes of other users.
  if (kill(pid, 0) != 0 && errno == ESRCH) return 0;
  return std::nullopt;
}

std::string MakeId(const ProcessTable& processes) {
  std::random_device random;
  return absl::StrFormat("%d-%08x%08x", processes.pid, random(), random());
}

}  // namespace

ProcessTable ProcessTable::OfThisMachine() {
  ProcessTable table;
  table.boot_id = ReadFile("/proc/sys/kernel/random/boot_id");
  table.boot_id = std::string(absl::StripSuffix(table.boot_id, "\n"));
  struct stat about;
  if (stat("/proc/self/ns/pid", &about) == 0) {
    table.pid_namespace = static_cast<int64_t>(about.st_ino);
  }
  table.pid = getpid();
  table.start_of = StartOf;
  return table;
}

struct Lease::Held {
  std::string key, kind, owner;
  bool in_file = false;  // false: no other process can see it
  std::atomic<bool> lost{false};
};

Lease::Lease(LeaseTable* table, std::shared_ptr<Held> held)
    : table_(table), held_(std::move(held)) {}

Lease::Lease(Lease&& other) noexcept : table_(other.table_), held_(std::move(other.held_)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  table_ = other.table_;
  held_ = std::move(other.held_);
  return *this;
}

bool Lease::valid() const { return held_ != nullptr && !held_->lost; }

void Lease::Release() {
  const std::shared_ptr<Held> held = std::exchange(held_, nullptr);
  if (held != nullptr && held->in_file) table_->Release(held);
}

struct LeaseTable::Row {
  std::string key, kind, owner, boot_id, about;
  int pid = 0;
  int64_t pid_namespace = 0, pid_start = 0, taken_us = 0, beat_us = 0;
};

LeaseTable::LeaseTable(LeaseFile file, LeaseOptions options)
    : file_(std::move(file)),
      timeout_(options.timeout),
      boot_microseconds_(options.boot_microseconds ? std::move(options.boot_microseconds)
                                                   : BootMicroseconds),
      processes_(options.processes ? *std::move(options.processes) : ProcessTable::OfThisMachine()),
      pid_start_(processes_.start_of(processes_.pid).value_or(0)),
      wake_(std::move(options.wake)),
      id_(MakeId(processes_)) {}

std::shared_ptr<LeaseTable::Held> LeaseTable::MakeHeld(absl::string_view key,
                                                       absl::string_view kind) {
  auto held = std::make_shared<Held>();
  held->key = std::string(key);
  held->kind = std::string(kind);
  MutexLock lock(mu_);
  held->owner = absl::StrCat(id_, ".", ++serial_);
  return held;
}

bool LeaseTable::Remember(const std::shared_ptr<Held>& held) {
  MutexLock lock(mu_);
  held_[held->owner] = held;
  return held_.size() == 1;
}

bool LeaseTable::Forget(const std::string& owner) {
  MutexLock lock(mu_);
  return held_.erase(owner) != 0;
}

absl::StatusOr<std::vector<LeaseTable::Row>> LeaseTable::Read(SqliteFile& file, const Held* only) {
  Statement read(file.db(), absl::StrCat("SELECT key, kind, owner, boot_id, about, pid,"
                                         " pid_namespace, pid_start, taken_boot_us, beat_boot_us"
                                         " FROM leases",
                                         only == nullptr ? "" : " WHERE key = ? AND kind = ?",
                                         " ORDER BY taken_boot_us"));
  if (only != nullptr) read.Blob(only->key).Text(only->kind);
  std::vector<Row> rows;
  int code = read.Step();
  for (; code == SQLITE_ROW; code = read.Step()) {
    rows.push_back({.key = std::string(read.BytesAt(0)),
                    .kind = std::string(read.BytesAt(1)),
                    .owner = std::string(read.BytesAt(2)),
                    .boot_id = std::string(read.BytesAt(3)),
                    .about = std::string(read.BytesAt(4)),
                    .pid = static_cast<int>(read.IntAt(5)),
                    .pid_namespace = read.IntAt(6),
                    .pid_start = read.IntAt(7),
                    .taken_us = read.IntAt(8),
                    .beat_us = read.IntAt(9)});
  }
  if (code != SQLITE_DONE) return file.Failed(code, "read leases");
  return rows;
}

// Reports whether a row lets anybody take its lease. Call it inside the transaction that then
// writes: the clock must be read after the row.
bool LeaseTable::IsFree(const Row& row) const {
  if (row.boot_id != processes_.boot_id) return true;
  if (absl::StartsWith(row.owner, absl::StrCat(id_, "."))) {
    MutexLock lock(mu_);
    return held_.count(row.owner) == 0;  // not held: its release did not reach the file
  }
  if (row.pid_namespace == processes_.pid_namespace && row.pid_namespace != 0 &&
      row.pid_start != 0) {
    const std::optional<int64_t> start = processes_.start_of(row.pid);
    if (start && *start != row.pid_start) return true;
  }
  // A beat in the future belongs to a boot without an id.
  const int64_t since_us = boot_microseconds_() - row.beat_us;
  return since_us < 0 || since_us >= std::chrono::microseconds(timeout_).count();
}

LeaseTable::Holder LeaseTable::HolderFrom(const Row& row) const {
  return {.kind = row.kind,
          .about = row.about,
          .pid = row.pid,
          .age_seconds = 1e-6 * static_cast<double>(boot_microseconds_() - row.taken_us),
          .ours = absl::StartsWith(row.owner, absl::StrCat(id_, "."))};
}

absl::Status LeaseTable::Insert(SqliteFile& file, const Held& held, absl::string_view about) const {
  Statement insert(file.db(),
                   "INSERT OR REPLACE INTO leases (key, kind, owner, boot_id, pid, pid_namespace,"
                   " pid_start, about, taken_boot_us, beat_boot_us)"
                   " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  const int64_t now = boot_microseconds_();
  const int code = insert.Blob(held.key)
                       .Text(held.kind)
                       .Text(held.owner)
                       .Text(processes_.boot_id)
                       .Int(processes_.pid)
                       .Int(processes_.pid_namespace)
                       .Int(pid_start_)
                       .Text(about)
                       .Int(now)
                       .Int(now)
                       .Step();
  return code == SQLITE_DONE ? absl::OkStatus() : file.Failed(code, "write a lease");
}

// Returns the holder that is in the way; if there is none, writes a row for `held`.
absl::StatusOr<std::optional<LeaseTable::Holder>> LeaseTable::TryTake(
    SqliteFile& file, const std::shared_ptr<Held>& held, absl::string_view about, bool* first) {
  ASSIGN_OR_RETURN(const std::vector<Row> rows, Read(file, held.get()));
  if (!rows.empty() && !IsFree(rows.front())) return HolderFrom(rows.front());
  // Remembers it before the row can be seen: a row of this table that is not held counts as free.
  *first = Remember(held);
  RETURN_IF_ERROR(Insert(file, *held, about));
  return std::nullopt;
}

absl::StatusOr<Lease> LeaseTable::Take(absl::string_view key, absl::string_view kind,
                                       absl::string_view about) {
  const std::shared_ptr<Held> held = MakeHeld(key, kind);
  std::optional<Holder> holder;
  bool first = false;
  held->in_file = file_([&](SqliteFile& file) {
                    const absl::Status status = file.Transaction([&]() -> absl::Status {
                      auto taken = TryTake(file, held, about, &first);
                      if (taken.ok()) holder = *std::move(taken);
                      return taken.status();
                    });
                    // While nobody else uses the file: a Beat must not see a lease that has no row.
                    if (!status.ok()) Forget(held->owner);
                    return status;
                  }).ok();
  if (holder) {
    return absl::UnavailableError(absl::StrFormat(
        "process %d%s has held the %s lease of an equal graph for %.1f s", holder->pid,
        holder->ours ? " (this server)" : "", holder->kind, holder->age_seconds));
  }
  if (held->in_file && first && wake_) wake_();
  return Lease(this, held);
}

void LeaseTable::Release(const std::shared_ptr<Held>& held) {
  // Forgets it first: from here on the row counts as free, even if it cannot be deleted. A lost
  // lease has no row.
  if (!Forget(held->owner)) return;
  file_([&](SqliteFile& file) {
    Statement remove(file.db(), "DELETE FROM leases WHERE key = ? AND kind = ? AND owner = ?");
    const int code = remove.Blob(held->key).Text(held->kind).Text(held->owner).Step();
    return code == SQLITE_DONE ? absl::OkStatus() : file.Failed(code, "release a lease");
  }).IgnoreError();
}

std::vector<LeaseTable::Holder> LeaseTable::HoldersOf(const Held* only) {
  std::vector<Holder> holders;
  file_([&](SqliteFile& file) {
    ASSIGN_OR_RETURN(const std::vector<Row> rows, Read(file, only));
    for (const Row& row : rows) {
      if (!IsFree(row)) holders.push_back(HolderFrom(row));
    }
    return absl::OkStatus();
  }).IgnoreError();
  return holders;
}

std::optional<LeaseTable::Holder> LeaseTable::HolderOf(absl::string_view key,
                                                       absl::string_view kind) {
  Held only;
  only.key = std::string(key);
  only.kind = std::string(kind);
  const std::vector<Holder> holders = HoldersOf(&only);
  return holders.empty() ? std::nullopt : std::optional<Holder>(holders[0]);
}

std::vector<LeaseTable::Holder> LeaseTable::Holders() { return HoldersOf(nullptr); }

std::optional<std::chrono::milliseconds> LeaseTable::Beat() {
  std::vector<std::shared_ptr<Held>> held;
  {
    MutexLock lock(mu_);
    for (const auto& [owner, one] : held_) held.push_back(one);
  }
  if (held.empty()) return std::nullopt;
  std::vector<std::shared_ptr<Held>> lost;
  const auto beat = [&](SqliteFile& file) -> absl::Status {
    lost.clear();
    for (const std::shared_ptr<Held>& one : held) {
      Statement update(file.db(),
                       "UPDATE leases SET beat_boot_us = ?"
                       " WHERE key = ? AND kind = ? AND owner = ?");
      const int code =
          update.Int(boot_microseconds_()).Blob(one->key).Text(one->kind).Text(one->owner).Step();
      if (code != SQLITE_DONE) return file.Failed(code, "beat");
      if (sqlite3_changes(file.db()) == 0) lost.push_back(one);
    }
    return absl::OkStatus();
  };
  const absl::Status status =
      file_([&](SqliteFile& file) { return file.Transaction([&] { return beat(file); }); });
  // Several beats fit into the timeout, so one may fail or come late.
  constexpr int kBeats = 5, kBeatsAfterFailure = 20;
  if (!status.ok()) return timeout_ / kBeatsAfterFailure;
  for (const std::shared_ptr<Held>& one : lost) {
    // Leaves out leases that were released meanwhile.
    if (Forget(one->owner)) one->lost = true;
  }
  return timeout_ / kBeats;
}

}  // namespace athanor
