// Random kernels of teams against an oracle that runs them: it walks the items of one team with
// concrete sizes and data, and notes for each element which threads read and wrote it since the
// last barrier. It shares nothing with the pass but KIR.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/kir/barriers.h"
#include "gtest/gtest.h"

namespace athanor::kir {
namespace {

constexpr int kTeam = 4;

// Writes the text of a kernel. b0 and b1 hold data that the oracle chooses, b2 is global, b3 and b4
// are scratch; items have their own 4,096 elements of b2.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  std::string Kernel() {
    text_ =
        "kernel(s0, s1) team 4 grid s1\nb0: i64 in\nb1: bool in\nb2: f32 out\nb3: f32 scratch 64\n"
        "b4: f32 scratch 64\nv0: f32 = const 0x0 (0)\nv1: f32x4 = broadcast(v0)\n";
    Block(Scope{{"s0"}, {}, {}, {}}, 0);
    return text_;
  }

 private:
  struct Scope {
    std::vector<std::string> scalars, mutables;
    std::vector<std::string> vectors, apart;  // apart: those whose lanes are proved to differ
  };

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <typename T>
  T OneOf(const std::vector<T>& values) {
    return values[static_cast<size_t>(Below(static_cast<int>(values.size())))];
  }

  std::string Scalar(const Scope& scope) {
    std::string e = absl::StrCat(OneOf<int>({0, 0, 0, 1, 3, 4, 8}));
    for (int terms = OneOf<int>({0, 1, 1, 2}); terms > 0; --terms) {
      const std::string symbol = OneOf(scope.scalars);
      if (symbol != "s0" || Below(16) == 0) {
        absl::StrAppend(&e, " + ", OneOf<int>({1, 4, 4, 8}), "*", symbol);
      }
    }
    return e;
  }

  std::string Index(const Scope& scope, int buffer, bool vector, bool store) {
    std::string e = Scalar(scope);
    const std::vector<std::string>& vectors = store ? scope.apart : scope.vectors;
    if (vector && !vectors.empty() && Below(6) == 0) {
      absl::StrAppend(&e, " + ", OneOf(vectors));
    } else if (vector) {
      absl::StrAppend(
          &e, OneOf<std::string>({" + lane", " + lane", " + lane", " + lane", " + lane", " + lane",
                                  " - lane + 3", " + 2*lane", " + s0*lane + lane"}));
    }
    return buffer == 2 ? absl::StrCat(e, " + 4096*g") : e;
  }

  void Access(const Scope& scope) {
    const int buffer = OneOf<int>({2, 2, 3, 3, 3, 4});
    const bool vector = Below(3) != 0;
    const std::string type = vector ? "f32x4" : "f32";
    const std::string mask =
        Below(6) == 0 ? absl::StrCat(" count ", OneOf<std::string>({"1", "3", "s0", "5"})) : "";
    const bool load = Below(2) == 0;
    const std::string element =
        absl::StrCat("b", buffer, "[", Index(scope, buffer, vector, !load), "]");
    if (load) {
      Line("v", vars_++, ": ", type, " = load ", element, mask);
    } else {
      Line("store ", element, " = ", vector ? "v1" : "v0", ": ", type, mask);
    }
  }

  void Register(Scope* scope) {
    const std::string v = absl::StrCat("v", vars_++);
    switch (Below(5)) {
      case 0:
        Line(v, ": i64 = load b0[", Scalar(*scope), "]");
        scope->scalars.push_back(v);
        break;
      case 1:
        Line(v, ": i64 = index ", Scalar(*scope));
        scope->scalars.push_back(v);
        break;
      case 2:
        Line(v, ": i64x4 = load b0[", Scalar(*scope), " + lane]");
        scope->vectors.push_back(v);
        break;
      case 3: {
        const std::string e = Scalar(*scope);
        Line(v, ": i64x4 = index ", e, " + ", OneOf<int>({1, 4}), "*lane");
        scope->vectors.push_back(v);
        const bool changes =
            std::any_of(scope->mutables.begin(), scope->mutables.end(),
                        [&](const std::string& m) { return e.find(m) != std::string::npos; });
        if (!changes) scope->apart.push_back(v);
        break;
      }
      default:
        Line(v, ": i64 = index ", Scalar(*scope));
        if (scope->mutables.empty() || Below(2) == 0) {
          const std::string m = absl::StrCat("v", vars_++);
          Line("mut ", m, ": i64 = ", v);
          scope->mutables.push_back(m);
          scope->scalars.push_back(m);
        } else {
          Line(OneOf(scope->mutables), " := ", v);
        }
    }
  }

