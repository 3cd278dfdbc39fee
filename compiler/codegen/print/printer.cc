#include "compiler/codegen/print/printer.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

using Term = Expr::Term;

bool ComputesVectors(const std::vector<Stmt>& body) {
  return std::any_of(body.begin(), body.end(),
                     [](const Stmt& s) { return s.type.lanes > 1 || ComputesVectors(s.body); });
}

std::string Literal(int64_t value, bool narrow = false) {
  // The most negative value has no positive literal to negate.
  if (value == INT64_MIN) return "(-9223372036854775807L - 1)";
  const std::string text = Cat(value, narrow ? "" : "L");
  return value < 0 ? Cat("(", text, ")") : text;
}

class Printer {
 public:
  Printer(const Kernel& kernel, const Dialect& dialect, CodeText* code)
      : arithmetic_(dialect.arithmetic),
        memory_(dialect.memory),
        loop_hint_(dialect.loop_hint),
        code_(*code),
        types_(kernel.vars),
        constants_(kernel.vars) {
    // A size has no upper bound: its end is a symbol without bounds.
    for (size_t i = 0; i < kernel.sizes.size(); ++i) {
      bounds_.Set(Cat("s", i), 0, Expr::Symbol(Cat("$end", i)));
    }
    bounds_.Set(kGrid, 0, kernel.grid - 1);
  }

  void Block(const std::vector<Stmt>& body) {
    for (const Stmt& s : body) Statement(s);
  }

 private:
  void Statement(const Stmt& s) {
    narrow_ = s.narrow;
    switch (s.opcode) {
      case Opcode::kStore:
        return code_.Line(memory_.Store(AccessOf(s, s.type), OperandOf(s.args[0])), ";");
      case Opcode::kPrefetch:
        return code_.Line(memory_.Prefetch(s.buffer, Scalar(s.index)), ";");
      case Opcode::kGemm:
        return code_.Line(memory_.Gemm(s.type, MatricesOf(s), ExtentsOf(s)), ";");
      case Opcode::kSort:
        return code_.Line(memory_.Sort(s.type, MatricesOf(s), Scalar(s.extents[0])), ";");
      case Opcode::kBarrier:
        return code_.Line(memory_.Barrier(), ";");
      case Opcode::kCopy: {
        const Access to{.type = s.type,
                        .buffer = s.buffer,
                        .pattern = Access::Pattern::kScattered,
                        .index = Index(s.index, s.type.lanes),
                        .predicate = Predicate(s)};
        return code_.Line(memory_.Copy(to, MatrixOf(s), s.step), ";");
      }
      case Opcode::kCommit:
        return code_.Line(memory_.Commit(), ";");
      case Opcode::kWait:
        return code_.Line(memory_.Wait(s.step), ";");
      case Opcode::kAssign:
        return code_.Line(Name(s.result), " = ", Name(s.args[0]), ";");
      case Opcode::kFor:
        return For(s);
      case Opcode::kIf:
        code_.Open("if (", Name(s.args[0]), ")");
        Block(s.body);
        return code_.Close();
      default:
        break;
    }
    types_[s.result] = s.type;
    std::string value = Value(s);
    // Every index that uses such a register is scattered.
    if (s.type.dtype == DType::kI64 && s.type.lanes > 1) vectors_.push_back(Name(s.result));
    code_.Line(arithmetic_.TypeName(s.type), " ", Name(s.result), " = ", value, ";");
  }

  std::string Value(const Stmt& s) {
    switch (s.opcode) {
      case Opcode::kConst: {
        constants_[s.result] = &s.constant;
        std::string value = arithmetic_.Constant(s.constant);
        return s.type.lanes == 1
                   ? value
                   : arithmetic_.Broadcast(s.type, {value, {s.type.dtype, 1}, nullptr});
      }
      case Opcode::kIndex:
        return Index(s.index, s.type.lanes);
      case Opcode::kLoad:
        return memory_.Load(AccessOf(s, s.type));
      case Opcode::kCompute:
        return arithmetic_.Compute(s, Operands(s));
      case Opcode::kFma:
        return arithmetic_.Fma(s.type, Operands(s));
      case Opcode::kBroadcast:
        constants_[s.result] = constants_[s.args[0]];
        return s.type.lanes == 1 ? Name(s.args[0])
                                 : arithmetic_.Broadcast(s.type, OperandOf(s.args[0]));
      case Opcode::kReduce: {
        Operand arg = OperandOf(s.args[0]);
        return arg.type.lanes == 1 ? arg.text : arithmetic_.Reduce(s.op, arg);
      }
      case Opcode::kLaneMask:
        return arithmetic_.LaneMask(Scalar(s.index), s.type.lanes);
      case Opcode::kCheckIndex:
        return memory_.CheckIndex(OperandOf(s.args[0]), Index(s.index, s.type.lanes),
                                  s.count ? Scalar(*s.count) : "", Predicate(s));
      case Opcode::kFragment:
        return memory_.Fragment(s.type, MatrixOf(s));
      case Opcode::kMma:
        return arithmetic_.Mma(Operands(s));
      case Opcode::kSlot:
        return arithmetic_.Slot(OperandOf(s.args[0]), s.step);
      case Opcode::kTicket:
        return memory_.Ticket(s.buffer, Scalar(s.index), s.step);
      case Opcode::kRandomBits:
        return arithmetic_.RandomBits(OperandOf(s.args[0]), OperandOf(s.args[1]));
      default:
        return Name(s.args[0]);  // kMutable
    }
  }

