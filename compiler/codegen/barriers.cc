// Races are found by a forward data flow over the structured program (Kildall; Aho et al.,
// Compilers, 9.2): the fact at a point is which accesses may have been reached since the last
// barrier. A fact says by which loop it was carried: the outermost one whose back edge was passed
// since, if that loop goes on. So it knows which loop variables and registers have the same value
// in both accesses, which only range over the same values, and that the carrying loop's was
// smaller: the direction vectors of dependence analysis (Allen and Kennedy, Optimizing Compilers
// for Modern Architectures, 2.2). Facts pass a loop's back edge and the item loop's; a barrier ends
// them all, on its path alone; conditions and loops that may not run join the path around them.
//
// Two accesses are kept apart by the difference of their indices, where the loop variable of step s
// is begin + s*k: it is a multiple of the team or less than the lanes' stride (each thread has
// elements of its own), it passes over 0 as multiples of a number do (the GCD test), or its sign is
// proved (Banerjee's test), with what the loops and conditions around both imply. A fragment's load
// counts as one of all its buffer.
//
// A copy writes at some time between its begin and the wait for its group. A fact about it has the
// group's age, so that it outlives barriers until a wait covers it; meanwhile no thread may touch
// what it writes, its own neither.
#include "compiler/codegen/barriers.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

constexpr int kItems = 0;    // the loop over items
constexpr int kNoLoop = -1;  // not carried: both accesses are in one iteration of all common loops

using Values = std::map<std::string, Expr, std::less<>>;

// An access of a buffer that the kernel writes. Accesses and loops are numbered in program order;
// barriers do not count.
struct MemoryAccess {
  int buffer;
  bool store, vector;
  bool one_thread;          // only thread 0 does it
  Expr index;               // over sizes, loops' counters, lane and registers
  Expr expanded;            // the same, without registers that are an index
  std::vector<Expr> known;  // expressions that are not negative where it is done
  std::vector<int> loops;   // around it, from the outermost
  std::string text;
  std::optional<Expr> count;  // of active lanes
  bool whole = false;         // a fragment's: of any element of the buffer
  int64_t elements = 1;       // of each lane, from its index on: a copy's
};

// A symbol's first and last value.
struct Range {
  std::string symbol;
  Expr lower, upper;
};

struct Loop {
  std::string name;                // as the kernel calls it
  std::string counter;             // symbol of the iteration's number; none if there is but one
  Expr last;                       // the counter's last value
  bool runs = false;               // at least once
  int end_loop = 0;                // loops in it are (this, end_loop)
  int access = 0, end_access = 0;  // accesses in it
};

std::string SymbolOf(Var v) { return Cat("v", v); }
std::string Other(std::string_view symbol) { return Cat(symbol, ".p"); }
// The number of an element among those that a lane copies.
constexpr char kElement[] = "e";

bool IsAccess(const Kernel& kernel, const Stmt& s) {
  if (s.opcode == Opcode::kFragment || s.opcode == Opcode::kCopy) return true;
  if (s.opcode != Opcode::kLoad && s.opcode != Opcode::kStore) return false;
  const Buffer& b = kernel.buffers[s.buffer];
  return b.space == Space::kScratch || b.written;
}

// The accesses of a kernel, and which of them may meet at one element.
class Accesses {
 public:
  explicit Accesses(const Kernel& kernel) : kernel_(kernel) {
    for (size_t i = 0; i < kernel.sizes.size(); ++i) {
      const std::string size = Cat("s", i);
      bounds_.Set(size, 0, Expr::Symbol(Other(size)));  // no known maximum
    }
    AddLoop(kGrid, kGrid, kernel.grid - 1);
    Collect(kernel.body);
    Close(kItems);
  }

  const MemoryAccess& access(int a) const { return accesses_[a]; }
  const Loop& loop(int l) const { return loops_[l]; }
  int loops() const { return static_cast<int>(loops_.size()); }

  int size() const { return static_cast<int>(accesses_.size()); }

  bool IsIn(int access, int loop) const {
    return access >= loops_[loop].access && access < loops_[loop].end_access;
  }

