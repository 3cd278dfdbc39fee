#include "server/models/files_upload.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/chunk_bytes.h"

namespace athanor {
namespace {

constexpr size_t kMaxPathBytes = 1024;
constexpr unsigned kMaxHashThreads = 4;

absl::Status CheckPath(const std::string& path) {
  const auto wrong = [&](std::string_view why) {
    return Invalid("header.files: path ", Quoted(path), " ", why,
                   "; it must be relative to the model's folder and stay in it");
  };
  if (path.size() > kMaxPathBytes) {
    return Invalid("header.files: a path of ", path.size(), " bytes; at most ", kMaxPathBytes,
                   " are allowed");
  }
  if (path.empty()) {
    return Invalid(
        "header.files: an empty path; that is the model's, which comes first and only "
        "where header.graph is empty");
  }
  if (path[0] == '/') return wrong("is absolute");
  if (path.find('\\') != std::string::npos) return wrong("has a backslash");
  if (path.find('\0') != std::string::npos) return wrong("has a zero byte");
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "..") return wrong("leaves its folder");
  }
  return absl::OkStatus();
}

std::string FileText(const std::string& path) {
  return path.empty() ? std::string("the model's file") : Cat("file ", Quoted(path));
}

}  // namespace

absl::Status FilesUpload::Begin(const v1::UploadHeader& header, bool unnamed) {
  name_ = header.name();
  if (header.files_size() > limits_.files) {
    return absl::ResourceExhaustedError(Cat("header.files: ", header.files_size(),
                                            " files; at most ", limits_.files, " are taken (",
                                            limits_.files_flag, ")"));
  }
  const bool inside = !header.graph().empty();
  if (inside) {
    RETURN_IF_ERROR(AddFile("", static_cast<int64_t>(header.graph().size())));
  } else if (unnamed && (header.files().empty() || !header.files(0).path().empty())) {
    return Invalid(
        "header.graph: empty; the model comes in it, or as the first of header.files, "
        "with an empty path");
  }
  absl::flat_hash_set<std::string> paths;
  for (const v1::UploadFile& file : header.files()) {
    if (!unnamed || !files_.empty()) {
      RETURN_IF_ERROR(CheckPath(file.path()));
    }
    if (!paths.insert(file.path()).second) {
      return Invalid("header.files: path ", Quoted(file.path()), " is there twice");
    }
    RETURN_IF_ERROR(AddFile(file.path(), file.bytes()));
  }
  first_chunks_ = inside ? 1 : 0;
  if (inside) {
    RETURN_IF_ERROR(files_[0].spool->Append(header.graph()));
  }
  return EndFiles();
}

absl::Status FilesUpload::AddFile(const std::string& path, int64_t bytes) {
  if (bytes < 0) return Invalid("header.files: ", FileText(path), " has ", bytes, " bytes");
  if (bytes > limits_.bytes - bytes_) {
    return absl::ResourceExhaustedError(Cat("header.files: with ", FileText(path), " of ", bytes,
                                            " bytes the model has more than the ", limits_.bytes,
                                            " bytes that are taken (", limits_.bytes_flag, ")"));
  }
  bytes_ += bytes;
  files_.push_back({path, registry_.tensors().store().BeginSpool(bytes)});
  return absl::OkStatus();
}

std::string FilesUpload::Expected() const {
  if (complete()) return "the commit";
  const File& file = files_[current_];
  return Cat(FileText(file.path), ", offset ", file.spool->written(), " of ", file.spool->bytes());
}

