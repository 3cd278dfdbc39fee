#include "server/tuner/check/plan_runs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/pipeline/prepare.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/check/sampled_check.h"
#include "server/tuner/run/weight_turns.h"

namespace athanor {
namespace {

constexpr int kWeightSets = 2;
// Elements of the smallest output that make an average worth comparing.
constexpr int64_t kEnoughElements = 64;
constexpr int kMostSeeds = 8;

constexpr IndexChoice kChoices[] = {IndexChoice::kAny, IndexChoice::kSmall, IndexChoice::kZero};

absl::string_view About(SpecialFloats special) {
  switch (special) {
    case SpecialFloats::kNone:
      return "";
    case SpecialFloats::kExtremes:
      return " with zeros and extremes";
    case SpecialFloats::kEnds:
      return " with ends of the range";
    case SpecialFloats::kInfinities:
      return " with infinities";
    case SpecialFloats::kNaN:
      return " with a NaN";
  }
  return "";
}

std::string SizesText(const Graph& graph, const Expr::Env& dims) {
  std::string text;
  for (const Dim& dim : graph.dims) {
    auto size = dims.find(dim.name);
    if (size == dims.end()) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", dim.name, "=", size->second);
  }
  return text.empty() ? "its one size" : text;
}

absl::StatusOr<std::vector<RepeatedBytes>> Held(const std::vector<DrawnInput>& drawn) {
  std::vector<RepeatedBytes> held;
  for (const DrawnInput& input : drawn) {
    ASSIGN_OR_RETURN(RepeatedBytes repeated, RepeatedInput(input));
    held.push_back(std::move(repeated));
  }
  return held;
}

std::vector<absl::string_view> Views(const std::vector<RepeatedBytes>& held) {
  std::vector<absl::string_view> views;
  for (const RepeatedBytes& bytes : held) views.push_back(bytes.view());
  return views;
}

// Draws inputs for a user's graph by its prepared form, in which it is clear which parameter is the
// weight of a contraction.
class Drawing {
 public:
  Drawing(const Graph& graph, Prepared prepared) : graph_(graph), prepared_(std::move(prepared)) {}

  // Draws the distinct parameters.
  absl::StatusOr<std::vector<RepeatedBytes>> Weights(uint64_t seed,
                                                     const std::vector<int>& turns) const {
    ASSIGN_OR_RETURN(auto drawn, DrawInputs(prepared_.graph, {}, seed,
                                            DrawOptions{.model_weights = true, .inputs = false}));
    std::vector<DrawnInput> own;
    for (size_t i = 0; i < drawn.size(); ++i) {
      if (turns[i] == static_cast<int>(i)) own.push_back(std::move(drawn[i]));
    }
    return Held(own);
  }

  // Draws the most general inputs, from `first` on, whose computed indices are in range.
  absl::Status Inputs(uint64_t seed, IndexChoice first,
                      const std::vector<absl::string_view>& weights, PlanRun* run) const {
    const Expr::Env dims = PreparedDims(run->dims);
    for (IndexChoice choice : kChoices) {
      if (choice < first) continue;
      ASSIGN_OR_RETURN(
          auto drawn,
          DrawInputs(prepared_.graph, dims, seed,
                     DrawOptions{.choice = choice, .special = run->special, .parameters = false}));
      ASSIGN_OR_RETURN(run->held, Held(drawn));
      run->inputs = Views(run->held);
      const auto first_state = run->inputs.end() - std::ssize(graph_.StateIds());
      run->states.assign(first_state, run->inputs.end());
      run->inputs.erase(first_state, run->inputs.end());
      std::vector<absl::string_view> all = run->inputs;
      all.insert(all.end(), weights.begin(), weights.end());
      all.insert(all.end(), run->states.begin(), run->states.end());
      const absl::Status in_range = IndicesInRange(prepared_.graph, dims, all).status();
      if (!absl::IsOutOfRange(in_range)) return in_range;
    }
    return absl::OkStatus();  // both plans must refuse these inputs
  }

