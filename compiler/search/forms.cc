#include "compiler/search/forms.h"

#include <utility>

namespace athanor {
namespace {

class Single final : public FormSpace {
 public:
  explicit Single(Graph graph) : graph_(std::move(graph)) {}

  const Graph& graph(int) const override { return graph_; }
  std::string About(int) const override { return ""; }
  std::vector<int> Neighbours(int) override { return {}; }
  std::vector<RegionReport> Report() const override { return {}; }
  void UseCost(GraphCost) override {}

 private:
  const Graph graph_;
};

}  // namespace

std::unique_ptr<FormSpace> SingleForm(Graph graph) {
  return std::make_unique<Single>(std::move(graph));
}

}  // namespace athanor
