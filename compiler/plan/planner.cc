#include "compiler/plan/planner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/expr_proto.h"
#include "compiler/ir/value/digest.h"
#include "compiler/plan/arena.h"
#include "compiler/plan/in_place.h"
#include "compiler/plan/plan_verify.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

namespace {

class Planner {
 public:
  Planner(const PlanInput& in, const PrintKernel& print) : in_(in), print_(print) {
    for (size_t d = 0; d < in.dims.size(); ++d) {
      bounds_.Set(in.dims[d].name, in.dims[d].min, in.dims[d].max);
      names_[in.dims[d].name] = Expr::Symbol(in.dim_names[d]);
    }
  }

  absl::StatusOr<v1::Plan> Make();

 private:
  using Symbols = std::map<std::string, Expr, std::less<>>;

  void FindPrepared();
  absl::Status AddBuffers();
  absl::Status PlaceArena();
  void AddSteps();
  void AddOutputs();
  void TouchLoops(std::vector<ArenaValue>* live) const;
  void AddLoops();
  uint32_t KernelIndex(const kir::Kernel& kernel);
  // Returns the steps of `run`, [first, end), that correspond to a loop's launches.
  std::pair<int, int> StepsOf(const PlanLoop& loop) const;
  // Reports whether each loop around the launch computes the value again in every iteration.
  bool MadeAround(int value, int launch) const;

  Expr BytesOf(int value) const {
    const TensorType& type = in_.values[value].type;
    Expr bytes = DTypeBytes(type.dtype);
    for (const Expr& e : type.shape) bytes *= e;
    return bytes;
  }
  v1::SizeExpr Proto(const Expr& e) const { return ExprToProto(e.Substitute(names_)); }
  bool Computed(int value) const { return in_.values[value].kind == ValueKind::kComputed; }
  bool OfLaunch(int value) const { return in_.values[value].kind == ValueKind::kLaunch; }
  int Root(const PlanLaunch& launch) const { return launch.buffers[0]; }

