// Two accesses are kept apart by the difference of their indices, where the loop variable of step s
// is begin + s*k: it is a multiple of the team or less than the lanes' stride (each thread has
// elements of its own), it passes over 0 as multiples of a number do (the GCD test), or its sign is
// proved (Banerjee's test), with what the loops and conditions around both imply. A fragment's load
// counts as one of all its buffer.
#include "compiler/codegen/kir/memory_accesses.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>

#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

std::string SymbolOf(Var v) { return Cat("v", v); }
std::string Other(std::string_view symbol) { return Cat(symbol, ".p"); }
// The number of an element among those that a lane copies.
constexpr char kElement[] = "e";

bool IsPolynomial(const Expr& e) {
  return std::all_of(e.terms().begin(), e.terms().end(), [](const Expr::Term& t) {
    return std::all_of(t.monomial.begin(), t.monomial.end(),
                       [](const AtomRef& a) { return a->kind == Atom::Kind::kSymbol; });
  });
}

Expr RelaxedAtom(const AtomRef& atom, std::vector<Range>* ranges) {
  if (atom->kind != Atom::Kind::kFloorDiv) return Expr::Of(atom);
  const std::optional<std::string> symbol = atom->args[0].symbol();
  const int64_t divisor = atom->args[1].constant().value_or(0);
  if (!symbol || (*symbol != kLane && *symbol != Other(kLane)) || divisor <= 0) {
    return Expr::Of(atom);
  }
  const std::string quotient = Cat(*symbol, ".over", divisor);
  for (const Range& r : *ranges) {
    if (r.symbol == quotient) return Expr::Symbol(quotient);
  }
  const Range lane = *std::find_if(ranges->begin(), ranges->end(),
                                   [&](const Range& r) { return r.symbol == *symbol; });
  ranges->push_back({quotient, FloorDiv(lane.lower, divisor), FloorDiv(lane.upper, divisor)});
  return Expr::Symbol(quotient);
}

// Returns `e` with a symbol, which ranges by itself, for each quotient of a lane by a number.
Expr Relaxed(const Expr& e, std::vector<Range>* ranges) {
  Expr relaxed;
  for (const Expr::Term& t : e.terms()) {
    Expr product = t.coefficient;
    for (const AtomRef& atom : t.monomial) product *= RelaxedAtom(atom, ranges);
    relaxed += product;
  }
  return relaxed;
}

// Returns how many times `k` has a term of `e`, for all terms that are a multiple.
std::set<int64_t> Ratios(const Expr& e, const Expr& k) {
  std::set<int64_t> ratios;
  for (const Expr::Term& t : k.terms()) {
    for (const Expr::Term& u : e.terms()) {
      if (t.monomial.empty() || u.coefficient == INT64_MIN) continue;
      if (u.coefficient % t.coefficient != 0) continue;
      const int64_t ratio = u.coefficient / t.coefficient;
      if (ratio > 0 && ratio * Expr::Of(t) == Expr::Of(u)) ratios.insert(ratio);
    }
  }
  return ratios;
}

}  // namespace

bool IsAccess(const Kernel& kernel, const Stmt& s) {
  if (s.opcode == Opcode::kFragment || s.opcode == Opcode::kCopy) return true;
  if (s.opcode != Opcode::kLoad && s.opcode != Opcode::kStore) return false;
  const Buffer& b = kernel.buffers[s.buffer];
  return b.space == Space::kScratch || b.written;
}

Accesses::Accesses(const Kernel& kernel) : kernel_(kernel) {
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    const std::string size = Cat("s", i);
    bounds_.Set(size, 0, Expr::Symbol(Other(size)));  // no known maximum
  }
  AddLoop(kGrid, kGrid, kernel.grid - 1);
  Collect(kernel.body);
  Close(kItems);
}

bool Accesses::IsIn(int access, int loop) const {
  return access >= loops_[loop].access && access < loops_[loop].end_access;
}

