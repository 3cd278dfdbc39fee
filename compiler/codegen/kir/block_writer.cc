#include "compiler/codegen/kir/block_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/kir/index_bits.h"

namespace athanor::kir {

void BlockWriter::Append(Stmt stmt) {
  stmt.narrow = narrows_ && FitsI32(stmt, bounds_);
  blocks_.back()->push_back(std::move(stmt));
}

Var BlockWriter::Result(Stmt stmt, Type type) {
  const Var v = static_cast<Var>(types_.size());
  const std::string name = absl::StrCat("v", v);
  stmt.type = type;
  stmt.result = v;
  types_.push_back(type);
  if (type == Type{DType::kI64, 1}) depth_[name] = blocks_.size();
  if (type.dtype == DType::kI64 && type.lanes > 1) vectors_.push_back(name);
  Append(std::move(stmt));
  return v;
}

Var BlockWriter::Once(const std::string& key, Stmt stmt, Type type) {
  if (std::optional<Var> v = Recall(key)) return *v;
  const Var v = Result(std::move(stmt), type);
  Remember(key, v);
  return v;
}

std::vector<Stmt> BlockWriter::Block(absl::FunctionRef<void()> body) {
  std::vector<Stmt> block;
  blocks_.push_back(&block);
  memo_.emplace_back();
  body();
  memo_.pop_back();
  blocks_.pop_back();
  return block;
}

void BlockWriter::For(const Expr& begin, const Expr& end, int64_t step,
                      absl::FunctionRef<void(const Expr&)> body, AxisRole role) {
  const std::string loop = absl::StrCat("i", loops_++);
  bounds_.Set(loop, begin, end - 1);
  depth_[loop] = blocks_.size() + 1;
  std::vector<Stmt> inner = Block([&] { body(Expr::Symbol(loop)); });
  Append({.opcode = Opcode::kFor,
          .loop = loop,
          .begin = begin,
          .end = end,
          .step = step,
          .role = role,
          .body = std::move(inner)});
}

void BlockWriter::If(Var condition, absl::FunctionRef<void()> body) {
  std::vector<Stmt> inner = Block(body);
  Append({.opcode = Opcode::kIf, .args = {condition}, .body = std::move(inner)});
}

void BlockWriter::VectorFor(const Expr& begin, const Expr& end, int lanes, VectorBody body) {
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
    bounds_.Set(*i.symbol(), begin + whole, begin + whole);
    bounds_.Set(kLane, 0, rest.constant() ? rest - 1 : end - 1 - i);
    body(i, rest);
    bounds_.Set(kLane, 0, lanes - 1);
  });
}

void BlockWriter::VectorFor(const Expr& begin, const Expr& end, int lanes, int unroll,
                            UnrolledBody body) {
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

void BlockWriter::Narrow(const std::string& loop, const Expr& lower, const Expr& upper,
                         absl::FunctionRef<void()> body) {
  const Bounds bounds = bounds_;
  const size_t depth = std::exchange(depth_[loop], blocks_.size());
  bounds_.Set(loop, lower, upper);
  body();
  bounds_ = bounds;
  depth_[loop] = depth;
}

// Inner blocks are appended when they close, so statements added to an outer block now come before
// them.
void BlockWriter::Hoist(const Expr& e, absl::FunctionRef<void()> body) {
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

void BlockWriter::SetPlace(Var v, const Expr& extent) {
  const std::string symbol = absl::StrCat("v", v);
  bounds_.SetExtent(symbol, extent);
  places_.insert(symbol);
}

bool BlockWriter::IsPlace(const Expr& e) const {
  std::set<std::string> symbols;
  e.CollectSymbols(&symbols);
  return std::all_of(symbols.begin(), symbols.end(), [&](const std::string& s) {
    return s[0] != 'v' || !depth_.contains(s) || places_.contains(s);
  });
}

std::optional<Var> BlockWriter::Recall(const std::string& key) const {
  for (auto scope = memo_.rbegin(); scope != memo_.rend(); ++scope) {
    auto it = scope->find(key);
    if (it != scope->end()) return it->second;
  }
  return std::nullopt;
}

std::set<std::string> BlockWriter::MoveInto(Kernel* kernel) {
  kernel->vars = static_cast<int>(types_.size());
  kernel->body = std::move(body_);
  std::set<std::string> names;
  for (int i = 0; i < loops_; ++i) names.insert(absl::StrCat("i", i));
  for (int i = 0; i < kernel->vars; ++i) names.insert(absl::StrCat("v", i));
  return names;
}

}  // namespace athanor::kir
