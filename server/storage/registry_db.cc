#include "server/storage/registry_db.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr absl::string_view kFullRange = "";  // the box of a plan of all sizes

}  // namespace

std::string ChecksumOf(const VersionRow& row) {
  Sha256 sha256;
  const std::string numbers =
      absl::StrCat(row.version, " ", row.created_us, " ", row.approximate, " ", row.deterministic);
  for (const std::string* field : {&row.name, &numbers, &row.format, &row.graph, &row.search_budget,
                                   &row.disable_rules, &row.batch_dim, &row.notes}) {
    sha256.Update(absl::StrCat(field->size(), ":")).Update(*field);
  }
  std::vector<std::string> tensors;
  for (const TensorRow& tensor : row.tensors) {
    tensors.push_back(absl::StrCat(absl::BytesToHexString(tensor.hash), "=", tensor.bytes, " "));
  }
  std::sort(tensors.begin(), tensors.end());
  for (const std::string& tensor : tensors) sha256.Update(tensor);
  // Rows from before there were files have none, and keep their checksums.
  if (!row.generation.empty()) {
    sha256.Update(absl::StrCat("generation ", row.generation.size(), ":")).Update(row.generation);
  }
  std::vector<std::string> files;
  for (const FileRow& file : row.files) {
    files.push_back(absl::StrCat("file ", file.path.size(), ":", file.path, "=",
                                 absl::BytesToHexString(file.hash)));
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) sha256.Update(file);
  return sha256.Finish();
}

absl::StatusOr<std::unique_ptr<RegistryDb>> RegistryDb::Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, RegistryFile::Open(path));
  return std::unique_ptr<RegistryDb>(new RegistryDb(std::move(file)));
}

absl::Status RegistryDb::Execute(const std::string& sql) {
  return file_->Use([&](Connection& on) { return on.Execute(sql); });
}

absl::Status RegistryDb::ReadTensors(Connection& from, VersionRow* row) {
  Statement read = from.Prepare(
      "SELECT hash, bytes, blob, blob_offset, seal FROM version_tensors "
      "LEFT JOIN tensor_blobs USING(hash) LEFT JOIN tensor_seals USING(hash) "
      "WHERE name=?1 AND version=?2");
  return from.Read(read.Text(row->name).Int(row->version), [&] {
    TensorRow& tensor = row->tensors.emplace_back();
    tensor = {std::string(read.BytesAt(0)), read.IntAt(1)};
    if (!read.IsNull(4)) tensor.seal = std::string(read.BytesAt(4));
    if (read.IsNull(2)) return;
    tensor.blob = std::string(read.BytesAt(2));
    tensor.blob_offset = read.IntAt(3);
  });
}

absl::Status RegistryDb::ReadFiles(Connection& from, VersionRow* row) {
  Statement read = from.Prepare(
      "SELECT path, hash FROM version_files WHERE name=?1 AND version=?2 ORDER BY path");
  return from.Read(read.Text(row->name).Int(row->version), [&] {
    row->files.push_back({std::string(read.BytesAt(0)), std::string(read.BytesAt(1))});
  });
}

absl::Status RegistryDb::ReadSource(Connection& from, VersionRow* row) {
  Statement read =
      from.Prepare("SELECT content, stamp FROM repository_versions WHERE name=?1 AND version=?2");
  return from.Read(read.Text(row->name).Int(row->version), [&] {
    row->source = {std::string(read.BytesAt(0)), std::string(read.BytesAt(1))};
  });
}

absl::Status RegistryDb::ReadPlans(Connection& from, VersionRow* row) {
  Statement read = from.Prepare(
      "SELECT plan_id, first, served, pinned, info, box FROM version_plans "
      "WHERE name=?1 AND version=?2 ORDER BY box, place");
  return from.Read(read.Text(row->name).Int(row->version), [&] {
    VersionPlanRow plan{.plan_id = std::string(read.BytesAt(0)),
                        .first = read.IntAt(1) != 0,
                        .served = read.IntAt(2) != 0,
                        .pinned = read.IntAt(3) != 0,
                        .info = std::string(read.BytesAt(4)),
                        .box = std::string(read.BytesAt(5))};
    (plan.box == kFullRange ? row->plans : row->pinned_boxes).push_back(std::move(plan));
  });
}

