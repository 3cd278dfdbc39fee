#include "clients/cpp/client/bundle.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

constexpr absl::string_view kMagic = "ATHANOR1";
constexpr size_t kHashBytes = 32;
constexpr size_t kRowBytes = kHashBytes + 8;

// Takes pieces off the front of a file and keeps the current offset.
class Reader {
 public:
  explicit Reader(absl::string_view file) : file_(file) {}

  absl::StatusOr<absl::string_view> Take(uint64_t count, absl::string_view what) {
    if (count > file_.size() - at_) {
      return absl::InvalidArgumentError(absl::StrCat("bundle: ends inside ", what, ", which needs ",
                                                     count, " bytes at offset ", at_));
    }
    at_ += count;
    return file_.substr(at_ - count, count);
  }
  size_t left() const { return file_.size() - at_; }

 private:
  absl::string_view file_;
  size_t at_ = 0;
};

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

absl::Status ReadTensors(absl::string_view rows, Reader* reader, Bundle* bundle) {
  for (size_t at = 0; at < rows.size(); at += kRowBytes) {
    const std::string what = absl::StrCat("tensor ", bundle->tensors.size());
    BundleTensor tensor{std::string(rows.substr(at, kHashBytes)), {}};
    ASSIGN_OR_RETURN(auto bytes, reader->Take(LittleEndian(rows.substr(at + kHashBytes, 8)), what));
    tensor.bytes = bytes;
    if (Sha256Of(bytes) != tensor.hash) {
      return absl::InvalidArgumentError(
          absl::StrCat("bundle: ", what, " does not have the SHA-256 ",
                       absl::BytesToHexString(tensor.hash), " of its row"));
    }
    bundle->tensors.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Bundle> ParseBundle(absl::string_view file) {
  Reader reader(file);
  auto magic = reader.Take(kMagic.size(), "the magic");
  if (!magic.ok() || *magic != kMagic) {
    return absl::InvalidArgumentError("bundle: not an Athanor bundle (Graph.save makes one)");
  }
  ASSIGN_OR_RETURN(auto sizes, reader.Take(16, "the header"));
  const uint64_t count = LittleEndian(sizes.substr(8));
  if (count > reader.left() / kRowBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bundle: ", count, " tensors do not fit in ", reader.left(), " bytes"));
  }
  ASSIGN_OR_RETURN(auto rows, reader.Take(count * kRowBytes, "the rows"));
  ASSIGN_OR_RETURN(auto graph, reader.Take(LittleEndian(sizes), "the graph"));
  Bundle bundle{graph, {}};
  RETURN_IF_ERROR(ReadTensors(rows, &reader, &bundle));
  if (reader.left() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("bundle: ", reader.left(), " bytes after the last tensor"));
  }
  return bundle;
}

}  // namespace athanor::client
