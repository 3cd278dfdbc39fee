#include "tests/fuzz/targets.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "compiler/frontend/contents.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/parse.h"
#include "compiler/ir/graph/input_value.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/rows/row_independence.h"
#include "compiler/ir/rows/row_independence_testing.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr int64_t kMaxElements = 2048;  // per tensor that is evaluated
// Per node: an op takes at most as many steps as its result has elements, times the elements of its
// two largest operands.
constexpr int64_t kMaxWork = 1 << 21;
constexpr int64_t kMaxSteps = 32;               // per loop
constexpr int64_t kMaxRowWork = kMaxWork / 64;  // for a graph that is evaluated many times
constexpr size_t kMaxDims = 4;                  // per graph whose rows are checked
constexpr size_t kMaxMessage = 2048 + 16;

constexpr std::initializer_list<absl::StatusCode> kRefusals = {absl::StatusCode::kInvalidArgument,
                                                               absl::StatusCode::kUnimplemented};

// Chooses the dims as small as their bounds allow, but 3 if possible, to differ from 0 and 1.
Expr::Env SmallDims(const Graph& graph) {
  Expr::Env env;
  int64_t size = 3;
  for (const Dim& dim : graph.dims) env[dim.name] = std::clamp(size++, dim.min, dim.max);
  return env;
}

std::optional<std::vector<int64_t>> ShapeAt(const Shape& shape, const Expr::Env& env) {
  std::vector<int64_t> sizes;
  int64_t elements = 1;
  for (const Expr& e : shape) {
    const std::optional<int64_t> size = e.Evaluate(env);
    if (!size || *size < 0 || *size > kMaxElements) return std::nullopt;
    sizes.push_back(*size);
    elements *= std::max<int64_t>(*size, 1);
    if (elements > kMaxElements) return std::nullopt;
  }
  return sizes;
}

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  return elements;
}

// Reports whether every tensor is small and every node's work is bounded at these dims.
bool IsSmall(const Graph& graph, const Expr::Env& env, int64_t max_work) {
  std::vector<int64_t> elements;
  for (const Node& node : graph.nodes) {
    const std::optional<std::vector<int64_t>> shape = ShapeAt(node.type.shape, env);
    if (!shape) return false;
    elements.push_back(ElementsOf(*shape));
    std::vector<int64_t> factors = {1, 1};
    for (NodeId input : node.inputs) factors.push_back(elements[input]);
    std::sort(factors.rbegin(), factors.rend());
    if (std::max<int64_t>(elements.back(), 1) > max_work / factors[0] / factors[1]) return false;
    if (!IsLoop(node.op)) continue;
    const ScanView scan = ViewScan(node);
    const int64_t steps = scan.length.Evaluate(env).value_or(kMaxSteps + 1);
    if (steps > kMaxSteps || !IsSmall(scan.body, env, max_work / std::max<int64_t>(steps, 1))) {
      return false;
    }
  }
  return graph.nodes.size() <= 200;
}

// Makes small ascending values from 0: often valid as indices and as offsets of bags.
Tensor SmallTensor(DType dtype, const std::vector<int64_t>& shape, std::mt19937* random) {
  Tensor tensor = Tensor::Zeros(dtype, shape);
  uint32_t value = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (value < 3) value += (*random)() % 2;
    const Scalar scalar = dtype == DType::kBool ? Scalar::Unsigned(dtype, (*random)() % 2)
                          : IsUnsigned(dtype)   ? Scalar::Unsigned(dtype, value)
                          : IsSigned(dtype)     ? Scalar::Signed(dtype, value)
                                                : Scalar::Float(dtype, 0.5 * value);
    StoreScalar(tensor, i, scalar);
  }
  return tensor;
}

std::vector<Tensor> SmallArguments(const Graph& graph, const Expr::Env& env) {
  std::mt19937 random(1);
  std::vector<Tensor> arguments;
  for (const std::vector<NodeId>& ids : {graph.InputIds(), graph.ParameterIds()}) {
    for (NodeId id : ids) {
      const TensorType& type = graph.node(id).type;
      const Tensor* value = ValueOf(graph.node(id));
      arguments.push_back(
          value != nullptr ? *value : SmallTensor(type.dtype, *ShapeAt(type.shape, env), &random));
    }
  }
  return arguments;
}

// Evaluates the graph and its canonical form on the same small inputs.
std::string CompareEvaluations(const Graph& graph, const Graph& canonical, FuzzStats* stats) {
  const Expr::Env env = SmallDims(graph);
  if (!IsSmall(graph, env, kMaxWork)) return "";
  const std::vector<Tensor> arguments = SmallArguments(graph, env);
  const absl::StatusOr<std::vector<Tensor>> values = Evaluate(graph, arguments);
  const absl::StatusOr<std::vector<Tensor>> others = Evaluate(canonical, arguments);
  if (!values.ok()) {
    // OUT_OF_RANGE is allowed, also for its copies: a kernel would flag the value. Other errors are
    // not.
    if (values.status().code() == absl::StatusCode::kOutOfRange && !others.ok()) return "";
    return "does not evaluate: " + values.status().ToString();
  }
  if (!others.ok()) return "canonical graph does not evaluate: " + others.status().ToString();
  ++stats->evaluated;
  if (values->size() != graph.outputs.size()) return "wrong number of outputs";
  for (size_t i = 0; i < values->size(); ++i) {
    const TensorType& type = graph.node(graph.outputs[i].node).type;
    const Tensor& value = (*values)[i];
    if (value.dtype != type.dtype || value.shape != *ShapeAt(type.shape, env)) {
      return Cat("output ", i, " is not of its inferred type ", TypeToString(type));
    }
    if (!(value == (*others)[i])) {
      return Cat("canonical graph evaluates to something else: output ", i);
    }
  }
  return "";
}