  void Loop(Scope scope, int depth) {
    const std::string i = absl::StrCat("i", loops_++);
    const std::string begin = Below(3) == 0 ? Scalar(scope) : OneOf<std::string>({"0", "0", "4"});
    const std::string end = Below(2) == 0 ? absl::StrCat(begin, " + ", OneOf<int>({1, 3, 8, 8}))
                                          : absl::StrCat(begin, " + ", OneOf(scope.scalars));
    Line("for ", i, " in [", begin, ", ", end, ") step ", OneOf<int>({1, 1, 4, 4, 8}), " {");
    scope.scalars.push_back(i);
    scope.scalars.push_back(i);
    Block(scope, depth + 1);
    Line("}");
  }

  void If(const Scope& scope, int depth) {
    const std::string v = absl::StrCat("v", vars_++);
    if (Below(2) == 0) {
      Line(v, ": bool = load b1[", Scalar(scope), "]");
    } else {
      const std::string a = absl::StrCat("v", vars_++), b = absl::StrCat("v", vars_++);
      Line(a, ": i64 = index ", OneOf(scope.scalars));
      Line(b, ": i64 = index ", Scalar(scope), " + 1");
      Line(v, ": bool = LessThan(", a, ", ", b, ")");
    }
    Line("if ", v, " {");
    Block(scope, depth + 1);
    Line("}");
  }

  void Block(Scope scope, int depth) {
    for (int statements = 1 + Below(4); statements > 0; --statements) {
      const int kind = Below(depth < 3 ? 10 : 7);
      if (kind < 5) {
        Access(scope);
      } else if (kind < 7) {
        Register(&scope);
      } else if (kind < 9) {
        Loop(scope, depth);
      } else {
        If(scope, depth);
      }
    }
  }

  template <typename... T>
  void Line(const T&... pieces) {
    absl::StrAppend(&text_, pieces...);
    text_ += '\n';
  }

  std::mt19937 random_;
  std::string text_;
  int vars_ = 2, loops_ = 0;
};

// Runs one team over its items, and stops at the first race or after many accesses.
class Oracle {
 public:
  Oracle(const Kernel& kernel, Expr::Env sizes, uint32_t data)
      : kernel_(kernel), env_(std::move(sizes)), data_(data) {}

  // Adds to `live` what touched an element.
  bool Races(int first, int teams, std::set<const Stmt*>* live) {
    const int64_t items = *kernel_.grid.Evaluate(env_);
    for (int64_t g = first; g < items && !done_; g += teams) {
      env_["g"] = g;
      Block(kernel_.body);
    }
    live->insert(live_.begin(), live_.end());
    return race_;
  }

 private:
  // Readers and writers of an element as bits.
  struct Touched {
    uint32_t readers = 0, writers = 0;
  };

  uint32_t Data(int64_t place) const {
    uint64_t x = (static_cast<uint64_t>(place) + 1) * 0x9e3779b97f4a7c15u + data_ * 0xbf58476du;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return static_cast<uint32_t>(x >> 40);
  }

  // Returns the value of `e` in a thread; registers of vectors are "v3:thread".
  int64_t At(const Expr& e, int thread) {
    std::set<std::string> symbols;
    e.CollectSymbols(&symbols);
    Expr::Env env;
    for (const std::string& s : symbols) {
      const auto vector = env_.find(absl::StrCat(s, ":", thread));
      env[s] = s == kLane ? thread : vector != env_.end() ? vector->second : env_.at(s);
    }
    return *e.Evaluate(env);
  }