absl::Status FilesUpload::Take(const v1::FileChunk& chunk) {
  const std::string got = Cat("chunk of file ", chunk.file(), " at offset ", chunk.offset());
  if (complete()) return Invalid(got, "; expected ", Expected());
  SpooledFile& spool = *files_[current_].spool;
  if (chunk.file() != static_cast<int64_t>(current_) - first_chunks_ ||
      chunk.offset() != spool.written()) {
    return Invalid(got, "; expected ", Expected(), " (file ",
                   static_cast<int64_t>(current_) - first_chunks_, ")");
  }
  absl::Status fits =
      CheckChunkBytes(got, static_cast<int64_t>(chunk.data().size()), options_.max_chunk_bytes,
                      {"file", spool.bytes(), spool.written()});
  if (!fits.ok()) return fits;
  RETURN_IF_ERROR(spool.Append(chunk.data()));
  return EndFiles();
}

absl::Status FilesUpload::EndFiles() {
  for (; current_ < files_.size(); ++current_) {
    SpooledFile& spool = *files_[current_].spool;
    if (spool.written() < spool.bytes()) break;
    RETURN_IF_ERROR(spool.Finish());
  }
  return absl::OkStatus();
}

absl::Status FilesUpload::ForEachPiece(const UploadedTensor& tensor,
                                       UploadedTensor::Take take) const {
  if (tensor.read) return tensor.read(take);
  if (!tensor.place.has_value()) return absl::OkStatus();  // no bytes
  std::string_view bytes = view(tensor.place->file).substr(tensor.place->offset, tensor.bytes);
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kPieceBytes);
    RETURN_IF_ERROR(take(piece));
    bytes.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FilesUpload::HashOne(size_t tensor, UploadedTensor::Take look) {
  Sha256 sha256;
  RETURN_IF_ERROR(ForEachPiece(tensors_[tensor], [&](std::string_view piece) {
    RETURN_IF_ERROR(look(piece));
    sha256.Update({piece.data(), piece.size()});
    return absl::OkStatus();
  }));
  seals_[tensor] = sha256.With(kSealSuffix);
  return sha256.Finish();
}

absl::StatusOr<std::vector<std::string>> FilesUpload::Hash(std::vector<UploadedTensor> tensors,
                                                           const std::function<bool()>& cancelled) {
  tensors_ = std::move(tensors);
  seals_.assign(tensors_.size(), "");
  std::vector<absl::StatusOr<std::string>> found(tensors_.size(), "");
  std::vector<size_t> left;  // tensors not hashed on arrival
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const SpooledFile::Contents* contents = ContentsOf(tensors_[i]);
    if (contents != nullptr && !tensors_[i].read) {
      found[i] = contents->hash;
      seals_[i] = contents->seal;
      continue;
    }
    left.push_back(i);
    bytes += tensors_[i].bytes;
  }
  // Starts with the largest, so that no thread is left with a large one at the end.
  std::sort(left.begin(), left.end(),
            [&](size_t a, size_t b) { return tensors_[a].bytes > tensors_[b].bytes; });
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  const auto work = [&](bool asks) {
    for (size_t at = next++; at < left.size() && !stop; at = next++) {
      const size_t i = left[at];
      found[i] = HashOne(i, [&](std::string_view) {
        if (asks && cancelled && cancelled()) stop = true;
        return stop ? absl::CancelledError("the upload was cancelled") : absl::OkStatus();
      });
      if (!found[i].ok()) stop = true;
    }
  };
  const unsigned most = std::min(kMaxHashThreads, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  while (bytes > kPieceBytes && helpers.size() + 1 < std::min<size_t>(most, left.size())) {
    helpers.emplace_back(work, /*asks=*/false);
  }
  work(/*asks=*/true);
  for (std::thread& helper : helpers) helper.join();
  absl::Status cut;  // status of a tensor that was skipped because another one failed
  hashes_.clear();
  for (absl::StatusOr<std::string>& hash : found) {
    if (!hash.ok() && !absl::IsCancelled(hash.status())) return hash.status();
    if (!hash.ok()) cut = hash.status();
    if (hash.ok()) hashes_.push_back(*std::move(hash));
  }
  if (!cut.ok()) return cut;
  return hashes_;
}