bool Accesses::LanesDiffer(int access) const {
  const MemoryAccess& a = accesses_[access];
  if (a.elements > 1) return LanesDifferWhereTried(a.expanded, a.elements);
  const std::optional<Expr::Affine> affine = a.expanded.AsAffine(kLane);
  if (!affine) return LanesDifferWhereTried(a.expanded);
  if (affine->base.overflow()) return false;
  if (const std::optional<int64_t> stride = affine->stride.constant(); stride == 0) return false;
  std::set<std::string> in_base, in_stride;
  affine->base.CollectSymbols(&in_base);
  affine->stride.CollectSymbols(&in_stride);
  return std::none_of(in_base.begin(), in_base.end(),
                      [&](const std::string& s) { return vectors_.contains(s); }) &&
         std::all_of(in_stride.begin(), in_stride.end(),
                     [](const std::string& s) { return s[0] == 's'; }) &&
         (bounds_.NonNegative(affine->stride) || bounds_.NonNegative(-1 * affine->stride));
}

bool Accesses::LanesDifferWhereTried(const Expr& index, int64_t count) const {
  std::set<std::string> used;
  index.CollectSymbols(&used);
  Expr::Env env;
  int64_t value = 4099;
  for (const std::string& symbol : used) {
    if (vectors_.contains(symbol)) return false;
    env[symbol] = value;
    value += 1006;
  }
  std::set<int64_t> elements;
  for (int lane = 0; lane < kernel_.team; ++lane) {
    env[kLane] = lane;
    for (int64_t i = 0; i < count; ++i) {
      env[kElement] = i;
      const std::optional<int64_t> element = index.Evaluate(env);
      if (!element || !elements.insert(*element).second) return false;
    }
  }
  return true;
}

bool Accesses::Race(int earlier, int carrier, int later, bool pending) {
  const auto [it, added] = races_.try_emplace({earlier, carrier, later, pending}, false);
  if (added) it->second = Decide(accesses_[earlier], carrier, accesses_[later], pending);
  return it->second;
}

void Accesses::AddLoop(const std::string& name, const std::string& counter, const Expr& last) {
  Loop loop{.name = name, .counter = counter, .last = bounds_.Simplify(last)};
  loop.runs = bounds_.NonNegative(loop.last);
  loop.access = static_cast<int>(accesses_.size());
  if (bounds_.NonNegative(-1 * loop.last)) {
    loop.counter.clear();
  } else {
    bounds_.Set(counter, 0, loop.last);
    owner_[counter] = static_cast<int>(loops_.size());
  }
  if (loop.counter.empty()) {
    Know(loop.last);
  } else {
    Deduce(loop.last - Expr::Symbol(counter));  // its range itself is used everywhere
  }
  around_.push_back(static_cast<int>(loops_.size()));
  loops_.push_back(std::move(loop));
}

void Accesses::Close(int loop) {
  around_.pop_back();
  loops_[loop].end_loop = static_cast<int>(loops_.size());
  loops_[loop].end_access = static_cast<int>(accesses_.size());
}

void Accesses::Collect(const std::vector<Stmt>& block) {
  for (const Stmt& s : block) {
    if (s.type.dtype == DType::kI64 && s.result != kNoVar) Define(s);
    if (s.opcode == Opcode::kFragment || s.opcode == Opcode::kCopy) {
      Matrices(s);
    } else if (IsAccess(kernel_, s)) {
      const bool store = s.opcode == Opcode::kStore;
      const std::string text =
          Cat(store ? std::string("store") : Cat(SymbolOf(s.result), " = load"), " b", s.buffer,
              "[", s.index.ToString(), "]");
      const Expr index = s.index.Substitute(values_);
      const bool vector = s.type.lanes > 1;
      const bool one_thread = vector ? s.count && s.count->IsConstant(1) : store;
      accesses_.push_back({s.buffer, store, vector, one_thread, index, index.Substitute(expanded_),
                           known_, around_, text});
      if (s.count) accesses_.back().count = s.count->Substitute(values_);
    }
    if (s.opcode == Opcode::kCompute) conditions_[s.result] = &s;
    const size_t outside = known_.size();
    if (s.opcode == Opcode::kIf) {
      Assume(s.args[0]);
      Collect(s.body);
      known_.resize(outside);
    }
    if (s.opcode != Opcode::kFor) continue;
    const int loop = loops();
    const std::string counter = Cat("k", loop);
    const Expr begin = AtEntry(s.begin, counter), end = AtEntry(s.end, counter);
    AddLoop(s.loop, counter, FloorDiv(end - 1 - begin, s.step));
    const bool once = loops_[loop].counter.empty();
    values_[s.loop] = once ? begin : begin + s.step * Expr::Symbol(counter);
    Collect(s.body);
    Close(loop);
    known_.resize(outside);
  }
}

