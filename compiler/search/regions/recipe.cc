#include "compiler/search/regions/recipe.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/value/message.h"
#include "compiler/rules/terms/views.h"
#include "compiler/search/regions/region.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Bounds a form: a region has a few hundred nodes, its form perhaps a few times as many.
constexpr int64_t kMaxFormNodes = 4096;

Graph WithoutMagnitudes(Graph graph) {
  for (const NodeId p : graph.ParameterIds()) SetMagnitude(std::nullopt, &graph.nodes[p]);
  return graph;
}

// Returns the dims that a region uses, in canonical order.
std::vector<Dim> DimsOf(const Graph& region) {
  std::vector<std::string> names;
  Canonicalize(region, &names);
  std::vector<Dim> dims;
  for (const std::string& name : names) {
    dims.push_back(*std::find_if(region.dims.begin(), region.dims.end(),
                                 [&](const Dim& d) { return d.name == name; }));
  }
  return dims;
}

std::string CanonicalName(size_t dim) { return absl::StrCat("d", dim); }

absl::Status ReadLine(absl::string_view line, Recipe* recipe) {
  if (line == "memory") return absl::OkStatus();
  if (absl::ConsumePrefix(&line, "memory ")) {
    for (const std::string& number :
         std::vector<std::string>(absl::StrSplit(line, ' ', absl::SkipEmpty()))) {
      int place = 0;
      if (!absl::SimpleAtoi(number, &place) || place < 0) {
        return Invalid(Quoted(number), " is not a node index (0 or more)");
      }
      recipe->memory.insert(place);
    }
    return absl::OkStatus();
  }
  if (!absl::ConsumePrefix(&line, "kernel "))
    return Invalid("a line must begin with memory, kernel or form");
  const std::pair<std::string, std::string> kernel = absl::StrSplit(line, absl::MaxSplits(' ', 1));
  if (kernel.first.size() != 64 ||
      kernel.first.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Invalid(Quoted(kernel.first), " is not 64 lower-case hex digits");
  }
  RETURN_IF_ERROR(ParseSchedule(kernel.second).status());
  if (!recipe->schedules.insert(kernel).second) {
    return Invalid("kernel ", kernel.first, " has two schedules");
  }
  return absl::OkStatus();
}

absl::Status CheckEnds(const Graph& form, const Graph& region) {
  const auto types = [](const Graph& graph) {
    std::vector<std::string> all;
    for (const Output& o : graph.outputs) all.push_back(TypeToString(graph.node(o.node).type));
    return absl::StrJoin(all, ", ");
  };
  if (types(form) != types(region)) {
    return Invalid("its outputs are ", types(form), "; the region's are ", types(region));
  }
  return absl::OkStatus();
}

}  // namespace

RegionName NameOf(const Graph& region) {
  RegionName name{CanonicalHash(WithoutMagnitudes(region)), "", ""};
  std::vector<std::string> box, facts;
  const std::vector<Dim> dims = DimsOf(region);
  for (size_t i = 0; i < dims.size(); ++i) {
    box.push_back(absl::StrCat(CanonicalName(i), "=", dims[i].min, "..", dims[i].max));
  }
  const std::vector<NodeId> parameters = region.ParameterIds();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::optional<int> magnitude = MagnitudeOf(region.node(parameters[i]));
    if (magnitude) facts.push_back(absl::StrCat("p", i, "=", *magnitude));
  }
  name.dim_box = absl::StrJoin(box, " ");
  name.facts = absl::StrJoin(facts, " ");
  return name;
}

std::string RecipeText(const Recipe& recipe) {
  std::string text = "memory";
  for (const int place : recipe.memory) absl::StrAppend(&text, " ", place);
  for (const auto& [kernel, schedule] : recipe.schedules) {
    absl::StrAppend(&text, "\nkernel ", kernel, " ", schedule);
  }
  return absl::StrCat(text, "\nform\n", recipe.form);
}