std::string FilesUpload::BlobName(size_t file) const {
  std::set<std::string> ranges;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const UploadedTensor& tensor = tensors_[i];
    if (!tensor.place.has_value() || tensor.place->file != file) continue;
    ranges.insert(
        Cat(tensor.place->offset, "+", tensor.bytes, "=", absl::BytesToHexString(hashes_[i])));
  }
  return Sha256Of(Cat(files_[file].spool->bytes(), " bytes: ", absl::StrJoin(ranges, " ")));
}

const SpooledFile::Contents* FilesUpload::ContentsOf(const UploadedTensor& tensor) const {
  if (!tensor.place.has_value()) return nullptr;
  return files_[tensor.place->file].spool->ContentsOf(tensor.place->offset, tensor.bytes);
}

absl::StatusOr<TensorWriter*> FilesUpload::Write(size_t tensor) {
  auto writer = registry_.tensors().store().Begin(hashes_[tensor], tensors_[tensor].bytes);
  absl::Status s = ForEachPiece(tensors_[tensor], [&](std::string_view piece) {
    return writer->Append({piece.data(), piece.size()});
  });
  if (s.ok()) s = writer->Verify();
  if (s.ok()) s = writer->Sync();
  if (!s.ok()) return s;
  return writers_.emplace_back(std::move(writer)).get();
}

std::vector<size_t> FilesUpload::NotHeld() {
  std::vector<size_t> added;
  absl::flat_hash_set<std::string> seen;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!seen.insert(hashes_[i]).second) continue;
    auto held = registry_.tensors().Pin({hashes_[i]});
    if (held.ok()) {
      pins_.push_back(*std::move(held));
    } else {
      added.push_back(i);
    }
  }
  return added;
}

absl::StatusOr<std::vector<bool>> FilesUpload::KeepFiles(const std::vector<size_t>& added) {
  std::vector<int64_t> ranges(files_.size());
  for (size_t i : added) {
    if (tensors_[i].place.has_value()) ranges[tensors_[i].place->file] += tensors_[i].bytes;
  }
  // A file is kept as a whole while any of its tensors is used, so keep it only if tensors are most
  // of it.
  std::vector<bool> kept(files_.size());
  for (size_t f = 0; f < files_.size(); ++f) {
    kept[f] = ranges[f] > 0 && ranges[f] >= files_[f].spool->bytes() / 2;
    if (!kept[f]) continue;
    files_[f].spool->SetName(BlobName(f));
    RETURN_IF_ERROR(files_[f].spool->Sync());
  }
  return kept;
}

absl::StatusOr<std::vector<HeldTensors::NewTensor>> FilesUpload::Tensors() {
  const std::vector<size_t> added = NotHeld();
  ASSIGN_OR_RETURN(const std::vector<bool> kept, KeepFiles(added));
  std::vector<HeldTensors::NewTensor> tensors;
  for (size_t i : added) {
    const UploadedTensor& uploaded = tensors_[i];
    ASSIGN_OR_RETURN(auto reservation,
                     ledger_.Reserve(HeldKind::kParameters, uploaded.bytes,
                                     Cat("model ", Quoted(name_), ", ", uploaded.what)));
    HeldTensors::NewTensor& tensor = tensors.emplace_back();
    tensor.hash = hashes_[i];
    tensor.seal = seals_[i];
    tensor.reservation = std::move(reservation);
    if (const SpooledFile::Contents* contents = ContentsOf(uploaded); contents != nullptr) {
      tensor.magnitude.emplace(contents->dtype, contents->magnitude);
    }
    if (uploaded.place.has_value() && kept[uploaded.place->file]) {
      tensor.blob = files_[uploaded.place->file].spool.get();
      tensor.offset = uploaded.place->offset;
      continue;
    }
    ASSIGN_OR_RETURN(tensor.writer, Write(i));
  }
  return tensors;
}

}  // namespace athanor
