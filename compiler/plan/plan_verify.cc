#include "compiler/plan/plan_verify.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/expr_proto.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/message.h"

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
  absl::Status CheckStep(const v1::Step& step, const std::string& name) const;
  absl::Status Write(int b, const std::string& name, bool prepare);
  absl::Status Read(int b, const std::string& name, bool prepare) const;
  absl::Status Outputs();
  absl::Status Arena() const;
  bool Replaces(int born, int dying) const;

  const v1::Plan& plan_;
  Bounds bounds_;
  std::set<std::string> dims_;
  std::vector<int64_t> arena_bytes_ = std::vector<int64_t>(plan_.buffers_size());
  std::vector<Life> lives_ = std::vector<Life>(plan_.buffers_size());
};

absl::Status Verifier::Dims() {
  if (plan_.format() != 1) return Broken("format ", plan_.format(), "; this code knows format 1");
  for (const v1::DimRange& d : plan_.dims()) {
    if (!Expr::IsSymbolName(d.name()) || !dims_.insert(d.name()).second) {
      return Broken("dim ", Quoted(d.name()), " is no name, or there twice");
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
      return Broken(what, " uses ", Quoted(s), ", which is no dim of the plan");
  }
  return e;
}

absl::Status Verifier::CheckBuffer(int b) {
  const Buffer& buffer = plan_.buffers(b);
  std::optional<DType> dtype = ParseDType(buffer.dtype());
  if (buffer.kind() == Buffer::KIND_UNSPECIFIED || !Buffer::Kind_IsValid(buffer.kind()) || !dtype) {
    return Broken(Name(b), " has no kind, or no dtype: ", Quoted(buffer.dtype()));
  }
  absl::StatusOr<Expr> bytes = Size(buffer.bytes(), Name(b) + ": bytes");
  if (!bytes.ok()) return bytes.status();
  Expr wanted = DTypeBytes(*dtype);
  for (const v1::SizeExpr& axis : buffer.shape()) {
    absl::StatusOr<Expr> e = Size(axis, Name(b) + ": shape");
    if (!e.ok()) return e.status();
    wanted *= *e;
  }
  if (!(wanted == *bytes)) {
    return Broken(Name(b), " has ", bytes->ToString(), " bytes; its shape needs ",
                  wanted.ToString());
  }
  const bool fixed = buffer.kind() == Buffer::PARAMETER || buffer.kind() == Buffer::CONSTANT ||
                     buffer.kind() == Buffer::PREPARED;
  if (fixed && !bytes->constant())
    return Broken(Name(b), " has no constant size: ", bytes->ToString());
  if (buffer.kind() == Buffer::CONSTANT &&
      !bytes->IsConstant(static_cast<int64_t>(buffer.literal().size()))) {
    return Broken(Name(b), " holds ", buffer.literal().size(), " bytes, not ", bytes->ToString());
  }
  if (buffer.kind() == Buffer::ARENA) {
    std::optional<int64_t> most = bounds_.Maximum(*bytes);
    const int64_t offset = buffer.arena_offset();
    if (!most || offset < 0 || offset % kAlignment != 0 || *most > plan_.arena_bytes() - offset) {
      return Broken(Name(b), " at ", offset, " with ", bytes->ToString(),
                    " bytes is not aligned to ", kAlignment, " or not inside the arena of ",
                    plan_.arena_bytes(), " bytes");
    }
    arena_bytes_[b] = *most;
  }
  const bool given = buffer.kind() == Buffer::INPUT || buffer.kind() == Buffer::PARAMETER ||
                     buffer.kind() == Buffer::CONSTANT;
  lives_[b].written = given;
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
  if (step.scratch_bytes() < 0 || step.scratch_bytes() % kAlignment != 0) {
    return Broken(name, " has ", step.scratch_bytes(), " bytes of scratch, not a multiple of ",
                  kAlignment);
  }
  for (const v1::SizeExpr& s : step.sizes()) {
    if (absl::StatusOr<Expr> e = Size(s, name + ": sizes"); !e.ok()) return e.status();
  }
  return Size(step.grid(), name + ": grid").status();
}

absl::Status Verifier::Write(int b, const std::string& name, bool prepare) {
  const Buffer::Kind kind = plan_.buffers(b).kind();
  const bool may =
      prepare ? kind == Buffer::PREPARED : kind == Buffer::ARENA || kind == Buffer::OUTPUT;
  if (!may) return Broken(name, " may not write ", Name(b));
  if (lives_[b].written) return Broken(name, " writes ", Name(b), " a second time");
  lives_[b].written = true;
  return absl::OkStatus();
}

absl::Status Verifier::Read(int b, const std::string& name, bool prepare) const {
  const Buffer::Kind kind = plan_.buffers(b).kind();
  const bool request = kind == Buffer::INPUT || kind == Buffer::ARENA || kind == Buffer::OUTPUT;
  if (prepare && request)
    return Broken(name, " may not read ", Name(b), ": it belongs to a request");
  if (!lives_[b].written)
    return Broken(name, " reads ", Name(b), ", which nothing has written yet");
  return absl::OkStatus();
}

absl::Status Verifier::Steps(const google::protobuf::RepeatedPtrField<v1::Step>& steps,
                             bool prepare) {
  for (int i = 0; i < steps.size(); ++i) {
    const v1::Step& step = steps[i];
    const std::string name = Name(step, i, prepare);
    absl::Status s = CheckStep(step, name);
    for (int b = 1; s.ok() && b < step.buffers_size(); ++b) {
      s = Read(static_cast<int>(step.buffers(b)), name, prepare);
    }
    if (s.ok()) s = Write(static_cast<int>(step.buffers(0)), name, prepare);
    if (!s.ok()) return s;
    for (uint32_t b : step.buffers()) {
      if (prepare) break;
      Life& life = lives_[b];
      life.first = life.first < 0 ? i : life.first;
      life.last = i;
    }
  }
  return absl::OkStatus();
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
    Life& life = lives_[out.buffer()];
    if (!life.written) {
      return Broken("output ", Quoted(out.name()), " is ", Name(static_cast<int>(out.buffer())),
                    ", which nothing writes");
    }
    life.last = plan_.run_size();  // copied out after the last step
  }
  return absl::OkStatus();
}

// The step that makes `born` may write it over `dying`, place for place.
bool Verifier::Replaces(int born, int dying) const {
  if (lives_[born].first != lives_[dying].last) return false;
  const v1::Step& step = plan_.run(lives_[born].first);
  return static_cast<int>(step.buffers(0)) == born &&
         plan_.buffers(born).arena_offset() == plan_.buffers(dying).arena_offset() &&
         plan_.buffers(born).bytes().SerializeAsString() ==
             plan_.buffers(dying).bytes().SerializeAsString();
}

absl::Status Verifier::Arena() const {
  std::vector<int> live;  // by birth, so that only earlier ones still alive are looked at
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
