#include "compiler/codegen/kir/emitter.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor::kir {

LanePattern LanePatternOf(const Expr& index, const std::vector<std::string>& vectors) {
  for (const std::string& v : vectors) {
    if (index.Uses(v)) return LanePattern::kScattered;
  }
  if (!index.Uses(kLane)) return LanePattern::kUniform;
  std::optional<Expr::Affine> affine = index.AsAffine(kLane);
  return affine && affine->stride.IsConstant(1) ? LanePattern::kContiguous
                                                : LanePattern::kScattered;
}

int64_t Kernel::ScratchBytes() const {
  int64_t bytes = 0;
  for (const Buffer& b : buffers) {
    if (b.space == Space::kScratch) bytes += b.ScratchBytes();
  }
  return bytes;
}

int Kernel::LaunchBuffers() const {
  return static_cast<int>(std::count_if(buffers.begin(), buffers.end(),
                                        [](const Buffer& b) { return b.space == Space::kLaunch; }));
}

const Stmt* CallOf(const Kernel& kernel) {
  const bool is_call = kernel.body.size() == 1 && kernel.body[0].opcode == Opcode::kCall;
  return is_call ? kernel.body.data() : nullptr;
}

int Emitter::Global(DType dtype, bool written) {
  return AddBuffer({dtype, Space::kGlobal, written, 0});
}

int Emitter::Launch(DType dtype, int64_t elements) {
  return AddBuffer({dtype, Space::kLaunch, true, elements});
}

int Emitter::Counters(int64_t elements) {
  return AddBuffer({DType::kU32, Space::kLaunch, true, elements, /*zeroed=*/true});
}

int Emitter::Scratch(DType dtype, int64_t elements) {
  return AddBuffer({dtype, Space::kScratch, true, elements});
}

int Emitter::AddBuffer(const Buffer& buffer) {
  kernel_.buffers.push_back(buffer);
  return static_cast<int>(kernel_.buffers.size()) - 1;
}

Var Emitter::Const(const Scalar& value) {
  return Once(absl::StrCat("const ", static_cast<int>(value.dtype), " ", value.u),
              {.opcode = Opcode::kConst, .constant = value}, {value.dtype, 1});
}

Var Emitter::Index(const Expr& value, int lanes) {
  if (!UsesLane(value)) lanes = 1;
  return Once(absl::StrCat("index ", lanes, " ", value.ToString()),
              {.opcode = Opcode::kIndex, .index = value}, {DType::kI64, lanes});
}

Var Emitter::Load(int buffer, const Expr& index, int lanes, const Mask& mask) {
  const bool predicated_lanes = mask.predicate != kNoVar && type(mask.predicate).lanes > 1;
  if (!UsesLane(index) && !predicated_lanes) lanes = 1;
  return Result({.opcode = Opcode::kLoad,
                 .buffer = buffer,
                 .index = index,
                 .count = mask.CountFor(lanes),
                 .predicate = mask.predicate},
                {kernel_.buffers[buffer].dtype, lanes});
}

void Emitter::Store(int buffer, const Expr& index, Var value, const Mask& mask) {
  Append({.opcode = Opcode::kStore,
          .type = type(value),
          .args = {value},
          .buffer = buffer,
          .index = index,
          .count = mask.CountFor(type(value).lanes),
          .predicate = mask.predicate});
}

void Emitter::Prefetch(int buffer, const Expr& index) {
  Append({.opcode = Opcode::kPrefetch,
          .type = {kernel_.buffers[buffer].dtype, 1},
          .buffer = buffer,
          .index = index});
}

void Emitter::Gemm(const Matrix& result, const Matrix& left, const Matrix& right, const Expr& rows,
                   const Expr& columns, const Expr& sums) {
  Append({.opcode = Opcode::kGemm,
          .type = {kernel_.buffers[result.buffer].dtype, 1},
          .matrices = {result, left, right},
          .extents = {rows, columns, sums}});
}

void Emitter::Call(const Matrix& result, const Matrix& left, const Matrix& right, int bias,
                   const std::vector<Expr>& extents, const std::vector<int64_t>& ways,
                   int proposal) {
  Append({.opcode = Opcode::kCall,
          .type = {kernel_.buffers[left.buffer].dtype, 1},
          .buffer = bias,
          .matrices = {result, left, right},
          .extents = extents,
          .ways = ways,
          .proposal = proposal});
}

void Emitter::Sort(int keys, int places, int other_keys, int other_places, const Expr& count) {
  Append({.opcode = Opcode::kSort,
          .type = {kernel_.buffers[keys].dtype, 1},
          .matrices = {{keys, 0, 0}, {places, 0, 0}, {other_keys, 0, 0}, {other_places, 0, 0}},
          .extents = {count}});
}

Var Emitter::Compute(Op op, DType dtype, std::vector<Var> args, bool shift_left) {
  int lanes = 1;
  for (Var a : args) lanes = std::max(lanes, type(a).lanes);
  for (Var& a : args) a = Broadcast(a, lanes);
  return Result(
      {.opcode = Opcode::kCompute, .op = op, .args = std::move(args), .shift_left = shift_left},
      {dtype, lanes});
}