  // Returns the special values that the inputs' dtypes have and the graph's ops define.
  std::vector<SpecialFloats> Specials(std::vector<std::string>* left_out) const {
    const auto inputs = graph_.InputIds();
    const bool floats = std::any_of(inputs.begin(), inputs.end(),
                                    [&](NodeId id) { return IsFloat(graph_.node(id).type.dtype); });
    if (!floats) return {};
    const auto attends = [&](bool hides) {
      const auto is = [&](const Node& node) {
        if (IsPagedAttention(node.op)) return true;  // values that a row sees must be finite
        return FormOf(node.op) == OpForm::kAttention &&
               (!hides || node.inputs.size() > 3 || GetAttrOr<bool>(node.attrs, "causal", false));
      };
      return std::any_of(graph_.nodes.begin(), graph_.nodes.end(), is) ||
             std::any_of(prepared_.graph.nodes.begin(), prepared_.graph.nodes.end(), is);
    };
    std::vector<SpecialFloats> specials = {SpecialFloats::kExtremes};
    if (attends(/*hides=*/false)) {
      left_out->push_back(
          "infinities and ends of the range: what attention gives where every score is infinite is "
          "left open");
    } else {
      specials.push_back(SpecialFloats::kEnds);
      specials.push_back(SpecialFloats::kInfinities);
    }
    if (attends(/*hides=*/true)) {
      left_out->push_back("NaN: what attention does with a hidden one is left open");
    } else {
      specials.push_back(SpecialFloats::kNaN);
    }
    return specials;
  }

  int Seeds(const Expr::Env& dims) const {
    int64_t least = kEnoughElements;
    for (const Output& output : graph_.outputs) {
      int64_t elements = 1;
      for (const Expr& size : graph_.node(output.node).type.shape) {
        elements = std::min(kEnoughElements, elements * size.Evaluate(dims).value_or(1));
      }
      if (elements > 0) least = std::min(least, elements);
    }
    return static_cast<int>(std::clamp<int64_t>(kEnoughElements / least, kWeightSets, kMostSeeds));
  }

 private:
  Expr::Env PreparedDims(const Expr::Env& dims) const {
    Expr::Env own;
    for (size_t d = 0; d < prepared_.dim_names.size(); ++d) {
      auto size = dims.find(prepared_.dim_names[d]);
      if (size != dims.end()) own[prepared_.graph.dims[d].name] = size->second;
    }
    return own;
  }

  const Graph& graph_;
  const Prepared prepared_;
};

}  // namespace

absl::StatusOr<PlanRuns> PlanRuns::Create(const Graph& graph, const std::vector<Expr::Env>& sizes,
                                          uint64_t seed) {
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(graph));
  const Drawing drawing(graph, std::move(prepared));
  PlanRuns made;
  made.turns_ = WeightTurns(graph, kMostWeightBytes);
  for (int set = 0; set < kWeightSets; ++set) {
    ASSIGN_OR_RETURN(std::vector<RepeatedBytes> held, drawing.Weights(seed + set, made.turns_));
    made.held_weights_.push_back(std::move(held));
    const std::vector<absl::string_view> own = Views(made.held_weights_.back());
    std::vector<absl::string_view>& views = made.weights_.emplace_back();
    auto next = own.begin();
    for (size_t i = 0; i < made.turns_.size(); ++i) {
      views.push_back(made.turns_[i] == static_cast<int>(i) ? *next++ : views[made.turns_[i]]);
    }
  }
  const auto add = [&](int size, SpecialFloats special, int round, bool required) {
    PlanRun run{size, special, round % kWeightSets, required, sizes[size], {}, {}, {}, {}};
    run.text = absl::StrCat(SizesText(graph, run.dims), About(special));
    const uint64_t own = seed * 0x100 + static_cast<uint64_t>(round) * 0x10 + size;
    const IndexChoice first = round == 0 ? IndexChoice::kSmall : IndexChoice::kAny;
    absl::Status drawn = drawing.Inputs(own, first, made.weights_[run.weights], &run);
    if (drawn.ok()) made.runs_.push_back(std::move(run));
    return drawn;
  };
  const int count = static_cast<int>(sizes.size());
  absl::Status status;
  int most = 0;
  for (int s = 0; s < count && status.ok(); ++s) {
    status = add(s, SpecialFloats::kNone, 0, true);
    most = std::max(most, drawing.Seeds(sizes[s]));
  }
  // Optional at the largest size, where they may take too long.
  for (SpecialFloats special : drawing.Specials(&made.left_out_)) {
    for (int s = 0; s < count && status.ok(); ++s)
      status = add(s, special, 0, s == 0 || s + 1 < count);
  }
  for (int round = 1; round < most; ++round) {
    for (int s = 0; s < count && status.ok(); ++s) {
      if (round < drawing.Seeds(sizes[s])) status = add(s, SpecialFloats::kNone, round, false);
    }
  }
  if (!status.ok()) return status;
  return made;
}

int64_t PlanRuns::bytes() const {
  int64_t bytes = 0;
  for (const PlanRun& run : runs_) {
    for (const RepeatedBytes& held : run.held) bytes += static_cast<int64_t>(held.view().size());
  }
  for (const auto& set : held_weights_) {
    for (const RepeatedBytes& weight : set) bytes += static_cast<int64_t>(weight.view().size());
  }
  return bytes;
}

}  // namespace athanor