void Accesses::Matrices(const Stmt& s) {
  MemoryAccess a = {
      .buffer = s.buffer, .store = true, .vector = true, .known = known_, .loops = around_};
  if (s.opcode == Opcode::kFragment) {
    const Matrix& from = s.matrices[0];
    a.buffer = from.buffer;
    a.store = false;
    a.whole = true;
    a.text = Cat(SymbolOf(s.result), " = fragment b", from.buffer, "[", from.index.ToString(), "]");
  } else {
    a.index = s.index.Substitute(values_) + Expr::Symbol(kElement);
    a.expanded = a.index.Substitute(expanded_);
    a.elements = s.step;
    a.text = Cat("copy b", s.buffer, "[", s.index.ToString(), "]");
  }
  accesses_.push_back(std::move(a));
}

void Accesses::Know(const Expr& e, int depth) {
  if (e.constant()) return;
  known_.push_back(e);
  if (depth > 0) Deduce(e, depth);
}

void Accesses::Deduce(const Expr& e, int depth) {
  for (const Expr::Term& t : e.terms()) {
    if (t.monomial.size() != 1 || t.coefficient <= 0) continue;
    const Atom& atom = *t.monomial[0];
    const Expr rest = e - Expr::Of(t);
    if (atom.kind == Atom::Kind::kMin) {
      for (const Expr& arg : atom.args) Know(t.coefficient * arg + rest, depth - 1);
    } else if (atom.kind == Atom::Kind::kFloorDiv && atom.args[1].constant().value_or(0) > 0) {
      Know(t.coefficient * atom.args[0] + atom.args[1] * rest, depth - 1);
    }
  }
}

Expr Accesses::AtEntry(const Expr& limit, const std::string& counter) {
  Values entry;
  for (const std::string& m : mutables_) {
    if (!limit.Uses(m)) continue;
    const std::string symbol = Cat(m, ".", counter);
    entry[m] = Expr::Symbol(symbol);
    owner_[symbol] = around_.back();
  }
  return limit.Substitute(values_).Substitute(entry);
}

void Accesses::Assume(Var condition) {
  const auto it = conditions_.find(condition);
  if (it == conditions_.end()) return;
  const Stmt& s = *it->second;
  if (s.op == Op::kAnd) {
    for (Var v : s.args) Assume(v);
  } else if (s.op == Op::kLessThan) {
    const auto a = indices_.find(SymbolOf(s.args[0])), b = indices_.find(SymbolOf(s.args[1]));
    if (a != indices_.end() && b != indices_.end()) Know(b->second - a->second - 1);
  }
}