Var Emitter::Cast(Var value, DType dtype) {
  return type(value).dtype == dtype ? value : Compute(Op::kCast, dtype, {value});
}

Var Emitter::Add(Var a, Var b) { return Compute(Op::kAdd, type(a).dtype, {a, b}); }

Var Emitter::Fma(Var a, Var b, Var c) {
  const int lanes = std::max({type(a).lanes, type(b).lanes, type(c).lanes});
  return Result({.opcode = Opcode::kFma,
                 .args = {Broadcast(a, lanes), Broadcast(b, lanes), Broadcast(c, lanes)}},
                {type(c).dtype, lanes});
}

Var Emitter::Broadcast(Var value, int lanes) {
  if (lanes == 1 || type(value).lanes == lanes) return value;
  return Once(absl::StrCat("broadcast ", lanes, " ", value),
              {.opcode = Opcode::kBroadcast, .args = {value}}, {type(value).dtype, lanes});
}

Var Emitter::Reduce(Op op, Var value) {
  if (type(value).lanes == 1) return value;
  return Result({.opcode = Opcode::kReduce, .op = op, .args = {value}}, {type(value).dtype, 1});
}

Var Emitter::LaneMask(const Expr& count, int lanes) {
  return Once(absl::StrCat("lanemask ", lanes, " ", count.ToString()),
              {.opcode = Opcode::kLaneMask, .index = count}, {DType::kBool, lanes});
}

Var Emitter::And(Var a, Var b) {
  if (a == kNoVar || a == b) return b;
  if (b == kNoVar) return a;
  std::string key = absl::StrCat("and ", a, " ", b);
  if (std::optional<Var> v = Recall(key)) return *v;
  Var v = Compute(Op::kAnd, DType::kBool, {a, b});
  Remember(key, v);
  return v;
}

Var Emitter::CheckIndex(Var index, const Expr& extent, const Mask& mask) {
  int lanes = type(index).lanes;
  if (mask.predicate != kNoVar) lanes = std::max(lanes, type(mask.predicate).lanes);
  return Result({.opcode = Opcode::kCheckIndex,
                 .args = {Broadcast(index, lanes)},
                 .index = extent,
                 .count = mask.CountFor(lanes),
                 .predicate = mask.predicate},
                {DType::kBool, lanes});
}

Var Emitter::RandomBits(Var index, Var seed) {
  const int lanes = std::max(type(index).lanes, type(seed).lanes);
  return Result(
      {.opcode = Opcode::kRandomBits, .args = {Broadcast(index, lanes), Broadcast(seed, lanes)}},
      {DType::kU32, lanes});
}

Var Emitter::Fragment(const Matrix& from, Part part) {
  return Result({.opcode = Opcode::kFragment, .matrices = {from}},
                {kernel_.buffers[from.buffer].dtype, kBlockThreads, part});
}

Var Emitter::Sums(Var scalar) {
  return Result({.opcode = Opcode::kBroadcast, .args = {scalar}},
                {type(scalar).dtype, kBlockThreads, Part::kSums});
}

Var Emitter::Mma(Var left, Var right, Var sums) {
  return Result({.opcode = Opcode::kMma, .args = {left, right, sums}}, type(sums));
}

Var Emitter::Slot(Var sums, int slot) {
  return Result({.opcode = Opcode::kSlot, .args = {sums}, .step = slot},
                {type(sums).dtype, type(sums).lanes});
}

void Emitter::Copy(int to, const Expr& index, int from, const Expr& source, int elements,
                   Var predicate) {
  Append({.opcode = Opcode::kCopy,
          .type = {kernel_.buffers[to].dtype, kBlockThreads},
          .buffer = to,
          .index = index,
          .predicate = predicate,
          .step = elements,
          .matrices = {{from, source, 0}}});
}

void Emitter::Commit() { Append({.opcode = Opcode::kCommit}); }

void Emitter::Wait(int groups) {
  Append({.opcode = Opcode::kWait, .step = groups});
  Append({.opcode = Opcode::kBarrier});
}

Var Emitter::LastTicket(int counters, const Expr& index, int64_t teams) {
  const Var drawn =
      Result({.opcode = Opcode::kTicket, .buffer = counters, .index = index, .step = teams},
             {DType::kI32, 1});
  return Compute(Op::kLessThan, DType::kBool,
                 {Const(Scalar::Signed(DType::kI32, teams - 2)), drawn});
}

Var Emitter::Mutable(Var value) {
  return Result({.opcode = Opcode::kMutable, .args = {value}}, type(value));
}

void Emitter::Assign(Var mutable_var, Var value) {
  Append({.opcode = Opcode::kAssign,
          .result = mutable_var,
          .type = type(mutable_var),
          .args = {value}});
}