std::string CheckRoundTrips(const ImportedGraph& imported) {
  const Graph& graph = imported.graph;
  const std::string hash = CanonicalHash(graph);
  const absl::StatusOr<Graph> parsed = ParseGraph(ToText(graph), FuzzLimits());
  if (!parsed.ok()) return "text form does not parse: " + parsed.status().ToString();
  if (ToText(*parsed) != ToText(graph)) return "text form changes on the way back";
  if (CanonicalHash(*parsed) != hash) return "text form changes the canonical hash";
  const v1::Graph message = GraphToProto(graph, imported.parameter_hashes);
  const absl::StatusOr<ImportedGraph> back = ImportGraph(message, FuzzLimits());
  if (!back.ok()) return "message form is not accepted: " + back.status().ToString();
  if (CanonicalHash(back->graph) != hash) return "message form changes the canonical hash";
  if (back->parameter_hashes != imported.parameter_hashes) return "parameter hashes change";
  return "";
}

// Recognises Verify's message about a size or coordinate for which it finds no proof.
bool IsUnproved(const std::string& message) {
  for (const char* part : {"not prov", "which can be", "is not bounded"}) {
    if (message.find(part) != std::string::npos) return true;
  }
  return false;
}

std::string CheckCanonical(const Graph& graph, FuzzStats* stats) {
  const Graph canonical = Canonicalize(graph);
  const absl::Status valid = Verify(canonical, FuzzLimits());
  if (!valid.ok() && IsUnproved(std::string(valid.message()))) {
    // The bound holds, since the original graph was proved; the proof depends on the order of the
    // dims' names.
    ++stats->unproved;
  } else if (!valid.ok()) {
    return "canonical graph is not valid: " + valid.ToString();
  }
  if (ToText(Canonicalize(canonical)) != ToText(canonical)) return "canonical form is not stable";
  return CompareEvaluations(graph, canonical, stats);
}

// Checks on small values that rows proved independent are.
std::string CheckRows(const Graph& graph, FuzzStats* stats) {
  const Expr::Env env = SmallDims(graph);
  const bool small = IsSmall(graph, env, kMaxRowWork);
  for (size_t i = 0; i < std::min(graph.dims.size(), kMaxDims); ++i) {
    const std::string& dim = graph.dims[i].name;
    const RowProof proof = ProveRowIndependent(graph, dim);
    if (proof.independent != proof.reason.empty())
      return "refused without a reason: rows of " + dim;
    if (!IsValidUtf8(proof.reason)) return "reason that is not UTF-8: rows of " + dim;
    if (!proof.independent || !small) continue;
    std::mt19937 random(3);
    const absl::Status held = TryRows(graph, dim, proof, env, SmallArguments(graph, env), random);
    if (held.code() == absl::StatusCode::kOutOfRange) continue;
    if (!held.ok()) return "rows of dim " + dim + " are not independent: " + held.ToString();
    ++stats->independent;
  }
  return "";
}

std::string CheckRequests(const Graph& graph) {
  const absl::StatusOr<RequestBinder> binder = RequestBinder::Create(graph);
  if (!binder.ok()) return "no requests for it: " + binder.status().ToString();
  for (bool raw : {true, false}) {
    inference::ModelInferRequest request;
    if (!MakeRequest(graph, raw, &request)) return "";
    const absl::StatusOr<BoundRequest> bound = binder->Bind(request);
    if (bound.ok()) continue;
    // Ops may refuse the values as indices.
    if (std::string(bound.status().message()).find("selects with it") != std::string::npos)
      continue;
    return "a valid request is refused: " + bound.status().ToString();
  }
  return "";
}

void FillContents(const Tensor& tensor, inference::InferTensorContents* contents) {
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const Scalar s = LoadScalar(tensor, i);
    switch (DatatypeOf(tensor.dtype)->contents) {
      case Contents::kBool:
        contents->add_bool_contents(s.u != 0);
        break;
      case Contents::kInt:
        contents->add_int_contents(static_cast<int32_t>(s.i));
        break;
      case Contents::kInt64:
        contents->add_int64_contents(s.i);
        break;
      case Contents::kUint:
        contents->add_uint_contents(static_cast<uint32_t>(s.u));
        break;
      case Contents::kUint64:
        contents->add_uint64_contents(s.u);
        break;
      case Contents::kFp32:
        contents->add_fp32_contents(static_cast<float>(s.f));
        break;
      case Contents::kFp64:
        contents->add_fp64_contents(s.f);
        break;
      case Contents::kRawOnly:
        break;
    }
  }
}

}  // namespace