absl::StatusOr<std::vector<VersionRow>> RegistryDb::ReadVersions() {
  std::vector<VersionRow> rows;
  std::vector<std::string> checksums;
  RETURN_IF_ERROR(file_->Use([&](Connection& from) {
    Statement read = from.Prepare(
        "SELECT name, version, format, graph, search_budget, buckets, created_us, "
        "disable_rules, approximate, deterministic, batch_dim, notes, checksum, generation "
        "FROM versions ORDER BY name, version");
    RETURN_IF_ERROR(from.Read(read, [&] {
      checksums.emplace_back(read.BytesAt(12));
      rows.push_back({.name = std::string(read.BytesAt(0)),
                      .version = read.IntAt(1),
                      .format = std::string(read.BytesAt(2)),
                      .graph = std::string(read.BytesAt(3)),
                      .search_budget = std::string(read.BytesAt(4)),
                      .disable_rules = std::string(read.BytesAt(7)),
                      .approximate = read.IntAt(8) != 0,
                      .deterministic = read.IntAt(9) != 0,
                      .batch_dim = std::string(read.BytesAt(10)),
                      .buckets = std::string(read.BytesAt(5)),
                      .created_us = read.IntAt(6),
                      .notes = std::string(read.BytesAt(11)),
                      .generation = std::string(read.BytesAt(13)),
                      .tensors = {},
                      .plans = {}});
    }));
    for (VersionRow& row : rows) {
      RETURN_IF_ERROR(ReadTensors(from, &row));
      RETURN_IF_ERROR(ReadFiles(from, &row));
      RETURN_IF_ERROR(ReadSource(from, &row));
      RETURN_IF_ERROR(ReadPlans(from, &row));
    }
    return absl::OkStatus();
  }));
  std::vector<const VersionRow*> unknown;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (checksums[i].empty()) {
      unknown.push_back(&rows[i]);
    } else if (const std::string found = ChecksumOf(rows[i]); found != checksums[i]) {
      rows[i].damage = absl::StrCat("its rows in ", file_->path(), " have SHA-256 ",
                                    absl::BytesToHexString(found), ", expected ",
                                    absl::BytesToHexString(checksums[i]));
    }
  }
  RETURN_IF_ERROR(SetChecksums(unknown));
  return rows;
}

