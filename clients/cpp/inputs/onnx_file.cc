#include "clients/cpp/inputs/onnx_file.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

// The ONNX message that a field holds, as far as it can contain tensors or inputs.
enum class Part : uint8_t {
  kModel,
  kGraph,  // the model's graph, whose inputs are the model's
  kSubgraph,
  kFunction,
  kNode,
  kAttribute,
  kSparse,
  kTensor,
  kEntry,  // an entry of external data
  kInput,
};

struct Inside {
  Part part;
  uint64_t field;
  Part holds;
};

constexpr Inside kInside[] = {
    {Part::kModel, 7, Part::kGraph},         {Part::kModel, 25, Part::kFunction},
    {Part::kGraph, 1, Part::kNode},          {Part::kGraph, 5, Part::kTensor},
    {Part::kGraph, 11, Part::kInput},        {Part::kGraph, 15, Part::kSparse},
    {Part::kSubgraph, 1, Part::kNode},       {Part::kSubgraph, 5, Part::kTensor},
    {Part::kSubgraph, 15, Part::kSparse},    {Part::kFunction, 7, Part::kNode},
    {Part::kFunction, 11, Part::kAttribute}, {Part::kNode, 5, Part::kAttribute},
    {Part::kAttribute, 5, Part::kTensor},    {Part::kAttribute, 6, Part::kSubgraph},
    {Part::kAttribute, 10, Part::kTensor},   {Part::kAttribute, 11, Part::kSubgraph},
    {Part::kAttribute, 22, Part::kSparse},   {Part::kAttribute, 23, Part::kSparse},
    {Part::kSparse, 1, Part::kTensor},       {Part::kSparse, 2, Part::kTensor},
    {Part::kTensor, 13, Part::kEntry},
};

// Wire dtype of each TensorProto.DataType; types without a dtype are sent as u8.
constexpr absl::string_view kTravelsAs[] = {
    "",    "f32", "u8",  "i8",  "u16", "i16", "i32",  "i64", "",   "bool",
    "f16", "f64", "u32", "u64", "",    "",    "bf16", "u8",  "u8", "u8",
    "u8",  "u8",  "i8",  "u8",  "u8",  "u8",  "i8",   "u8",  "u8"};

// Iterates over the fields of a message.
class Fields {
 public:
  explicit Fields(absl::string_view bytes) : bytes_(bytes) {}

  // Returns false at the end and where the bytes are malformed.
  bool Next() {
    uint64_t tag = 0;
    if (bytes_.empty() || !Varint(&tag)) return false;
    number = tag >> 3;
    value = 0;
    inside = {};
    switch (tag & 7) {
      case 0:
        return Varint(&value);
      case 1:
        return Skip(8);
      case 2: {
        uint64_t length = 0;
        if (!Varint(&length) || length > bytes_.size()) return false;
        inside = bytes_.substr(0, length);
        bytes_.remove_prefix(length);
        return true;
      }
      case 5:
        return Skip(4);
      default:
        return false;
    }
  }

  uint64_t number = 0;
  uint64_t value = 0;        // value of a varint field
  absl::string_view inside;  // bytes of a length-delimited field

