#include "compiler/codegen/emitter.h"

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
    if (b.space == Space::kScratch) bytes += (b.elements * DTypeBytes(b.dtype) + 63) / 64 * 64;
  }
  return bytes;
}

int Emitter::Global(DType dtype, bool written) {
  kernel_.buffers.push_back({dtype, Space::kGlobal, written, 0});
  return static_cast<int>(kernel_.buffers.size()) - 1;
}

int Emitter::Scratch(DType dtype, int64_t elements) {
  kernel_.buffers.push_back({dtype, Space::kScratch, true, elements});
  return static_cast<int>(kernel_.buffers.size()) - 1;
}

Stmt& Emitter::Add(Opcode opcode, Type type) {
  Stmt& s = blocks_.back()->emplace_back();
  s.opcode = opcode;
  s.type = type;
  return s;
}

Var Emitter::AddResult(Stmt stmt, Type type) {
  stmt.type = type;
  stmt.result = kernel_.vars++;
  types_.push_back(type);
  if (type == Type{DType::kI64, 1}) depth_[absl::StrCat("v", stmt.result)] = blocks_.size();
  blocks_.back()->push_back(std::move(stmt));
  return kernel_.vars - 1;
}

bool Emitter::UsesLane(const Expr& e) const { return Pattern(e) != LanePattern::kUniform; }

Var Emitter::Const(const Scalar& value) {
  std::string key = absl::StrCat("const ", static_cast<int>(value.dtype), " ", value.u);
  if (std::optional<Var> v = Recall(key)) return *v;
  Stmt s{.opcode = Opcode::kConst};
  s.constant = value;
  Var v = AddResult(std::move(s), {value.dtype, 1});
  Remember(key, v);
  return v;
}

Var Emitter::Index(const Expr& value, int lanes) {
  if (!UsesLane(value)) lanes = 1;
  std::string key = absl::StrCat("index ", lanes, " ", value.ToString());
  if (std::optional<Var> v = Recall(key)) return *v;
  Stmt s{.opcode = Opcode::kIndex};
  s.index = value;
  Var v = AddResult(std::move(s), {DType::kI64, lanes});
  if (lanes > 1) vectors_.push_back(absl::StrCat("v", v));
  Remember(key, v);
  return v;
}

Var Emitter::Load(int buffer, const Expr& index, int lanes, const Mask& mask) {
  bool predicated_lanes = mask.predicate != kNoVar && type(mask.predicate).lanes > 1;
  if (!UsesLane(index) && !predicated_lanes) lanes = 1;
  Stmt s{.opcode = Opcode::kLoad};
  s.buffer = buffer;
  s.index = index;
  s.predicate = mask.predicate;
  if (lanes > 1) s.count = mask.count;
  Type t{kernel_.buffers[buffer].dtype, lanes};
  Var v = AddResult(std::move(s), t);
  if (t.dtype == DType::kI64 && lanes > 1) vectors_.push_back(absl::StrCat("v", v));
  return v;
}

void Emitter::Store(int buffer, const Expr& index, Var value, const Mask& mask) {
  Type t = type(value);
  Stmt& s = Add(Opcode::kStore, t);
  s.buffer = buffer;
  s.index = index;
  s.args = {value};
  s.predicate = mask.predicate;
  if (t.lanes > 1) s.count = mask.count;
}

void Emitter::Prefetch(int buffer, const Expr& index) {
  Stmt& s = Add(Opcode::kPrefetch, {kernel_.buffers[buffer].dtype, 1});
  s.buffer = buffer;
  s.index = index;
}

void Emitter::Gemm(const Matrix& result, const Matrix& left, const Matrix& right, const Expr& rows,
                   const Expr& columns, const Expr& sums) {
  Stmt& s = Add(Opcode::kGemm, {kernel_.buffers[result.buffer].dtype, 1});
  s.matrices = {result, left, right};
  s.extents = {rows, columns, sums};
}

void Emitter::Sort(int keys, int places, int other_keys, int other_places, const Expr& count) {
  Stmt& s = Add(Opcode::kSort, {kernel_.buffers[keys].dtype, 1});
  for (int buffer : {keys, places, other_keys, other_places}) s.matrices.push_back({buffer, 0, 0});
  s.extents = {count};
}

Var Emitter::Compute(Op op, DType dtype, std::vector<Var> args, bool shift_left) {
  int lanes = 1;
  for (Var a : args) lanes = std::max(lanes, type(a).lanes);
  for (Var& a : args) a = Broadcast(a, lanes);
  Stmt s{.opcode = Opcode::kCompute};
  s.op = op;
  s.args = std::move(args);
  s.shift_left = shift_left;
  Var v = AddResult(std::move(s), {dtype, lanes});
  if (dtype == DType::kI64 && lanes > 1) vectors_.push_back(absl::StrCat("v", v));
  return v;
}