absl::Status RegistryDb::SetChecksums(const std::vector<const VersionRow*>& rows) {
  if (rows.empty()) return absl::OkStatus();
  return file_->Change([&](Connection& to) {
    for (const VersionRow* row : rows) {
      const std::string checksum = ChecksumOf(*row);
      Statement update = to.Prepare("UPDATE versions SET checksum=?3 WHERE name=?1 AND version=?2");
      RETURN_IF_ERROR(to.Write(update.Text(row->name).Int(row->version).Blob(checksum)));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<NameRow>> RegistryDb::ReadNames() {
  std::vector<NameRow> rows;
  RETURN_IF_ERROR(file_->Use([&](Connection& from) {
    Statement read = from.Prepare("SELECT name, next_version, serving, rolled_back FROM names");
    return from.Read(read, [&] {
      rows.push_back({std::string(read.BytesAt(0)), read.IntAt(1), read.IntAt(2), read.IntAt(3)});
    });
  }));
  return rows;
}

absl::StatusOr<int64_t> RegistryDb::NextVersion(const std::string& name) {
  int64_t next = 1;
  RETURN_IF_ERROR(file_->Use([&](Connection& from) {
    Statement read = from.Prepare("SELECT next_version FROM names WHERE name=?1");
    return from.Read(read.Text(name), [&] { next = read.IntAt(0); });
  }));
  return next;
}

absl::Status RegistryDb::AddVersion(Connection& to, const VersionRow& row) {
  // A version that was rolled back and is another now may take over again.
  Statement name = to.Prepare(
      "INSERT INTO names VALUES(?1, ?2 + 1, 0, 0) "
      "ON CONFLICT(name) DO UPDATE SET next_version=max(next_version, ?2 + 1), "
      "rolled_back=rolled_back - (rolled_back = ?2)");
  RETURN_IF_ERROR(to.Write(name.Text(row.name).Int(row.version)));
  bool replaces = false;
  Statement had = to.Prepare("SELECT 1 FROM versions WHERE name=?1 AND version=?2");
  RETURN_IF_ERROR(to.Read(had.Text(row.name).Int(row.version), [&] { replaces = true; }));
  if (replaces) RETURN_IF_ERROR(DeleteVersion(to, row.name, row.version));
  Statement version = to.Prepare(
      "INSERT INTO versions "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)");
  version.Text(row.name).Int(row.version).Text(row.format).Blob(row.graph);
  version.Text(row.search_budget).Blob(row.buckets);
  version.Int(row.created_us).Text(row.disable_rules);
  version.Int(row.approximate ? 1 : 0).Int(row.deterministic ? 1 : 0).Text(row.batch_dim);
  const std::string checksum = ChecksumOf(row);
  RETURN_IF_ERROR(to.Write(version.Blob(row.notes).Blob(checksum).Blob(row.generation)));
  for (const TensorRow& tensor : row.tensors) {
    Statement insert = to.Prepare("INSERT INTO version_tensors VALUES(?1, ?2, ?3, ?4)");
    insert.Text(row.name).Int(row.version).Blob(tensor.hash).Int(tensor.bytes);
    RETURN_IF_ERROR(to.Write(insert));
  }
  for (const FileRow& file : row.files) {
    Statement insert = to.Prepare("INSERT INTO version_files VALUES(?1, ?2, ?3, ?4)");
    insert.Text(row.name).Int(row.version).Text(file.path).Blob(file.hash);
    RETURN_IF_ERROR(to.Write(insert));
  }
  if (!row.source.content.empty()) {
    Statement insert = to.Prepare("INSERT INTO repository_versions VALUES(?1, ?2, ?3, ?4)");
    insert.Text(row.name).Int(row.version).Blob(row.source.content).Blob(row.source.stamp);
    RETURN_IF_ERROR(to.Write(insert));
  } else {
    // Names are the repository's or uploaded, not both, or a later start with --model_repository
    // would neither load nor delete this one.
    Statement uploaded = to.Prepare("DELETE FROM repository_versions WHERE name=?1");
    RETURN_IF_ERROR(to.Write(uploaded.Text(row.name)));
  }
  RETURN_IF_ERROR(TensorRows::SetPlaces(to, row.tensors));
  RETURN_IF_ERROR(TensorRows::SetVerified(to, row.verified));
  RETURN_IF_ERROR(TensorRows::SetSeals(to, row.tensors));
  RETURN_IF_ERROR(TensorRows::AddMagnitudes(to, row.magnitudes));
  return replaces ? TensorRows::DeleteUnused(to) : absl::OkStatus();
}

absl::Status RegistryDb::DeleteVersion(Connection& from, const std::string& name, int64_t version) {
  for (absl::string_view sql : {"DELETE FROM version_tensors WHERE name=?1 AND version=?2",
                                "DELETE FROM version_files WHERE name=?1 AND version=?2",
                                "DELETE FROM version_plans WHERE name=?1 AND version=?2",
                                "DELETE FROM repository_versions WHERE name=?1 AND version=?2",
                                "DELETE FROM versions WHERE name=?1 AND version=?2"}) {
    Statement statement = from.Prepare(sql);
    RETURN_IF_ERROR(from.Write(statement.Text(name).Int(version)));
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::AddVersion(const VersionRow& row) {
  return file_->Change([&](Connection& to) { return AddVersion(to, row); });
}

absl::Status RegistryDb::DeleteVersions(const std::string& name,
                                        const std::vector<int64_t>& versions) {
  return file_->Change([&](Connection& from) {
    for (int64_t version : versions) {
      RETURN_IF_ERROR(DeleteVersion(from, name, version));
      Statement serving = from.Prepare("UPDATE names SET serving=0 WHERE name=?1 AND serving=?2");
      RETURN_IF_ERROR(from.Write(serving.Text(name).Int(version)));
    }
    // As VersionTable forgets the name. A model repository may have versions of any number next.
    Statement forget = from.Prepare(
        "UPDATE names SET rolled_back=0 "
        "WHERE name=?1 AND NOT EXISTS (SELECT 1 FROM versions WHERE name=?1)");
    RETURN_IF_ERROR(from.Write(forget.Text(name)));
    return TensorRows::DeleteUnused(from);
  });
}

absl::Status RegistryDb::SetBuckets(const std::string& name, int64_t version,
                                    const std::string& buckets) {
  return file_->Use([&](Connection& to) {
    Statement update = to.Prepare("UPDATE versions SET buckets=?3 WHERE name=?1 AND version=?2");
    return to.Write(update.Text(name).Int(version).Blob(buckets));
  });
}

absl::Status RegistryDb::SetStamp(const std::string& name, int64_t version,
                                  const std::string& stamp) {
  return file_->Use([&](Connection& to) {
    Statement update =
        to.Prepare("UPDATE repository_versions SET stamp=?3 WHERE name=?1 AND version=?2");
    return to.Write(update.Text(name).Int(version).Blob(stamp));
  });
}

absl::Status RegistryDb::SetServing(const NameRow& row) {
  return file_->Use([&](Connection& to) {
    Statement update = to.Prepare("UPDATE names SET serving=?2, rolled_back=?3 WHERE name=?1");
    return to.Write(update.Text(row.name).Int(row.serving).Int(row.rolled_back));
  });
}

absl::Status RegistryDb::AddPlans(Connection& to, const std::string& name, int64_t version,
                                  const std::vector<VersionPlanRow>& rows) {
  for (size_t place = 0; place < rows.size(); ++place) {
    const VersionPlanRow& row = rows[place];
    // Inserts nothing if the version was deleted meanwhile.
    Statement insert = to.Prepare(
        "INSERT INTO version_plans SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 "
        "FROM versions WHERE name=?1 AND version=?2");
    insert.Text(name).Int(version).Blob(row.box).Text(row.plan_id);
    insert.Int(static_cast<int64_t>(place)).Int(row.first ? 1 : 0).Int(row.served ? 1 : 0);
    RETURN_IF_ERROR(to.Write(insert.Int(row.pinned ? 1 : 0).Blob(row.info)));
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::SetPlans(const std::string& name, int64_t version,
                                  const std::vector<VersionPlanRow>& rows) {
  return file_->Change([&](Connection& to) {
    Statement clear =
        to.Prepare("DELETE FROM version_plans WHERE name=?1 AND version=?2 AND box=?3");
    RETURN_IF_ERROR(to.Write(clear.Text(name).Int(version).Blob(kFullRange)));
    return AddPlans(to, name, version, rows);
  });
}

absl::Status RegistryDb::SetPinnedBoxes(const std::string& name, int64_t version,
                                        const std::vector<VersionPlanRow>& rows) {
  return file_->Change([&](Connection& to) {
    Statement clear =
        to.Prepare("DELETE FROM version_plans WHERE name=?1 AND version=?2 AND box!=?3");
    RETURN_IF_ERROR(to.Write(clear.Text(name).Int(version).Blob(kFullRange)));
    return AddPlans(to, name, version, rows);
  });
}

}  // namespace athanor
