#include "tests/fuzz/onnx_target.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "compiler/frontend/onnx/importer/import.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/frontend/onnx/model/wire.h"
#include "compiler/frontend/parse.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"
#include "compiler/pipeline/prepare.h"

namespace athanor {
namespace {

constexpr std::initializer_list<absl::StatusCode> kRefusals = {
    absl::StatusCode::kInvalidArgument, absl::StatusCode::kUnimplemented,
    absl::StatusCode::kResourceExhausted};

constexpr int64_t kMaxMessageBytes = 1 << 20;
constexpr int64_t kMaxValueElements = 64;
constexpr int kMaxRounds = 3;          // imports, each with more values given
constexpr uint64_t kCancelledOf = 16;  // one import out of this many is cancelled

onnx::ImportLimits Limits() {
  onnx::ImportLimits limits;
  limits.graph = FuzzLimits();
  limits.max_folded_bytes = 4 << 20;
  limits.max_fold_work = 2'000'000;
  limits.max_unrolled_nodes = 1'000;
  limits.max_inlined_nodes = 4'000;
  limits.max_nesting = 8;
  limits.max_refusals = 50;
  return limits;
}

// Serves files and remembers whether a read went beyond a file.
class Reader final : public onnx::PayloadReader {
 public:
  explicit Reader(std::string_view model) : model_(model) {
    for (const OnnxFile& file : kOnnxFiles) {
      std::string& bytes = files_.emplace_back();
      for (int64_t i = 0; i < file.bytes; ++i) bytes += static_cast<char>(i % 251);
    }
  }
  absl::StatusOr<std::string_view> Bytes(const onnx::PayloadRef& ref) const override {
    const bool known = ref.file >= 0 && ref.file <= static_cast<int>(files_.size());
    const std::string_view file = !known          ? std::string_view()
                                  : ref.file == 0 ? model_
                                                  : std::string_view(files_[ref.file - 1]);
    const auto size = static_cast<int64_t>(file.size());
    if (!known || ref.offset < 0 || ref.bytes < 0 || ref.offset > size ||
        ref.bytes > size - ref.offset) {
      outside_ = true;
      return absl::InternalError("a range outside its file");
    }
    return file.substr(ref.offset, ref.bytes);
  }
  bool outside() const { return outside_; }

 private:
  const std::string_view model_;
  std::vector<std::string> files_;
  mutable bool outside_ = false;
};

onnx::FileTable TableOf(const std::string& model) {
  onnx::FileTable table;
  table.files.push_back({"", static_cast<int64_t>(model.size())});
  for (const OnnxFile& file : kOnnxFiles) {
    table.files.push_back({std::string(file.path), file.bytes});
  }
  return table;
}

// Returns bounds for each name that a user could give.
std::vector<onnx::DimGiven> DimsOf(const ::onnx::GraphProto& graph) {
  std::set<std::string_view> weights;
  for (const auto& tensor : graph.initializer()) weights.insert(tensor.name());
  std::set<std::string> names;
  for (const auto& input : graph.input()) {
    if (weights.contains(input.name())) continue;
    const auto& shape = input.type().tensor_type().shape();
    for (int axis = 0; axis < shape.dim_size(); ++axis) {
      const auto& dim = shape.dim(axis);
      if (dim.has_dim_value() && dim.dim_value() >= 0) continue;
      const std::string& text = dim.dim_param();
      const bool named = std::any_of(text.begin(), text.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0;
      });
      if (!named) {
        names.insert(Cat(input.name(), "_", axis));
      } else if (const std::optional<Expr> size = onnx::ParseDimParam(text)) {
        size->CollectSymbols(&names);
      } else {
        names.insert(text);
      }
    }
  }
  std::vector<onnx::DimGiven> given;
  for (const std::string& name : names) {
    const auto least = static_cast<int64_t>(name.size() % 2);
    given.push_back({.name = name, .min = least, .max = 4});
  }
  return given;
}

// Makes contents for an input of constant shape: small ascending numbers.
std::optional<Tensor> ValueFor(const ::onnx::GraphProto& graph, const std::string& name) {
  for (const auto& input : graph.input()) {
    if (input.name() != name) continue;
    const auto& type = input.type().tensor_type();
    const std::optional<onnx::Elem> elem = onnx::ElemOf(type.elem_type());
    if (!elem || onnx::Row(*elem).carry == onnx::Carry::kNone) return std::nullopt;
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (const auto& dim : type.shape().dim()) {
      if (!dim.has_dim_value() || dim.dim_value() < 0) return std::nullopt;
      if (dim.dim_value() > kMaxValueElements) return std::nullopt;
      shape.push_back(dim.dim_value());
      elements *= std::max<int64_t>(dim.dim_value(), 1);
      if (elements > kMaxValueElements) return std::nullopt;
    }
    Tensor value = Tensor::Zeros(onnx::WireOf(*elem), shape);
    for (int64_t i = 0; i < value.elements(); ++i) {
      const int64_t number = value.dtype == DType::kBool ? 1 : (i + 1) % 4;
      const DType dtype = value.dtype;
      StoreScalar(value, i,
                  IsFloat(dtype)    ? Scalar::Float(dtype, static_cast<double>(number))
                  : IsSigned(dtype) ? Scalar::Signed(dtype, number)
                                    : Scalar::Unsigned(dtype, static_cast<uint64_t>(number)));
    }
    return value;
  }
  return std::nullopt;
}

std::string Refused(const absl::Status& status, absl::Span<const ImportRefusal> refusals,
                    FuzzStats* stats) {
  stats->refusal = status.ToString();
  if (static_cast<int64_t>(refusals.size()) > Limits().max_refusals) return "too many refusals";
  for (const ImportRefusal& refusal : refusals) {
    if (refusal.reason.empty()) return "a refusal without a reason: " + status.ToString();
    for (const std::string* text : {&refusal.node, &refusal.domain, &refusal.op, &refusal.reason}) {
      if (!IsValidUtf8(*text)) return "a refusal that is not UTF-8: " + status.ToString();
    }
    for (const std::string& input : refusal.inputs) {
      if (!IsValidUtf8(input)) return "a refusal that is not UTF-8: " + status.ToString();
    }
  }
  return BadRefusal(status, kRefusals);
}

// Checks that each parameter has as many bytes as its type needs.
std::string CheckParameters(const onnx::OnnxImported& imported, const Reader& reader) {
  const std::vector<NodeId> ids = imported.graph.ParameterIds();
  if (ids.size() != imported.parameters.size()) return "wrong number of parameters";
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorType& type = imported.graph.node(ids[i]).type;
    int64_t wanted = DTypeBytes(type.dtype);
    for (const Expr& size : type.shape) wanted *= size.constant().value_or(-1);
    if (imported.parameters[i].stored_bytes() != wanted) return "a parameter of another size";
    int64_t bytes = 0;
    const absl::Status read = onnx::ForEachPiece(imported.parameters[i], reader, /*piece=*/1000,
                                                 [&](std::string_view piece) {
                                                   bytes += static_cast<int64_t>(piece.size());
                                                   return absl::OkStatus();
                                                 });
    if (!read.ok()) return BadRefusal(read, {absl::StatusCode::kInvalidArgument});
    if (bytes != wanted) return Cat("a parameter gives ", bytes, " bytes, not ", wanted);
  }
  return "";
}