  void Set(const Stmt& s, int thread, int64_t value) {
    env_[s.type.lanes == 1 ? absl::StrCat("v", s.result)
                           : absl::StrCat("v", s.result, ":", thread)] = value;
  }

  void Register(const Stmt& s) {
    const auto scalar = [&](Var v) { return env_.at(absl::StrCat("v", v)); };
    for (int thread = 0; thread < s.type.lanes; ++thread) {
      if (s.opcode == Opcode::kIndex) {
        Set(s, thread, At(s.index, thread));
      } else if (s.opcode == Opcode::kLoad && s.buffer == 0) {
        const int64_t value = std::vector{0, 0, 1, 4}[Data(At(s.index, thread) + 7) % 4];
        Set(s, thread, value + (s.type.lanes == 1 ? 0 : 8 * thread));
      } else if (s.opcode == Opcode::kLoad && s.buffer == 1) {
        Set(s, thread, data_ < 2 ? data_ : Data(At(s.index, thread)) & 1);
      } else if (s.opcode == Opcode::kCompute) {
        Set(s, thread, scalar(s.args[0]) < scalar(s.args[1]));
      } else if (s.opcode == Opcode::kMutable || s.opcode == Opcode::kAssign) {
        Set(s, thread, scalar(s.args[0]));
      }
    }
  }

  void Touch(const Stmt& s) {
    const bool store = s.opcode == Opcode::kStore, vector = s.type.lanes > 1;
    for (int thread = 0; thread < (store && !vector ? 1 : kTeam); ++thread) {
      if (s.count && At(*s.count, 0) <= (vector ? thread : 0)) continue;
      live_.insert(&s);
      Touched& t = touched_[{s.buffer, At(s.index, vector ? thread : 0)}];
      const uint32_t self = 1u << thread, others = ~self;
      race_ = race_ || (t.writers & others) != 0 || (store && (t.readers & others) != 0);
      (store ? t.writers : t.readers) |= self;
    }
    done_ = race_ || ++accesses_ > 600;
  }

  void Block(const std::vector<Stmt>& block) {
    for (const Stmt& s : block) {
      if (done_) return;
      const bool memory = s.opcode == Opcode::kLoad || s.opcode == Opcode::kStore;
      if (s.opcode == Opcode::kBarrier) {
        touched_.clear();
      } else if (memory && s.buffer >= 2) {
        Touch(s);
      } else if (s.opcode == Opcode::kIf) {
        if (env_.at(absl::StrCat("v", s.args[0])) != 0) Block(s.body);
      } else if (s.opcode == Opcode::kFor) {
        const int64_t end = At(s.end, 0);
        for (int64_t i = At(s.begin, 0); i < end && !done_; i += s.step) {
          env_[s.loop] = i;
          Block(s.body);
        }
      } else if (s.type.dtype == DType::kI64 || s.type.dtype == DType::kBool) {
        Register(s);
      }
    }
  }

  const Kernel& kernel_;
  Expr::Env env_;
  const uint32_t data_;
  std::map<std::pair<int, int64_t>, Touched> touched_;
  std::set<const Stmt*> live_;
  int accesses_ = 0;
  bool race_ = false, done_ = false;
};

// Reports whether any size, data and number of teams that are tried make a race.
bool Races(const Kernel& kernel, std::set<const Stmt*>* live) {
  for (uint32_t data = 0; data < 8; ++data) {
    for (const int64_t s0 : {1, 0, 2, 3, 5, 8}) {
      const Expr::Env sizes = {{"s0", s0}, {"s1", 4}};
      const int teams = 1 + static_cast<int>(data % 2);
      if (Oracle(kernel, sizes, data).Races(teams - 1, teams, live)) return true;
    }
  }
  return false;
}

bool Races(const Kernel& kernel) {
  std::set<const Stmt*> live;
  return Races(kernel, &live);
}

