#include "clients/bench/load/inputs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "clients/cpp/client/npy.h"
#include "clients/cpp/client/tensor.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

using Metadata = inference::ModelMetadataResponse::TensorMetadata;
using Random = std::mt19937_64;

absl::Status Bad(absl::string_view flag, absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", text, ": ", what));
}

// Splits each "name=text"; each name may occur once.
absl::StatusOr<std::map<std::string, std::string>> ByName(absl::string_view flag,
                                                          const std::vector<std::string>& texts) {
  std::map<std::string, std::string> found;
  for (const std::string& text : texts) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.first.empty() || text.size() == parts.first.size()) {
      return Bad(flag, text, "must be NAME=...");
    }
    if (!found.insert(parts).second) {
      return Bad(flag, text, absl::StrCat("\"", parts.first, "\" is given twice"));
    }
  }
  return found;
}

struct Range {
  std::string low, high;
};

std::optional<Range> SplitRange(absl::string_view text) {
  const std::vector<std::string> ends = absl::StrSplit(text, "..");
  if (ends.size() != 2 || ends[0].empty() || ends[1].empty()) return std::nullopt;
  return Range{ends[0], ends[1]};
}

template <typename T>
bool OrderedIntegers(const Range& range) {
  T low, high;
  return absl::SimpleAtoi(range.low, &low) && absl::SimpleAtoi(range.high, &high) && low <= high;
}

// Reports whether both ends are numbers and the first is not above the second.
bool Ordered(const Range& range, client::NumberKind kind) {
  if (kind == client::NumberKind::kSigned) return OrderedIntegers<int64_t>(range);
  if (kind == client::NumberKind::kUnsigned) return OrderedIntegers<uint64_t>(range);
  double low, high;
  return absl::SimpleAtod(range.low, &low) && absl::SimpleAtod(range.high, &high) && low <= high &&
         std::isfinite(low) && std::isfinite(high);
}

struct Dim {
  int64_t low, high;
};

absl::StatusOr<std::map<std::string, Dim>> ParseDims(const std::vector<std::string>& texts) {
  absl::StatusOr<std::map<std::string, std::string>> named = ByName("--dims", texts);
  if (!named.ok()) return named.status();
  std::map<std::string, Dim> dims;
  for (const auto& [name, text] : *named) {
    const std::optional<Range> range = SplitRange(text);
    Dim dim;
    if (!range.has_value() || !absl::SimpleAtoi(range->low, &dim.low) ||
        !absl::SimpleAtoi(range->high, &dim.high) || dim.low < 0 || dim.low > dim.high) {
      return Bad("--dims", absl::StrCat(name, "=", text), "must be a range of sizes such as 1..64");
    }
    dims[name] = dim;
  }
  return dims;
}

// Describes how the elements of one input are drawn.
struct Values {
  std::optional<client::Tensor> file;
  std::optional<Range> range;
};

struct Input {
  std::string name;
  const client::ClientDType* dtype;
  std::vector<std::string> shape;  // numbers and names of dims
  Values values;
};

std::string Declared(const Metadata& input) {
  return absl::StrCat(input.datatype(), "[", absl::StrJoin(input.shape(), ", "), "]");
}

absl::StatusOr<std::vector<std::string>> ShapeOf(const Metadata& input, const std::string* text) {
  std::vector<std::string> shape;
  if (text == nullptr) {
    for (int64_t size : input.shape()) {
      shape.push_back(absl::StrCat(size < 0 ? 1 : size));  // a size that is not fixed
    }
    return shape;
  }
  if (!text->empty()) shape = absl::StrSplit(*text, 'x');
  const std::string said = absl::StrCat(input.name(), "=", *text);
  if (shape.size() != static_cast<size_t>(input.shape_size())) {
    return Bad("--shape", said,
               absl::StrCat("has ", shape.size(), " sizes, the input is ", Declared(input)));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t fixed = input.shape(static_cast<int>(i));
    if (fixed >= 0 && shape[i] != absl::StrCat(fixed)) {
      return Bad("--shape", said,
                 absl::StrCat("size ", i, " must be ", fixed, ": the input is ", Declared(input)));
    }
  }
  return shape;
}

