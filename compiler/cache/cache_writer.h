// The one thread of a process that writes to the cache. Rows are queued, found by this process
// while they wait, and written in batches.
//
//   CacheWriter writer({.path = path, .limit_bytes = limit}, report);
//   writer.Put(row);                                  // returns at once
//   writer.Pending(Tier::kKernels, hash);             // until it is in the file
//   absl::Status s = writer.Flush(absl::Seconds(1));
//
// Thread-safe. Rows that cannot be written are dropped and counted: the cache is only slower then.
#ifndef ATHANOR_COMPILER_CACHE_CACHE_WRITER_H_
#define ATHANOR_COMPILER_CACHE_CACHE_WRITER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/rows.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class CacheWriter {
 public:
  static constexpr int64_t kMostQueuedBytes = int64_t{64} << 20;
  static constexpr std::chrono::milliseconds kMostWait{1000};  // of a Put, for room in the queue
  static constexpr std::chrono::milliseconds kTryAgain{2000};
  // Age from which a row's used_us is written again.
  static constexpr int64_t kUsedMicroseconds = int64_t{3600} * 1000 * 1000;

  struct Options {
    std::string path;         // empty: nothing is stored
    int64_t limit_bytes = 0;  // of the file; above it rows are evicted; 0: no limit
    // Called by the thread after Wake, and again after each delay that it returns.
    std::function<std::optional<std::chrono::milliseconds>()> beat;
  };
  CacheWriter(Options options, SqliteFile::Report report);
  ~CacheWriter();  // writes the queued rows
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;

  // Reports whether there is a file to read. A file that could not be opened, or is only readable
  // (a full or read-only disk), is opened again as long as it is used: see TryAgain.
  bool usable() const { return usable_; }
  int64_t opened() const { return opened_; }  // times that a readable file was opened
  // Makes the thread reopen the file if that may help, at most every kTryAgain.
  void TryAgain();

  void Put(std::shared_ptr<const CacheRow> row);
  void Quarantine(BadRow bad);
  // Marks a row as used. The mark is written with the next rows, never by itself. `used_us`: the
  // row's present value.
  void Used(Tier tier, int64_t rowid, int64_t used_us);
  void UsedCheck(absl::string_view key, int64_t used_us);

  // Returns the rows under `key` that are not in the file yet, newest first.
  std::vector<std::shared_ptr<const CacheRow>> Pending(Tier tier, absl::string_view key);

  // Says that `beat` is due.
  void Wake();

  // Waits until all that was queued before is in the file. DEADLINE_EXCEEDED after `limit`; else
  // the reason why rows were dropped since the last Flush.
  absl::Status Flush(std::chrono::milliseconds limit);

  struct State {
    FileState file = FileState::kUnusable;
    std::string reason;
    int64_t waiting = 0;  // rows
    int64_t dropped = 0;
  };
  State GetState();

 private:
  struct Job {  // has one of the two
    std::shared_ptr<const CacheRow> row;
    std::optional<BadRow> bad;
  };
  struct UsedMark {
    Tier tier;
    int64_t rowid;
    std::string key;  // of checks
    auto operator<=>(const UsedMark&) const = default;
  };
  using Batch = std::vector<Job>;
  using Marks = std::map<UsedMark, int64_t>;  // the new used_us

  void Run();
  void Enqueue(Job job, int64_t bytes);
  void AskToOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OpenAgain(MutexLock& lock) ABSL_NO_THREAD_SAFETY_ANALYSIS;  // `lock` holds mu_
  void NoteFile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until there is work; calls `beat` when it is due.
  void WaitForWork(MutexLock& lock) ABSL_NO_THREAD_SAFETY_ANALYSIS;  // `lock` holds mu_
  Batch TakeBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns how many of the batch were dropped, and the reason of the last one.
  std::pair<int64_t, absl::Status> Write(const Batch& batch, const Marks& marks);
  absl::Status WriteOnce(absl::Span<const Job> jobs, const Marks& marks);
  absl::Status WriteMarks(const Marks& marks);
  void KeepToLimit();
  void Forget(const Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  SqliteFile file_;  // used by the thread alone once it runs
  std::atomic<bool> usable_{false};
  std::atomic<int64_t> opened_{0};

  Mutex mu_;
  CondVar changed_;                                                 // the queue or stop_ changed
  CondVar progress_;                                                // a batch was taken or written
  std::deque<std::pair<Job, int64_t>> queue_ ABSL_GUARDED_BY(mu_);  // with their bytes
  int64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::multimap<std::pair<Tier, std::string>, std::shared_ptr<const CacheRow>> pending_
      ABSL_GUARDED_BY(mu_);
  Marks used_ ABSL_GUARDED_BY(mu_);
  int64_t put_ ABSL_GUARDED_BY(mu_) = 0;   // jobs ever queued
  int64_t done_ ABSL_GUARDED_BY(mu_) = 0;  // number of jobs in the file or dropped
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);  // the last one since the last Flush
  FileState state_ ABSL_GUARDED_BY(mu_) = FileState::kUnusable;
  std::string reason_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool open_again_ ABSL_GUARDED_BY(mu_) = false;
  std::chrono::steady_clock::time_point again_at_ ABSL_GUARDED_BY(mu_);
  std::optional<std::chrono::steady_clock::time_point> beat_at_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_CACHE_WRITER_H_
