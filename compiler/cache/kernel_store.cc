#include "compiler/cache/kernel_store.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/cache/schema.h"
#include "deploy/bazel/libs/sha256.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace athanor {
namespace {

constexpr size_t kMaxObjectBytes = size_t{256} << 20;
// Raised when objects built under the old calling convention no longer fit the runtime.
constexpr int64_t kCodegenVersion = 1;

std::string Checksum(absl::string_view key, absl::string_view object) {
  return HashOfFields({key, object});
}

}  // namespace

std::string KernelKey::Hash() const {
  return HashOfFields(
      {source_hash, flags, triple, cpu, features, compiler_version, absl::StrCat(codegen_version)});
}

KernelKey MakeKernelKey(absl::string_view source, const v1::Target& target, absl::string_view flags,
                        absl::string_view compiler_version) {
  KernelKey key;
  key.source_hash = Sha256Hex(source);
  key.flags = std::string(flags);
  key.triple = target.triple();
  key.cpu = target.cpu();
  key.features = absl::StrJoin(target.features(), ",");
  key.compiler_version = std::string(compiler_version);
  key.codegen_version = kCodegenVersion;
  return key;
}

std::string CheckKey(const internal::CheckRequest& request) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  return Sha256Of(bytes);
}

KernelStore::KernelStore(std::string path, Report report)
    : file_(std::move(path), CacheSchema(), std::move(report)) {}

KernelStore::~KernelStore() = default;

std::unique_ptr<KernelStore> KernelStore::Open(std::string path, Report report) {
  std::unique_ptr<KernelStore> store(new KernelStore(std::move(path), std::move(report)));
  MutexLock lock(store->mu_);
  if (!store->file_.path().empty()) store->file_.Open();
  return store;
}

std::optional<std::string> KernelStore::Get(const KernelKey& key) {
  const std::string hash = key.Hash();
  MutexLock lock(mu_);
  ++stats_.misses;
  file_.Refresh();
  if (file_.db() == nullptr) return std::nullopt;
  int64_t bytes = 0;
  {
    Statement statement(file_.db(), "SELECT checksum, object FROM kernels WHERE key = ?");
    const int code = statement.Blob(hash).Step();
    if (code == SQLITE_DONE) return std::nullopt;
    if (code != SQLITE_ROW) {
      file_.Failed(code, "read").IgnoreError();
      return std::nullopt;
    }
    std::string object(statement.BytesAt(1));
    if (statement.BytesAt(0) == absl::string_view(Checksum(hash, object))) {
      --stats_.misses;
      ++stats_.hits;
      return object;
    }
    bytes = static_cast<int64_t>(object.size());
  }
  ++stats_.bad_rows;
  Quarantine(hash, key.source_hash, bytes).IgnoreError();
  return std::nullopt;
}

absl::Status KernelStore::Quarantine(absl::string_view key, absl::string_view about,
                                     int64_t bytes) {
  return file_.Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Statement remove(file_.db(), "DELETE FROM kernels WHERE key = ?");
    int code = remove.Blob(key).Step();
    if (code != SQLITE_DONE) return file_.Failed(code, "delete a bad row");
    Statement keep(file_.db(),
                   "INSERT OR REPLACE INTO quarantine (tier, key, found_us, why, about, bytes)"
                   " VALUES ('kernels', ?, ?, 'its checksum does not fit', ?, ?)");
    code = keep.Blob(key).Int(WallMicroseconds()).Text(about).Int(bytes).Step();
    return code == SQLITE_DONE ? absl::OkStatus() : file_.Failed(code, "quarantine a bad row");
  });
}

absl::Status KernelStore::Put(const KernelKey& key, absl::string_view object) {
  if (object.size() > kMaxObjectBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel object: ", object.size(), " bytes, at most ", kMaxObjectBytes, " are cached"));
  }
  const std::string hash = key.Hash();
  const std::string checksum = Checksum(hash, object);
  MutexLock lock(mu_);
  file_.Refresh();
  if (file_.db() == nullptr) return file_.Failed(0, "write");
  return file_.Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const int64_t now = WallMicroseconds();
    Statement statement(file_.db(),
                        "INSERT OR REPLACE INTO kernels (key, source_hash, flags, triple, cpu,"
                        " features, compiler_version, codegen_version, checksum, bytes,"
                        " created_us, object, used_us)"
                        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    statement.Blob(hash).Text(key.source_hash).Text(key.flags).Text(key.triple).Text(key.cpu);
    statement.Text(key.features).Text(key.compiler_version).Int(key.codegen_version);
    statement.Blob(checksum).Int(static_cast<int64_t>(object.size())).Int(now).Blob(object);
    const int code = statement.Int(now).Step();
    return code == SQLITE_DONE ? absl::OkStatus() : file_.Failed(code, "write");
  });
}

bool KernelStore::HasPassed(absl::string_view check_key) {
  MutexLock lock(mu_);
  file_.Refresh();
  if (file_.db() == nullptr) return false;
  Statement statement(file_.db(), "SELECT 1 FROM checks WHERE key = ?");
  const int code = statement.Blob(check_key).Step();
  if (code != SQLITE_ROW && code != SQLITE_DONE) file_.Failed(code, "read").IgnoreError();
  return code == SQLITE_ROW;
}

absl::Status KernelStore::PutPassed(absl::string_view check_key) {
  MutexLock lock(mu_);
  file_.Refresh();
  if (file_.db() == nullptr) return file_.Failed(0, "write");
  return file_.Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const int64_t now = WallMicroseconds();
    Statement statement(file_.db(),
                        "INSERT OR IGNORE INTO checks (key, created_us, used_us) VALUES (?, ?, ?)");
    const int code = statement.Blob(check_key).Int(now).Int(now).Step();
    return code == SQLITE_DONE ? absl::OkStatus() : file_.Failed(code, "write");
  });
}

KernelStore::Stats KernelStore::GetStats() {
  MutexLock lock(mu_);
  Stats stats = stats_;
  Statement statement(file_.db(), "SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM kernels");
  if (statement.Step() == SQLITE_ROW) {
    stats.kernels = statement.IntAt(0);
    stats.bytes = statement.IntAt(1);
  }
  return stats;
}

bool KernelStore::usable() {
  MutexLock lock(mu_);
  return file_.db() != nullptr;
}

absl::Status KernelStore::ExecuteForTest(const std::string& sql) {
  MutexLock lock(mu_);
  return file_.Execute(sql);
}

}  // namespace athanor