void Accesses::Define(const Stmt& s) {
  const std::string symbol = SymbolOf(s.result);
  if (s.opcode == Opcode::kAssign) return;
  const bool is_index = (s.opcode == Opcode::kConst && s.type.lanes == 1) ||
                        (s.opcode == Opcode::kIndex &&
                         std::none_of(mutables_.begin(), mutables_.end(),
                                      [&](const std::string& m) { return s.index.Uses(m); }));
  if (is_index) {
    indices_[symbol] =
        s.opcode == Opcode::kConst ? Expr(s.constant.i) : s.index.Substitute(values_);
    expanded_[symbol] = indices_[symbol].Substitute(expanded_);
  }
  if (s.opcode == Opcode::kMutable) mutables_.insert(symbol);
  if (is_index && (s.type.lanes > 1 || IsPolynomial(indices_[symbol]))) {
    values_[symbol] = indices_[symbol];
  } else if (s.opcode == Opcode::kMutable || s.type.lanes > 1) {
    varying_.insert(symbol);
    if (s.type.lanes > 1) vectors_.insert(symbol);
  } else {
    owner_[symbol] = around_.back();
  }
}

Accesses::Relation Accesses::Relate(const MemoryAccess& earlier, int carrier,
                                    const MemoryAccess& later) const {
  const auto &loops = earlier.loops, &to = later.loops;
  const auto same = carrier == kNoLoop
                        ? std::mismatch(loops.begin(), loops.end(), to.begin(), to.end()).first
                        : std::find(loops.begin(), loops.end(), carrier);
  Relation r;
  for (const char* own : {kLane, kElement}) r.values[own] = Expr::Symbol(Other(own));
  for (const std::string& v : varying_) r.values[v] = Expr::Symbol(Other(v));
  for (const auto& [symbol, loop] : owner_) {
    if (std::find(same, loops.end(), loop) == loops.end()) continue;
    r.values[symbol] = Expr::Symbol(Other(symbol));
  }
  for (auto i = same; i != loops.end(); ++i) {
    const Loop& loop = loops_[*i];
    if (loop.counter.empty()) continue;
    if (*i == carrier) {  // an earlier iteration of the later access's own loop
      const Expr counter = Expr::Symbol(loop.counter);
      const std::string back = Cat(loop.counter, ".back");
      r.values[loop.counter] = counter - 1 - Expr::Symbol(back);
      r.ranges.push_back({back, 0, counter - 1});
    } else {
      r.ranges.push_back({Other(loop.counter), 0, loop.last.Substitute(r.values)});
    }
  }
  std::reverse(r.ranges.begin(), r.ranges.end());
  for (auto i = to.rbegin(); i != to.rend(); ++i) {
    const Loop& loop = loops_[*i];
    if (!loop.counter.empty()) r.ranges.push_back({loop.counter, 0, loop.last});
  }
  return r;
}

bool Accesses::Decide(const MemoryAccess& earlier, int carrier, const MemoryAccess& later,
                      bool pending) const {
  if (earlier.buffer != later.buffer || (!earlier.store && !later.store)) return false;
  if (earlier.whole || later.whole) return true;
  if (earlier.one_thread && later.one_thread && !pending) return false;
  const Relation r = Relate(earlier, carrier, later);
  const Expr a = earlier.index.Substitute(r.values);
  if ((a - later.index).overflow()) return true;
  std::vector<Expr> known = later.known;
  for (const Expr& e : earlier.known) {
    const Expr then = e.Substitute(r.values);
    if (std::find(known.begin(), known.end(), then) == known.end()) known.push_back(then);
  }
  const bool vectors = earlier.vector && later.vector && !pending;
  const Expr wide = earlier.expanded.Substitute(r.values);
  for (const bool counted : {false, true}) {
    if (counted && !earlier.count && !later.count) break;
    std::vector<Range> ranges = {{Other(kElement), 0, earlier.elements - 1},
                                 {kElement, 0, later.elements - 1}};
    for (Range& range : LaneRanges(earlier, later, r.values, counted)) {
      if (pending) range.lower = 0;
      ranges.push_back(std::move(range));
    }
    const Expr difference = Relaxed(a - later.index, &ranges);
    ranges.insert(ranges.end(), r.ranges.begin(), r.ranges.end());
    if (vectors && (OwnElements(a, later.index, ranges, known) ||
                    OwnElements(wide, later.expanded, ranges, known))) {
      return false;
    }
    if (NeverZero(difference, ranges) || Positive(difference, ranges, known) ||
        Positive(-1 * difference, ranges, known)) {
      return false;
    }
  }
  return true;
}

