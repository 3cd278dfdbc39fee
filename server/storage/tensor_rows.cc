#include "server/storage/tensor_rows.h"

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::StatusOr<std::vector<MagnitudeRow>> TensorRows::ReadMagnitudes() {
  std::vector<MagnitudeRow> rows;
  RETURN_IF_ERROR(file_.Use([&](Connection& from) {
    Statement read = from.Prepare("SELECT hash, dtype, magnitude FROM tensor_magnitudes");
    return from.Read(read, [&] {
      std::optional<int> magnitude;
      if (!read.IsNull(2)) magnitude = static_cast<int>(read.IntAt(2));
      rows.push_back({std::string(read.BytesAt(0)), std::string(read.BytesAt(1)), magnitude});
    });
  }));
  return rows;
}

absl::StatusOr<std::vector<VerifiedRow>> TensorRows::ReadVerified() {
  std::vector<VerifiedRow> rows;
  RETURN_IF_ERROR(file_.Use([&](Connection& from) {
    Statement read =
        from.Prepare("SELECT hash, inode, bytes, modified_ns, changed_ns FROM verified_tensors");
    return from.Read(read, [&] {
      rows.push_back({std::string(read.BytesAt(0)),
                      {read.IntAt(1), read.IntAt(2), read.IntAt(3), read.IntAt(4)}});
    });
  }));
  return rows;
}

absl::Status TensorRows::AddMagnitudes(Connection& to, const std::vector<MagnitudeRow>& rows) {
  for (const MagnitudeRow& row : rows) {
    Statement insert = to.Prepare("INSERT OR IGNORE INTO tensor_magnitudes VALUES(?1, ?2, ?3)");
    insert.Blob(row.hash).Text(row.dtype);
    row.magnitude ? insert.Int(*row.magnitude) : insert.Null();
    RETURN_IF_ERROR(to.Write(insert));
  }
  return absl::OkStatus();
}

absl::Status TensorRows::SetVerified(Connection& to, const std::vector<VerifiedRow>& rows) {
  for (const VerifiedRow& row : rows) {
    Statement insert =
        to.Prepare("INSERT OR REPLACE INTO verified_tensors VALUES(?1, ?2, ?3, ?4, ?5)");
    insert.Blob(row.hash).Int(row.stamp.inode).Int(row.stamp.bytes);
    insert.Int(row.stamp.modified_ns).Int(row.stamp.changed_ns);
    RETURN_IF_ERROR(to.Write(insert));
  }
  return absl::OkStatus();
}

absl::Status TensorRows::SetSeals(Connection& to, const std::vector<TensorRow>& rows) {
  for (const TensorRow& row : rows) {
    if (row.seal.empty()) continue;
    Statement insert = to.Prepare("INSERT OR REPLACE INTO tensor_seals VALUES(?1, ?2)");
    RETURN_IF_ERROR(to.Write(insert.Blob(row.hash).Blob(row.seal)));
  }
  return absl::OkStatus();
}

absl::Status TensorRows::SetPlaces(Connection& to, const std::vector<TensorRow>& rows) {
  for (const TensorRow& row : rows) {
    Statement before = to.Prepare("DELETE FROM tensor_blobs WHERE hash=?1");
    RETURN_IF_ERROR(to.Write(before.Blob(row.hash)));
    if (row.blob.empty()) continue;
    Statement place = to.Prepare("INSERT INTO tensor_blobs VALUES(?1, ?2, ?3)");
    RETURN_IF_ERROR(to.Write(place.Blob(row.hash).Blob(row.blob).Int(row.blob_offset)));
  }
  return absl::OkStatus();
}

absl::Status TensorRows::DeleteUnused(Connection& from) {
  return from.Execute(
      "DELETE FROM tensor_magnitudes WHERE hash NOT IN (SELECT hash FROM version_tensors);"
      "DELETE FROM tensor_seals WHERE hash NOT IN (SELECT hash FROM version_tensors);"
      "DELETE FROM tensor_blobs WHERE hash NOT IN (SELECT hash FROM version_tensors);"
      "DELETE FROM verified_tensors WHERE hash NOT IN (SELECT hash FROM version_tensors)");
}

absl::Status TensorRows::AddMagnitudes(const std::vector<MagnitudeRow>& rows) {
  return file_.Change([&](Connection& to) { return AddMagnitudes(to, rows); });
}

absl::Status TensorRows::SetVerified(const std::vector<VerifiedRow>& rows) {
  return file_.Change([&](Connection& to) { return SetVerified(to, rows); });
}

absl::Status TensorRows::SetSeals(const std::vector<TensorRow>& rows) {
  return file_.Change([&](Connection& to) { return SetSeals(to, rows); });
}

absl::Status TensorRows::SetPlaces(const std::vector<TensorRow>& rows) {
  return file_.Change([&](Connection& to) { return SetPlaces(to, rows); });
}

}  // namespace athanor
