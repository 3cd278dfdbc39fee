// Parses the text form of kernels (kir_text.cc).
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

constexpr int kMaxNesting = 256;

// Reads one line at a time with a cursor into it; the first error ends the parse.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  absl::StatusOr<Kernel> Read() {
    NextLine();
    Header();
    while (NextLine() && line_[0] == 'b' && line_ != "barrier") BufferLine();
    if (more_) Block(&kernel_.body, 0);
    if (status_.ok() && more_) Fail("no '}' outside a loop");
    if (!status_.ok()) return status_;
    return std::move(kernel_);
  }

 private:
  // Moves to the next line that is not empty, without its indentation. Returns false at the end.
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
  // Reads an expression, which ends where "count", "if" or the end of the line begins.
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
    if (Take(".left")) t.part = Part::kLeft;
    if (Take(".right")) t.part = Part::kRight;
    if (Take(".sums")) t.part = Part::kSums;
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
    if (Take(" team ")) kernel_.team = Number<int>();
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
    } else if (Take(" launch ")) {
      b.space = Space::kLaunch;
      b.written = true;
      b.elements = Number<int64_t>();
      b.zeroed = Take(" zeroed");
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

  // Reads up to the line that closes the block, or to the end of the text at depth 0.
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

  // Returns true if a block follows.
  bool Statement(Stmt* s) {
    s->narrow = Take("i32 ");
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
    } else if (Take("gemm ")) {
      Gemm(s);
    } else if (Take("call ")) {
      LibraryCall(s);
    } else if (Take("sort ")) {
      Sort(s);
    } else if (Take("copy ")) {
      Copy(s);
    } else if (Take("commit")) {
      s->opcode = Opcode::kCommit;
    } else if (Take("wait ")) {
      s->opcode = Opcode::kWait;
      s->step = Number<int64_t>();
    } else if (Take("barrier")) {
      s->opcode = Opcode::kBarrier;
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

  void Copy(Stmt* s) {
    s->opcode = Opcode::kCopy;
    Subscript(s);
    Expect(" = ");
    Matrix& from = s->matrices.emplace_back();
    from.buffer = Id('b');
    Expect("[");
    from.index = Index(Until("]"));
    Expect("] elements ");
    s->step = Number<int64_t>();
    Expect(": ");
    s->type = TypeOf();
    Mask(s);
  }

  void Gemm(Stmt* s) {
    s->opcode = Opcode::kGemm;
    for (const char* end : {" = ", " * ", ": "}) {
      MatrixUpTo(end, s);
      Expect(end);
    }
    s->type = TypeOf();
    Extents({" rows ", " columns ", " sums "}, s);
    Expect(" sums ");
    s->extents.push_back(Index(line_));
    line_ = {};
  }

  void LibraryCall(Stmt* s) {
    s->opcode = Opcode::kCall;
    MatrixUpTo(" = ", s);
    Expect(" = ");
    MatrixUpTo(" * ", s);
    Expect(" * ");
    const bool bias = line_.find(" + b") < line_.find(": ");
    MatrixUpTo(bias ? " + b" : ": ", s);
    if (bias) {
      Expect(" + ");
      s->buffer = Id('b');
    }
    Expect(": ");
    s->type = TypeOf();
    Extents({" rows ", " columns ", " sums ", " batch ", " ways"}, s);
    Expect(" ways");
    while (status_.ok() && !Take(" proposal ")) {
      Expect(" ");
      s->ways.push_back(Number<int64_t>());
    }
    s->proposal = Number<int>();
  }

  // Reads a matrix that `end` follows.
  void MatrixUpTo(std::string_view end, Stmt* s) {
    Matrix& m = s->matrices.emplace_back();
    m.buffer = Id('b');
    Expect("[");
    m.index = Index(Until("]"));
    Expect("] stride ");
    const size_t length = std::min(
        {line_.find(" batch_stride "), line_.find(" transposed"), line_.find(end), line_.size()});
    m.stride = Index(line_.substr(0, length));
    line_.remove_prefix(length);
    if (Take(" batch_stride ")) m.batch_stride = Number<int64_t>();
    m.transposed = Take(" transposed");
  }

  // Reads an extent behind each of the words but the last, where it stops.
  void Extents(const std::vector<std::string_view>& words, Stmt* s) {
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      Expect(words[i]);
      s->extents.push_back(Index(Until(words[i + 1])));
    }
  }

  void Sort(Stmt* s) {
    s->opcode = Opcode::kSort;
    for (const char* end : {"], ", "] by way of ", "], ", "]: "}) {
      Matrix& m = s->matrices.emplace_back();
      m.buffer = Id('b');
      Expect("[");
      m.index = Index(Until(end));
      Expect(end);
    }
    s->type = TypeOf();
    Expect(" elements ");
    s->extents.push_back(Index(line_));
    line_ = {};
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

  // Returns the place of the comma between a loop's bounds: the first outside parentheses.
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
    } else if (Take("fragment ")) {
      s->opcode = Opcode::kFragment;
      Matrix& m = s->matrices.emplace_back();
      m.buffer = Id('b');
      Expect("[");
      m.index = Index(Until("]"));
      Expect("] stride ");
      m.stride = Index(Until(" transposed"));
      m.transposed = Take(" transposed");
    } else if (Take("slot ")) {
      s->opcode = Opcode::kSlot;
      s->step = Number<int64_t>();
      Expect(" of ");
      Vars(s);
    } else if (Take("ticket ")) {
      s->opcode = Opcode::kTicket;
      Subscript(s);
      Expect(" of ");
      s->step = Number<int64_t>();
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
    } else if (name == "mma") {
      s->opcode = Opcode::kMma;
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
      if (HasDirection(*op)) s->shift_left = Take(".left");
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

absl::StatusOr<Kernel> ParseKernel(std::string_view text) { return Reader(text).Read(); }

}  // namespace athanor::kir