std::vector<Range> Accesses::LaneRanges(const MemoryAccess& earlier, const MemoryAccess& later,
                                        const Values& values, bool counted) const {
  const auto lanes = [&](const MemoryAccess& a) {
    return counted && a.count ? *a.count : Expr(kernel_.team);
  };
  return {{Other(kLane), later.one_thread ? 1 : 0, lanes(earlier).Substitute(values) - 1},
          {kLane, earlier.one_thread ? 1 : 0, lanes(later) - 1}};
}

bool Accesses::Positive(const Expr& e, const std::vector<Range>& ranges,
                        const std::vector<Expr>& known) const {
  if (Positive(e, ranges)) return true;
  return std::any_of(known.begin(), known.end(), [&](const Expr& k) {
    const std::set<int64_t> times = Ratios(e, k);
    return std::any_of(times.begin(), times.end(),
                       [&](int64_t n) { return Positive(e - n * k, ranges); });
  });
}

bool Accesses::Positive(const Expr& e, const std::vector<Range>& ranges) const {
  const std::optional<Expr> least = Least(e, ranges);
  return least && NonNegative(*least - 1);
}

bool Accesses::NonNegative(const Expr& e) const {
  if (const std::optional<int64_t> value = e.constant()) return *value >= 0;
  const auto [it, added] = signs_.try_emplace(e, false);
  if (added) it->second = bounds_.NonNegative(e);
  return it->second;
}

std::optional<Expr> Accesses::Least(Expr e, const std::vector<Range>& ranges) const {
  for (const Range& r : ranges) {
    const std::optional<Expr::Affine> affine = e.AsAffine(r.symbol);
    if (!affine || affine->stride.IsConstant(0)) continue;
    const bool rises = NonNegative(affine->stride);
    if (!rises && !NonNegative(-1 * affine->stride)) return std::nullopt;
    e = affine->base + affine->stride * (rises ? r.lower : r.upper);
  }
  return e;
}

bool Accesses::OwnElements(const Expr& a, const Expr& b, const std::vector<Range>& ranges,
                           const std::vector<Expr>& known) const {
  const std::optional<Expr::Affine> x = a.AsAffine(Other(kLane)), y = b.AsAffine(kLane);
  if (!x || !y || x->stride != y->stride || x->stride.IsConstant(0)) return false;
  const Expr stride = x->stride, apart = x->base - y->base;
  if (apart.overflow()) return false;
  int64_t span;
  if (const std::optional<int64_t> step = stride.constant();
      step && !__builtin_mul_overflow(*step, kernel_.team, &span) &&
      std::all_of(apart.terms().begin(), apart.terms().end(),
                  [&](const Expr::Term& t) { return t.coefficient % span == 0; })) {
    return true;
  }
  return Positive(stride - apart, ranges, known) && Positive(stride + apart, ranges, known);
}

bool Accesses::NeverZero(const Expr& e, const std::vector<Range>& ranges) const {
  int64_t common = 0;
  std::set<int64_t> divisors;
  for (const Expr::Term& t : e.terms()) {
    if (t.coefficient == INT64_MIN) return false;
    if (t.monomial.empty()) continue;
    common = std::gcd(common, t.coefficient);
    divisors.insert({common, std::abs(t.coefficient)});
  }
  return std::any_of(divisors.begin(), divisors.end(), [&](int64_t divisor) {
    Expr rest;
    for (const Expr::Term& t : e.terms()) {
      if (t.coefficient % divisor != 0) rest += Expr::Of(t);
    }
    const std::optional<Expr> least = Least(rest, ranges), most = Least(-1 * rest, ranges);
    return least && least->constant() && most && most->constant() &&
           FloorDiv(*least - 1, divisor) == FloorDiv(-1 * *most, divisor);
  });
}

}  // namespace athanor::kir