double ToleranceOf(DType dtype) { return std::clamp(UnitRoundoff(dtype) * 4096, 1e-6, 0.1); }

// Returns a value that differs beyond rounding, as text; "" if there is none.
std::string Differs(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    double largest = 1;
    const bool rounds = IsFloat(want[i].dtype);
    for (int64_t e = 0; rounds && e < want[i].elements(); ++e) {
      const double value = std::abs(LoadScalar(want[i], e).f);
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
    const double tolerance = rounds ? ToleranceOf(want[i].dtype) : 0;
    const absl::Status same = CompareTensors(got[i], want[i], tolerance, tolerance * largest);
    if (!same.ok()) return Cat("output ", i, ": ", std::string(absl::string_view(same.message())));
  }
  return "";
}

// Changes each float by a few roundings.
Tensor Moved(const Tensor& tensor, std::mt19937* random) {
  Tensor moved = tensor;
  if (!IsFloat(tensor.dtype) || !Computes(tensor.dtype)) return moved;
  const double step = 4 * UnitRoundoff(tensor.dtype);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double share = static_cast<double>((*random)() % 9) / 4 - 1;
    StoreScalar(moved, i,
                Scalar::Float(tensor.dtype, LoadScalar(tensor, i).f * (1 + share * step)));
  }
  return moved;
}

// Reports whether roundings of inputs and literals change the results beyond the allowed rounding.
bool IsUnstable(const Graph& graph, const SmallInputs& inputs, const std::vector<Tensor>& values) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 8; ++trial) {
    Graph moved = graph;
    for (Node& node : moved.nodes) {
      if (!IsConstant(node.op)) continue;
      for (auto& [name, value] : node.attrs) {
        if (auto* tensor = std::get_if<Tensor>(&value)) *tensor = Moved(*tensor, &random);
      }
    }
    std::vector<Tensor> arguments;
    for (const Tensor& argument : inputs.arguments) arguments.push_back(Moved(argument, &random));
    const absl::StatusOr<std::vector<Tensor>> others = Evaluate(moved, arguments);
    if (!others.ok() || !Differs(*others, values).empty()) return true;
  }
  return false;
}

