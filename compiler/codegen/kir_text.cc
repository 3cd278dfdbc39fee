// The text form of kernels:
//
//   kernel(s0) grid floordiv(s0 + 15, 16)
//   b0: f32 in
//   b1: f32 out
//   b2: f32 scratch 64
//   v0: f32x16 = load b0[16*g + lane] count -16*g + s0
//   v1: f32x16 = Exp(v0)
//   mut v2: f32x16 = v1
//   for i0 in [0, s0) step 4 unroll {
//     v2 := v1
//   }
//   prefetch b0[16*g + 128]
//   store b1[16*g + lane] = v2: f32x16 count -16*g + s0 if v3
#include <openssl/sha.h>

#include <cctype>
#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "compiler/codegen/kir.h"
#include "compiler/ir/message.h"

namespace athanor::kir {
namespace {

constexpr int kMaxNesting = 256;

std::string TypeText(Type t) {
  return t.lanes == 1 ? std::string(DTypeName(t.dtype)) : Cat(DTypeName(t.dtype), "x", t.lanes);
}

// Floats by their bits: exact, and the same for equal values only.
std::string ConstantText(const Scalar& s) {
  if (IsFloat(s.dtype)) {
    const uint64_t bits = EncodeFloat(s.dtype, s.f);
    return absl::StrFormat("0x%x (%g)", bits, DecodeFloat(s.dtype, bits));
  }
  return IsSigned(s.dtype) ? Cat(s.i) : Cat(s.u);
}

std::string VarList(const std::vector<Var>& vars) {
  std::string text;
  for (Var v : vars) text += Cat(text.empty() ? "v" : ", v", v);
  return text;
}

class Writer {
 public:
  std::string Write(const Kernel& k) {
    std::string sizes;
    for (size_t i = 0; i < k.sizes.size(); ++i) sizes += Cat(i == 0 ? "s" : ", s", i);
    text_ = Cat("kernel(", sizes, ") grid ", k.grid.ToString(), "\n");
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      const Buffer& b = k.buffers[i];
      text_ += Cat("b", i, ": ", DTypeName(b.dtype));
      text_ += b.space == Space::kScratch ? Cat(" scratch ", b.elements)
               : b.written                ? " out"
                                          : " in";
      text_ += "\n";
    }
    Block(k.body, 0);
    return std::move(text_);
  }

 private:
  void Block(const std::vector<Stmt>& body, int indent) {
    for (const Stmt& s : body) {
      text_.append(indent, ' ');
      Statement(s, indent);
    }
  }

  static std::string Mask(const Stmt& s) {
    return Cat(s.count ? Cat(" count ", s.count->ToString()) : "",
               s.predicate == kNoVar ? "" : Cat(" if v", s.predicate));
  }

  void Statement(const Stmt& s, int indent) {
    switch (s.opcode) {
      case Opcode::kStore:
        text_ += Cat("store b", s.buffer, "[", s.index.ToString(), "] = ", VarList(s.args), ": ",
                     TypeText(s.type), Mask(s), "\n");
        return;
      case Opcode::kPrefetch:
        text_ += Cat("prefetch b", s.buffer, "[", s.index.ToString(), "]\n");
        return;
      case Opcode::kAssign:
        text_ += Cat("v", s.result, " := ", VarList(s.args), "\n");
        return;
      case Opcode::kFor:
        text_ += Cat("for ", s.loop, " in [", s.begin.ToString(), ", ", s.end.ToString(), ") step ",
                     s.step, s.role == AxisRole::kUnroll ? " unroll" : "", " {\n");
        break;
      case Opcode::kIf:
        text_ += Cat("if ", VarList(s.args), " {\n");
        break;
      default:
        text_ += Cat(s.opcode == Opcode::kMutable ? "mut v" : "v", s.result, ": ", TypeText(s.type),
                     " = ", Value(s), "\n");
        return;
    }
    Block(s.body, indent + 2);
    text_.append(indent, ' ');
    text_ += "}\n";
  }

