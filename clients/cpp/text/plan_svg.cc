// Draws a plan: a column of boxes in execution order. An edge between neighbours is a line between
// their boxes; any other edge leaves its box on the right and runs down a lane, so that no two
// edges overlap and none crosses a box.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "clients/cpp/text/plan_view.h"
#include "clients/cpp/text/search_text.h"

namespace athanor::client {
namespace {

constexpr int kMargin = 20, kWidth = 460, kHeight = 46, kGap = 26, kLane = 12;
constexpr size_t kTitle = 58, kLabel = 74;  // characters that fit into a box

struct Box {
  std::string title, label;
  double share = -1;  // share of the time; below 0: an input or output box, or not measured
  std::string tooltip;
  bool end = false;  // the inputs box at the top or the outputs box at the bottom
};

struct Edge {
  int from, to;  // numbers of boxes
  std::string text;
};

std::string Escaped(const std::string& text) {
  std::string printable;
  for (char c : text) printable += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  return absl::StrReplaceAll(printable,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Cuts text to `length` without splitting a UTF-8 character.
std::string Cut(const std::string& text, size_t length) {
  if (text.size() <= length) return text;
  size_t end = length - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

int Top(int box) { return kMargin + box * (kHeight + kGap); }

class Picture {
 public:
  explicit Picture(const v1::PlanDetails& details) : plan_(details.plan()) {
    boxes_.push_back({"inputs", "", -1, "", true});
    const v1::PlanCost* cost =
        details.costs().empty() ? nullptr : &details.costs(details.costs_size() - 1);
    for (int i = 0; i < plan_.run_size(); ++i) AddStep(i, cost);
    boxes_.push_back({"outputs", "", -1, "", true});
    FindEdges();
    title_ = absl::StrCat("plan ", details.info().plan_id(), ", ", details.info().kind(),
                          cost == nullptr || cost->size().empty() ? "" : ", at ",
                          cost == nullptr ? "" : cost->size());
  }

  std::string Draw() const {
    const std::vector<int> lanes = Lanes();
    const int last = lanes.empty() ? 0 : *std::max_element(lanes.begin(), lanes.end()) + 1;
    const int width = 2 * kMargin + kWidth + (last + 1) * kLane;
    const int height = Top(static_cast<int>(boxes_.size())) - kGap + kMargin;
    std::string svg = absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<title>%s</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
        width, height, width, height, Escaped(title_), width, height);
    for (const v1::Loop& loop : plan_.loops()) DrawLoop(loop, &svg);
    for (size_t e = 0; e < edges_.size(); ++e) DrawEdge(edges_[e], lanes[e], &svg);
    for (size_t b = 0; b < boxes_.size(); ++b) DrawBox(static_cast<int>(b), &svg);
    return svg + "</svg>\n";
  }

 private:
  void AddStep(int i, const v1::PlanCost* cost) {
    const v1::Step& step = plan_.run(i);
    Box box;
    box.title = absl::StrCat(i, ": ", KernelName(plan_, step));
    box.label = step.label();
    box.tooltip = absl::StrCat("grid ", SizeText(step.grid()), ", flops ", SizeText(step.flops()),
                               ", bytes ", SizeText(step.moved_bytes()));
    if (cost != nullptr && i < cost->steps_size() && cost->steps(i).seconds() > 0) {
      double whole = 0;
      for (const v1::StepCost& s : cost->steps()) whole += s.seconds();
      box.share = cost->steps(i).seconds() / whole;
      box.title +=
          absl::StrFormat(", %s, %.1f %%", SecondsText(cost->steps(i).seconds()), 100 * box.share);
    }
    boxes_.push_back(std::move(box));
  }

  // Relies on compiler/plan: a step's first buffer is the one it writes.
  void FindEdges() {
    std::map<uint32_t, int> writer;  // box that wrote each buffer last
    for (int b = 0; b < plan_.buffers_size(); ++b) {
      if (plan_.buffers(b).kind() == v1::Buffer::INPUT) writer[static_cast<uint32_t>(b)] = 0;
    }
    for (int i = 0; i < plan_.run_size(); ++i) {
      const v1::Step& step = plan_.run(i);
      for (int b = 1; b < step.buffers_size(); ++b) AddEdge(writer, step.buffers(b), i + 1);
      if (step.buffers_size() > 0) writer[step.buffers(0)] = i + 1;
    }
    const int end = static_cast<int>(boxes_.size()) - 1;
    for (const v1::PlanOutput& output : plan_.outputs()) AddEdge(writer, output.buffer(), end);
  }

  // Weights and constants are written by no step, so they get no edge.
  void AddEdge(const std::map<uint32_t, int>& writer, uint32_t buffer, int to) {
    auto from = writer.find(buffer);
    if (from == writer.end() || static_cast<int>(buffer) >= plan_.buffers_size()) return;
    const v1::Buffer& about = plan_.buffers(static_cast<int>(buffer));
    std::string text = about.name().empty() ? absl::StrCat("b", buffer) : about.name();
    absl::StrAppend(&text, " ", BufferText(about));
    for (const Edge& edge : edges_) {
      if (edge.from == from->second && edge.to == to && edge.text == text) return;
    }
    edges_.push_back({from->second, to, std::move(text)});
  }

  bool BetweenNeighbours(const Edge& edge) const { return edge.to == edge.from + 1; }

  // Lane of each edge; -1 for edges between neighbours. Shorter edges get lanes nearer to the
  // boxes.
  std::vector<int> Lanes() const {
    std::vector<size_t> order;
    for (size_t e = 0; e < edges_.size(); ++e) {
      if (!BetweenNeighbours(edges_[e])) order.push_back(e);
    }
    std::sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return std::pair(edges_[a].to - edges_[a].from, a) <
             std::pair(edges_[b].to - edges_[b].from, b);
    });
    std::vector<int> lanes(edges_.size(), -1);
    std::vector<std::vector<size_t>> taken;  // edges in each lane
    for (size_t e : order) {
      size_t lane = 0;
      auto meets = [&](size_t other) {
        return edges_[other].from <= edges_[e].to && edges_[e].from <= edges_[other].to;
      };
      while (lane < taken.size() && std::any_of(taken[lane].begin(), taken[lane].end(), meets)) {
        ++lane;
      }
      if (lane == taken.size()) taken.emplace_back();
      taken[lane].push_back(e);
      lanes[e] = static_cast<int>(lane);
    }
    return lanes;
  }

  void DrawEdge(const Edge& edge, int lane, std::string* svg) const {
    if (lane < 0) {
      const int x = kMargin + kWidth / 4, top = Top(edge.from) + kHeight, bottom = Top(edge.to);
      // Neighbours share one line for all their buffers; the names stand in one row.
      std::string text;
      for (const Edge& other : edges_) {
        if (other.from == edge.from && other.to == edge.to) {
          absl::StrAppend(&text, text.empty() ? "" : ", ", other.text);
        }
      }
      if (&edge != First(edge)) return;
      absl::StrAppendFormat(svg,
                            "<path d=\"M%d %d V%d m-4 -6 l4 6 l4 -6\" fill=\"none\" "
                            "stroke=\"#555555\"><title>%s</title></path>\n"
                            "<text x=\"%d\" y=\"%d\" font-size=\"10\" fill=\"#555555\">%s</text>\n",
                            x, top, bottom, Escaped(text), x + 10, top + kGap / 2 + 4,
                            Escaped(Cut(text, 60)));
      return;
    }
    const int right = kMargin + kWidth, x = right + (lane + 1) * kLane;
    absl::StrAppendFormat(svg,
                          "<path d=\"M%d %d H%d V%d H%d m6 -4 l-6 4 l6 4\" fill=\"none\" "
                          "stroke=\"#7a93b8\"><title>%s</title></path>\n",
                          right, Top(edge.from) + kHeight - 12, x, Top(edge.to) + 12, right,
                          Escaped(edge.text));
  }

  const Edge* First(const Edge& like) const {
    for (const Edge& edge : edges_) {
      if (edge.from == like.from && edge.to == like.to) return &edge;
    }
    return nullptr;
  }

  // Draws a frame around the boxes of the loop's steps, inside the frames of enclosing loops.
  void DrawLoop(const v1::Loop& loop, std::string* svg) const {
    const int first = static_cast<int>(loop.first()) + 1;
    const int last = first + static_cast<int>(loop.steps()) - 1;
    if (last >= static_cast<int>(boxes_.size())) return;
    int inside = 0;
    for (const v1::Loop& other : plan_.loops()) {
      const int begin = static_cast<int>(other.first()) + 1;
      const int end = begin + static_cast<int>(other.steps()) - 1;
      if (&other != &loop && begin <= first && last <= end) ++inside;
    }
    const int out = std::max(3, 12 - 3 * inside), top = Top(first) - out;
    absl::StrAppendFormat(svg,
                          "<g><title>%s</title><rect x=\"%d\" y=\"%d\" width=\"%d\" "
                          "height=\"%d\" rx=\"8\" fill=\"none\" stroke=\"#b0568c\" "
                          "stroke-dasharray=\"6 3\"/>\n<text x=\"%d\" y=\"%d\" font-size=\"10\" "
                          "text-anchor=\"end\" fill=\"#b0568c\">%s turns</text></g>\n",
                          Escaped(absl::StrCat("loop of ", SizeText(loop.count()), " turns")),
                          kMargin - out, top, kWidth + 2 * out, Top(last) + kHeight + out - top,
                          kMargin + kWidth - 4, top - 2, Escaped(SizeText(loop.count())));
  }

  void DrawBox(int b, std::string* svg) const {
    const Box& box = boxes_[b];
    const int y = Top(b);
    absl::StrAppendFormat(svg,
                          "<g><title>%s</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                          "rx=\"5\" fill=\"%s\" stroke=\"#444444\"/>\n",
                          Escaped(box.tooltip), kMargin, y, kWidth, kHeight,
                          box.end ? "#eeeeee" : "#fbf7ef");
    if (box.share > 0) {
      absl::StrAppendFormat(
          svg, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#f2b35e\"/>\n",
          kMargin + 1, y + kHeight - 7, box.share * (kWidth - 2), 6);
    }
    absl::StrAppendFormat(svg, "<text x=\"%d\" y=\"%d\">%s</text>\n", kMargin + 8,
                          y + (box.end ? kHeight / 2 + 4 : 17), Escaped(Cut(box.title, kTitle)));
    if (!box.label.empty()) {
      absl::StrAppendFormat(svg,
                            "<text x=\"%d\" y=\"%d\" font-size=\"10\" fill=\"#555555\">%s</text>\n",
                            kMargin + 8, y + 32, Escaped(Cut(box.label, kLabel)));
    }
    absl::StrAppend(svg, "</g>\n");
  }

  const v1::Plan& plan_;
  std::string title_;
  std::vector<Box> boxes_;
  std::vector<Edge> edges_;
};

}  // namespace

std::string PlanSvg(const v1::PlanDetails& details) { return Picture(details).Draw(); }

}  // namespace athanor::client