  const PlanInput& in_;
  const PrintKernel& print_;
  Bounds bounds_;
  Symbols names_;
  v1::Plan plan_;
  std::vector<bool> prepared_launch_, prepared_value_;
  std::vector<int> made_by_;            // by value: the launch; -1: none
  std::vector<int> run_;                // launches of `run`, in step order
  std::map<int, std::string> written_;  // value → name of the output whose buffer it is
  std::map<std::string, uint32_t> kernels_;
};

// A launch belongs to `prepare` if nothing it reads comes from a request, memory of its own aside,
// and it calls no library.
void Planner::FindPrepared() {
  prepared_launch_.resize(in_.launches.size());
  prepared_value_.resize(in_.values.size());
  made_by_.resize(in_.values.size(), -1);
  for (size_t l = 0; l < in_.launches.size(); ++l) {
    for (int v : in_.launches[l].buffers) {
      if (v == Root(in_.launches[l]) || OfLaunch(v)) made_by_[v] = static_cast<int>(l);
    }
  }
  for (size_t v = 0; v < in_.values.size(); ++v) {
    const ValueKind kind = in_.values[v].kind;
    prepared_value_[v] = kind == ValueKind::kParameter || kind == ValueKind::kConstant;
  }
  for (size_t l = 0; l < in_.launches.size(); ++l) {
    const PlanLaunch& launch = in_.launches[l];
    bool prepared = Computed(Root(launch)) && BytesOf(Root(launch)).constant().has_value() &&
                    launch.kernel.sizes.empty() && kir::CallOf(launch.kernel) == nullptr;
    for (size_t b = 1; b < launch.buffers.size(); ++b)
      prepared = prepared && prepared_value_[launch.buffers[b]];
    prepared_launch_[l] = prepared;
    prepared_value_[Root(launch)] = prepared;
    if (!prepared) run_.push_back(static_cast<int>(l));
  }
}

absl::Status Planner::AddBuffers() {
  for (const auto& [name, value] : in_.outputs) {
    if (Computed(value) && !prepared_value_[value]) written_.emplace(value, name);
    if (in_.values[value].kind == ValueKind::kState) {
      return absl::UnimplementedError(absl::StrCat("output \"", name, "\" is the state \"",
                                                   in_.values[value].name,
                                                   "\", which is not copied out of a run"));
    }
  }
  for (size_t v = 0; v < in_.values.size(); ++v) {
    const PlanValue& value = in_.values[v];
    v1::Buffer* b = plan_.add_buffers();
    b->set_dtype(std::string(DTypeName(value.type.dtype)));
    for (const Expr& e : value.type.shape) *b->add_shape() = Proto(e);
    *b->mutable_bytes() = Proto(BytesOf(static_cast<int>(v)));
    b->set_name(value.name);
    switch (value.kind) {
      case ValueKind::kInput:
        b->set_kind(v1::Buffer::INPUT);
        break;
      case ValueKind::kParameter:
        b->set_kind(v1::Buffer::PARAMETER);
        break;
      case ValueKind::kConstant:
        b->set_kind(v1::Buffer::CONSTANT);
        b->set_literal(value.literal.bytes);
        break;
      case ValueKind::kWindow:
        b->set_kind(v1::Buffer::WINDOW);
        break;
      case ValueKind::kState:
        b->set_kind(v1::Buffer::STATE);
        b->set_layout(value.layout);
        break;
      case ValueKind::kLaunch:
        b->set_kind(v1::Buffer::ARENA);
        b->set_zeroed(value.zeroed);
        break;
      case ValueKind::kComputed:
        if (auto out = written_.find(static_cast<int>(v)); out != written_.end()) {
          b->set_kind(v1::Buffer::OUTPUT);
          b->set_name(out->second);
        } else {
          b->set_kind(prepared_value_[v] ? v1::Buffer::PREPARED : v1::Buffer::ARENA);
        }
    }
  }
  return absl::OkStatus();
}

absl::Status Planner::PlaceArena() {
  std::vector<ArenaValue> live(in_.values.size());
  for (size_t v = 0; v < live.size(); ++v) {
    if (plan_.buffers(static_cast<int>(v)).kind() != v1::Buffer::ARENA) continue;
    std::optional<int64_t> bytes = bounds_.Maximum(BytesOf(static_cast<int>(v)));
    if (!bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("an intermediate value of ", BytesOf(static_cast<int>(v)).ToString(),
                       " bytes has no bound below 2^63 over the dims' ranges; lower a dim's max"));
    }
    live[v].bytes = *bytes;
  }
  for (size_t step = 0; step < run_.size(); ++step) {
    const PlanLaunch& launch = in_.launches[run_[step]];
    for (int v : launch.buffers) {
      live[v].Touch(static_cast<int>(step));
      if (OfLaunch(v) && kir::CallOf(launch.kernel) != nullptr) {
        live[v].alignment = kCallWorkspaceAlignment;
      }
      // The next run finds the counters as this one leaves them.
      if (in_.values[v].zeroed) {
        live[v].Touch(0);
        live[v].Touch(static_cast<int>(run_.size()) - 1);
      }
    }
    for (size_t b = 1; b < launch.buffers.size(); ++b) {
      int operand = launch.buffers[b];
      bool arena = plan_.buffers(operand).kind() == v1::Buffer::ARENA && !OfLaunch(operand);
      if (arena && MadeAround(operand, run_[step]) &&
          MayWriteOver(launch.kernel, static_cast<int>(b)) &&
          BytesOf(operand) == BytesOf(Root(launch))) {
        live[Root(launch)].may_replace.push_back(operand);
      }
    }
  }
  TouchLoops(&live);
  const int64_t total = PlaceValues(&live);
  for (size_t v = 0; v < live.size(); ++v) {
    plan_.mutable_buffers(static_cast<int>(v))->set_arena_offset(live[v].offset);
  }
  plan_.set_arena_bytes(total);
  return absl::OkStatus();
}

std::pair<int, int> Planner::StepsOf(const PlanLoop& loop) const {
  const auto at = [&](int launch) {
    return static_cast<int>(std::lower_bound(run_.begin(), run_.end(), launch) - run_.begin());
  };
  return {at(loop.first), at(loop.end)};
}