 private:
  bool Skip(size_t count) {
    if (bytes_.size() < count) return false;
    bytes_.remove_prefix(count);
    return true;
  }
  bool Varint(uint64_t* out) {
    *out = 0;
    for (int shift = 0; shift < 70 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      *out |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  absl::string_view bytes_;
};

// Returns the first field of that number; empty if there is none.
absl::string_view FieldOf(absl::string_view message, uint64_t number) {
  for (Fields fields(message); fields.Next();) {
    if (fields.number == number) return fields.inside;
  }
  return {};
}

std::string SizeOf(absl::string_view dimension) {
  for (Fields fields(dimension); fields.Next();) {
    if (fields.number == 1) return absl::StrCat(static_cast<int64_t>(fields.value));
    if (fields.number == 2) return std::string(fields.inside);
  }
  return "?";
}

void AddInput(absl::string_view info, std::vector<v1::ModelTensor>* inputs) {
  v1::ModelTensor input;
  input.set_name(std::string(FieldOf(info, 1)));
  const absl::string_view tensor = FieldOf(FieldOf(info, 2), 1);
  for (Fields fields(tensor); fields.Next();) {
    if (fields.number == 1 && fields.value < std::size(kTravelsAs)) {
      input.set_dtype(std::string(kTravelsAs[fields.value]));
    }
    if (fields.number != 2) continue;
    for (Fields dims(fields.inside); dims.Next();) {
      if (dims.number == 1) input.add_shape(SizeOf(dims.inside));
    }
  }
  if (!input.dtype().empty()) inputs->push_back(std::move(input));
}

bool LeavesFolder(const std::string& location) {
  if (location.empty() || location[0] == '/') return true;
  if (location.find('\\') != std::string::npos) return true;
  if (location.find('\0') != std::string::npos) return true;
  const std::vector<std::string> parts = absl::StrSplit(location, '/');
  return std::find(parts.begin(), parts.end(), "..") != parts.end();
}

}  // namespace

OnnxOutline OutlineOf(absl::string_view model) {
  OnnxOutline outline;
  std::vector<std::pair<Part, absl::string_view>> waiting = {{Part::kModel, model}};
  while (!waiting.empty()) {
    const auto [part, bytes] = waiting.back();
    waiting.pop_back();
    if (part == Part::kInput) {
      AddInput(bytes, &outline.inputs);
      continue;
    }
    if (part == Part::kEntry) {
      if (FieldOf(bytes, 1) != "location") continue;
      const std::string location(FieldOf(bytes, 2));
      auto& all = outline.locations;
      if (std::find(all.begin(), all.end(), location) == all.end()) all.push_back(location);
      continue;
    }
    const size_t first = waiting.size();
    for (Fields fields(bytes); fields.Next();) {
      for (const Inside& row : kInside) {
        if (row.part == part && row.field == fields.number) {
          waiting.emplace_back(row.holds, fields.inside);
        }
      }
    }
    std::reverse(waiting.begin() + static_cast<int64_t>(first), waiting.end());
  }
  return outline;
}

absl::StatusOr<OnnxFile> OnnxFile::Open(const std::string& path) {
  OnnxFile opened;
  ASSIGN_OR_RETURN(opened.model_, MappedFile::Open(path));
  if (opened.bytes().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the file is empty; it must be an onnx.ModelProto"));
  }
  OnnxOutline outline = OutlineOf(opened.bytes());
  opened.described_.set_name(path);
  for (v1::ModelTensor& input : outline.inputs) *opened.described_.add_inputs() = std::move(input);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const std::string& location : outline.locations) {
    if (LeavesFolder(location) || LinksElsewhere(path, location)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": its external data \"", location,
                       "\" is outside the model's folder; it must be a relative path below it, and "
                       "not a link out of it"));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(folder / location));
    opened.files_.push_back({location, std::move(file)});
  }
  return opened;
}

absl::StatusOr<v1::NamedLiteral> ParseValue(absl::string_view text, const OnnxFile& model) {
  absl::StatusOr<std::pair<std::string, Tensor>> parsed = ParseInput(text, model.model());
  if (!parsed.ok()) return parsed.status();
  v1::NamedLiteral literal;
  literal.set_name(parsed->first);
  const Tensor& tensor = parsed->second;
  literal.mutable_value()->set_dtype(tensor.dtype);
  literal.mutable_value()->mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
  literal.mutable_value()->set_data(tensor.bytes);
  return literal;
}

absl::StatusOr<v1::DimGiven> ParseDim(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  v1::DimGiven dim;
  dim.set_name(parts.first);
  const std::pair<std::string, std::string> ends =
      absl::StrSplit(parts.second, absl::MaxSplits(':', 1));
  const bool bounds = parts.second.find(':') != std::string::npos;
  int64_t min = 1, max = 0;
  const bool numbers = (ends.first.empty() || absl::SimpleAtoi(ends.first, &min)) &&
                       absl::SimpleAtoi(ends.second, &max);
  if (parts.first.empty() || parts.second.empty() || (bounds && !numbers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dim ", text, ": must be NAME=MIN:MAX, NAME=SIZE or NAME=EXPRESSION, as in batch=1:64"));
  }
  if (!bounds) {
    dim.set_equals(parts.second);
    return dim;
  }
  if (!ends.first.empty()) dim.set_min(min);
  dim.set_max(max);
  return dim;
}

}  // namespace athanor::client
