#include "compiler/plan/plan_verify.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/expr_proto.h"
#include "compiler/ir/value/dtype.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

namespace {

using v1::Buffer;

constexpr int64_t kAlignment = 64;

template <typename... T>
absl::Status Broken(const T&... pieces) {
  return absl::InternalError(Cat("plan: ", pieces...));
}

class Verifier {
 public:
  explicit Verifier(const v1::Plan& plan) : plan_(plan) {}

  absl::Status Run() {
    absl::Status s = Dims();
    for (int b = 0; s.ok() && b < plan_.buffers_size(); ++b) s = CheckBuffer(b);
    if (s.ok()) s = Loops();
    if (s.ok()) s = Steps(plan_.prepare(), /*prepare=*/true);
    if (s.ok()) s = Steps(plan_.run(), /*prepare=*/false);
    if (s.ok()) s = Outputs();
    if (s.ok()) s = Arena();
    return s;
  }

 private:
  struct Life {
    bool written = false;
    int first = -1, last = -1;  // steps of `run`, for ARENA
    int loop = -1;              // WINDOW: its loop
    int made = -1;              // the step that writes it
    bool read = false;          // STATE: a step has read it
    bool updated = false;       // STATE: a step has written it

    void Touch(int step) {
      first = first < 0 ? step : std::min(first, step);
      last = std::max(last, step);
    }
  };

  std::string Name(int b) const {
    const Buffer& buffer = plan_.buffers(b);
    std::string name = Cat("buffer ", b, " (", Buffer::Kind_Name(buffer.kind()));
    return buffer.name().empty() ? name + ")" : Cat(name, " ", Quoted(buffer.name()), ")");
  }
  static std::string Name(const v1::Step& step, int index, bool prepare) {
    return Cat(prepare ? "prepare" : "run", " step ", index, " (", step.label(), ")");
  }

  absl::Status Dims();
  absl::StatusOr<Expr> Size(const v1::SizeExpr& size, const std::string& what) const;
  absl::Status CheckBuffer(int b);
  absl::Status Steps(const google::protobuf::RepeatedPtrField<v1::Step>& steps, bool prepare);
  // Checks the loops' ranges, and finds the loop of each WINDOW.
  absl::Status Loops();
  absl::Status AddWindow(uint32_t buffer, int loop);
  // Checks that a loop's operands are there when it begins. Buffers that it fills count as written
  // from here on.
  absl::Status Begin(const v1::Loop& loop, int index);
  absl::Status CheckEnclosed(uint32_t buffer, int loop) const;
  bool Inside(int step, int loop) const {
    const v1::Loop& l = plan_.loops(loop);
    return step >= static_cast<int>(l.first()) && step < static_cast<int>(l.first() + l.steps());
  }
  absl::Status CheckStep(const v1::Step& step, const std::string& name) const;
  absl::Status CheckLaunchBuffers(const v1::Step& step, const std::string& name) const;
  absl::Status CheckCall(const v1::Step& step, const std::string& name) const;
  const v1::Kernel& KernelOf(const v1::Step& step) const {
    return plan_.kernels(static_cast<int>(step.kernel()));
  }
  // Counts the step's buffers ahead of those that are memory of its launch.
  int OperandsOf(const v1::Step& step) const {
    return step.buffers_size() - static_cast<int>(KernelOf(step).launch_buffers());
  }
  void Touch(int b, int step);
  absl::Status Write(int b, const std::string& name, bool prepare);
  // A step's write of a STATE: once, ahead of its readers.
  absl::Status Update(int b, const std::string& name, int step, bool prepare);
  // Gives a step of `run` the counters that are memory of its launch.
  absl::Status Count(int b, const std::string& name, int step);
  absl::Status Read(int b, const std::string& name, bool prepare);
  absl::Status Outputs();
  absl::Status Arena() const;
  bool Replaces(int born, int dying) const;