bool Planner::MadeAround(int value, int launch) const {
  return std::all_of(in_.loops.begin(), in_.loops.end(), [&](const PlanLoop& loop) {
    const auto inside = [&](int l) { return l >= loop.first && l < loop.end; };
    return !inside(launch) || inside(made_by_[value]);
  });
}

void Planner::TouchLoops(std::vector<ArenaValue>* live) const {
  for (const PlanLoop& loop : in_.loops) {
    const auto [first, end] = StepsOf(loop);
    const auto touch = [&, first = first, end = end](int value) {
      (*live)[value].Touch(first);
      (*live)[value].Touch(end - 1);
    };
    for (const PlanLoop::Slice& slice : loop.slices) touch(slice.of);
    for (const PlanLoop::Carry& carry : loop.carries) {
      for (int value : {carry.initial, carry.last, carry.other}) touch(value);
    }
    for (int l = loop.first; l < loop.end; ++l) {
      for (int value : in_.launches[l].buffers) {
        const int made = made_by_[value];
        if (made < loop.first || made >= loop.end) touch(value);
      }
    }
  }
}

void Planner::AddLoops() {
  for (const PlanLoop& loop : in_.loops) {
    const auto [first, end] = StepsOf(loop);
    v1::Loop* out = plan_.add_loops();
    out->set_first(static_cast<uint32_t>(first));
    out->set_steps(static_cast<uint32_t>(end - first));
    *out->mutable_count() = Proto(loop.count);
    for (const PlanLoop::Slice& slice : loop.slices) {
      v1::Loop::Slice* to = out->add_slices();
      to->set_buffer(static_cast<uint32_t>(slice.buffer));
      to->set_of(static_cast<uint32_t>(slice.of));
      to->set_reverse(slice.reverse);
    }
    for (const PlanLoop::Carry& carry : loop.carries) {
      v1::Loop::Carry* to = out->add_carries();
      to->set_initial(static_cast<uint32_t>(carry.initial));
      to->set_read(static_cast<uint32_t>(carry.read));
      to->set_next(static_cast<uint32_t>(carry.next));
      to->set_last(static_cast<uint32_t>(carry.last));
      to->set_other(static_cast<uint32_t>(carry.other));
    }
    if (loop.turn >= 0) out->set_turn(static_cast<uint32_t>(loop.turn));
  }
  if (!in_.loops.empty()) plan_.set_format(2);
  const auto calls = [](const v1::Step& step) { return step.has_library_call(); };
  if (std::any_of(plan_.run().begin(), plan_.run().end(), calls)) plan_.set_format(3);
}

uint32_t Planner::KernelIndex(const kir::Kernel& kernel) {
  std::string hash = kir::KirHash(kernel);
  auto [it, added] = kernels_.emplace(hash, static_cast<uint32_t>(plan_.kernels_size()));
  if (added) {
    v1::Kernel* k = plan_.add_kernels();
    k->set_source(print_(kernel, hash));
    k->set_source_hash(Sha256Hex(k->source()));
    k->set_kir_hash(hash);
    k->set_name(kernel.name);
    if (kernel.team > 1) k->set_team(static_cast<uint32_t>(kernel.team));
    k->set_library_call(kir::CallOf(kernel) != nullptr);
    k->set_launch_buffers(static_cast<uint32_t>(kernel.LaunchBuffers()));
  }
  return it->second;
}