  std::vector<MatrixOperand> MatricesOf(const Stmt& s) {
    std::vector<MatrixOperand> matrices;
    for (const Matrix& m : s.matrices) {
      matrices.push_back({m.buffer, Scalar(m.index), Scalar(m.stride), m.transposed});
    }
    return matrices;
  }

  // Returns the only matrix, whose index may differ by thread.
  MatrixOperand MatrixOf(const Stmt& s) {
    const Matrix& m = s.matrices[0];
    return {m.buffer, Index(m.index, s.type.lanes), Scalar(m.stride), m.transposed};
  }

  std::vector<std::string> ExtentsOf(const Stmt& s) {
    std::vector<std::string> extents;
    for (const Expr& e : s.extents) extents.push_back(Scalar(e));
    return extents;
  }

  void For(const Stmt& s) {
    // Evaluates both ends on entry, so that the body may assign to what they use.
    const std::string loop = SymbolText(s.loop), begin = Scalar(s.begin), end = Scalar(s.end);
    const std::string last = Cat(loop, "_end");
    bounds_.Set(s.loop, s.begin, s.end - 1);
    std::string hint = loop_hint_(s.role, ComputesVectors(s.body));
    if (!hint.empty()) code_.Line(hint);
    code_.Open("for (", arithmetic_.TypeName({DType::kI64, 1}), " ", loop, " = ", begin, ", ", last,
               " = ", end, "; ", loop, " < ", last, "; ", loop, " += ", s.step, ")");
    Block(s.body);
    code_.Close();
  }

  // Loop variables are renamed: i8 to i64 would hide the types of these names.
  static std::string SymbolText(const std::string& symbol) {
    return symbol[0] == 'i' ? Cat("x", symbol.substr(1)) : symbol;
  }

  static std::string Name(Var v) { return Cat("v", v); }

  Operand OperandOf(Var v) const { return {Name(v), types_[v], constants_[v]}; }

  std::vector<Operand> Operands(const Stmt& s) const {
    std::vector<Operand> operands;
    for (Var v : s.args) operands.push_back(OperandOf(v));
    return operands;
  }

  std::optional<Operand> Predicate(const Stmt& s) const {
    if (s.predicate == kNoVar) return std::nullopt;
    return OperandOf(s.predicate);
  }

  Access AccessOf(const Stmt& s, Type type) {
    Access a{.type = type, .buffer = s.buffer, .predicate = Predicate(s)};
    if (s.count) a.count = Scalar(*s.count);
    const LanePattern pattern = LanePatternOf(s.index, vectors_);
    if (type.lanes == 1 || pattern == LanePattern::kUniform) {
      a.index = Scalar(s.index);
      return a;
    }
    std::optional<Expr::Affine> affine = s.index.AsAffine(kLane);
    if (affine && !IsVector(affine->base) && !IsVector(affine->stride)) {
      const bool unit = affine->stride.IsConstant(1);
      a.pattern = unit ? Access::Pattern::kContiguous : Access::Pattern::kStrided;
      a.index = Scalar(affine->base);
      if (!unit) a.stride = Scalar(affine->stride);
      a.step = affine->stride.constant().value_or(0);
      return a;
    }
    a.pattern = Access::Pattern::kScattered;
    a.index = Index(s.index, type.lanes);
    return a;
  }

  bool IsVector(const Expr& e) const { return LanePatternOf(e, vectors_) != LanePattern::kUniform; }

