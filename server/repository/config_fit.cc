#include "server/repository/config_fit.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/frontend/datatype.h"
#include "compiler/ir/expr/expr.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using DimList = google::protobuf::RepeatedPtrField<v1::DimGiven>;
using inference::DataType;

// Returns the size if the text is a number.
std::optional<int64_t> Number(const std::string& size) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(size, &number)) return std::nullopt;
  return number;
}

std::string ShapeText(const v1::ModelTensor& tensor) {
  return Cat("[", absl::StrJoin(tensor.shape(), ", "), "]");
}

// Returns Triton's name of a dtype: "TYPE_FP32" of "f32". Empty: it has none.
std::string TypeNameOf(const std::string& dtype) {
  const std::optional<DType> parsed = ParseDType(dtype);
  const DatatypeRow* row = parsed.has_value() ? DatatypeOf(*parsed) : nullptr;
  return row == nullptr ? "" : Cat("TYPE_", row->name);
}

absl::Status CheckType(const std::string& what, DataType stated, const std::string& dtype) {
  const std::string has = TypeNameOf(dtype);
  if (stated == DataType::TYPE_INVALID || has.empty() || has == DataType_Name(stated)) {
    return absl::OkStatus();
  }
  return Invalid(what, ".data_type: ", DataType_Name(stated), ", but the model has ", has);
}

class Fit {
 public:
  Fit(const RepositoryConfig& config, const v1::Model& outline, bool gives)
      : config_(config), message_(config.message), outline_(outline), gives_(gives) {}

  absl::StatusOr<FittedConfig> Run() {
    ASSIGN_OR_RETURN(const DimList given, ParseDims(config_.dims));
    for (const v1::DimGiven& dim : given)
      RETURN_IF_ERROR(Give(dim, "parameters[\"athanor.dims\"]"));
    if (!outline_.inputs().empty()) {
      RETURN_IF_ERROR(FitBatch());
      RETURN_IF_ERROR(FitInputs());
      RETURN_IF_ERROR(FitOutputs());
      RETURN_IF_ERROR(CheckOpen());
    }
    FittedConfig fitted;
    for (auto& [name, dim] : dims_) *fitted.dims.Add() = std::move(dim);
    fitted.batch_dim = !config_.batch_dim.empty()        ? config_.batch_dim
                       : message_.has_dynamic_batching() ? batch_
                                                         : "";
    return fitted;
  }

 private:
  // The batch of inputs that are batched.
  bool batched() const { return message_.max_batch_size() > 0; }

  absl::Status Give(const v1::DimGiven& dim, const std::string& by) {
    if (!gives_) {
      return absl::FailedPreconditionError(
          Cat(by, ": gives dim ", Quoted(dim.name()),
              ", but only ONNX models take dims; the bounds of others are in their files"));
    }
    const auto [at, fresh] = dims_.try_emplace(dim.name(), dim);
    if (fresh || at->second.SerializeAsString() == dim.SerializeAsString()) return absl::OkStatus();
    return Invalid(by, ": dim ", Quoted(dim.name()), " is given otherwise already");
  }

  absl::Status FitBatch() {
    if (!batched()) return absl::OkStatus();
    for (const v1::ModelTensor& input : outline_.inputs()) {
      const std::string what = Cat("max_batch_size: ", message_.max_batch_size(), ", but input ",
                                   Quoted(input.name()), " has shape ", ShapeText(input));
      if (input.shape().empty() || Number(input.shape(0)).has_value()) {
        return Invalid(what,
                       "; its first size must be open to be the batch, else max_batch_size "
                       "is 0");
      }
      if (!batch_.empty() && batch_ != input.shape(0)) {
        return Invalid(what, ", and another's batch is ", Quoted(batch_),
                       "; all must have the same name");
      }
      batch_ = input.shape(0);
    }
    return gives_ ? GiveBatch() : CheckBatch();
  }

  absl::Status GiveBatch() {
    if (dims_.contains(batch_)) {
      return Invalid("max_batch_size: ", message_.max_batch_size(), ", but dim ", Quoted(batch_),
                     " is given by parameters[\"athanor.dims\"] too");
    }
    v1::DimGiven dim;
    dim.set_name(batch_);
    dim.set_min(1);
    dim.set_max(message_.max_batch_size());
    return Give(dim, "max_batch_size");
  }

  // Holds max_batch_size against the bounds that the graph has.
  absl::Status CheckBatch() const {
    for (const v1::GraphDim& dim : outline_.dims()) {
      if (dim.name() != batch_ || message_.max_batch_size() <= dim.max()) continue;
      return Invalid("max_batch_size: ", message_.max_batch_size(), ", but the model's dim ",
                     Quoted(batch_), " ends at ", dim.max());
    }
    return absl::OkStatus();
  }

  absl::Status FitInputs() {
    if (message_.input().empty()) return absl::OkStatus();
    std::set<std::string> stated;
    for (const inference::ModelInput& input : message_.input()) {
      const std::string what = Cat("input ", Quoted(input.name()));
      if (!stated.insert(input.name()).second) return Invalid(what, ": is there twice");
      ASSIGN_OR_RETURN(const v1::ModelTensor* has,
                       FindTensor(what, input.name(), outline_.inputs()));
      RETURN_IF_ERROR(CheckType(what, input.data_type(), has->dtype()));
      RETURN_IF_ERROR(FitShape(what, input.dims(), *has, /*gives=*/true));
    }
    for (const v1::ModelTensor& input : outline_.inputs()) {
      if (stated.contains(input.name())) continue;
      return Invalid("input: the model has ", Quoted(input.name()),
                     " too; list all inputs, or none");
    }
    return absl::OkStatus();
  }