Expr Emitter::Coordinate(const Expr& value, const Expr& extent) {
  if (value.constant()) return value;
  const Var v = Index(value, 1);
  SetPlace(v, extent);
  return Symbol(v);
}

namespace {

void ForEachExpr(std::vector<Stmt>& block, const std::function<void(Expr&)>& visit) {
  for (Stmt& s : block) {
    visit(s.index);
    if (s.count) visit(*s.count);
    visit(s.begin);
    visit(s.end);
    for (Matrix& m : s.matrices) {
      visit(m.index);
      visit(m.stride);
    }
    for (Expr& e : s.extents) visit(e);
    ForEachExpr(s.body, visit);
  }
}

void RenumberBuffers(std::vector<Stmt>& block, const std::vector<int>& to) {
  for (Stmt& s : block) {
    if (s.buffer >= 0) s.buffer = to[s.buffer];
    for (Matrix& m : s.matrices) m.buffer = to[m.buffer];
    RenumberBuffers(s.body, to);
  }
}

// Orders buffers by their space, as kernels list them; the emitter numbers buffers as they are met.
void OrderBuffers(Kernel* kernel) {
  std::vector<int> to(kernel->buffers.size());
  std::vector<Buffer> ordered;
  for (Space space : {Space::kGlobal, Space::kLaunch, Space::kScratch}) {
    for (size_t b = 0; b < to.size(); ++b) {
      if (kernel->buffers[b].space != space) continue;
      to[b] = static_cast<int>(ordered.size());
      ordered.push_back(kernel->buffers[b]);
    }
  }
  kernel->buffers = std::move(ordered);
  RenumberBuffers(kernel->body, to);
}

// Numbers dims in the order of their first use, the same for equal kernels whatever their dims are
// called. If several dims are first used by one expression, the first number goes to the one that
// this or a later expression tells from the others.
class DimOrder {
 public:
  DimOrder(std::vector<const Expr*> uses, const std::set<std::string>& own)
      : uses_(std::move(uses)) {
    for (const Expr* e : uses_) e->CollectSymbols(&unnumbered_);
    std::erase_if(unnumbered_, [&](const std::string& s) { return own.contains(s); });
  }

  std::vector<std::string> Number() && {
    for (size_t u = 0; u < uses_.size() && !unnumbered_.empty(); ++u) {
      for (std::vector<std::string> dims = FirstIn(u); !dims.empty(); dims = FirstIn(u)) {
        order_.push_back(*std::min_element(
            dims.begin(), dims.end(),
            [&](const std::string& a, const std::string& b) { return IsBefore(a, b, u); }));
        unnumbered_.erase(order_.back());
      }
    }
    return std::move(order_);
  }

 private:
  std::vector<std::string> FirstIn(size_t u) const {
    std::set<std::string> symbols;
    uses_[u]->CollectSymbols(&symbols);
    std::vector<std::string> dims;
    std::set_intersection(symbols.begin(), symbols.end(), unnumbered_.begin(), unnumbered_.end(),
                          std::back_inserter(dims));
    return dims;
  }
  bool IsBefore(const std::string& a, const std::string& b, size_t u) const {
    for (; a != b && u < uses_.size(); ++u) {
      const std::string x = SeenFrom(a, *uses_[u]), y = SeenFrom(b, *uses_[u]);
      if (x != y) return x < y;
    }
    return false;
  }
  // Returns the expression without names: among the dims not yet numbered, only `dim` differs from
  // the others.
  std::string SeenFrom(const std::string& dim, const Expr& e) const {
    std::map<std::string, Expr, std::less<>> roles;
    for (const std::string& d : unnumbered_) roles[d] = Expr::Symbol(d == dim ? "_this" : "_other");
    for (size_t i = 0; i < order_.size(); ++i) {
      roles[order_[i]] = Expr::Symbol(absl::StrCat("s", i));
    }
    return e.Substitute(roles).ToString();
  }

  std::vector<const Expr*> uses_;
  std::set<std::string> unnumbered_;
  std::vector<std::string> order_;
};

}  // namespace

Kernel Emitter::Finish(std::string name, const Expr& grid) && {
  kernel_.name = std::move(name);
  kernel_.grid = grid;
  // Dims have names of the graph; all other symbols were made here.
  std::set<std::string> own = MoveInto(&kernel_);
  own.insert({kLane, kGrid});
  std::vector<const Expr*> uses = {&kernel_.grid};
  ForEachExpr(kernel_.body, [&](Expr& e) { uses.push_back(&e); });
  kernel_.sizes = DimOrder(std::move(uses), own).Number();
  std::map<std::string, Expr, std::less<>> renamed;
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) {
    renamed[kernel_.sizes[i]] = Expr::Symbol(absl::StrCat("s", i));
  }
  auto rename = [&](Expr& e) { e = e.Substitute(renamed); };
  if (!renamed.empty()) {
    rename(kernel_.grid);
    ForEachExpr(kernel_.body, rename);
  }
  OrderBuffers(&kernel_);
  return std::move(kernel_);
}

}  // namespace athanor::kir
