#include "tests/conformance/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/ir/graph/state.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/sample/evaluate_at.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/plan_builder.h"
#include "compiler/search/kernels/state_layout.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gtest/gtest.h"
#include "runtime/cpu/device.h"
#include "runtime/program/program.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/guarded.h"

namespace athanor {

v1::Target HostTarget(int vector_bytes) {
  v1::Target t = TestCpu().value();
  auto has = [&](const char* f) {
    return std::find(t.features().begin(), t.features().end(), f) != t.features().end();
  };
  const int widest = has("+avx512f") ? 64 : has("+avx2") ? 32 : 16;
  t.set_vector_bytes(vector_bytes == 0 ? widest : std::min(vector_bytes, widest));
  t.set_vector_registers(has("+avx512f") ? 32 : 16);
  t.set_l1_bytes(48 << 10);
  t.set_l2_bytes(1 << 20);
  t.set_l3_bytes(32 << 20);
  t.set_threads(2);
  return t;
}

std::vector<v1::Target> TestTargets(const std::vector<int>& vector_bytes) {
  const char* const device = std::getenv("ATHANOR_TEST_DEVICE");
  if (!TestCpu() || (device != nullptr && absl::string_view(device) == "cuda")) {
    return {TestGpu().value()->target()};
  }
  std::vector<v1::Target> targets;
  for (const int bytes : vector_bytes) targets.push_back(HostTarget(bytes));
  return targets;
}

namespace {

bool IsCuda(const v1::Target& target) { return target.device() == "cuda"; }

absl::StatusOr<std::string> ObjectFor(const std::string& source, const v1::Target& target) {
  static auto* objects = new std::map<std::string, std::string>;
  auto it = objects->find(source);
  if (it != objects->end()) return it->second;
  ASSIGN_OR_RETURN(std::string object,
                   IsCuda(target) ? GpuCode(source) : CpuCode(source, target, /*opt_level=*/3));
  return objects->emplace(source, std::move(object)).first->second;
}

// Returns the object of a kernel that is a library's call: of each way the proposal that it says.
// INVALID_ARGUMENT if there are fewer.
absl::StatusOr<std::string> CallObject(const v1::Plan& plan, int kernel) {
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaDevice> device, TestGpu());
  RETURN_IF_ERROR(device->Enter());
  ASSIGN_OR_RETURN(const kir::Kernel parsed, kir::ParseKernel(plan.kernels(kernel).source()));
  const auto rank = static_cast<size_t>(kir::CallOf(parsed)->proposal);
  ASSIGN_OR_RETURN(const Program program, BuildProgram(plan));
  ASSIGN_OR_RETURN(const auto library, device->library());
  v1::LibraryObject object;
  for (const Program::Step& step : program.run) {
    if (step.call < 0 || step.kernel != kernel) continue;
    object.Clear();
    for (const LibraryCall& way : program.calls[step.call].ways) {
      ASSIGN_OR_RETURN(const std::vector<LibraryCall> proposals,
                       library->Propose(way, static_cast<int>(rank) + 1, way.workspace_bytes));
      if (proposals.size() <= rank) {
        return absl::InvalidArgumentError(
            absl::StrCat("proposal ", rank, " of ", proposals.size(), "; there must be more"));
      }
      object.set_library(proposals[rank].library);
      object.add_algorithms(proposals[rank].algorithm);
    }
  }
  return object.SerializeAsString();
}

absl::StatusOr<std::shared_ptr<Device>> DeviceFor(const v1::Target& target, int threads) {
  if (IsCuda(target)) return TestGpu();
  return CpuDevice::Create({.threads = threads});
}

}  // namespace

absl::StatusOr<Compiled> Compile(const Graph& graph, const std::vector<Tensor>& parameters,
                                 const v1::Target& target, int threads, bool poison) {
  absl::StatusOr<CheckedPlan> checked = BuildCheckedBaselinePlan(graph, target);
  if (!checked.ok()) return checked.status();
  if (!checked->plain_because.empty()) {
    return absl::InternalError(absl::StrCat("made plain: ", checked->plain_because));
  }
  return Compiled::Load(graph, std::move(checked->plan), parameters, target, threads, poison);
}