absl::StatusOr<Values> ValuesOf(const Metadata& input, const client::ClientDType& dtype,
                                const std::string* text) {
  Values values;
  const bool integer =
      dtype.kind == client::NumberKind::kSigned || dtype.kind == client::NumberKind::kUnsigned;
  if (text == nullptr) {
    if (!integer) return values;
    return absl::InvalidArgumentError(
        absl::StrCat("input \"", input.name(), "\" is ", Declared(input),
                     ": say which integers are valid, such as --input ", input.name(),
                     "=0..9, or give a file, --input ", input.name(), "=@FILE.npy"));
  }
  const std::string said = absl::StrCat(input.name(), "=", *text);
  absl::string_view path = *text;
  if (absl::ConsumePrefix(&path, "@")) {
    ASSIGN_OR_RETURN(std::string bytes, client::ReadFile(std::string(path)));
    absl::StatusOr<client::Tensor> tensor = client::ParseNpy(bytes, dtype.name);
    if (!tensor.ok()) return Bad("--input", said, tensor.status().message());
    values.file = *std::move(tensor);
    return values;
  }
  values.range = SplitRange(*text);
  client::Tensor ends{std::string(dtype.name), {2}, {}};
  if (!values.range.has_value() || dtype.kind == client::NumberKind::kBool) {
    return Bad("--input", said, "must be a range such as 0..9, of numbers, or @FILE.npy");
  }
  for (const std::string& end : {values.range->low, values.range->high}) {
    if (absl::Status s = client::AppendElement(end, &ends); !s.ok()) {
      return Bad("--input", said, s.message());
    }
  }
  if (!Ordered(*values.range, dtype.kind)) {
    return Bad("--input", said, "its ends must be finite numbers in ascending order");
  }
  return values;
}

// REQUIRES: the caller has reserved `bytes`.
void AppendBits(uint64_t bits, int width, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&bits), width);  // little-endian, as tensors are
}

void DrawIntegers(const Range& range, const client::ClientDType& dtype, int64_t count,
                  Random* random, std::string* bytes) {
  if (dtype.kind == client::NumberKind::kSigned) {
    int64_t low = 0, high = 0;
    if (!absl::SimpleAtoi(range.low, &low) || !absl::SimpleAtoi(range.high, &high)) return;
    std::uniform_int_distribution<int64_t> draw(low, high);
    for (int64_t i = 0; i < count; ++i) {
      AppendBits(static_cast<uint64_t>(draw(*random)), dtype.bytes, bytes);
    }
    return;
  }
  uint64_t low = 0, high = 0;
  if (!absl::SimpleAtoi(range.low, &low) || !absl::SimpleAtoi(range.high, &high)) return;
  std::uniform_int_distribution<uint64_t> draw(low, high);
  for (int64_t i = 0; i < count; ++i) AppendBits(draw(*random), dtype.bytes, bytes);
}