  const v1::Plan& plan_;
  Bounds bounds_;
  std::set<std::string> dims_, states_;  // names
  std::vector<int64_t> arena_bytes_ = std::vector<int64_t>(plan_.buffers_size());
  std::vector<Life> lives_ = std::vector<Life>(plan_.buffers_size());
};

absl::Status Verifier::Dims() {
  const bool calls = std::any_of(plan_.run().begin(), plan_.run().end(),
                                 [](const v1::Step& step) { return step.has_library_call(); });
  const bool zeroed = std::any_of(plan_.buffers().begin(), plan_.buffers().end(),
                                  [](const Buffer& buffer) { return buffer.zeroed(); });
  const bool states =
      std::any_of(plan_.buffers().begin(), plan_.buffers().end(),
                  [](const Buffer& buffer) { return buffer.kind() == Buffer::STATE; });
  const uint32_t format = states ? 5 : zeroed ? 4 : calls ? 3 : plan_.loops().empty() ? 1 : 2;
  if (plan_.format() != format) {
    return Broken("format ", plan_.format(), "; this code knows format ", format,
                  states        ? " of plans with states"
                  : zeroed      ? " of plans with zeroed buffers"
                  : calls       ? " of plans with library calls"
                  : format == 1 ? " of plans without loops"
                                : " of plans with loops");
  }
  if (!states && !plan_.signature().empty()) {
    return Broken("signature ", Quoted(plan_.signature()), " is of a plan without states");
  }
  for (const v1::DimRange& d : plan_.dims()) {
    if (!Expr::IsSymbolName(d.name()) || !dims_.insert(d.name()).second) {
      return Broken("dim ", Quoted(d.name()), " is not a name, or is declared twice");
    }
    if (d.min() < 0 || d.max() < d.min()) {
      return Broken("dim ", Quoted(d.name()), " has range [", d.min(), ", ", d.max(), "]");
    }
    bounds_.Set(d.name(), d.min(), d.max());
  }
  return absl::OkStatus();
}

absl::StatusOr<Expr> Verifier::Size(const v1::SizeExpr& size, const std::string& what) const {
  absl::StatusOr<Expr> e = ExprFromProto(size, {64, int64_t{1} << 20});
  if (!e.ok()) return Broken(what, ": ", std::string(e.status().message()));
  std::set<std::string> symbols;
  e->CollectSymbols(&symbols);
  for (const std::string& s : symbols) {
    if (!dims_.contains(s))
      return Broken(what, " uses ", Quoted(s), ", which is not a dim of the plan");
  }
  return e;
}

absl::Status Verifier::CheckBuffer(int b) {
  const Buffer& buffer = plan_.buffers(b);
  std::optional<DType> dtype = ParseDType(buffer.dtype());
  if (buffer.kind() == Buffer::KIND_UNSPECIFIED || !Buffer::Kind_IsValid(buffer.kind()) || !dtype) {
    return Broken(Name(b), " has no kind, or no dtype: ", Quoted(buffer.dtype()));
  }
  ASSIGN_OR_RETURN(Expr bytes, Size(buffer.bytes(), Name(b) + ": bytes"));
  Expr wanted = DTypeBytes(*dtype);
  for (const v1::SizeExpr& axis : buffer.shape()) {
    ASSIGN_OR_RETURN(Expr e, Size(axis, Name(b) + ": shape"));
    wanted *= e;
  }
  if (!(wanted == bytes)) {
    return Broken(Name(b), " has ", bytes.ToString(), " bytes; its shape needs ",
                  wanted.ToString());
  }
  const bool fixed = buffer.kind() == Buffer::PARAMETER || buffer.kind() == Buffer::CONSTANT ||
                     buffer.kind() == Buffer::PREPARED;
  if (fixed && !bytes.constant())
    return Broken(Name(b), " has no constant size: ", bytes.ToString());
  if (buffer.kind() == Buffer::CONSTANT &&
      !bytes.IsConstant(static_cast<int64_t>(buffer.literal().size()))) {
    return Broken(Name(b), " holds ", buffer.literal().size(), " bytes, not ", bytes.ToString());
  }
  if (buffer.zeroed() && buffer.kind() != Buffer::ARENA) {
    return Broken(Name(b), " is zeroed; only memory of a launch is, in the ARENA");
  }
  if (buffer.kind() == Buffer::ARENA) {
    std::optional<int64_t> most = bounds_.Maximum(bytes);
    const int64_t offset = buffer.arena_offset();
    if (!most || offset < 0 || offset % kAlignment != 0 || *most > plan_.arena_bytes() - offset) {
      return Broken(Name(b), " at ", offset, " with ", bytes.ToString(),
                    " bytes is not aligned to ", kAlignment, " or not inside the arena of ",
                    plan_.arena_bytes(), " bytes");
    }
    arena_bytes_[b] = *most;
  }
  if (buffer.kind() == Buffer::STATE) {
    if (buffer.name().empty() || !states_.insert(buffer.name()).second) {
      return Broken(Name(b), " has no name, or that of another state");
    }
  } else if (!buffer.layout().empty()) {
    return Broken(Name(b), " has layout ", Quoted(buffer.layout()), "; only a STATE has one");
  }
  const bool given = buffer.kind() == Buffer::INPUT || buffer.kind() == Buffer::PARAMETER ||
                     buffer.kind() == Buffer::CONSTANT || buffer.kind() == Buffer::STATE;
  lives_[b].written = given;
  return absl::OkStatus();
}

// Checks what the runtime asks of a call's step; runtime/program/checked_call.h checks its
// matrices.
absl::Status Verifier::CheckCall(const v1::Step& step, const std::string& name) const {
  const v1::LibraryCall& call = step.library_call();
  const bool workspace =
      std::any_of(call.ways().begin(), call.ways().end(),
                  [](const v1::LibraryCall::Way& way) { return way.workspace_bytes() > 0; });
  const int buffers = 3 + (call.bias() ? 1 : 0) + (workspace ? 1 : 0);
  if (step.buffers_size() != buffers || (KernelOf(step).launch_buffers() > 0) != workspace) {
    return Broken(name, " calls a library with ", step.buffers_size(), " buffers, ",
                  KernelOf(step).launch_buffers(), " of the launch; they must be ", buffers,
                  " and ", workspace ? 1 : 0);
  }
  if (step.sizes_size() != 0 || step.scratch_bytes() != 0) {
    return Broken(name, " calls a library, and has sizes or scratch");
  }
  RETURN_IF_ERROR(Size(call.rows(), name + ": rows").status());
  for (uint32_t b : step.buffers()) {
    if (plan_.buffers(static_cast<int>(b)).kind() == Buffer::WINDOW) {
      return Broken(name, " calls a library with ", Name(static_cast<int>(b)), ", which moves");
    }
    if (plan_.buffers(static_cast<int>(b)).kind() == Buffer::STATE) {
      return Broken(name, " calls a library with ", Name(static_cast<int>(b)),
                    ", whose layout it does not know");
    }
  }
  const int last = static_cast<int>(*step.buffers().rbegin());
  if (workspace && plan_.buffers(last).arena_offset() % kCallWorkspaceAlignment != 0) {
    return Broken(name, " calls a library with the workspace ", Name(last),
                  ", which is not aligned to ", kCallWorkspaceAlignment);
  }
  return absl::OkStatus();
}

// Checks the kinds of the buffers that are memory of the launch, and that no other buffer is one.
absl::Status Verifier::CheckLaunchBuffers(const v1::Step& step, const std::string& name) const {
  const uint32_t own = KernelOf(step).launch_buffers();
  if (own >= static_cast<uint32_t>(step.buffers_size())) {
    return Broken(name, " has ", step.buffers_size(), " buffers, of which ", own,
                  " are memory of the launch; the first is its result");
  }
  for (int i = OperandsOf(step); i < step.buffers_size(); ++i) {
    const int b = static_cast<int>(step.buffers(i));
    if (plan_.buffers(b).kind() != Buffer::ARENA) {
      return Broken(name, " has ", Name(b), " as memory of the launch, which is in the ARENA");
    }
    if (std::count(step.buffers().begin(), step.buffers().end(), step.buffers(i)) > 1) {
      return Broken(name, " has ", Name(b), " as memory of the launch, and a second time");
    }
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckStep(const v1::Step& step, const std::string& name) const {
  if (step.kernel() >= static_cast<uint32_t>(plan_.kernels_size())) {
    return Broken(name, " runs kernel ", step.kernel(), " of ", plan_.kernels_size());
  }
  if (step.buffers_size() == 0) return Broken(name, " has no buffer to write");
  for (uint32_t b : step.buffers()) {
    if (b >= static_cast<uint32_t>(plan_.buffers_size())) {
      return Broken(name, " names buffer ", b, " of ", plan_.buffers_size());
    }
  }
  RETURN_IF_ERROR(CheckLaunchBuffers(step, name));
  if (step.has_library_call() != KernelOf(step).library_call()) {
    return Broken(name, step.has_library_call() ? " calls a library by" : " runs", " kernel ",
                  step.kernel(),
                  step.has_library_call() ? ", which is none of its calls" : ", a library's call");
  }
  if (step.has_library_call()) RETURN_IF_ERROR(CheckCall(step, name));
  if (step.scratch_bytes() < 0 || step.scratch_bytes() % kAlignment != 0) {
    return Broken(name, " has ", step.scratch_bytes(), " bytes of scratch, not a multiple of ",
                  kAlignment);
  }
  for (const v1::SizeExpr& s : step.sizes()) {
    if (absl::StatusOr<Expr> e = Size(s, name + ": sizes"); !e.ok()) return e.status();
  }
  return Size(step.grid(), name + ": grid").status();
}

absl::Status Verifier::Update(int b, const std::string& name, int step, bool prepare) {
  if (prepare) return Broken(name, " may not write ", Name(b), ": only run does");
  if (lives_[b].updated) return Broken(name, " writes ", Name(b), " a second time");
  if (lives_[b].read) return Broken(name, " writes ", Name(b), ", which a step read before");
  for (int l = 0; l < plan_.loops_size(); ++l) {
    if (Inside(step, l)) return Broken(name, " writes ", Name(b), " in each turn of loop ", l);
  }
  lives_[b].updated = true;
  return absl::OkStatus();
}

absl::Status Verifier::Write(int b, const std::string& name, bool prepare) {
  const Buffer::Kind kind = plan_.buffers(b).kind();
  const bool may = prepare
                       ? kind == Buffer::PREPARED
                       : kind == Buffer::ARENA || kind == Buffer::OUTPUT || kind == Buffer::WINDOW;
  if (!may) return Broken(name, " may not write ", Name(b));
  if (plan_.buffers(b).zeroed()) return Broken(name, " may not write ", Name(b), ", counters");
  if (lives_[b].written) return Broken(name, " writes ", Name(b), " a second time");
  lives_[b].written = true;
  return absl::OkStatus();
}

absl::Status Verifier::Count(int b, const std::string& name, int step) {
  Life& life = lives_[b];
  if (life.made >= 0) return Broken(name, " has the counters ", Name(b), " of an earlier step");
  life.made = step;
  // Nothing may lie over them in any step, nor behind the last one: the next run finds them again.
  life.first = 0;
  life.last = plan_.run_size();
  return absl::OkStatus();
}

absl::Status Verifier::Read(int b, const std::string& name, bool prepare) {
  const Buffer::Kind kind = plan_.buffers(b).kind();
  const bool request = kind == Buffer::INPUT || kind == Buffer::ARENA || kind == Buffer::OUTPUT ||
                       kind == Buffer::WINDOW || kind == Buffer::STATE;
  if (prepare && request)
    return Broken(name, " may not read ", Name(b), ": it belongs to a request");
  lives_[b].read = true;
  if (!lives_[b].written)
    return Broken(name, " reads ", Name(b), ", which nothing has written yet");
  return absl::OkStatus();
}

absl::Status Verifier::AddWindow(uint32_t buffer, int loop) {
  if (buffer >= static_cast<uint32_t>(plan_.buffers_size())) {
    return Broken("loop ", loop, " names buffer ", buffer, " of ", plan_.buffers_size());
  }
  const int b = static_cast<int>(buffer);
  if (plan_.buffers(b).kind() != Buffer::WINDOW) {
    return Broken("loop ", loop, " places ", Name(b), ", which is not a WINDOW");
  }
  if (lives_[b].loop >= 0)
    return Broken(Name(b), " belongs to more than one loop, or twice to one");
  lives_[b].loop = loop;
  return absl::OkStatus();
}

absl::Status Verifier::Loops() {
  for (int l = 0; l < plan_.loops_size(); ++l) {
    const v1::Loop& loop = plan_.loops(l);
    const int64_t first = loop.first(), end = first + loop.steps();
    if (loop.steps() == 0 || end > plan_.run_size()) {
      return Broken("loop ", l, " has steps ", first, " to ", end, ", but the plan has ",
                    plan_.run_size());
    }
    for (int outer = 0; outer < l; ++outer) {
      const int64_t from = plan_.loops(outer).first(), to = from + plan_.loops(outer).steps();
      const bool apart = first >= to, inside = first >= from && end <= to;
      if (!apart && !inside) {
        return Broken("loops ", outer, " and ", l, " overlap or are out of order");
      }
    }
    RETURN_IF_ERROR(Size(loop.count(), Cat("loop ", l, ": count")).status());
    absl::Status s;
    for (const v1::Loop::Slice& slice : loop.slices()) {
      if (s.ok()) s = AddWindow(slice.buffer(), l);
    }
    for (const v1::Loop::Carry& carry : loop.carries()) {
      if (s.ok()) s = AddWindow(carry.read(), l);
      if (s.ok()) s = AddWindow(carry.next(), l);
    }
    if (s.ok() && loop.has_turn()) s = AddWindow(loop.turn(), l);
    if (!s.ok()) return s;
  }
  for (int b = 0; b < plan_.buffers_size(); ++b) {
    if (plan_.buffers(b).kind() == Buffer::WINDOW && lives_[b].loop < 0) {
      return Broken(Name(b), " belongs to no loop");
    }
  }
  return absl::OkStatus();
}

// Checks a buffer that a loop slices or carries. It must not be a WINDOW of this loop, of a loop
// inside it, or of one apart.
absl::Status Verifier::CheckEnclosed(uint32_t buffer, int loop) const {
  if (buffer >= static_cast<uint32_t>(plan_.buffers_size())) {
    return Broken("loop ", loop, " names buffer ", buffer, " of ", plan_.buffers_size());
  }
  const int b = static_cast<int>(buffer);
  const int of = lives_[b].loop;
  if (of < 0 || (of < loop && Inside(static_cast<int>(plan_.loops(loop).first()), of))) {
    return absl::OkStatus();
  }
  return Broken("loop ", loop, " uses ", Name(b), ", which belongs to loop ", of);
}

absl::Status Verifier::Begin(const v1::Loop& loop, int index) {
  const std::string name = Cat("loop ", index);
  const int first = static_cast<int>(loop.first()),
            last = first + static_cast<int>(loop.steps()) - 1;
  const auto needed = [&](uint32_t buffer) {
    absl::Status s = CheckEnclosed(buffer, index);
    if (s.ok()) s = Read(static_cast<int>(buffer), name, /*prepare=*/false);
    if (s.ok()) lives_[buffer].Touch(first), lives_[buffer].Touch(last);
    return s;
  };
  const auto filled = [&](uint32_t buffer) {
    absl::Status s = CheckEnclosed(buffer, index);
    if (s.ok()) s = Write(static_cast<int>(buffer), name, /*prepare=*/false);
    if (s.ok()) lives_[buffer].Touch(first), lives_[buffer].Touch(last);
    if (s.ok()) lives_[buffer].made = -1;
    return s;
  };
  std::set<uint32_t> written;  // by the loop's steps
  for (int i = first; i <= last; ++i) written.insert(plan_.run(i).buffers(0));
  for (int inner = index + 1; inner < plan_.loops_size(); ++inner) {
    const v1::Loop& other = plan_.loops(inner);
    if (!Inside(static_cast<int>(other.first()), index)) continue;
    for (const v1::Loop::Slice& slice : other.slices()) {
      if (written.contains(slice.buffer())) written.insert(slice.of());
    }
    for (const v1::Loop::Carry& carry : other.carries()) written.insert(carry.last());
  }
  absl::Status s;
  for (const v1::Loop::Slice& slice : loop.slices()) {
    if (!s.ok()) return s;
    const bool fills = written.contains(slice.buffer());
    s = fills ? filled(slice.of()) : needed(slice.of());
    lives_[slice.buffer()].written = !fills;
  }
  for (const v1::Loop::Carry& carry : loop.carries()) {
    if (s.ok()) s = needed(carry.initial());
    if (s.ok()) s = filled(carry.last());
    if (s.ok()) s = filled(carry.other());
    if (s.ok() && !written.contains(carry.next())) {
      s = Broken(name, ": no step writes ", Name(static_cast<int>(carry.next())));
    }
    if (!s.ok()) return s;
    lives_[carry.read()].written = true;
  }
  if (loop.has_turn()) lives_[loop.turn()].written = true;
  return s;
}

absl::Status Verifier::Steps(const google::protobuf::RepeatedPtrField<v1::Step>& steps,
                             bool prepare) {
  // Checks all steps before any loop looks at them.
  for (int i = 0; i < steps.size(); ++i) {
    const absl::Status s = CheckStep(steps[i], Name(steps[i], i, prepare));
    if (!s.ok()) return s;
  }
  int next_loop = 0;
  for (int i = 0; i < steps.size(); ++i) {
    const v1::Step& step = steps[i];
    const std::string name = Name(step, i, prepare);
    absl::Status s;
    for (; s.ok() && !prepare && next_loop < plan_.loops_size() &&
           static_cast<int>(plan_.loops(next_loop).first()) == i;
         ++next_loop) {
      s = Begin(plan_.loops(next_loop), next_loop);
    }
    for (uint32_t b : step.buffers()) {
      const int loop = lives_[b].loop;
      if (s.ok() && loop >= 0 && (prepare || !Inside(i, loop))) {
        s = Broken(name, " uses ", Name(static_cast<int>(b)), " outside its loop");
      }
    }
    for (int b = 1; s.ok() && b < OperandsOf(step); ++b) {
      s = Read(static_cast<int>(step.buffers(b)), name, prepare);
    }
    if (s.ok()) {
      const int result = static_cast<int>(step.buffers(0));
      s = plan_.buffers(result).kind() == Buffer::STATE ? Update(result, name, i, prepare)
                                                        : Write(result, name, prepare);
    }
    if (s.ok() && prepare && step.has_library_call()) {
      s = Broken(name, " calls a library; only steps of run may");
    }
    for (int b = OperandsOf(step); s.ok() && b < step.buffers_size(); ++b) {
      const int own = static_cast<int>(step.buffers(b));
      s = plan_.buffers(own).zeroed() && !prepare ? Count(own, name, i) : Write(own, name, prepare);
    }
    if (!s.ok()) return s;
    if (prepare) continue;
    lives_[step.buffers(0)].made = i;
    for (int b = OperandsOf(step); b < step.buffers_size(); ++b) {
      lives_[step.buffers(b)].made = i;
      lives_[step.buffers(b)].written = false;
    }
    for (uint32_t b : step.buffers()) Touch(static_cast<int>(b), i);
  }
  return absl::OkStatus();
}

// Marks a step's use of a buffer. A loop needs values from outside in every iteration, up to its
// last step.
void Verifier::Touch(int b, int step) {
  lives_[b].Touch(step);
  for (int l = 0; l < plan_.loops_size(); ++l) {
    const bool made_there = lives_[b].made >= 0 && Inside(lives_[b].made, l);
    if (Inside(step, l) && !made_there) {
      lives_[b].Touch(static_cast<int>(plan_.loops(l).first() + plan_.loops(l).steps()) - 1);
    }
  }
}

absl::Status Verifier::Outputs() {
  std::set<std::string> names;
  for (const v1::PlanOutput& out : plan_.outputs()) {
    if (!names.insert(out.name()).second)
      return Broken("output ", Quoted(out.name()), " is there twice");
    if (out.buffer() >= static_cast<uint32_t>(plan_.buffers_size())) {
      return Broken("output ", Quoted(out.name()), " is buffer ", out.buffer(), " of ",
                    plan_.buffers_size());
    }
    if (plan_.buffers(static_cast<int>(out.buffer())).kind() == Buffer::STATE) {
      return Broken("output ", Quoted(out.name()), " is ", Name(static_cast<int>(out.buffer())),
                    ", which is not copied");
    }
    Life& life = lives_[out.buffer()];
    if (!life.written || life.loop >= 0) {
      return Broken("output ", Quoted(out.name()), " is ", Name(static_cast<int>(out.buffer())),
                    ", which nothing writes");
    }
    life.last = plan_.run_size();  // copied out after the last step
  }
  return absl::OkStatus();
}

// Reports whether the step that makes `born` may write it exactly over `dying`.
bool Verifier::Replaces(int born, int dying) const {
  if (lives_[born].first != lives_[dying].last) return false;
  const v1::Step& step = plan_.run(lives_[born].first);
  const auto own = step.buffers().begin() + OperandsOf(step);
  return !step.has_library_call() && static_cast<int>(step.buffers(0)) == born &&
         std::count(own, step.buffers().end(), static_cast<uint32_t>(dying)) == 0 &&
         plan_.buffers(born).arena_offset() == plan_.buffers(dying).arena_offset() &&
         plan_.buffers(born).bytes().SerializeAsString() ==
             plan_.buffers(dying).bytes().SerializeAsString();
}

absl::Status Verifier::Arena() const {
  std::vector<int> live;  // sorted by birth: only earlier values still alive are compared
  for (int b = 0; b < plan_.buffers_size(); ++b) {
    if (plan_.buffers(b).kind() == Buffer::ARENA && lives_[b].first >= 0) live.push_back(b);
  }
  std::sort(live.begin(), live.end(),
            [&](int a, int b) { return lives_[a].first < lives_[b].first; });
  std::vector<int> open;
  for (int b : live) {
    std::erase_if(open, [&](int o) { return lives_[o].last < lives_[b].first; });
    const int64_t begin = plan_.buffers(b).arena_offset(), end = begin + arena_bytes_[b];
    for (int o : open) {
      const int64_t other = plan_.buffers(o).arena_offset();
      if (begin >= other + arena_bytes_[o] || other >= end || Replaces(b, o)) continue;
      return Broken(Name(b), " at [", begin, ", ", end, ") overlaps ", Name(o), " at [", other,
                    ", ", other + arena_bytes_[o], "), both alive in run step ", lives_[b].first);
    }
    open.push_back(b);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyPlan(const v1::Plan& plan) { return Verifier(plan).Run(); }

}  // namespace athanor