absl::StatusOr<Compiled> CompilePlain(const Graph& graph, const std::vector<Tensor>& parameters,
                                      const v1::Target& target) {
  absl::StatusOr<CheckedPlan> checked = BuildCheckedBaselinePlan(graph, target, /*plain=*/true);
  if (!checked.ok()) return checked.status();
  return Compiled::Load(graph, std::move(checked->plan), parameters, target, /*threads=*/2,
                        /*poison=*/true);
}

absl::StatusOr<Compiled> CompileScheduled(const ScheduledGraph& scheduled,
                                          const std::vector<Tensor>& parameters,
                                          const v1::Target& target, int threads) {
  absl::StatusOr<BuiltPlan> built = PlanBuilder(target).Build(scheduled, {.kind = "test"});
  if (!built.ok()) return built.status();
  return Compiled::Load(scheduled.graph, std::move(built->plan), parameters, target, threads,
                        /*poison=*/true);
}

absl::StatusOr<Compiled> Compiled::Load(const Graph& graph, v1::Plan plan,
                                        const std::vector<Tensor>& parameters,
                                        const v1::Target& target, int threads, bool poison) {
  Compiled c;
  c.graph_ = graph;
  c.plan_ = std::move(plan);
  std::vector<std::string> objects;
  for (int k = 0; k < c.plan_.kernels_size(); ++k) {
    const v1::Kernel& kernel = c.plan_.kernels(k);
    absl::StatusOr<std::string> object =
        kernel.library_call() ? CallObject(c.plan_, k) : ObjectFor(kernel.source(), target);
    if (!object.ok()) return object.status();
    objects.push_back(*std::move(object));
  }
  std::vector<ParameterView> views;
  const std::vector<NodeId> ids = graph.ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    auto owner = std::make_shared<Tensor>(parameters[i]);
    views.push_back({graph.node(ids[i]).name, owner->bytes, owner});
  }
  ASSIGN_OR_RETURN(c.device_, DeviceFor(target, threads));
  std::vector<absl::string_view> object_views(objects.begin(), objects.end());
  auto executable = Executable::Load(c.plan_, object_views, views, c.device_.get(),
                                     LoadOptions{.poison = poison});
  if (!executable.ok()) return executable.status();
  c.executable_ = *std::move(executable);
  if (!graph.StateIds().empty()) return c;  // MakeStates makes its context
  auto context = c.executable_->NewContext();
  if (!context.ok()) return context.status();
  c.context_ = *std::move(context);
  return c;
}

absl::StatusOr<std::vector<int64_t>> Compiled::Bind(const std::vector<Tensor>& inputs) const {
  std::vector<std::vector<int64_t>> shapes;
  for (const Tensor& t : inputs) shapes.push_back(t.shape);
  if (states_ != nullptr) {
    for (const NodeId p : graph_.ParameterIds()) {
      shapes.push_back(ConcreteShape(graph_.node(p).type.shape, {}).value());
    }
    for (const NodeId s : graph_.StateIds()) shapes.push_back(StateShape(s));
  }
  absl::StatusOr<Expr::Env> bound = BindDims(graph_, shapes);
  if (!bound.ok()) return bound.status();
  std::vector<int64_t> dims;
  for (const SizeDim& d : executable_->dims()) dims.push_back(bound->at(d.name));
  return dims;
}

std::vector<int64_t> Compiled::StateShape(NodeId state) const {
  const Shape& shape = graph_.node(state).type.shape;
  std::vector<int64_t> sizes = {states_->slots()};
  for (size_t a = 1; a < shape.size(); ++a) sizes.push_back(*shape[a].constant());
  return sizes;
}