absl::Status DrawFloats(const std::optional<Range>& range, int64_t count, Random* random,
                        client::Tensor* tensor) {
  double low = 0, high = 0;
  if (range.has_value() &&
      !(absl::SimpleAtod(range->low, &low) && absl::SimpleAtod(range->high, &high))) {
    return Bad("--input", absl::StrCat(range->low, "..", range->high), "is not a range of numbers");
  }
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(low, high);
  for (int64_t i = 0; i < count; ++i) {
    const double value = range.has_value() ? uniform(*random) : normal(*random);
    const float narrow = static_cast<float>(value);
    if (tensor->dtype == "f32") {
      tensor->bytes.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
    } else if (tensor->dtype == "f64") {
      tensor->bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    } else if (absl::Status s = client::AppendElement(absl::StrCat(value), tensor); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<client::Tensor> Draw(const Input& input, const std::map<std::string, int64_t>& sizes,
                                    Random* random) {
  if (input.values.file.has_value()) return *input.values.file;
  client::Tensor tensor{std::string(input.dtype->name), {}, {}};
  for (const std::string& text : input.shape) {
    int64_t size;
    if (!absl::SimpleAtoi(text, &size) || size < 0) {
      const auto named = sizes.find(text);
      if (named == sizes.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--shape ", input.name, "=", absl::StrJoin(input.shape, "x"), ": \"", text,
                         "\" is neither a size nor named by --dims, such as --dims b=1..64"));
      }
      size = named->second;
    }
    tensor.shape.push_back(size);
  }
  ASSIGN_OR_RETURN(int64_t count, client::ElementCount(tensor.shape));
  if (count > kMostRequestBytes / input.dtype->bytes) {
    return absl::InvalidArgumentError(absl::StrCat("--shape ", input.name, "=",
                                                   absl::StrJoin(tensor.shape, "x"), ": more than ",
                                                   kMostRequestBytes, " bytes"));
  }
  tensor.bytes.reserve(count * input.dtype->bytes);
  if (input.dtype->kind == client::NumberKind::kFloat) {
    absl::Status s = DrawFloats(input.values.range, count, random, &tensor);
    if (!s.ok()) return s;
  } else {
    const Range range =
        input.dtype->kind == client::NumberKind::kBool ? Range{"0", "1"} : *input.values.range;
    DrawIntegers(range, *input.dtype, count, random, &tensor.bytes);
  }
  return tensor;
}

// Refuses a flag that names no input of the model, instead of ignoring it.
absl::Status CheckNames(absl::string_view flag, const std::map<std::string, std::string>& given,
                        const inference::ModelMetadataResponse& model) {
  for (const auto& [name, text] : given) {
    const bool known = std::any_of(model.inputs().begin(), model.inputs().end(),
                                   [&](const Metadata& input) { return input.name() == name; });
    if (known) continue;
    const std::string inputs =
        absl::StrJoin(model.inputs(), ", ", [](std::string* out, const Metadata& input) {
          absl::StrAppend(out, input.name(), " ", Declared(input));
        });
    return Bad(flag, absl::StrCat(name, "=", text),
               absl::StrCat("model \"", model.name(), "\" has no such input; it takes ", inputs));
  }
  return absl::OkStatus();
}

const std::string* Find(const std::map<std::string, std::string>& given, const std::string& name) {
  const auto found = given.find(name);
  return found == given.end() ? nullptr : &found->second;
}

// A file is sent unchanged, so a shape given for its input must be the file's in every request.
absl::Status CheckFileShape(const Input& input, const std::map<std::string, Dim>& dims) {
  const std::vector<int64_t>& sizes = input.values.file->shape;
  bool same = input.shape.size() == sizes.size();
  for (size_t i = 0; same && i < sizes.size(); ++i) {
    int64_t size;
    const auto dim = dims.find(input.shape[i]);
    if (absl::SimpleAtoi(input.shape[i], &size)) {
      same = size == sizes[i];
    } else {
      same = dim != dims.end() && dim->second.low == sizes[i] && dim->second.high == sizes[i];
    }
  }
  if (same) return absl::OkStatus();
  return Bad("--shape", absl::StrCat(input.name, "=", absl::StrJoin(input.shape, "x")),
             absl::StrCat("its --input is a file of ", absl::StrJoin(sizes, "x"),
                          ", which is sent as it is; leave this --shape out or say ", input.name,
                          "=", absl::StrJoin(sizes, "x")));
}

// Refuses a range that no shape uses, instead of ignoring it.
absl::Status CheckDims(const std::map<std::string, Dim>& dims, const std::vector<Input>& inputs) {
  for (const auto& [name, dim] : dims) {
    int64_t number;
    const bool named =
        !absl::SimpleAtoi(name, &number) &&
        std::any_of(inputs.begin(), inputs.end(), [&, &name = name](const Input& input) {
          return std::find(input.shape.begin(), input.shape.end(), name) != input.shape.end();
        });
    if (named) continue;
    return Bad("--dims", absl::StrCat(name, "=", dim.low, "..", dim.high),
               "no --shape has a size of this name; say where it goes, such as --shape x=bx64 with "
               "--dims b=1..64, or leave it out");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Input>> ReadInputs(const inference::ModelMetadataResponse& model,
                                              const InputFlags& flags,
                                              const std::map<std::string, Dim>& dims) {
  absl::StatusOr<std::map<std::string, std::string>> shapes = ByName("--shape", flags.shapes);
  if (!shapes.ok()) return shapes.status();
  absl::StatusOr<std::map<std::string, std::string>> values = ByName("--input", flags.values);
  if (!values.ok()) return values.status();
  RETURN_IF_ERROR(CheckNames("--shape", *shapes, model));
  RETURN_IF_ERROR(CheckNames("--input", *values, model));
  std::vector<Input> inputs;
  for (const Metadata& metadata : model.inputs()) {
    Input input{metadata.name(), client::FindDatatype(metadata.datatype())};
    if (input.dtype == nullptr) {
      return absl::UnimplementedError(absl::StrCat("input \"", metadata.name(), "\" has datatype ",
                                                   metadata.datatype(), ", which cannot be drawn"));
    }
    ASSIGN_OR_RETURN(input.values, ValuesOf(metadata, *input.dtype, Find(*values, input.name)));
    const std::string* text = Find(*shapes, input.name);
    if (!input.values.file.has_value() || text != nullptr) {
      ASSIGN_OR_RETURN(input.shape, ShapeOf(metadata, text));
    }
    if (input.values.file.has_value() && text != nullptr) {
      RETURN_IF_ERROR(CheckFileShape(input, dims));
    }
    inputs.push_back(std::move(input));
  }
  RETURN_IF_ERROR(CheckDims(dims, inputs));
  return inputs;
}

}  // namespace

absl::StatusOr<std::vector<client::InferRequest>> MakeRequests(
    const inference::ModelMetadataResponse& model, const std::string& version,
    const InputFlags& flags) {
  if (flags.requests < 1 || flags.requests > 100'000) {
    return Bad("--requests", absl::StrCat(flags.requests), "must be 1 to 100000");
  }
  absl::StatusOr<std::map<std::string, Dim>> dims = ParseDims(flags.dims);
  if (!dims.ok()) return dims.status();
  ASSIGN_OR_RETURN(std::vector<Input> inputs, ReadInputs(model, flags, *dims));
  Random random(flags.seed);
  std::vector<client::InferRequest> requests;
  int64_t bytes = 0;
  for (int i = 0; i < flags.requests; ++i) {
    std::map<std::string, int64_t> sizes;
    for (const auto& [name, dim] : *dims) {
      sizes[name] = std::uniform_int_distribution<int64_t>(dim.low, dim.high)(random);
    }
    client::InferRequest request{model.name(), version};
    for (const Input& input : inputs) {
      ASSIGN_OR_RETURN(client::Tensor tensor, Draw(input, sizes, &random));
      bytes += static_cast<int64_t>(tensor.bytes.size());
      if (bytes > kMostRequestBytes) {
        return Bad("--requests", absl::StrCat(flags.requests),
                   absl::StrCat("their tensors are more than ", kMostRequestBytes,
                                " bytes together; give fewer requests or smaller shapes"));
      }
      request.inputs[input.name] = std::move(tensor);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::string> AssumedSizes(const inference::ModelMetadataResponse& model,
                                      const InputFlags& flags) {
  std::vector<std::string> sentences;
  for (const Metadata& input : model.inputs()) {
    const std::string own = absl::StrCat(input.name(), "=");
    const bool given = std::any_of(flags.shapes.begin(), flags.shapes.end(),
                                   [&](const auto& text) { return text.rfind(own, 0) == 0; }) ||
                       std::any_of(flags.values.begin(), flags.values.end(),
                                   [&](const auto& text) { return text.rfind(own + "@", 0) == 0; });
    const auto free = std::count_if(input.shape().begin(), input.shape().end(),
                                    [](int64_t size) { return size < 0; });
    if (given || free == 0) continue;
    std::vector<std::string> shape;
    for (int64_t size : input.shape()) shape.push_back(absl::StrCat(size < 0 ? 1 : size));
    sentences.push_back(absl::StrCat("input \"", input.name(), "\" is ", Declared(input),
                                     ": sizes that are not fixed are 1; for others give --shape ",
                                     own, absl::StrJoin(shape, "x")));
  }
  return sentences;
}

}  // namespace athanor::bench