GraphLimits FuzzLimits() {
  GraphLimits limits;
  limits.max_nodes = 1000;
  limits.max_attr_bytes = 1 << 16;
  return limits;
}

std::optional<SmallInputs> SmallInputsOf(const Graph& graph) {
  SmallInputs inputs{SmallDims(graph), {}};
  if (!IsSmall(graph, inputs.dims, kMaxWork)) return std::nullopt;
  inputs.arguments = SmallArguments(graph, inputs.dims);
  return inputs;
}

bool IsSmallAt(const Graph& graph, const Expr::Env& dims) { return IsSmall(graph, dims, kMaxWork); }

std::string CheckImported(const ImportedGraph& imported, FuzzStats* stats) {
  if (absl::Status s = Verify(imported.graph, FuzzLimits()); !s.ok()) {
    return "an imported graph is not valid: " + s.ToString();
  }
  std::string problem = CheckRoundTrips(imported);
  if (problem.empty()) problem = CheckCanonical(imported.graph, stats);
  if (problem.empty()) problem = CheckRows(imported.graph, stats);
  if (problem.empty()) problem = CheckRequests(imported.graph);
  return problem;
}

std::string BadRefusal(const absl::Status& status, std::initializer_list<absl::StatusCode> codes) {
  const std::string message(status.message());
  if (std::find(codes.begin(), codes.end(), status.code()) == codes.end()) {
    return "refused with a wrong code: " + status.ToString();
  }
  if (message.empty()) return "refused without a message";
  if (message.size() > kMaxMessage) return "refused with a message too long for a header";
  if (!IsValidUtf8(message)) return "refused with a message that is not UTF-8";
  return "";
}

bool MakeRequest(const Graph& graph, bool raw, inference::ModelInferRequest* request) {
  const Expr::Env env = SmallDims(graph);
  std::mt19937 random(2);
  request->set_model_name("model");
  for (NodeId id : graph.InputIds()) {
    const TensorType& type = graph.node(id).type;
    const std::optional<std::vector<int64_t>> shape = ShapeAt(type.shape, env);
    if (!shape) return false;
    const Tensor* value = ValueOf(graph.node(id));
    // Typed contents of another type may change the bits of a NaN.
    if (value != nullptr && !raw && IsFloat(type.dtype)) return false;
    const Tensor tensor = value != nullptr ? *value : SmallTensor(type.dtype, *shape, &random);
    auto* out = request->add_inputs();
    out->set_name(graph.node(id).name);
    out->set_datatype(std::string(DatatypeOf(type.dtype)->name));
    for (int64_t size : *shape) out->add_shape(size);
    if (raw) {
      request->add_raw_input_contents(tensor.bytes);
    } else if (DatatypeOf(type.dtype)->contents == Contents::kRawOnly && tensor.elements() > 0) {
      return false;
    } else {
      FillContents(tensor, out->mutable_contents());
    }
  }
  return true;
}

std::string FuzzGraph(const std::string& bytes, FuzzStats* stats) {
  v1::Graph message;
  if (absl::Status s = ParseMessage(bytes, &message); !s.ok()) return BadRefusal(s, kRefusals);
  ++stats->parsed;
  const absl::StatusOr<ImportedGraph> imported = ImportGraph(message, FuzzLimits());
  if (!imported.ok()) return BadRefusal(imported.status(), kRefusals);
  ++stats->accepted;
  return CheckImported(*imported, stats);
}

std::string FuzzRequest(const RequestBinder& binder, const Graph& graph, const std::string& bytes,
                        FuzzStats* stats) {
  inference::ModelInferRequest request;
  if (absl::Status s = ParseMessage(bytes, &request); !s.ok()) return BadRefusal(s, kRefusals);
  ++stats->parsed;
  const absl::StatusOr<BoundRequest> bound = binder.Bind(request);
  if (!bound.ok()) return BadRefusal(bound.status(), kRefusals);
  ++stats->accepted;
  Expr::Env env;
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    const Dim& dim = graph.dims[i];
    env[dim.name] = bound->dims[i];
    if (bound->dims[i] < dim.min || bound->dims[i] > dim.max)
      return "dim out of bounds: " + dim.name;
  }
  const std::vector<NodeId> ids = graph.InputIds();
  if (bound->inputs.size() != ids.size()) return "wrong number of inputs";
  uint64_t sum = 0;  // reads every byte, for AddressSanitizer
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t size = DTypeBytes(graph.node(ids[i]).type.dtype);
    for (const Expr& e : graph.node(ids[i]).type.shape) size *= e.Evaluate(env).value_or(-1);
    if (static_cast<int64_t>(bound->inputs[i].size()) != size) return "wrong number of bytes";
    for (char c : bound->inputs[i]) sum += static_cast<uint8_t>(c);
  }
  for (int output : bound->outputs) {
    if (output < 0 || output >= static_cast<int>(graph.outputs.size())) return "no such output";
  }
  return sum == UINT64_MAX ? "impossible sum" : "";
}

}  // namespace athanor