absl::Status Compiled::MakeStates(int64_t slots) {
  constexpr int64_t kBlock = 16;
  std::vector<StateMemory::Spec> specs;
  for (const NodeId s : graph_.StateIds()) {
    const TensorType& type = graph_.node(s).type;
    const Expr elements = Product({type.shape.begin() + 1, type.shape.end()});
    specs.push_back({graph_.node(s).name, StateLayout(RoleOf(graph_.node(s)), type.shape),
                     *elements.constant() * DTypeBytes(type.dtype)});
  }
  ASSIGN_OR_RETURN(states_, StateMemory::Create(device_.get(), nullptr, specs, slots, kBlock));
  for (int64_t b = 0; b < states_->blocks(); ++b) RETURN_IF_ERROR(states_->Commit(b));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceQueue> queue, device_->NewQueue(0));
  for (size_t s = 0; s < specs.size(); ++s) {
    const int64_t bytes = slots * specs[s].slot_bytes;
    RETURN_IF_ERROR(queue->Fill(states_->data(static_cast<int>(s)), 0xFF, bytes));
  }
  RETURN_IF_ERROR(queue->Wait());
  ASSIGN_OR_RETURN(context_, executable_->NewContext(states_.get()));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> Compiled::States() const {
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceQueue> queue, device_->NewQueue(0));
  std::vector<Tensor> states;
  for (const NodeId s : graph_.StateIds()) {
    const int index = static_cast<int>(states.size());
    Tensor& state = states.emplace_back(Tensor::Zeros(graph_.node(s).type.dtype, StateShape(s)));
    Tensor memory = state;
    RETURN_IF_ERROR(queue->Copy(memory.bytes.data(), states_->data(index),
                                static_cast<int64_t>(memory.bytes.size()), CopyKind::kToHost));
    RETURN_IF_ERROR(queue->Wait());
    for (int64_t i = 0; i < state.elements(); ++i) {
      StoreScalar(state, i,
                  LoadScalar(memory, StatePlace(states_->specs()[index].layout, state.shape, i)));
    }
  }
  return states;
}

absl::Status Compiled::RunInto(const std::vector<Tensor>& inputs,
                               const std::vector<Tensor*>& outputs) {
  absl::StatusOr<std::vector<int64_t>> dims = Bind(inputs);
  if (!dims.ok()) return dims.status();
  const std::vector<NodeId> ids = graph_.InputIds();
  std::vector<std::unique_ptr<Guarded>> guarded;
  std::vector<absl::string_view> in;
  for (int i = 0; i < executable_->inputs(); ++i) {
    for (size_t j = 0; j < ids.size(); ++j) {
      if (graph_.node(ids[j]).name != executable_->input_name(i)) continue;
      guarded.push_back(std::make_unique<Guarded>(inputs[j]));
      in.emplace_back(guarded.back()->data(), inputs[j].bytes.size());
    }
  }
  std::vector<absl::Span<char>> out;
  for (Tensor* t : outputs) out.emplace_back(t->bytes.data(), t->bytes.size());
  return executable_->Run(context_.get(), *dims, in, out, {});
}

absl::StatusOr<std::vector<Tensor>> Compiled::Run(const std::vector<Tensor>& inputs) {
  absl::StatusOr<std::vector<int64_t>> dims = Bind(inputs);
  if (!dims.ok()) return dims.status();
  std::vector<Tensor> outputs;
  for (int i = 0; i < executable_->outputs(); ++i) {
    auto shape = executable_->output_shape(i, *dims);
    DType dtype = *ParseDType(executable_->output_dtype(i));
    outputs.push_back(Tensor::Zeros(dtype, {shape.begin(), shape.end()}));
  }
  std::vector<Tensor*> out;
  for (Tensor& t : outputs) out.push_back(&t);
  if (absl::Status s = RunInto(inputs, out); !s.ok()) return s;
  return outputs;
}

Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, std::mt19937& rng, double scale) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  std::normal_distribution<double> normal(0, scale);
  for (int64_t i = 0; i < t.elements(); ++i) {
    double v = normal(rng);
    if (dtype == DType::kBool) {
      StoreScalar(t, i, Scalar::Unsigned(dtype, v > 0));
    } else if (IsFloat(dtype)) {
      StoreScalar(t, i, Scalar::Float(dtype, v));
    } else if (IsSigned(dtype)) {
      StoreScalar(t, i, Scalar::Signed(dtype, std::llround(4 * v)));
    } else {
      StoreScalar(t, i,
                  Scalar::Unsigned(dtype, static_cast<uint64_t>(std::llround(std::abs(4 * v)))));
    }
  }
  return t;
}

