#include "compiler/search/regions/forms.h"

#include <utility>

#include "absl/strings/str_cat.h"

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

class Deferred final : public FormSpace {
 public:
  Deferred(Graph graph, MakeForms make) : graph_(std::move(graph)), make_(std::move(make)) {}

  const Graph& graph(int form) const override { return form == 0 ? graph_ : space_->graph(form); }
  std::string About(int form) const override { return form == 0 ? "" : space_->About(form); }
  std::vector<int> Neighbours(int form) override {
    if (make_) Make();
    return space_ ? space_->Neighbours(form) : std::vector<int>();
  }
  std::vector<RegionReport> Report() const override {
    return space_ ? space_->Report() : std::vector<RegionReport>();
  }
  absl::StatusOr<std::string> Dot(int region, size_t max_nodes) const override {
    return space_ ? space_->Dot(region, max_nodes) : FormSpace::Dot(region, max_nodes);
  }
  std::vector<RecipeForm> FromRecipes() override {
    if (make_) Make();
    return space_ ? space_->FromRecipes() : std::vector<RecipeForm>();
  }
  std::vector<RegionPart> Parts(int form) const override {
    return space_ ? space_->Parts(form) : std::vector<RegionPart>();
  }
  void UseCost(GraphCost cost) override { cost_ = std::move(cost); }
  absl::Status status() const override { return status_; }

 private:
  void Make() {
    absl::StatusOr<std::unique_ptr<FormSpace>> space = std::exchange(make_, nullptr)();
    status_ = space.status();
    if (!space.ok()) return;
    space_ = *std::move(space);
    space_->UseCost(std::move(cost_));
  }

  const Graph graph_;
  MakeForms make_;
  GraphCost cost_;
  std::unique_ptr<FormSpace> space_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::string> FormSpace::Dot(int region, size_t) const {
  return absl::NotFoundError(
      absl::StrCat("there is no region ", region, ": the rules were not used"));
}

std::unique_ptr<FormSpace> DeferredForms(Graph graph, MakeForms make) {
  return std::make_unique<Deferred>(std::move(graph), std::move(make));
}

std::unique_ptr<FormSpace> SingleForm(Graph graph) {
  return std::make_unique<Single>(std::move(graph));
}

}  // namespace athanor