  static std::string Value(const Stmt& s) {
    const std::string args = VarList(s.args);
    switch (s.opcode) {
      case Opcode::kConst:
        return Cat("const ", ConstantText(s.constant));
      case Opcode::kIndex:
        return Cat("index ", s.index.ToString());
      case Opcode::kLoad:
        return Cat("load b", s.buffer, "[", s.index.ToString(), "]", Mask(s));
      case Opcode::kCompute:
        return Cat(OpName(s.op), s.op == Op::kShift && s.shift_left ? ".left" : "", "(", args, ")");
      case Opcode::kFma:
        return Cat("fma(", args, ")");
      case Opcode::kBroadcast:
        return Cat("broadcast(", args, ")");
      case Opcode::kReduce:
        return Cat("reduce.", OpName(s.op), "(", args, ")");
      case Opcode::kLaneMask:
        return Cat("lanes ", s.index.ToString());
      case Opcode::kCheckIndex:
        return Cat("check ", args, " below ", s.index.ToString(), Mask(s));
      case Opcode::kRandomBits:
        return Cat("randombits(", args, ")");
      default:
        return args;  // kMutable
    }
  }

  std::string text_;
};

// Reads one line at a time with a cursor into it; the first error stops everything.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  absl::StatusOr<Kernel> Read() {
    NextLine();
    Header();
    while (NextLine() && line_[0] == 'b') BufferLine();
    if (more_) Block(&kernel_.body, 0);
    if (status_.ok() && more_) Fail("no '}' outside a loop");
    if (!status_.ok()) return status_;
    return std::move(kernel_);
  }

 private:
  // The next line that is not empty, without its indentation.
  bool NextLine() {
    more_ = false;
    while (!rest_.empty() && status_.ok()) {
      const size_t end = rest_.find('\n');
      line_ = rest_.substr(0, end);
      rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
      ++number_;
      while (!line_.empty() && line_.front() == ' ') line_.remove_prefix(1);
      while (!line_.empty() && (line_.back() == ' ' || line_.back() == '\r'))
        line_.remove_suffix(1);
      if (!line_.empty()) return more_ = true;
    }
    return false;
  }

  void Fail(std::string_view expected) {
    if (status_.ok())
      status_ =
          Invalid("kernel text: line ", number_, ": expected ", expected, " at ", Quoted(line_));
  }

  bool Take(std::string_view token) {
    if (line_.substr(0, token.size()) != token) return false;
    line_.remove_prefix(token.size());
    return true;
  }
  void Expect(std::string_view token) {
    if (!Take(token)) Fail(Cat("\"", token, "\""));
  }

  std::string_view Until(std::string_view token) {
    const size_t at = line_.find(token);
    const std::string_view piece = line_.substr(0, at);
    line_ = at == std::string_view::npos ? std::string_view() : line_.substr(at);
    return piece;
  }
  std::string_view Word() {
    size_t n = 0;
    while (n < line_.size() &&
           (std::isalnum(static_cast<unsigned char>(line_[n])) || line_[n] == '_'))
      ++n;
    const std::string_view word = line_.substr(0, n);
    line_.remove_prefix(n);
    return word;
  }

  template <typename T>
  T Number() {
    size_t n = !line_.empty() && line_[0] == '-' ? 1 : 0;
    while (n < line_.size() && std::isdigit(static_cast<unsigned char>(line_[n]))) ++n;
    T value = 0;
    if (!absl::SimpleAtoi(absl::string_view(line_.data(), n), &value)) Fail("an integer in range");
    line_.remove_prefix(n);
    return value;
  }
  int Id(char letter) {
    Expect(std::string_view(&letter, 1));
    const int32_t id = Number<int32_t>();
    if (id < 0 || id > (1 << 24)) Fail("a number from 0 to 16777216");
    if (letter == 'v' && status_.ok()) kernel_.vars = std::max(kernel_.vars, id + 1);
    return id;
  }

  Expr Index(std::string_view text) {
    absl::StatusOr<Expr> e = Expr::Parse(text);
    if (!e.ok()) Fail(Cat("an index expression (", std::string(e.status().message()), ")"));
    return e.ok() ? *e : Expr();
  }
  // The end of an expression: where "count", "if" or the line ends.
  Expr IndexToMask() {
    const size_t end = std::min({line_.find(" count "), line_.find(" if "), line_.size()});
    const std::string_view text = line_.substr(0, end);
    line_.remove_prefix(end);
    return Index(text);
  }

  Type TypeOf() {
    const std::string_view word = Word();
    const size_t x = word.find('x');
    Type t;
    std::optional<DType> dtype = ParseDType(word.substr(0, x));
    if (!dtype) Fail("a type such as f32 or f32x16");
    t.dtype = dtype.value_or(DType::kF32);
    if (x == std::string_view::npos) return t;
    int32_t lanes = 0;
    const std::string_view digits = word.substr(x + 1);
    if (!absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &lanes))
      Fail("a number of lanes");
    t.lanes = lanes;
    return t;
  }

  void Header() {
    Expect("kernel(");
    while (status_.ok() && !Take(")")) {
      if (!kernel_.sizes.empty()) Expect(", ");
      const int size = static_cast<int>(kernel_.sizes.size());
      if (Id('s') != size) Fail("sizes in order");
      kernel_.sizes.push_back(Cat("s", size));
    }
    Expect(" grid ");
    kernel_.grid = Index(line_);
  }

  void BufferLine() {
    if (Id('b') != static_cast<int>(kernel_.buffers.size())) Fail("buffers in order");
    Expect(": ");
    Buffer b;
    b.dtype = TypeOf().dtype;
    if (Take(" scratch ")) {
      b.space = Space::kScratch;
      b.written = true;
      b.elements = Number<int64_t>();
    } else {
      b.written = Take(" out");
      if (!b.written) Expect(" in");
    }
    End();
    kernel_.buffers.push_back(b);
  }

  void End() {
    if (!line_.empty()) Fail("the end of the line");
  }

  // Up to the line that closes the block, or the end of the text at depth 0.
  void Block(std::vector<Stmt>* body, int depth) {
    if (depth > kMaxNesting) return Fail(Cat("at most ", kMaxNesting, " nested blocks"));
    while (status_.ok() && more_ && line_ != "}") {
      Stmt s;
      const bool block = Statement(&s);
      if (block) {
        End();
        NextLine();
        Block(&s.body, depth + 1);
        if (status_.ok() && !more_) Fail("\"}\"");
      }
      body->push_back(std::move(s));
      NextLine();
    }
  }

  void Mask(Stmt* s) {
    if (Take(" count ")) s->count = IndexToMask();
    if (Take(" if ")) s->predicate = Id('v');
  }

  void Vars(Stmt* s) {
    do {
      s->args.push_back(Id('v'));
    } while (status_.ok() && Take(", "));
  }

  void Subscript(Stmt* s) {
    s->buffer = Id('b');
    Expect("[");
    s->index = Index(Until("]"));
    Expect("]");
  }

  // Whether a block follows.
  bool Statement(Stmt* s) {
    if (Take("for ")) return For(s);
    if (Take("if ")) {
      s->opcode = Opcode::kIf;
      Vars(s);
      Expect(" {");
      return true;
    }
    if (Take("store ")) {
      s->opcode = Opcode::kStore;
      Subscript(s);
      Expect(" = ");
      Vars(s);
      Expect(": ");
      s->type = TypeOf();
      Mask(s);
    } else if (Take("prefetch ")) {
      s->opcode = Opcode::kPrefetch;
      Subscript(s);
      const bool known = s->buffer >= 0 && s->buffer < static_cast<int>(kernel_.buffers.size());
      if (known) s->type.dtype = kernel_.buffers[s->buffer].dtype;
    } else {
      Definition(s);
    }
    End();
    return false;
  }

  bool For(Stmt* s) {
    s->opcode = Opcode::kFor;
    s->loop = std::string(Word());
    Expect(" in [");
    const size_t comma = BoundsComma();
    s->begin = Index(line_.substr(0, comma));
    line_.remove_prefix(std::min(comma, line_.size()));
    Expect(", ");
    s->end = Index(Until(") step "));
    Expect(") step ");
    s->step = Number<int64_t>();
    s->role = Take(" unroll") ? AxisRole::kUnroll : AxisRole::kSerial;
    Expect(" {");
    return true;
  }

  // The comma between a loop's bounds is the first outside parentheses.
  size_t BoundsComma() const {
    int depth = 0;
    for (size_t i = 0; i < line_.size(); ++i) {
      depth += line_[i] == '(' ? 1 : line_[i] == ')' ? -1 : 0;
      if (line_[i] == ',' && depth == 0) return i;
    }
    return line_.size();
  }

  void Definition(Stmt* s) {
    const bool is_mutable = Take("mut ");
    s->result = Id('v');
    if (!is_mutable && Take(" := ")) {
      s->opcode = Opcode::kAssign;
      Vars(s);
      if (status_.ok() && s->result < static_cast<int>(types_.size())) s->type = types_[s->result];
      return;
    }
    Expect(": ");
    s->type = TypeOf();
    Expect(" = ");
    if (status_.ok()) {
      if (static_cast<size_t>(s->result) >= types_.size()) types_.resize(s->result + 1);
      types_[s->result] = s->type;
    }
    if (is_mutable) {
      s->opcode = Opcode::kMutable;
      return Vars(s);
    }
    Value(s);
  }

  void Value(Stmt* s) {
    if (Take("const ")) {
      s->opcode = Opcode::kConst;
      s->constant = Constant(s->type.dtype);
    } else if (Take("index ")) {
      s->opcode = Opcode::kIndex;
      s->index = Index(line_);
      line_ = {};
    } else if (Take("load ")) {
      s->opcode = Opcode::kLoad;
      Subscript(s);
      Mask(s);
    } else if (Take("lanes ")) {
      s->opcode = Opcode::kLaneMask;
      s->index = Index(line_);
      line_ = {};
    } else if (Take("check ")) {
      s->opcode = Opcode::kCheckIndex;
      Vars(s);
      Expect(" below ");
      s->index = IndexToMask();
      Mask(s);
    } else {
      Call(s);
    }
  }

  void Call(Stmt* s) {
    const std::string name(Word());
    if (name == "fma") {
      s->opcode = Opcode::kFma;
    } else if (name == "broadcast") {
      s->opcode = Opcode::kBroadcast;
    } else if (name == "randombits") {
      s->opcode = Opcode::kRandomBits;
    } else {
      s->opcode = name == "reduce" ? Opcode::kReduce : Opcode::kCompute;
      std::string op_name = name;
      if (name == "reduce") {
        Expect(".");
        op_name = std::string(Word());
      }
      std::optional<Op> op = ParseOp(op_name);
      if (!op) return Fail("an op's name");
      s->op = *op;
      if (*op == Op::kShift) s->shift_left = Take(".left");
    }
    Expect("(");
    Vars(s);
    Expect(")");
  }

  athanor::Scalar Constant(DType dtype) {
    if (IsSigned(dtype)) return Scalar::Signed(dtype, Number<int64_t>());
    if (!IsFloat(dtype)) return Scalar::Unsigned(dtype, Number<uint64_t>());
    Expect("0x");
    const std::string digits(Word());
    char* end = nullptr;
    const uint64_t bits = std::strtoull(digits.c_str(), &end, 16);
    if (digits.empty() || *end != '\0') Fail("hexadecimal digits");
    Until(")");  // the decimal value is for people
    Expect(")");
    return Scalar::Float(dtype, DecodeFloat(dtype, bits));
  }

  std::string_view rest_, line_;
  int number_ = 0;
  bool more_ = false;
  absl::Status status_;
  Kernel kernel_;
  std::vector<Type> types_;
};

}  // namespace

std::string ToText(const Kernel& kernel) { return Writer().Write(kernel); }

absl::StatusOr<Kernel> ParseKernel(std::string_view text) { return Reader(text).Read(); }

std::string KirHash(const Kernel& kernel) {
  const std::string text = ToText(kernel);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

}  // namespace athanor::kir
