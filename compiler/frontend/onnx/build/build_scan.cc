#include "compiler/frontend/onnx/build/build_scan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

// Largest literal that is copied into the body instead of captured.
constexpr size_t kMaxLiteralBytes = 256;

// Cuts the nodes that depend on stand-ins out of a graph.
class BodyCut {
 public:
  BodyCut(const Graph& graph, const std::vector<NodeId>& stand_ins)
      : graph_(graph),
        first_(*std::min_element(stand_ins.begin(), stand_ins.end())),
        depends_(graph.nodes.size() - first_),
        inside_(graph.nodes.size()) {
    for (NodeId n : stand_ins) depends_[n - first_] = true;
    for (auto n = first_; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
      for (NodeId i : graph.node(n).inputs) {
        if (Depends(i)) depends_[n - first_] = true;
      }
    }
  }

  // Returns the body; `captured` receives the outside values that it reads, in order.
  Graph Cut(const std::vector<NodeId>& stand_ins, const std::vector<NodeId>& outputs,
            std::vector<NodeId>* captured) {
    FindInside(outputs);
    for (NodeId n : stand_ins) AddInput(n);
    for (NodeId n = 0; n < static_cast<NodeId>(inside_.size()); ++n) {
      if (!captured_.contains(n)) continue;
      captured->push_back(n);
      AddInput(n);
    }
    for (NodeId n = 0; n < static_cast<NodeId>(inside_.size()); ++n) {
      if (!inside_[n] || moved_.contains(n)) continue;
      Node node = graph_.node(n);
      node.name.clear();
      for (NodeId& i : node.inputs) i = moved_.at(i);
      moved_[n] = static_cast<NodeId>(body_.nodes.size());
      body_.nodes.push_back(std::move(node));
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      body_.outputs.push_back({Cat("y", o), moved_.at(outputs[o])});
    }
    return std::move(body_);
  }

 private:
  bool Depends(NodeId n) const { return n >= first_ && depends_[n - first_]; }

  // Reports whether a node is copied instead of captured, to save memory: a small literal, an Iota,
  // or a view of one.
  bool IsCheap(NodeId n) const {
    for (;;) {
      const Node& node = graph_.node(n);
      if (node.op == Op::kIota) return true;
      if (IsConstant(node.op)) {
        return GetAttr<Tensor>(node.attrs, "value").bytes.size() <= kMaxLiteralBytes;
      }
      if (!IsIndexMap(node.op)) return false;
      n = node.inputs[0];
    }
  }

  void FindInside(const std::vector<NodeId>& outputs) {
    const auto reach = [&](NodeId n) {
      if (Depends(n) || IsCheap(n)) {
        inside_[n] = true;
      } else {
        captured_[n] = true;
      }
    };
    for (NodeId n : outputs) reach(n);
    for (auto n = static_cast<NodeId>(inside_.size()); n-- > 0;) {
      if (!inside_[n]) continue;
      for (NodeId i : graph_.node(n).inputs) reach(i);
    }
  }

  void AddInput(NodeId n) {
    moved_[n] = static_cast<NodeId>(body_.nodes.size());
    body_.nodes.push_back({Op::kInput, {}, {}, graph_.node(n).type, Cat("x", body_.nodes.size())});
  }

  const Graph& graph_;
  const NodeId first_;
  std::vector<bool> depends_;  // by node from first_ on
  std::vector<bool> inside_;   // by node
  std::map<NodeId, bool> captured_;
  std::map<NodeId, NodeId> moved_;
  Graph body_;
};

}  // namespace

ScanBuilder::ScanBuilder(OpBuilder* b, Expr length, bool reverse)
    : b_(*b), length_(std::move(length)), reverse_(reverse) {
  step_ = b_.StandIn({DType::kI64, {}}, Elem::kInt64);
}

Value ScanBuilder::StandIn(const Value& like, Shape shape) {
  Value v = b_.StandIn({like.dtype(), std::move(shape)}, like.elem);
  v.sources = like.sources;
  return v;
}

Value ScanBuilder::State(const Value& first) {
  firsts_.push_back(first);
  return state_ins_.emplace_back(StandIn(first, first.shape));
}

Value ScanBuilder::Slice(const Value& scanned) {
  if (!b_.status().ok()) return FailedValue(scanned.elem);
  scanned_.push_back(scanned);
  return slice_ins_.emplace_back(
      StandIn(scanned, Shape(scanned.shape.begin() + 1, scanned.shape.end())));
}

void ScanBuilder::Finish(std::vector<Value> next, std::vector<Value> elements) {
  outputs_ = std::move(next);
  outputs_.insert(outputs_.end(), std::make_move_iterator(elements.begin()),
                  std::make_move_iterator(elements.end()));
  if (outputs_.size() < firsts_.size()) {
    b_.Fail(absl::InternalError(Cat(outputs_.size(), " outputs for ", firsts_.size(), " states")));
  }
  std::vector<NodeId> stand_ins = {step_.node}, outputs;
  for (const std::vector<Value>* ins : {&state_ins_, &slice_ins_}) {
    for (const Value& v : *ins) stand_ins.push_back(v.node);
  }
  for (const Value& v : outputs_) outputs.push_back(b_.Node(v));
  for (const std::vector<Value>* from : {&firsts_, &scanned_}) {
    for (const Value& v : *from) operands_.push_back(b_.Node(v));
  }
  if (!b_.status().ok()) return;
  body_ = SubGraph(BodyCut(b_.graph(), stand_ins).Cut(stand_ins, outputs, &operands_));
}

Value ScanBuilder::Result(size_t output, const Value& like) {
  if (!b_.status().ok()) return FailedValue(like.elem);
  Attrs attrs = {{"body", body_},
                 {"states", static_cast<int64_t>(firsts_.size())},
                 {"scanned", static_cast<int64_t>(scanned_.size())},
                 {"result", static_cast<int64_t>(output)},
                 {"length", Shape{length_}},
                 {"reverse", reverse_}};
  Value v = b_.OfNodes(Op::kScan, operands_, std::move(attrs), like.elem);
  v.sources = like.sources;
  return v;
}

Value ScanBuilder::Last(size_t state) { return Result(state, outputs_[state]); }

Value ScanBuilder::Stacked(size_t element) {
  return Result(firsts_.size() + element, outputs_[firsts_.size() + element]);
}

}  // namespace athanor::onnx
