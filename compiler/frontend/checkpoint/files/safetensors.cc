#include "compiler/frontend/checkpoint/files/safetensors.h"

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMaxAxes = 16;

// Takes the head's JSON as events, so that nothing is kept but tensors and no depth is reached that
// the head does not have. Tensors' offsets are those behind the head. Each function returns false
// to end the parse; the status then says why.
class HeadHandler {
 public:
  HeadHandler(int file, const SafetensorsLimits& limits) : file_(file), limits_(limits) {}

  const absl::Status& status() const { return status_; }
  std::vector<FileTensor> TakeTensors() { return std::move(tensors_); }

  // The names are nlohmann's.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Other("null"); }
  bool boolean(bool) { return Other("a bool"); }
  bool number_integer(int64_t) { return Other("a negative number"); }
  bool number_unsigned(uint64_t number);
  bool number_float(double, const std::string&) { return Other("a number that is not whole"); }
  bool string(std::string& text);
  bool binary(std::vector<uint8_t>&) { return Other("bytes"); }
  bool start_object(size_t);
  bool key(std::string& text);
  bool end_object();
  bool start_array(size_t);
  bool end_array();
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    return Fail(Invalid("the head is no JSON: it goes wrong at byte ", position));
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  enum class Place : uint8_t { kOutside, kNames, kMetadata, kTensor, kShape, kOffsets };

  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }
  bool Other(std::string_view what);
  bool Wants(std::string_view what) const { return field_ == what; }
  // Says which part of the head is read.
  std::string Where() const;
  absl::Status EndTensor();

  const int file_;
  const SafetensorsLimits limits_;
  absl::Status status_;
  Place place_ = Place::kOutside;
  std::string name_;   // key of the head's object
  std::string field_;  // key of the object inside it
  absl::flat_hash_set<std::string> fields_;
  bool has_metadata_ = false;
  std::string dtype_;
  std::vector<int64_t> shape_, offsets_;
  std::vector<FileTensor> tensors_;
};

std::string HeadHandler::Where() const {
  if (place_ == Place::kOutside || name_.empty()) return "the head";
  const std::string of_name = name_ == "__metadata__" ? name_ : Cat("tensor ", Quoted(name_));
  return field_.empty() ? of_name : Cat(of_name, ", ", Quoted(field_));
}

bool HeadHandler::Other(std::string_view what) {
  std::string_view right = "an object";
  if (place_ == Place::kMetadata) right = "a text";
  if (place_ == Place::kShape || place_ == Place::kOffsets) right = "a whole number";
  if (place_ == Place::kTensor) right = Wants("dtype") ? "a text" : "an array of whole numbers";
  return Fail(Invalid(Where(), ": ", what, " is there instead of ", right));
}

bool HeadHandler::number_unsigned(uint64_t number) {
  if (place_ != Place::kShape && place_ != Place::kOffsets) return Other("a number");
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Fail(Invalid(Where(), ": ", number, " is beyond int64"));
  }
  std::vector<int64_t>& list = place_ == Place::kShape ? shape_ : offsets_;
  if (list.size() == kMaxAxes) {
    return Fail(Invalid(Where(), ": it has more than ", kMaxAxes, " numbers"));
  }
  list.push_back(static_cast<int64_t>(number));
  return true;
}

bool HeadHandler::string(std::string& text) {
  if (place_ == Place::kMetadata) return true;
  if (place_ != Place::kTensor || !Wants("dtype")) return Other("a text");
  dtype_ = text;
  return true;
}

bool HeadHandler::start_object(size_t) {
  if (place_ == Place::kOutside) {
    place_ = Place::kNames;
    return true;
  }
  if (place_ != Place::kNames) return Other("an object");
  fields_.clear();
  field_.clear();
  place_ = name_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
  if (place_ == Place::kMetadata) {
    if (std::exchange(has_metadata_, true)) return Fail(Invalid("__metadata__ is there twice"));
    return true;
  }
  if (static_cast<int64_t>(tensors_.size()) == limits_.max_tensors) {
    return Fail(absl::ResourceExhaustedError(
        Cat("the file has more than ", limits_.max_tensors, " tensors")));
  }
  dtype_.clear();
  shape_.clear();
  offsets_.clear();
  return true;
}

bool HeadHandler::key(std::string& text) {
  if (place_ == Place::kNames) {
    name_ = text;
    field_.clear();
    return true;
  }
  field_ = text;
  if (place_ == Place::kTensor && text != "dtype" && text != "shape" && text != "data_offsets") {
    return Fail(Invalid(Where(), " is not known; a tensor has dtype, shape and data_offsets"));
  }
  if (!fields_.insert(text).second) return Fail(Invalid(Where(), " is there twice"));
  return true;
}