Tensor RandomIndices(DType dtype, std::vector<int64_t> shape, int64_t extent, std::mt19937& rng) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  std::uniform_int_distribution<int64_t> uniform(0, extent - 1);
  for (int64_t i = 0; i < t.elements(); ++i) {
    int64_t v = uniform(rng);
    StoreScalar(t, i,
                IsSigned(dtype) ? Scalar::Signed(dtype, v)
                                : Scalar::Unsigned(dtype, static_cast<uint64_t>(v)));
  }
  return t;
}

namespace {

// Evaluating elements alone (compiler/ir/sample/evaluate_at.h) must give the same bits as
// evaluating all.
void ExpectElementsAlone(const Graph& graph, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& want) {
  std::vector<std::vector<int64_t>> shapes;
  std::vector<absl::string_view> bytes;
  for (const Tensor& t : inputs) {
    shapes.push_back(t.shape);
    bytes.push_back(t.bytes);
  }
  std::vector<std::vector<int64_t>> positions(want.size());
  for (size_t o = 0; o < want.size(); ++o) {
    const int64_t elements = want[o].elements();
    for (int64_t p = 0; p < elements; p += elements / 16 + 1) positions[o].push_back(p);
  }
  const auto alone =
      EvaluateAt(graph, BindDims(graph, shapes).value(), positions, bytes, int64_t{1} << 24);
  ASSERT_TRUE(alone.ok()) << alone.status() << "\n" << ToText(graph);
  for (size_t o = 0; o < want.size(); ++o) {
    const size_t size = DTypeBytes(want[o].dtype);
    for (size_t i = 0; i < positions[o].size(); ++i) {
      EXPECT_EQ((*alone)[o].bytes.substr(i * size, size),
                want[o].bytes.substr(positions[o][i] * size, size))
          << "output " << o << ", element " << positions[o][i] << "\n"
          << ToText(graph);
    }
  }
}

std::vector<Tensor> Evaluated(const Graph& graph, const std::vector<Tensor>& inputs,
                              const std::vector<Tensor>& parameters) {
  std::vector<Tensor> all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  auto want = Evaluate(graph, all);
  EXPECT_TRUE(want.ok()) << want.status();
  if (!want.ok()) return {};
  ExpectElementsAlone(graph, all, *want);
  return *std::move(want);
}

void ExpectRunsTo(const std::vector<Tensor>& want, absl::StatusOr<Compiled> compiled,
                  const Graph& graph, const std::vector<Tensor>& inputs, double slack,
                  const std::string& how) {
  ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << ToText(graph);
  auto got = compiled->Run(inputs);
  ASSERT_TRUE(got.ok()) << got.status() << "\n" << ToText(graph);
  ASSERT_EQ(got->size(), want.size());
  for (size_t i = 0; i < got->size(); ++i) {
    DType t = want[i].dtype;
    double bound = t == DType::kF64    ? 1e-12
                   : t == DType::kF16  ? 4e-3
                   : t == DType::kBF16 ? 3e-2
                                       : 2e-5;
    absl::Status same = CompareTensors((*got)[i], want[i], slack * bound, slack * bound);
    EXPECT_TRUE(same.ok()) << "output " << i << ", " << how << ": " << same << "\n"
                           << ToText(graph);
  }
}

}  // namespace

void ExpectMatchesReference(const Graph& graph, const std::vector<Tensor>& inputs,
                            const std::vector<Tensor>& parameters, double slack) {
  const std::vector<Tensor> want = Evaluated(graph, inputs, parameters);
  for (const v1::Target& target : TestTargets()) {
    ExpectRunsTo(want, Compile(graph, parameters, target), graph, inputs, slack,
                 absl::StrCat(target.device(), ", vectors of ", target.vector_bytes(), " bytes"));
  }
}

void ExpectPlainMatchesReference(const Graph& graph, const std::vector<Tensor>& inputs,
                                 const std::vector<Tensor>& parameters, double slack) {
  ExpectRunsTo(Evaluated(graph, inputs, parameters), CompilePlain(graph, parameters), graph, inputs,
               slack, "made plain");
}

}  // namespace athanor