template <typename Predicate>
int Count(const std::vector<Stmt>& block, const Predicate& counts) {
  int count = 0;
  for (const Stmt& s : block) count += counts(s) + Count(s.body, counts);
  return count;
}

int CountAccesses(const std::vector<Stmt>& block) {
  return Count(block, [](const Stmt& s) {
    return s.opcode == Opcode::kStore || (s.opcode == Opcode::kLoad && s.buffer >= 2);
  });
}

// Removes barrier `number`, in program order.
bool RemoveBarrier(std::vector<Stmt>* block, int* number) {
  for (size_t i = 0; i < block->size(); ++i) {
    if ((*block)[i].opcode == Opcode::kBarrier && (*number)-- == 0) {
      block->erase(block->begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    if (RemoveBarrier(&(*block)[i].body, number)) return true;
  }
  return false;
}

Kernel Without(Kernel kernel, int barrier) {
  EXPECT_TRUE(RemoveBarrier(&kernel.body, &barrier));
  return kernel;
}

// Adds barriers anywhere.
void Sprinkle(std::vector<Stmt>* block, std::mt19937* random) {
  for (size_t i = 0; i < block->size(); ++i) {
    Sprinkle(&(*block)[i].body, random);
    if ((*random)() % 3 != 0) continue;
    block->insert(block->begin() + static_cast<std::ptrdiff_t>(i++), {.opcode = Opcode::kBarrier});
  }
}

Kernel Random(uint32_t seed) {
  const std::string text = Generator(seed).Kernel();
  const absl::StatusOr<Kernel> kernel = ParseKernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status() << "\n" << text;
  return *kernel;
}

// Kernels for which the oracle sees too little say nothing of barriers being superfluous.
bool RunsWhole(const Kernel& kernel) {
  std::set<const Stmt*> live;
  EXPECT_FALSE(Races(kernel, &live)) << ToText(kernel);
  return static_cast<int>(live.size()) == CountAccesses(kernel.body);
}

TEST(BarriersRandom, NoRaceIsLeftAndFewBarriersAreSuperfluous) {
  int racy = 0, barriers = 0, superfluous = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    Kernel kernel = Random(seed);
    const bool accepted = Verify(kernel).ok();
    PlaceBarriers(&kernel);
    const int placed =
        Count(kernel.body, [](const Stmt& s) { return s.opcode == Opcode::kBarrier; });
    ASSERT_EQ(placed == 0, accepted) << ToText(kernel);
    ASSERT_TRUE(Verify(kernel).ok()) << Verify(kernel) << "\n" << ToText(kernel);
    const bool whole = RunsWhole(kernel);
    racy += !accepted;
    for (int b = 0; b < placed; ++b) {
      const Kernel without = Without(kernel, b);
      EXPECT_FALSE(Verify(without).ok()) << b << "\n" << ToText(kernel);
      barriers += whole;
      superfluous += whole && !Races(without);
    }
  }
  std::cout << racy << " kernels need barriers; of " << barriers << " placed, the oracle finds "
            << superfluous << " superfluous\n";
  EXPECT_GT(racy, 150);
  EXPECT_GT(barriers, 300);
  EXPECT_LT(superfluous, barriers / 4);
}

TEST(BarriersRandom, VerifyRefusesRacesAndLittleElse) {
  int accepted = 0, refused = 0, cautious = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    Kernel kernel = Random(seed);
    std::mt19937 random(seed);
    Sprinkle(&kernel.body, &random);
    const bool races = Races(kernel);
    if (Verify(kernel).ok()) {
      ++accepted;
      ASSERT_FALSE(races) << ToText(kernel);
    } else {
      ++refused;
      cautious += !races;
    }
  }
  std::cout << accepted << " accepted, " << refused << " refused, " << cautious
            << " of them without a race that the oracle finds\n";
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 60);
  EXPECT_LT(cautious, refused / 3);
}

}  // namespace
}  // namespace athanor::kir