Var Emitter::Cast(Var value, DType dtype) {
  return type(value).dtype == dtype ? value : Compute(Op::kCast, dtype, {value});
}

Var Emitter::Fma(Var a, Var b, Var c) {
  Type t = type(c);
  Stmt s{.opcode = Opcode::kFma};
  t.lanes = std::max({type(a).lanes, type(b).lanes, t.lanes});
  s.args = {Broadcast(a, t.lanes), Broadcast(b, t.lanes), Broadcast(c, t.lanes)};
  return AddResult(std::move(s), t);
}

Var Emitter::Broadcast(Var value, int lanes) {
  if (lanes == 1 || type(value).lanes == lanes) return value;
  std::string key = absl::StrCat("broadcast ", lanes, " ", value);
  if (std::optional<Var> v = Recall(key)) return *v;
  Stmt s{.opcode = Opcode::kBroadcast};
  s.args = {value};
  Var v = AddResult(std::move(s), {type(value).dtype, lanes});
  Remember(key, v);
  return v;
}

Var Emitter::Reduce(Op op, Var value) {
  if (type(value).lanes == 1) return value;
  Stmt s{.opcode = Opcode::kReduce};
  s.op = op;
  s.args = {value};
  return AddResult(std::move(s), {type(value).dtype, 1});
}

Var Emitter::LaneMask(const Expr& count, int lanes) {
  std::string key = absl::StrCat("lanemask ", lanes, " ", count.ToString());
  if (std::optional<Var> v = Recall(key)) return *v;
  Stmt s{.opcode = Opcode::kLaneMask};
  s.index = count;
  Var v = AddResult(std::move(s), {DType::kBool, lanes});
  Remember(key, v);
  return v;
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
  Stmt s{.opcode = Opcode::kCheckIndex};
  int lanes = type(index).lanes;
  if (mask.predicate != kNoVar) lanes = std::max(lanes, type(mask.predicate).lanes);
  s.args = {Broadcast(index, lanes)};
  s.index = extent;
  s.predicate = mask.predicate;
  if (lanes > 1) s.count = mask.count;
  return AddResult(std::move(s), {DType::kBool, lanes});
}

Var Emitter::RandomBits(Var index, Var seed) {
  Stmt s{.opcode = Opcode::kRandomBits};
  int lanes = std::max(type(index).lanes, type(seed).lanes);
  s.args = {Broadcast(index, lanes), Broadcast(seed, lanes)};
  return AddResult(std::move(s), {DType::kU32, lanes});
}

Var Emitter::Mutable(Var value) {
  Stmt s{.opcode = Opcode::kMutable};
  s.args = {value};
  return AddResult(std::move(s), type(value));
}

void Emitter::Assign(Var mutable_var, Var value) {
  Stmt& s = Add(Opcode::kAssign, type(mutable_var));
  s.result = mutable_var;
  s.args = {value};
}

void Emitter::Scope(std::vector<Stmt>* block, absl::FunctionRef<void()> body) {
  blocks_.push_back(block);
  memo_.emplace_back();
  body();
  memo_.pop_back();
  blocks_.pop_back();
}

void Emitter::For(const Expr& begin, const Expr& end, int64_t step,
                  absl::FunctionRef<void(const Expr&)> body, AxisRole role) {
  std::string loop = absl::StrCat("i", loops_++);
  // Builds the body in a block of its own: statements move as the enclosing block grows.
  std::vector<Stmt> inner;
  bounds_.Set(loop, begin, end - 1);
  depth_[loop] = blocks_.size() + 1;
  Scope(&inner, [&] { body(Expr::Symbol(loop)); });
  Stmt& s = Add(Opcode::kFor, {});
  s.loop = loop;
  s.begin = begin;
  s.end = end;
  s.step = step;
  s.role = role;
  s.body = std::move(inner);
}

void Emitter::If(Var condition, absl::FunctionRef<void()> body) {
  std::vector<Stmt> inner;
  Scope(&inner, body);
  Stmt& s = Add(Opcode::kIf, {});
  s.args = {condition};
  s.body = std::move(inner);
}

void Emitter::Narrow(const std::string& loop, const Expr& lower, const Expr& upper,
                     absl::FunctionRef<void()> body) {
  const Bounds bounds = bounds_;
  const size_t depth = std::exchange(depth_[loop], blocks_.size());
  bounds_.Set(loop, lower, upper);
  body();
  bounds_ = bounds;
  depth_[loop] = depth;
}