  // Reports whether each lane of a vector's store has an element of its own: proved of a multiple
  // of the lane, tried of others, such as columns that are split into heads. A stride over sizes
  // counts as 1 or more if it is not negative: lowerings multiply the extents of axes, and store
  // nothing to a tensor of which one is 0.
  bool LanesDiffer(int access) const {
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

  // Reports whether an index differs by lane where all else is large, and so no multiple of what
  // divides the lane; with it the `count` elements from there on.
  bool LanesDifferWhereTried(const Expr& index, int64_t count = 1) const {
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

  // Reports whether `earlier`, carried by `carrier`, and `later` may touch one element in two
  // threads, at least one of them writing. `pending`: in one thread neither, since `earlier` is a
  // copy that may be under way.
  bool Race(int earlier, int carrier, int later, bool pending) {
    const auto [it, added] = races_.try_emplace({earlier, carrier, later, pending}, false);
    if (added) it->second = Decide(accesses_[earlier], carrier, accesses_[later], pending);
    return it->second;
  }

 private:
  void AddLoop(const std::string& name, const std::string& counter, const Expr& last) {
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

  void Close(int loop) {
    around_.pop_back();
    loops_[loop].end_loop = static_cast<int>(loops_.size());
    loops_[loop].end_access = static_cast<int>(accesses_.size());
  }

  void Collect(const std::vector<Stmt>& block) {
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
        accesses_.push_back({s.buffer, store, vector, one_thread, index,
                             index.Substitute(expanded_), known_, around_, text});
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

  // Adds the access to scratch of a fragment's load or of a copy.
  void Matrices(const Stmt& s) {
    MemoryAccess a = {
        .buffer = s.buffer, .store = true, .vector = true, .known = known_, .loops = around_};
    if (s.opcode == Opcode::kFragment) {
      const Matrix& from = s.matrices[0];
      a.buffer = from.buffer;
      a.store = false;
      a.whole = true;
      a.text =
          Cat(SymbolOf(s.result), " = fragment b", from.buffer, "[", from.index.ToString(), "]");
    } else {
      a.index = s.index.Substitute(values_) + Expr::Symbol(kElement);
      a.expanded = a.index.Substitute(expanded_);
      a.elements = s.step;
      a.text = Cat("copy b", s.buffer, "[", s.index.ToString(), "]");
    }
    accesses_.push_back(std::move(a));
  }

  // Adds that `e` is not negative, and what follows for the arguments of its quotients and minima.
  void Know(const Expr& e, int depth = 4) {
    if (e.constant()) return;
    known_.push_back(e);
    if (depth > 0) Deduce(e, depth);
  }

  void Deduce(const Expr& e, int depth = 4) {
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

  // Returns a limit of a loop, with symbols of their own for what the loop may change.
  Expr AtEntry(const Expr& limit, const std::string& counter) {
    Values entry;
    for (const std::string& m : mutables_) {
      if (!limit.Uses(m)) continue;
      const std::string symbol = Cat(m, ".", counter);
      entry[m] = Expr::Symbol(symbol);
      owner_[symbol] = around_.back();
    }
    return limit.Substitute(values_).Substitute(entry);
  }

  // Adds to what is known what a true `condition` says of index registers.
  void Assume(Var condition) {
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

  static bool IsPolynomial(const Expr& e) {
    return std::all_of(e.terms().begin(), e.terms().end(), [](const Expr::Term& t) {
      return std::all_of(t.monomial.begin(), t.monomial.end(),
                         [](const AtomRef& a) { return a->kind == Atom::Kind::kSymbol; });
    });
  }

  // Remembers an i64 register: its index, unless that may change while the register does not.
  void Define(const Stmt& s) {
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

  // Says what the earlier access's symbols are to the later one, and holds the ranges of the
  // symbols of both, inner loops first.
  struct Relation {
    Values values;
    std::vector<Range> ranges;
  };

  Relation Relate(const MemoryAccess& earlier, int carrier, const MemoryAccess& later) const {
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

  bool Decide(const MemoryAccess& earlier, int carrier, const MemoryAccess& later,
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

  // Returns the lanes of both accesses, without thread 0 if the other access is only its.
  // `counted`: up to the count of active lanes, else up to the team.
  std::vector<Range> LaneRanges(const MemoryAccess& earlier, const MemoryAccess& later,
                                const Values& values, bool counted) const {
    const auto lanes = [&](const MemoryAccess& a) {
      return counted && a.count ? *a.count : Expr(kernel_.team);
    };
    return {{Other(kLane), later.one_thread ? 1 : 0, lanes(earlier).Substitute(values) - 1},
            {kLane, earlier.one_thread ? 1 : 0, lanes(later) - 1}};
  }

  // Returns `e` with a symbol, which ranges by itself, for each quotient of a lane by a number.
  static Expr Relaxed(const Expr& e, std::vector<Range>* ranges) {
    Expr relaxed;
    for (const Expr::Term& t : e.terms()) {
      Expr product = t.coefficient;
      for (const AtomRef& atom : t.monomial) product *= RelaxedAtom(atom, ranges);
      relaxed += product;
    }
    return relaxed;
  }

  static Expr RelaxedAtom(const AtomRef& atom, std::vector<Range>* ranges) {
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

  // Reports whether `e` is proved to be 1 or more. `known`: expressions that are not negative; one
  // of them is used, if that takes a symbol out of `e`.
  bool Positive(const Expr& e, const std::vector<Range>& ranges,
                const std::vector<Expr>& known) const {
    if (Positive(e, ranges)) return true;
    return std::any_of(known.begin(), known.end(), [&](const Expr& k) {
      const std::set<int64_t> times = Ratios(e, k);
      return std::any_of(times.begin(), times.end(),
                         [&](int64_t n) { return Positive(e - n * k, ranges); });
    });
  }

  // Returns how many times `k` has a term of `e`, for all terms that are a multiple.
  static std::set<int64_t> Ratios(const Expr& e, const Expr& k) {
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

  bool Positive(const Expr& e, const std::vector<Range>& ranges) const {
    const std::optional<Expr> least = Least(e, ranges);
    return least && NonNegative(*least - 1);
  }

  // Few expressions are left of many pairs of accesses.
  bool NonNegative(const Expr& e) const {
    if (const std::optional<int64_t> value = e.constant()) return *value >= 0;
    const auto [it, added] = signs_.try_emplace(e, false);
    if (added) it->second = bounds_.NonNegative(e);
    return it->second;
  }

  // Returns what `e` is at least: puts the end of its range that makes `e` least for each symbol.
  std::optional<Expr> Least(Expr e, const std::vector<Range>& ranges) const {
    for (const Range& r : ranges) {
      const std::optional<Expr::Affine> affine = e.AsAffine(r.symbol);
      if (!affine || affine->stride.IsConstant(0)) continue;
      const bool rises = NonNegative(affine->stride);
      if (!rises && !NonNegative(-1 * affine->stride)) return std::nullopt;
      e = affine->base + affine->stride * (rises ? r.lower : r.upper);
    }
    return e;
  }

  // Reports whether two vectors meet only where the lanes, and so the threads, are the same: at one
  // stride their bases are apart by less than the stride, or by multiples of all lanes together.
  bool OwnElements(const Expr& a, const Expr& b, const std::vector<Range>& ranges,
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

  // Reports whether `e` is proved not to be 0: it is a multiple of some divisor, and a rest in
  // whose range there is no multiple.
  bool NeverZero(const Expr& e, const std::vector<Range>& ranges) const {
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

  const Kernel& kernel_;
  std::vector<MemoryAccess> accesses_;
  std::vector<Loop> loops_;
  std::map<Var, const Stmt*> conditions_;  // computed registers
  std::vector<Expr> known_;                // where the collected statement is
  std::vector<int> around_;                // loops around the statement being collected
  Bounds bounds_;
  Values values_;                     // of loop variables, and of simple indices
  Values indices_;                    // of registers that are an index
  Values expanded_;                   // the same, without such registers
  std::map<std::string, int> owner_;  // the loop in whose iteration a symbol has one value
  std::set<std::string> varying_;     // registers whose value differs by thread or may change
  std::set<std::string> vectors_;     // registers that differ by lane and are no index
  std::set<std::string> mutables_;
  std::map<std::tuple<int, int, int, bool>, bool> races_;
  mutable std::map<Expr, bool> signs_;  // is it proved not to be negative?
};

struct Race {
  int earlier, carrier, later;
  bool pending;  // the earlier is a copy that may be under way
};

// Finds a race of a kernel body. Walks it in rounds, each with what the last one found to be
// carried by each loop, until nothing is added; what is found on the way is on some path already.
class RaceFinder {
 public:
  RaceFinder(const Kernel& kernel, Accesses* accesses)
      : kernel_(kernel), accesses_(*accesses), carried_(accesses->loops()) {}

  std::optional<Race> Find() {
    do {
      added_ = false;
      access_ = 0;
      loop_ = kItems;
      Facts facts = carried_[kItems];
      Block(kernel_.body, &facts);
      std::erase_if(facts, [&](const Fact& f) {
        return kernel_.buffers[accesses_.access(f.access).buffer].space == Space::kGlobal;
      });
      Carry(facts, kItems);
    } while (added_ && !race_);
    return race_;
  }

 private:
  // Ages of copies' groups: copies whose group is not made are of age 1, and beyond kMostAge age no
  // longer matters.
  static constexpr int kDone = 0, kMostAge = 9;

  struct Fact {
    int access, carrier;  // the loop that carried it
    int age = kDone;      // of a copy's group; it is under way
    auto operator<=>(const Fact&) const = default;
  };
  using Facts = std::set<Fact>;

  // Gives each fact another age.
  template <typename Age>
  static void SetAges(Facts* facts, const Age& age) {
    Facts all;
    for (const Fact& f : *facts) all.insert({f.access, f.carrier, age(f.age)});
    *facts = std::move(all);
  }

  void Block(const std::vector<Stmt>& block, Facts* facts) {
    for (const Stmt& s : block) {
      if (race_) return;
      if (s.opcode == Opcode::kBarrier) {
        std::erase_if(*facts, [](const Fact& f) { return f.age == kDone; });
      } else if (s.opcode == Opcode::kCommit) {
        SetAges(facts, [](int age) { return age == kDone ? kDone : std::min(age + 1, kMostAge); });
      } else if (s.opcode == Opcode::kWait) {
        SetAges(facts, [&](int age) { return age >= s.step + 2 ? kDone : age; });
      } else if (s.opcode == Opcode::kIf) {
        Facts inside = *facts;
        Block(s.body, &inside);
        facts->insert(inside.begin(), inside.end());
      } else if (s.opcode == Opcode::kFor) {
        For(s, facts);
      } else if (IsAccess(kernel_, s)) {
        Touch(access_++, s.opcode == Opcode::kCopy, facts);
      }
    }
  }

  void Touch(int later, bool copies, Facts* facts) {
    for (const auto& [earlier, carrier, age] : *facts) {
      if (!accesses_.Race(earlier, carrier, later, age != kDone)) continue;
      race_ = {earlier, carrier, later, age != kDone};
      return;
    }
    facts->insert({later, kNoLoop, copies ? 1 : kDone});
  }

  void For(const Stmt& s, Facts* facts) {
    const int number = ++loop_;
    const Loop& loop = accesses_.loop(number);
    Facts inside = *facts;
    if (loop.runs) facts->clear();
    inside.insert(carried_[number].begin(), carried_[number].end());
    Block(s.body, &inside);
    Carry(inside, number);
    for (const auto& [access, carrier, age] : inside) {
      const bool over = carrier >= number && carrier < loop.end_loop;
      facts->insert({access, over ? kNoLoop : carrier, age});
    }
  }

  void Carry(const Facts& facts, int number) {
    const Loop& loop = accesses_.loop(number);
    if (loop.counter.empty()) return;
    for (const auto& [access, carrier, age] : facts) {
      if (!accesses_.IsIn(access, number)) continue;
      const bool outer = carrier != kNoLoop && carrier < number;
      if (carried_[number].insert({access, outer ? carrier : number, age}).second) added_ = true;
    }
  }

  const Kernel& kernel_;
  Accesses& accesses_;
  std::vector<Facts> carried_;  // by loop
  std::optional<Race> race_;
  bool added_ = false;
  int access_ = 0, loop_ = 0;
};

// Calls `visit` with each block and the number of loops around, outer blocks first.
template <typename Visit>
void ForEachBlock(std::vector<Stmt>* block, int depth, const Visit& visit) {
  visit(block, depth);
  for (Stmt& s : *block) {
    if (!s.body.empty()) ForEachBlock(&s.body, depth + (s.opcode == Opcode::kFor), visit);
  }
}

// A place in program order: an access or a loop, by its number.
struct Place {
  bool loop;
  int number;
};

// Adds a barrier before a place. `access` and `loop`: the last ones passed.
bool AddBarrier(const Kernel& kernel, Place place, std::vector<Stmt>* block, int* access,
                int* loop) {
  for (size_t i = 0; i < block->size(); ++i) {
    Stmt& s = (*block)[i];
    const bool found = s.opcode == Opcode::kFor ? ++*loop == place.number && place.loop
                       : IsAccess(kernel, s)    ? ++*access == place.number && !place.loop
                                                : false;
    if (found) {
      block->insert(block->begin() + static_cast<std::ptrdiff_t>(i), {.opcode = Opcode::kBarrier});
      return true;
    }
    if (AddBarrier(kernel, place, &s.body, access, loop)) return true;
  }
  return false;
}

// Adds a barrier between the two accesses: before the later one, or before the outermost loop
// around it that is not around both, in one iteration of the carrying loop. What a copy wrote is
// there only behind a wait, which those loops may contain.
void Separate(Kernel* kernel, const Accesses& accesses, const Race& race) {
  Place place{false, race.later};
  const bool copied = accesses.access(race.earlier).elements > 1;
  for (const int loop : accesses.access(race.later).loops) {
    if (copied) break;
    const bool inner =
        race.carrier == kNoLoop ? !accesses.IsIn(race.earlier, loop) : loop > race.carrier;
    if (!inner) continue;
    place = {true, loop};
    break;
  }
  int access = -1, loop = kItems;
  AddBarrier(*kernel, place, &kernel->body, &access, &loop);
}

// Returns the kernel with those of its barriers that `keep` says.
Kernel With(Kernel kernel, const std::vector<bool>& keep) {
  size_t number = 0;
  ForEachBlock(&kernel.body, 0, [&](std::vector<Stmt>* block, int) {
    std::erase_if(*block,
                  [&](const Stmt& s) { return s.opcode == Opcode::kBarrier && !keep[number++]; });
  });
  return kernel;
}

// Leaves out barriers that the others make superfluous, first those in inner loops.
void Thin(Kernel* kernel, Accesses* accesses) {
  std::vector<std::pair<int, size_t>> order;  // depth, negative, and number
  ForEachBlock(&kernel->body, 0, [&](const std::vector<Stmt>* block, int depth) {
    for (const Stmt& s : *block) {
      if (s.opcode == Opcode::kBarrier) order.emplace_back(-depth, order.size());
    }
  });
  std::sort(order.begin(), order.end());
  std::vector<bool> keep(order.size(), true);
  for (const auto& [depth, number] : order) {
    keep[number] = false;
    keep[number] = RaceFinder(With(*kernel, keep), accesses).Find().has_value();
  }
  *kernel = With(*kernel, keep);
}

}  // namespace

void PlaceBarriers(Kernel* kernel) {
  if (kernel->team == 1) return;
  const Kernel given = *kernel;  // borrowed by its accesses
  Accesses accesses(given);
  while (std::optional<Race> race = RaceFinder(*kernel, &accesses).Find()) {
    if (race->pending) return;  // no barrier helps; CheckBarriers says so
    Separate(kernel, accesses, *race);
  }
  Thin(kernel, &accesses);
}

absl::Status CheckBarriers(const Kernel& kernel) {
  if (kernel.team == 1) return absl::OkStatus();
  Accesses accesses(kernel);
  for (int i = 0; i < accesses.size(); ++i) {
    const MemoryAccess& a = accesses.access(i);
    if (!a.store || !a.vector || accesses.LanesDiffer(i)) continue;
    return Invalid("b", a.buffer, ": two threads of the team may be at one element in \"", a.text,
                   "\"; each lane needs one of its own, at a multiple of the lane");
  }
  const std::optional<Race> race = RaceFinder(kernel, &accesses).Find();
  if (!race) return absl::OkStatus();
  const MemoryAccess &earlier = accesses.access(race->earlier),
                     &later = accesses.access(race->later);
  const std::string when =
      race->carrier == kNoLoop ? "" : Cat(" of a later ", accesses.loop(race->carrier).name);
  if (race->pending) {
    return Invalid("b", later.buffer, ": no wait between \"", earlier.text, "\" and \"", later.text,
                   "\"", when, "; the copy may be under way");
  }
  return Invalid("b", later.buffer, ": no barrier between \"", earlier.text, "\" and \"",
                 later.text, "\"", when, "; two threads of the team may touch one element");
}

}  // namespace athanor::kir
