// Rows about tensors: where they lie, and what is known of their contents. They are kept as long as
// a version has the tensor.
//
// Tables: tensor_magnitudes (known facts about contents), tensor_blobs (places of tensors without a
// file of their own), verified_tensors (files found to hold the right bytes) and tensor_seals
// (secrets by which clients prove that they have the bytes). Thread-safe.
#ifndef ATHANOR_SERVER_STORAGE_TENSOR_ROWS_H_
#define ATHANOR_SERVER_STORAGE_TENSOR_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/storage/file_stamp.h"
#include "server/storage/registry_file.h"

namespace athanor {

struct TensorRow {
  std::string hash;  // 32 bytes
  int64_t bytes = 0;
  // 32 bytes: the blob that holds it at `blob_offset`; empty: it has a file of its own
  std::string blob;
  int64_t blob_offset = 0;
  std::string seal;  // 32 bytes (deploy/bazel/libs/possession.h); empty: unknown
};

// A known fact about a tensor's contents as elements of a dtype (compiler/ir/graph/magnitude.h).
struct MagnitudeRow {
  std::string hash;  // 32 bytes
  std::string dtype;
  std::optional<int> magnitude;  // nullopt: it was examined and has none
};

// The stamp of a tensor's file when its bytes were found to have the tensor's hash.
struct VerifiedRow {
  std::string hash;  // 32 bytes
  FileStamp stamp;   // stamp of its file, or of the blob that holds it
};

class TensorRows {
 public:
  // Borrows the file.
  explicit TensorRows(RegistryFile* file) : file_(*file) {}

  absl::StatusOr<std::vector<MagnitudeRow>> ReadMagnitudes();
  absl::StatusOr<std::vector<VerifiedRow>> ReadVerified();
  // Leaves facts that are stored already as they are.
  absl::Status AddMagnitudes(const std::vector<MagnitudeRow>& rows);
  // Replaces what was stored for the same tensors.
  absl::Status SetVerified(const std::vector<VerifiedRow>& rows);
  // Replaces the seals of the tensors in `rows`; a tensor without one in `rows` keeps its own.
  absl::Status SetSeals(const std::vector<TensorRow>& rows);
  // Updates the place of these tensors for all versions.
  absl::Status SetPlaces(const std::vector<TensorRow>& rows);

  // The same inside another class's transaction.
  using Connection = RegistryFile::Connection;
  static absl::Status AddMagnitudes(Connection& to, const std::vector<MagnitudeRow>& rows);
  static absl::Status SetVerified(Connection& to, const std::vector<VerifiedRow>& rows);
  static absl::Status SetSeals(Connection& to, const std::vector<TensorRow>& rows);
  static absl::Status SetPlaces(Connection& to, const std::vector<TensorRow>& rows);
  // Deletes rows about tensors that no version has any more.
  static absl::Status DeleteUnused(Connection& from);

 private:
  RegistryFile& file_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_TENSOR_ROWS_H_
