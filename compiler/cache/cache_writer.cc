#include "compiler/cache/cache_writer.h"

#include <sqlite3.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/cache/garbage.h"

namespace athanor {
namespace {

// Limits of a transaction, so that other processes can write too.
constexpr size_t kMostBatch = 256;
constexpr int64_t kMostBatchBytes = int64_t{16} << 20;
constexpr int kMostTries = 5;  // while another process writes; each try waits busy_milliseconds
constexpr size_t kMostMarks = 100000;

}  // namespace

CacheWriter::CacheWriter(Options options, SqliteFile::Report report)
    : options_(std::move(options)), file_(options_.path, CacheSchema(), std::move(report)) {
  MutexLock lock(mu_);
  reason_ = "no cache path was given";
  if (options_.path.empty()) return;
  file_.Open();
  NoteFile();
  if (usable_) ++opened_;
  again_at_ = std::chrono::steady_clock::now() + kTryAgain;
  thread_ = std::thread([this] { Run(); });
}

void CacheWriter::NoteFile() {
  state_ = file_.state();
  reason_ = file_.reason();
  usable_ = file_.db() != nullptr;
}

void CacheWriter::AskToOpen() {
  if (usable_ && state_ != FileState::kReadOnly) return;
  const auto now = std::chrono::steady_clock::now();
  if (options_.path.empty() || now < again_at_) return;
  again_at_ = now + kTryAgain;
  open_again_ = true;
  changed_.NotifyAll();
}

void CacheWriter::TryAgain() {
  MutexLock lock(mu_);
  AskToOpen();
}

void CacheWriter::OpenAgain(MutexLock& lock) {
  open_again_ = false;
  lock.Unlock();
  file_.Open();
  lock.Lock();
  NoteFile();
  if (usable_) ++opened_;
}

CacheWriter::~CacheWriter() {
  {
    MutexLock lock(mu_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void CacheWriter::Put(std::shared_ptr<const CacheRow> row) {
  const int64_t bytes = row->bytes();
  Enqueue({.row = std::move(row), .bad = std::nullopt}, bytes);
}

void CacheWriter::Quarantine(BadRow bad) {
  const int64_t bytes = static_cast<int64_t>(bad.about.size() + bad.key.size());
  Enqueue({.row = nullptr, .bad = std::move(bad)}, bytes);
}

void CacheWriter::Enqueue(Job job, int64_t bytes) {
  const auto deadline = std::chrono::steady_clock::now() + kMostWait;
  MutexLock lock(mu_);
  AskToOpen();
  bool room = usable_;
  while (room && queued_bytes_ > 0 && queued_bytes_ + bytes > kMostQueuedBytes) {
    room = progress_.WaitUntil(lock, deadline);
  }
  if (!room) {
    if (job.row != nullptr) ++dropped_;
    if (usable_) failure_ = absl::ResourceExhaustedError("the cache's queue of writes is full");
    return;
  }
  ++put_;
  queued_bytes_ += bytes;
  if (job.row != nullptr) pending_.emplace(std::pair(job.row->tier, job.row->key), job.row);
  queue_.emplace_back(std::move(job), bytes);
  changed_.NotifyAll();
}

void CacheWriter::Used(Tier tier, int64_t rowid, int64_t used_us) {
  const int64_t now = WallMicroseconds();
  // Also marks the row if the clock was set back since.
  if (used_us <= now && now - used_us < kUsedMicroseconds) return;
  MutexLock lock(mu_);
  if (used_.size() < kMostMarks) used_[{tier, rowid, ""}] = now;
}

void CacheWriter::UsedCheck(absl::string_view key, int64_t used_us) {
  const int64_t now = WallMicroseconds();
  if (used_us <= now && now - used_us < kUsedMicroseconds) return;
  MutexLock lock(mu_);
  if (used_.size() < kMostMarks) used_[{Tier::kChecks, 0, std::string(key)}] = now;
}

std::vector<std::shared_ptr<const CacheRow>> CacheWriter::Pending(Tier tier,
                                                                  absl::string_view key) {
  std::vector<std::shared_ptr<const CacheRow>> rows;
  MutexLock lock(mu_);
  if (pending_.empty()) return rows;
  const auto [begin, end] = pending_.equal_range(std::pair(tier, std::string(key)));
  for (auto at = begin; at != end; ++at) rows.push_back(at->second);
  std::reverse(rows.begin(), rows.end());
  return rows;
}

absl::Status CacheWriter::Flush(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  MutexLock lock(mu_);
  if (!usable_) return absl::UnavailableError(absl::StrCat("no usable cache: ", reason_));
  const int64_t wanted = put_;
  while (done_ < wanted) {
    if (!progress_.WaitUntil(lock, deadline) && done_ < wanted) {
      return absl::DeadlineExceededError(
          absl::StrCat("the cache has ", wanted - done_, " rows to write still"));
    }
  }
  return std::exchange(failure_, absl::OkStatus());
}

CacheWriter::State CacheWriter::GetState() {
  MutexLock lock(mu_);
  return {state_, reason_, put_ - done_, dropped_};
}

CacheWriter::Batch CacheWriter::TakeBatch() {
  Batch batch;
  for (int64_t bytes = 0;
       !queue_.empty() && batch.size() < kMostBatch && bytes < kMostBatchBytes;) {
    bytes += queue_.front().second;
    queued_bytes_ -= queue_.front().second;
    batch.push_back(std::move(queue_.front().first));
    queue_.pop_front();
  }
  progress_.NotifyAll();  // there is room
  return batch;
}

void CacheWriter::Forget(const Batch& batch) {
  for (const Job& job : batch) {
    if (job.row == nullptr) continue;
    const auto [begin, end] = pending_.equal_range(std::pair(job.row->tier, job.row->key));
    const auto at = std::find_if(begin, end, [&](const auto& p) { return p.second == job.row; });
    pending_.erase(at);
  }
}

void CacheWriter::Wake() {
  MutexLock lock(mu_);
  beat_at_ = std::chrono::steady_clock::now();
  changed_.NotifyAll();
}

void CacheWriter::WaitForWork(MutexLock& lock) {
  while (!stop_) {
    if (beat_at_ && *beat_at_ <= std::chrono::steady_clock::now()) {
      beat_at_.reset();
      lock.Unlock();
      const std::optional<std::chrono::milliseconds> next = options_.beat();
      lock.Lock();
      // Keeps the time of a Wake that came meanwhile: it is sooner.
      if (next && !beat_at_) beat_at_ = std::chrono::steady_clock::now() + *next;
      continue;
    }
    if (!queue_.empty() || open_again_) return;
    if (beat_at_) {
      changed_.WaitUntil(lock, *beat_at_);
    } else {
      changed_.Wait(lock);
    }
  }
}

void CacheWriter::Run() {
  MutexLock lock(mu_);
  for (;;) {
    WaitForWork(lock);
    if (open_again_) {
      OpenAgain(lock);
      continue;
    }
    if (queue_.empty() && used_.empty()) return;
    const Batch batch = TakeBatch();
    const Marks marks = std::exchange(used_, {});
    lock.Unlock();
    auto [dropped, status] = Write(batch, marks);
    KeepToLimit();
    lock.Lock();
    Forget(batch);
    done_ += static_cast<int64_t>(batch.size());
    dropped_ += dropped;
    if (!status.ok()) failure_ = std::move(status);
    NoteFile();
    progress_.NotifyAll();
  }
}

std::pair<int64_t, absl::Status> CacheWriter::Write(const Batch& batch, const Marks& marks) {
  file_.Refresh();
  absl::Status status = WriteOnce(batch, marks);
  for (int i = 1; i < kMostTries && absl::IsUnavailable(status) && file_.db() != nullptr; ++i) {
    status = WriteOnce(batch, marks);
  }
  if (absl::IsDataLoss(status)) status = WriteOnce(batch, marks);  // into the new file
  if (status.ok()) return {0, status};
  if (absl::IsUnavailable(status) || batch.size() < 2) return {batch.size(), status};
  // Writes row by row, so that a row which fails does not cost the others.
  int64_t dropped = 0;
  absl::Status last;
  for (const Job& job : batch) {
    status = WriteOnce(absl::MakeConstSpan(&job, 1), {});
    if (status.ok()) continue;
    ++dropped;
    last = std::move(status);
  }
  return {dropped, last};
}

absl::Status CacheWriter::WriteOnce(absl::Span<const Job> jobs, const Marks& marks) {
  if (file_.db() == nullptr) return file_.Failed(0, "write");
  return file_.Transaction([&] {
    for (const Job& job : jobs) {
      absl::Status status =
          job.row != nullptr ? InsertRow(file_, *job.row) : QuarantineRow(file_, *job.bad);
      if (!status.ok()) return status;
    }
    return WriteMarks(marks);
  });
}

absl::Status CacheWriter::WriteMarks(const Marks& marks) {
  for (const auto& [mark, when] : marks) {
    const bool check = mark.tier == Tier::kChecks;
    Statement update(file_.db(),
                     absl::StrCat("UPDATE ", TierName(mark.tier), " SET used_us = ? WHERE ",
                                  check ? "key" : "rowid", " = ?"));
    update.Int(when);
    check ? update.Blob(mark.key) : update.Int(mark.rowid);
    const int code = update.Step();
    if (code != SQLITE_DONE) return file_.Failed(code, "write the times of use");
  }
  return absl::OkStatus();
}

void CacheWriter::KeepToLimit() {
  if (options_.limit_bytes <= 0 || file_.db() == nullptr) return;
  if (UsedBytes(file_) <= options_.limit_bytes) return;
  // Leaves room for the next rows, so that this is rare.
  GarbageOptions options{.limit_bytes = options_.limit_bytes - options_.limit_bytes / 10};
  // Rows that could not be removed stay above the limit until the next batch; Failed has reported
  // the reason.
  CollectGarbage(file_, options).status().IgnoreError();
}

}  // namespace athanor