  absl::Status FitOutputs() {
    for (const inference::ModelOutput& output : message_.output()) {
      const std::string what = Cat("output ", Quoted(output.name()));
      ASSIGN_OR_RETURN(const v1::ModelTensor* has,
                       FindTensor(what, output.name(), outline_.outputs()));
      RETURN_IF_ERROR(CheckType(what, output.data_type(), has->dtype()));
      // A file may leave the shapes of outputs out.
      if (has->shape().empty()) continue;
      RETURN_IF_ERROR(FitShape(what, output.dims(), *has, /*gives=*/false));
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<const v1::ModelTensor*> FindTensor(
      const std::string& what, const std::string& name,
      const google::protobuf::RepeatedPtrField<v1::ModelTensor>& tensors) {
    std::vector<std::string> names;
    for (const v1::ModelTensor& tensor : tensors) {
      if (tensor.name() == name) return &tensor;
      names.push_back(Quoted(tensor.name()));
    }
    return Invalid(what, ": the model has none of this name; it has ", absl::StrJoin(names, ", "));
  }

  // `gives`: a size that the model leaves open becomes the one that is stated.
  absl::Status FitShape(const std::string& what,
                        const google::protobuf::RepeatedField<int64_t>& dims,
                        const v1::ModelTensor& has, bool gives) {
    const int skipped = batched() ? 1 : 0;
    const auto wrong = [&](std::string_view why) {
      return Invalid(what, ".dims: [", absl::StrJoin(dims, ", "), "]",
                     batched() ? " behind the batch" : "", ", but the model has ", ShapeText(has),
                     why);
    };
    // Triton writes [1] for a tensor without axes, with a reshape.
    if (dims.size() + skipped != has.shape_size()) return wrong("");
    for (int axis = 0; axis < dims.size(); ++axis) {
      const std::string& size = has.shape(axis + skipped);
      const std::optional<int64_t> number = Number(size);
      if (dims[axis] < -1) return wrong("; a size is -1 or at least 0");
      if (dims[axis] == -1) {
        if (number.has_value() && gives) {
          return wrong(Cat("; axis ", axis + skipped, " has one size, which -1 is not"));
        }
        continue;
      }
      if (number.has_value() && *number != dims[axis]) return wrong("");
      if (number.has_value() || !gives) continue;
      v1::DimGiven dim;
      dim.set_name(size);
      dim.set_equals(Cat(dims[axis]));
      RETURN_IF_ERROR(Give(dim, what + ".dims"));
    }
    return absl::OkStatus();
  }

  // Names every size of an ONNX model's inputs that nothing bounds. Expressions over others are
  // left to the import.
  absl::Status CheckOpen() const {
    std::vector<std::string> open, wanted;
    for (const v1::ModelTensor& input : outline_.inputs()) {
      for (int axis = 0; gives_ && axis < input.shape_size(); ++axis) {
        const std::string& size = input.shape(axis);
        if (!Expr::IsSymbolName(size) || dims_.contains(size)) continue;
        const std::string want = Cat(size, "=1:64");
        if (absl::c_linear_search(wanted, want)) continue;
        wanted.push_back(want);
        open.push_back(Cat(Quoted(size), " (input ", Quoted(input.name()), ", axis ", axis, ")"));
      }
    }
    if (open.empty()) return absl::OkStatus();
    return Invalid("the model's sizes ", absl::StrJoin(open, ", "),
                   " have no bounds; give them in config.pbtxt: parameters { key: \"athanor.dims\" "
                   "value { string_value: \"",
                   absl::StrJoin(wanted, ", "), "\" } }");
  }

  const RepositoryConfig& config_;
  const inference::ModelConfig& message_;
  const v1::Model& outline_;
  const bool gives_;
  std::string batch_;  // the dim's name; empty: no max_batch_size
  std::map<std::string, v1::DimGiven> dims_;
};

}  // namespace

absl::StatusOr<DimList> ParseDims(std::string_view text) {
  DimList dims;
  const absl::string_view all =
      absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size()));
  if (all.empty()) return dims;
  for (absl::string_view part : absl::StrSplit(all, ',')) {
    const auto wrong = [&] {
      return Invalid("parameters[\"athanor.dims\"]: ", Quoted(std::string(part)),
                     " is no dim; they are written as batch=1:64 or seq=128, separated by commas");
    };
    const std::vector<absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (sides.size() != 2) return wrong();
    v1::DimGiven& dim = *dims.Add();
    dim.set_name(std::string(absl::StripAsciiWhitespace(sides[0])));
    const absl::string_view value = absl::StripAsciiWhitespace(sides[1]);
    if (dim.name().empty() || value.empty()) return wrong();
    const size_t colon = value.find(':');
    if (colon == absl::string_view::npos) {
      dim.set_equals(std::string(value));
      continue;
    }
    int64_t min = 1, max = 0;
    const absl::string_view first = absl::StripAsciiWhitespace(value.substr(0, colon));
    if (!first.empty() && !absl::SimpleAtoi(first, &min)) return wrong();
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(value.substr(colon + 1)), &max))
      return wrong();
    dim.set_min(min);
    dim.set_max(max);
  }
  return dims;
}

absl::StatusOr<FittedConfig> FitConfig(const RepositoryConfig& config, const v1::Model& outline,
                                       std::string_view format) {
  return Fit(config, outline, format == "onnx").Run();
}

}  // namespace athanor