  // Returns `e` as an i64 of `lanes` lanes, in parentheses unless it is a single name or literal.
  std::string Index(const Expr& e, int lanes) {
    if (lanes == 1) return Scalar(e);
    if (!IsVector(e))
      return arithmetic_.Broadcast({DType::kI64, lanes}, {Scalar(e), {DType::kI64, 1}, nullptr});
    Expr same;  // the part that all lanes share
    std::string text;
    for (const Term& term : e.terms()) {
      Expr one = Expr::Of(term);
      if (!IsVector(one)) {
        same += one;
        continue;
      }
      Term factor{term.coefficient, {}};
      std::string product;
      for (const AtomRef& atom : term.monomial) {
        if (!IsVector(Expr::Of(atom))) {
          factor.monomial.push_back(atom);
          continue;
        }
        product += Cat(product.empty() ? "" : " * ", AtomText(*atom, lanes));
      }
      Expr scale = Expr::Of(factor);
      if (!scale.IsConstant(1)) product = Cat(product, " * ", Scalar(scale));
      text += Cat(text.empty() ? "" : " + ", product);
    }
    if (!same.IsConstant(0)) text = Cat(text, " + ", Scalar(same));
    return Cat("(", text, ")");
  }

  std::string Scalar(const Expr& e) {
    if (std::optional<int64_t> value = e.constant()) return Literal(*value);
    if (std::optional<std::string> name = e.symbol()) return SymbolText(*name);
    return narrow_ ? Cat("(", arithmetic_.TypeName({DType::kI64, 1}), ")", Sum(e)) : Sum(e);
  }

  // Returns `e` as an i32 if the statement's indices are narrow, else as an i64.
  std::string Part(const Expr& e) {
    if (std::optional<int64_t> value = e.constant()) return Literal(*value, narrow_);
    if (std::optional<std::string> name = e.symbol()) return SymbolPart(*name);
    return Sum(e);
  }

  std::string SymbolPart(const std::string& symbol) {
    const std::string name = SymbolText(symbol);
    return narrow_ ? Cat("(", arithmetic_.TypeName({DType::kI32, 1}), ")", name) : name;
  }

  std::string Sum(const Expr& e) {
    std::string text;
    for (const Term& term : e.terms()) {
      std::string product;
      const bool minus = term.coefficient == -1 && !text.empty() && !term.monomial.empty();
      if (!minus && (term.coefficient != 1 || term.monomial.empty()))
        product = Literal(term.coefficient, narrow_);
      for (const AtomRef& atom : term.monomial) {
        product += Cat(product.empty() ? "" : " * ", AtomText(*atom, 1));
      }
      text += Cat(text.empty() ? "" : minus ? " - " : " + ", product);
    }
    return Cat("(", text, ")");
  }

  std::string AtomText(const Atom& atom, int lanes) {
    if (atom.kind == Atom::Kind::kSymbol)
      return atom.symbol == kLane ? arithmetic_.Lane(lanes) : SymbolPart(atom.symbol);
    // A division by an empty extent has no user, but must not trap: the divisor is at least 1.
    const bool divides =
        atom.kind == Atom::Kind::kFloorDiv && !bounds_.NonNegative(atom.args[1] - 1);
    const Expr second = divides ? MaxOf(atom.args[1], 1) : atom.args[1];
    std::string a = lanes == 1 ? Part(atom.args[0]) : Index(atom.args[0], lanes);
    std::string b = lanes == 1 ? Part(second) : Index(second, lanes);
    if (atom.kind != Atom::Kind::kFloorDiv) {
      return arithmetic_.Extreme(atom.kind == Atom::Kind::kMax, a, b, lanes);
    }
    if (lanes > 1) bounds_.Set(kLane, 0, lanes - 1);
    return arithmetic_.FloorDivide(a, b, lanes, atom.args[1].constant(),
                                   bounds_.NonNegative(atom.args[0]));
  }

  Arithmetic& arithmetic_;
  Memory& memory_;
  std::string (*const loop_hint_)(AxisRole role, bool vectors);
  CodeText& code_;
  Bounds bounds_;
  std::vector<Type> types_;
  std::vector<const athanor::Scalar*> constants_;
  std::vector<std::string> vectors_;  // i64 registers that differ by lane
  bool narrow_ = false;               // Stmt::narrow of the statement being printed
};

}  // namespace

void PrintBody(const Kernel& kernel, const Dialect& dialect, CodeText* code) {
  Printer(kernel, dialect, code).Block(kernel.body);
}

}  // namespace athanor::kir