void Planner::AddSteps() {
  for (size_t l = 0; l < in_.launches.size(); ++l) {
    const PlanLaunch& launch = in_.launches[l];
    v1::Step* step = prepared_launch_[l] ? plan_.add_prepare() : plan_.add_run();
    step->set_kernel(KernelIndex(launch.kernel));
    for (int v : launch.buffers) step->add_buffers(static_cast<uint32_t>(v));
    const kir::Stmt* const call = kir::CallOf(launch.kernel);
    Symbols sizes;
    for (size_t s = 0; s < launch.kernel.sizes.size(); ++s) {
      Expr dim = Expr::Symbol(launch.kernel.sizes[s]);
      if (call == nullptr) *step->add_sizes() = Proto(dim);
      sizes[absl::StrCat("s", s)] = dim;
    }
    if (call != nullptr) {
      *step->mutable_library_call() = LibraryCallOf(launch.kernel);
      *step->mutable_library_call()->mutable_rows() =
          Proto(bounds_.Simplify(call->extents[0].Substitute(sizes)));
    }
    *step->mutable_grid() = Proto(bounds_.Simplify(launch.kernel.grid.Substitute(sizes)));
    step->set_scratch_bytes(in_.scratch_bytes(launch.kernel));
    step->set_label(launch.label);
    *step->mutable_flops() = Proto(launch.flops);
    *step->mutable_moved_bytes() = Proto(launch.moved_bytes);
  }
}

void Planner::AddOutputs() {
  for (const auto& [name, value] : in_.outputs) {
    v1::PlanOutput* out = plan_.add_outputs();
    out->set_name(name);
    out->set_buffer(static_cast<uint32_t>(value));
  }
}

absl::StatusOr<v1::Plan> Planner::Make() {
  plan_.set_format(1);
  plan_.set_graph_hash(in_.graph_hash);
  *plan_.mutable_target() = in_.target;
  plan_.set_kind(in_.kind);
  for (size_t d = 0; d < in_.dims.size(); ++d) {
    v1::DimRange* range = plan_.add_dims();
    range->set_name(in_.dim_names[d]);
    range->set_min(in_.dims[d].min);
    range->set_max(in_.dims[d].max);
  }
  FindPrepared();
  RETURN_IF_ERROR(AddBuffers());
  RETURN_IF_ERROR(PlaceArena());
  AddSteps();
  AddLoops();
  AddOutputs();
  if (std::any_of(in_.values.begin(), in_.values.end(),
                  [](const PlanValue& value) { return value.zeroed; })) {
    plan_.set_format(4);
  }
  if (std::any_of(in_.values.begin(), in_.values.end(),
                  [](const PlanValue& value) { return value.kind == ValueKind::kState; })) {
    plan_.set_format(5);
    plan_.set_signature(in_.signature);
  }
  RETURN_IF_ERROR(VerifyPlan(plan_));
  std::string bytes;
  plan_.SerializeToString(&bytes);  // no maps inside: deterministic
  plan_.set_plan_id(absl::StrCat("p-", Sha256Hex(bytes).substr(0, 16)));
  return std::move(plan_);
}

}  // namespace

v1::LibraryCall LibraryCallOf(const kir::Kernel& kernel) {
  const kir::Stmt& call = *kir::CallOf(kernel);
  const auto number = [&](int extent) { return *call.extents[extent].constant(); };
  const auto set = [](const kir::Matrix& from, v1::LibraryCall::Matrix* matrix) {
    matrix->set_offset(*from.index.constant());
    matrix->set_stride(*from.stride.constant());
    matrix->set_transposed(from.transposed);
    matrix->set_batch_stride(from.batch_stride);
  };
  v1::LibraryCall to;
  to.set_columns(number(1));
  to.set_sums(number(2));
  to.set_batch(number(3));
  set(call.matrices[0], to.mutable_result());
  set(call.matrices[1], to.mutable_left());
  set(call.matrices[2], to.mutable_right());
  to.set_bias(call.buffer >= 0);
  for (const int64_t rows : call.ways) {
    v1::LibraryCall::Way* way = to.add_ways();
    way->set_rows(rows);
    way->set_workspace_bytes(kernel.LaunchBuffers() > 0 ? kernel.buffers.back().elements : 0);
  }
  return to;
}

absl::StatusOr<v1::Plan> MakePlan(const PlanInput& input, const PrintKernel& print) {
  if (input.dim_names.size() != input.dims.size()) {
    return absl::InternalError(absl::StrCat("plan of ", input.dims.size(), " dims has ",
                                            input.dim_names.size(), " names for them"));
  }
  return Planner(input, print).Make();
}

}  // namespace athanor