// Checks that the graph computes the same after Prepare.
std::string CheckPrepared(const Graph& graph, FuzzStats* stats) {
  const std::optional<SmallInputs> inputs = SmallInputsOf(graph);
  if (!inputs) return "";
  const absl::StatusOr<std::vector<Tensor>> values = Evaluate(graph, inputs->arguments);
  if (!values.ok()) return "";  // CheckImported covers graphs that cannot be evaluated
  const absl::StatusOr<Prepared> prepared = Prepare(graph);
  if (!prepared.ok()) return "not prepared: " + prepared.status().ToString();
  Expr::Env dims;
  for (size_t i = 0; i < prepared->dim_names.size(); ++i) {
    dims[prepared->graph.dims[i].name] = inputs->dims.at(prepared->dim_names[i]);
  }
  if (!IsSmallAt(prepared->graph, dims)) return "";
  const absl::StatusOr<std::vector<Tensor>> others = Evaluate(prepared->graph, inputs->arguments);
  if (!others.ok()) return "prepared graph does not evaluate: " + others.status().ToString();
  const std::string problem = Differs(*others, *values);
  if (problem.empty()) {
    ++stats->prepared;
  } else if (IsUnstable(graph, *inputs, *values)) {
    ++stats->unstable;
  } else {
    return "prepared graph evaluates to something else: " + problem;
  }
  return "";
}

// Checks that an import that is cancelled after some number of questions stops.
std::string CheckCancelled(const onnx::OnnxModel& model, const Reader& reader,
                           onnx::ImportOptions options, uint64_t after) {
  uint64_t asked = 0;
  options.cancelled = [&] { return ++asked > after; };
  std::vector<ImportRefusal> refusals;
  const absl::Status status = onnx::ImportOnnx(model, reader, options, &refusals).status();
  if (asked <= after || absl::IsCancelled(status)) return "";
  return "it was cancelled, but goes on: " + status.ToString();
}

std::string CheckAccepted(onnx::OnnxImported imported, const Reader& reader, FuzzStats* stats) {
  ++stats->accepted;
  std::string problem = CheckParameters(imported, reader);
  if (!problem.empty()) return problem;
  ImportedGraph graph;
  for (size_t i = 0; i < imported.parameters.size(); ++i) {
    graph.parameter_hashes.emplace_back(32, static_cast<char>('a' + i % 26));
  }
  if (imported.input_elements.size() != imported.graph.InputIds().size() ||
      imported.output_elements.size() != imported.graph.outputs.size()) {
    return "wrong number of elements";
  }
  graph.graph = std::move(imported.graph);
  graph.input_elements = std::move(imported.input_elements);
  graph.output_elements = std::move(imported.output_elements);
  problem = CheckImported(graph, stats);
  return problem.empty() ? CheckPrepared(graph.graph, stats) : problem;
}

}  // namespace

std::string FuzzOnnx(const std::string& bytes, FuzzStats* stats) {
  onnx::LiftLimits lift;
  lift.max_message_bytes = kMaxMessageBytes;
  lift.inline_bytes = 64;  // gives small models payloads too
  absl::StatusOr<onnx::Lifted> lifted = onnx::LiftPayloads(bytes, lift);
  if (!lifted.ok()) return Refused(lifted.status(), {}, stats);
  if (static_cast<int64_t>(lifted->message.size()) > kMaxMessageBytes) return "a large message";
  const absl::StatusOr<onnx::OnnxModel> model =
      onnx::ParseOnnx(*std::move(lifted), TableOf(bytes), FuzzLimits());
  if (!model.ok()) return Refused(model.status(), {}, stats);
  ++stats->parsed;
  const Reader reader(bytes);
  const uint64_t hash = std::hash<std::string>()(bytes);
  onnx::ImportOptions options;
  options.dims = DimsOf(model->proto.graph());
  options.random_seed = 7;
  options.limits = Limits();
  if (hash % kCancelledOf == 0) {
    const std::string problem = CheckCancelled(*model, reader, options, hash / kCancelledOf % 8);
    if (!problem.empty()) return problem;
  }
  for (int round = 0; round < kMaxRounds; ++round) {
    std::vector<ImportRefusal> refusals;
    absl::StatusOr<onnx::OnnxImported> imported =
        onnx::ImportOnnx(*model, reader, options, &refusals);
    if (reader.outside()) return "bytes outside a file are asked for";
    if (imported.ok() && !refusals.empty()) return "accepted with refusals";
    if (imported.ok()) return CheckAccepted(*std::move(imported), reader, stats);
    const std::string problem = Refused(imported.status(), refusals, stats);
    if (!problem.empty()) return problem;
    const size_t given = options.values.size();
    for (const ImportRefusal& refusal : refusals) {
      for (const std::string& input : refusal.inputs) {
        std::optional<Tensor> value = ValueFor(model->proto.graph(), input);
        if (value) options.values.emplace(input, *std::move(value));
      }
    }
    if (options.values.size() == given) break;
  }
  return "";
}

}  // namespace athanor
