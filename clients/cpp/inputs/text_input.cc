#include "clients/cpp/inputs/text_input.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "clients/cpp/client/npy.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

using Sizes = std::vector<int64_t>;

const v1::ModelTensor* FindInput(absl::string_view name, const v1::Model& model) {
  for (const v1::ModelTensor& input : model.inputs()) {
    if (input.name() == name) return &input;
  }
  return nullptr;
}

std::string Declared(const v1::ModelTensor& input) {
  return absl::StrCat(input.dtype(), "[", absl::StrJoin(input.shape(), ", "), "]");
}

std::string InputsText(const v1::Model& model) {
  return absl::StrJoin(model.inputs(), ", ", [](std::string* out, const v1::ModelTensor& input) {
    absl::StrAppend(out, input.name(), " ", Declared(input));
  });
}

absl::Status Bad(const v1::ModelTensor& input, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("input \"", input.name(), "\": ", what));
}

absl::StatusOr<Sizes> ParseSizes(absl::string_view text, const v1::ModelTensor& input) {
  Sizes sizes;
  if (text.empty()) return sizes;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t size;
    if (!absl::SimpleAtoi(part, &size) || size < 0) {
      return Bad(input, absl::StrCat("size \"", part, "\" must be a number that is not negative"));
    }
    sizes.push_back(size);
  }
  return sizes;
}

// The declared sizes, the one that is not fixed found from the number of elements.
absl::StatusOr<Sizes> SolveSizes(int64_t count, const v1::ModelTensor& input) {
  Sizes sizes;
  std::optional<size_t> open;
  for (const std::string& text : input.shape()) {
    int64_t size = 1;
    if (!absl::SimpleAtoi(text, &size)) {
      if (open.has_value()) {
        return Bad(input, absl::StrCat("has several sizes that are not fixed, ", Declared(input),
                                       "; say them: ", input.name(), "[2,3]=..."));
      }
      open = sizes.size();
      size = 1;
    }
    sizes.push_back(size);
  }
  ASSIGN_OR_RETURN(int64_t known, ElementCount(sizes));
  if (open.has_value() && known > 0 && count % known == 0) {
    sizes[*open] = count / known;
  } else if (open.has_value() || count != known) {
    return Bad(input, absl::StrCat(count, " elements do not make ", Declared(input), "; it needs ",
                                   open.has_value() ? "a multiple of " : "", known));
  }
  return sizes;
}

absl::StatusOr<Tensor> ParseValues(absl::string_view text, std::optional<Sizes> sizes,
                                   const v1::ModelTensor& input) {
  Tensor tensor{input.dtype(), {}, {}};
  int64_t count = 0;
  text = absl::StripAsciiWhitespace(text);
  if (!text.empty()) {
    for (absl::string_view part : absl::StrSplit(text, ',')) {
      absl::Status s = AppendElement(absl::StripAsciiWhitespace(part), &tensor);
      if (!s.ok()) return Bad(input, absl::StrCat("element ", count, ": ", s.message()));
      ++count;
    }
  }
  if (sizes.has_value()) {
    tensor.shape = *std::move(sizes);
  } else {
    ASSIGN_OR_RETURN(tensor.shape, SolveSizes(count, input));
  }
  if (absl::Status s = CheckTensor(tensor); !s.ok()) return Bad(input, s.message());
  return tensor;
}

}  // namespace

absl::StatusOr<std::pair<std::string, Tensor>> ParseInput(absl::string_view text,
                                                          const v1::Model& model) {
  const size_t equals = text.find('=');
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input \"", text, "\": must be NAME=VALUES, NAME[SIZES]=VALUES or NAME=@FILE.npy"));
  }
  absl::string_view name = text.substr(0, equals);
  absl::string_view value = text.substr(equals + 1);
  absl::string_view sizes_text;
  const v1::ModelTensor* input = FindInput(name, model);
  const size_t bracket = name.rfind('[');
  const bool sized = input == nullptr && bracket != absl::string_view::npos && name.back() == ']';
  if (sized) {
    sizes_text = name.substr(bracket + 1, name.size() - bracket - 2);
    name = name.substr(0, bracket);
    input = FindInput(name, model);
  }
  if (input == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("model \"", model.name(), "\" has no input \"",
                                                   name, "\"; it takes ", InputsText(model)));
  }
  std::optional<Sizes> sizes;
  if (sized) {
    ASSIGN_OR_RETURN(sizes, ParseSizes(sizes_text, *input));
  }
  absl::StatusOr<Tensor> tensor;
  if (absl::ConsumePrefix(&value, "@")) {
    if (sized) return Bad(*input, "a file has its own sizes; leave out [...]");
    ASSIGN_OR_RETURN(std::string file, ReadFile(std::string(value)));
    tensor = ParseNpy(file, input->dtype());
    if (!tensor.ok()) return Bad(*input, absl::StrCat(value, ": ", tensor.status().message()));
  } else {
    tensor = ParseValues(value, std::move(sizes), *input);
    if (!tensor.ok()) return tensor.status();
  }
  return std::make_pair(std::string(name), *std::move(tensor));
}

ModelName ParseModelName(const std::string& text) {
  const size_t slash = text.rfind('/');
  if (slash == std::string::npos) return {text, ""};
  // Names have slashes too: "org/model".
  const absl::string_view end = absl::string_view(text).substr(slash + 1);
  if (end.empty() || !std::all_of(end.begin(), end.end(), absl::ascii_isdigit)) return {text, ""};
  return {text.substr(0, slash), text.substr(slash + 1)};
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file.is_open() && (file.peek() == EOF || bytes << file.rdbuf()) && !file.bad()) {
    return std::move(bytes).str();
  }
  return absl::ErrnoToStatus(errno != 0 ? errno : EIO, absl::StrCat("cannot read ", path));
}

absl::Status WriteFile(const std::string& path, absl::string_view bytes) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::ErrnoToStatus(errno != 0 ? errno : EIO, absl::StrCat("cannot write ", path));
}

}  // namespace athanor::client