// Inner blocks are built apart and appended when they close, so statements added to an outer block
// now come before them.
void Emitter::Hoist(const Expr& e, absl::FunctionRef<void()> body) {
  std::set<std::string> symbols;
  e.CollectSymbols(&symbols);
  size_t depth = 1;
  for (const std::string& s : symbols) {
    if (auto it = depth_.find(s); it != depth_.end()) depth = std::max(depth, it->second);
  }
  const std::vector<std::vector<Stmt>*> blocks(blocks_.begin() + static_cast<int64_t>(depth),
                                               blocks_.end());
  std::vector<std::map<std::string, Var>> memo(
      std::make_move_iterator(memo_.begin() + static_cast<int64_t>(depth)),
      std::make_move_iterator(memo_.end()));
  blocks_.resize(depth);
  memo_.resize(depth);
  body();
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  std::move(memo.begin(), memo.end(), std::back_inserter(memo_));
}

Expr Emitter::Coordinate(const Expr& value, const Expr& extent) {
  if (value.constant()) return value;
  const Expr symbol = Symbol(Index(value, 1));
  bounds_.SetExtent(*symbol.symbol(), extent);
  coordinates_.insert(*symbol.symbol());
  return symbol;
}

bool Emitter::IsPlace(const Expr& e) const {
  std::set<std::string> symbols;
  e.CollectSymbols(&symbols);
  return std::all_of(symbols.begin(), symbols.end(), [&](const std::string& s) {
    return s[0] != 'v' || !depth_.contains(s) || coordinates_.contains(s);
  });
}

void Emitter::VectorFor(
    const Expr& begin, const Expr& end, int lanes,
    absl::FunctionRef<void(const Expr&, const std::optional<Expr>& count)> body) {
  if (lanes == 1) {
    For(begin, end, 1, [&](const Expr& i) { body(i, std::nullopt); });
    return;
  }
  Expr extent = Simplify(end - begin);
  bounds_.Set(kLane, 0, lanes - 1);
  Expr whole = Simplify(FloorDiv(extent, lanes) * lanes);
  if (!whole.IsConstant(0)) {
    For(begin, begin + whole, lanes, [&](const Expr& i) {
      // Proves that the last lane is below `end`.
      bounds_.Set(*i.symbol(), begin, end - lanes);
      body(i, std::nullopt);
    });
  }
  Expr rest = Simplify(extent - whole);
  if (rest.IsConstant(0)) return;
  // A loop of at most one step: nothing is computed if nothing remains.
  For(begin + whole, end, lanes, [&](const Expr& i) {
    bounds_.Set(kLane, 0, rest.constant() ? rest - 1 : end - 1 - i);
    body(i, rest);
    bounds_.Set(kLane, 0, lanes - 1);
  });
}

void Emitter::VectorFor(
    const Expr& begin, const Expr& end, int lanes, int unroll,
    absl::FunctionRef<void(const Expr&, const std::optional<Expr>& count, int part)> body) {
  Expr rest = begin;
  const int step = lanes * unroll;
  const Expr whole = Simplify(FloorDiv(end - begin, step) * step);
  if (unroll > 1 && !whole.IsConstant(0)) {
    bounds_.Set(kLane, 0, lanes - 1);
    rest = Simplify(begin + whole);
    For(begin, rest, step, [&](const Expr& i) {
      // Proves that the lanes of the step's last vector are below `end`.
      bounds_.Set(*i.symbol(), begin, rest - step);
      for (int part = 0; part < unroll; ++part) body(i + part * lanes, std::nullopt, part);
    });
  }
  VectorFor(rest, end, lanes,
            [&](const Expr& i, const std::optional<Expr>& count) { body(i, count, 0); });
}

std::optional<Var> Emitter::Recall(const std::string& key) const {
  for (auto scope = memo_.rbegin(); scope != memo_.rend(); ++scope) {
    auto it = scope->find(key);
    if (it != scope->end()) return it->second;
  }
  return std::nullopt;
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

// Puts global buffers first, as kernels list them; the emitter numbers buffers as they are met.
void GlobalsFirst(Kernel* kernel) {
  std::vector<int> to(kernel->buffers.size());
  std::vector<Buffer> ordered;
  for (Space space : {Space::kGlobal, Space::kScratch}) {
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
  std::set<std::string> own = {kLane, kGrid};
  for (int i = 0; i < loops_; ++i) own.insert(absl::StrCat("i", i));
  for (int i = 0; i < kernel_.vars; ++i) own.insert(absl::StrCat("v", i));
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
  GlobalsFirst(&kernel_);
  return std::move(kernel_);
}

}  // namespace athanor::kir