absl::StatusOr<Recipe> ParseRecipe(absl::string_view text) {
  Recipe recipe;
  for (int number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == absl::string_view::npos) return Invalid("recipe: the line \"form\" is missing");
    const absl::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == "form") break;
    if (absl::Status s = ReadLine(line, &recipe); !s.ok()) {
      return Prefixed(Cat("recipe: line ", number, ": "), s);
    }
  }
  recipe.form = std::string(text);
  return recipe;
}

std::string KernelKeyOf(const KernelTask& task) { return CanonicalHash(task.graph); }

std::string FormText(const Graph& form, const Graph& region) {
  Graph made = WithoutMagnitudes(form);
  made.name = "region";
  made.dims = DimsOf(region);
  std::map<std::string, Expr, std::less<>> names;
  for (size_t i = 0; i < made.dims.size(); ++i) {
    const std::string name = CanonicalName(i);
    names.emplace(std::exchange(made.dims[i].name, name), Expr::Symbol(name));
  }
  SubstituteDims(names, &made);
  return ToText(made);
}

absl::StatusOr<Graph> FormFor(const Recipe& recipe, const Graph& region) {
  absl::StatusOr<Graph> form = ParseGraph(recipe.form, {.max_nodes = kMaxFormNodes});
  if (!form.ok()) return form.status();
  const std::vector<Dim> dims = DimsOf(region);
  std::map<std::string, Expr, std::less<>> names;
  for (size_t i = 0; i < dims.size(); ++i) {
    names.emplace(CanonicalName(i), Expr::Symbol(dims[i].name));
  }
  for (const Dim& dim : form->dims) {
    if (!names.contains(dim.name)) return Invalid("the region has no dim ", dim.name);
  }
  SubstituteDims(names, &*form);
  form->name = region.name;
  form->dims = region.dims;
  std::map<std::string_view, const Node*> leaves;
  for (const Node& node : region.nodes) {
    if (IsDeclared(node.op)) leaves[node.name] = &node;
  }
  for (Node& node : form->nodes) {
    if (!IsDeclared(node.op)) continue;
    const auto leaf = leaves.find(node.name);
    if (leaf == leaves.end() || leaf->second->op != node.op || !(leaf->second->type == node.type)) {
      return Invalid("the region has no ", OpName(node.op), " ", Quoted(node.name), " : ",
                     TypeToString(node.type));
    }
    // Facts about a leaf are the region's own; a recipe is not trusted to state any.
    node.attrs = leaf->second->attrs;
  }
  RETURN_IF_ERROR(CheckEnds(*form, region));
  // The form was parsed with other bounds of its dims.
  RETURN_IF_ERROR(Verify(*form, {.max_nodes = kMaxFormNodes}));
  return form;
}

std::vector<int> FormOrder(const Graph& form) {
  std::vector<NodeId> moved;
  Canonicalize(ComposeViews(form), nullptr, &moved);
  for (size_t n = 0; n < form.nodes.size(); ++n) {
    const Op op = form.nodes[n].op;
    if (IsDeclared(op)) moved[n] = -1;
  }
  return {moved.begin(), moved.end()};
}

RecipeSchedules::RecipeSchedules(const std::vector<RegionRecipe>& recipes) {
  for (size_t r = 0; r < recipes.size(); ++r) {
    for (const auto& [kernel, text] : recipes[r].recipe.schedules) {
      const absl::StatusOr<KernelChoice> like = ParseSchedule(text);
      if (!like.ok()) continue;  // ParseRecipe refuses such a text
      std::vector<Suggested>& all = by_kernel_[kernel];
      const bool known = std::any_of(
          all.begin(), all.end(), [&](const Suggested& s) { return ScheduleText(s.like) == text; });
      if (!known) all.push_back({r, *like});
    }
  }
}

const std::vector<RecipeSchedules::Suggested>& RecipeSchedules::For(const KernelTask& task) const {
  static const std::vector<Suggested> kNone;
  if (by_kernel_.empty()) return kNone;
  const auto found = by_kernel_.find(KernelKeyOf(task));
  return found == by_kernel_.end() ? kNone : found->second;
}

}  // namespace athanor