bool HeadHandler::start_array(size_t) {
  if (place_ != Place::kTensor || Wants("dtype")) return Other("an array");
  place_ = Wants("shape") ? Place::kShape : Place::kOffsets;
  return true;
}

bool HeadHandler::end_array() {
  place_ = Place::kTensor;
  return true;
}

bool HeadHandler::end_object() {
  if (place_ == Place::kNames) {
    place_ = Place::kOutside;
    return true;
  }
  field_.clear();
  if (place_ == Place::kTensor) {
    if (absl::Status status = EndTensor(); !status.ok()) {
      return Fail(Prefixed(Where() + ": ", status));
    }
  }
  place_ = Place::kNames;
  return true;
}

absl::Status HeadHandler::EndTensor() {
  if (fields_.size() != 3) return Invalid("dtype, shape or data_offsets is missing");
  FileTensor tensor;
  tensor.name = name_;
  tensor.file = file_;
  tensor.shape = shape_;
  bool known = false;
  for (const StoredRow& row : kStored) {
    if (row.quantised() || row.name != dtype_) continue;
    tensor.stored = row.stored;
    known = true;
  }
  if (!known) {
    return Unimplemented("its dtype ", Quoted(dtype_),
                         " is not supported; F32, F16, BF16 and I64 are");
  }
  if (offsets_.size() != 2 || offsets_[1] < offsets_[0]) {
    return Invalid("data_offsets must be two numbers, the second not below the first");
  }
  tensor.offset = offsets_[0];
  ASSIGN_OR_RETURN(tensor.bytes, BytesOfShape(tensor.stored, tensor.shape));
  if (tensor.bytes != offsets_[1] - offsets_[0]) {
    return Invalid("dtype and shape take ", tensor.bytes, " bytes, but data_offsets hold ",
                   offsets_[1] - offsets_[0]);
  }
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

// Returns the head's JSON.
absl::StatusOr<std::string_view> HeadOf(std::string_view bytes, int64_t file_bytes,
                                        const SafetensorsLimits& limits) {
  if (file_bytes < static_cast<int64_t>(bytes.size())) {
    return Invalid("the file is said to have ", file_bytes, " bytes, but ", bytes.size(),
                   " are there");
  }
  const auto whole = static_cast<uint64_t>(file_bytes);
  if (whole < kLengthBytes) {
    return Invalid("the file has ", file_bytes, " bytes, fewer than the 8 of its head's size");
  }
  if (bytes.size() < kLengthBytes) return absl::OutOfRangeError("the head's size is not there yet");
  uint64_t size;
  std::memcpy(&size, bytes.data(), sizeof(size));
  if (size > whole - kLengthBytes) {
    return Invalid("the file states a head of ", size, " bytes, but has only ", file_bytes);
  }
  if (size > static_cast<uint64_t>(limits.max_head_bytes)) {
    return absl::ResourceExhaustedError(Cat("the file states a head of ", size, " bytes; at most ",
                                            limits.max_head_bytes, " are supported"));
  }
  if (size > bytes.size() - kLengthBytes) {
    return absl::OutOfRangeError(Cat("the head ends at byte ", kLengthBytes + size, ", behind the ",
                                     bytes.size(), " bytes that are there"));
  }
  const std::string_view head = bytes.substr(kLengthBytes, size);
  if (!head.starts_with('{')) return Invalid("the head does not begin with \"{\"");
  return head;
}

}  // namespace

absl::StatusOr<std::vector<FileTensor>> ReadSafetensors(std::string_view bytes, int file,
                                                        int64_t file_bytes,
                                                        const SafetensorsLimits& limits) {
  ASSIGN_OR_RETURN(const std::string_view head, HeadOf(bytes, file_bytes, limits));
  HeadHandler handler(file, limits);
  nlohmann::json::sax_parse(head.begin(), head.end(), &handler);
  RETURN_IF_ERROR(handler.status());
  std::vector<FileTensor> tensors = handler.TakeTensors();
  const auto begin = static_cast<int64_t>(kLengthBytes + head.size());
  const int64_t behind = file_bytes - begin;
  RETURN_IF_ERROR(CheckTensors(tensors, behind));
  int64_t covered = 0;  // they do not overlap
  for (FileTensor& tensor : tensors) {
    covered += tensor.bytes;
    tensor.offset += begin;
  }
  if (covered != behind) {
    return Invalid("tensors take ", covered, " of the ", behind,
                   " bytes behind the head; others must not be there");
  }
  return tensors;
}

}  // namespace athanor::checkpoint
