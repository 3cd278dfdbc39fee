#include "server/tuner/check/references.h"

#include <time.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/check/error_bound.h"
#include "server/tuner/check/sampled_check.h"
#include "server/tuner/check/state_outputs.h"
#include "server/tuner/run/inputs.h"

namespace athanor {
namespace {

constexpr int kSeeds = 2;
// A second seed is skipped if the first one's reference took longer: processor time, since what
// else the machine does must not decide how well all schedules of a task are checked.
constexpr double kLongReference = 20e-3;  // seconds
constexpr IndexChoice kChoices[] = {IndexChoice::kAny, IndexChoice::kSmall, IndexChoice::kZero};

// Processor time of this thread.
double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

absl::Status RepeatInputs(const Graph& graph, ReferenceCase* c) {
  absl::StatusOr<std::vector<DrawnInput>> drawn = DrawInputs(graph, c->env, c->seed, c->choice);
  if (!drawn.ok()) return drawn.status();
  c->repeated.clear();
  for (const DrawnInput& input : *drawn) {
    std::vector<int64_t> strides;
    int64_t bytes = DTypeBytes(input.drawn.dtype);
    for (size_t axis = input.shape.size(); axis-- > 0;) {
      strides.push_back(bytes);
      if (__builtin_mul_overflow(bytes, input.shape[axis], &bytes)) {
        const NodeId id = graph.ArgumentIds()[c->repeated.size()];
        return absl::ResourceExhaustedError(
            absl::StrCat("input \"", graph.node(id).name, "\" has too many bytes"));
      }
    }
    absl::StatusOr<RepeatedBytes> repeated =
        RepeatedBytes::Create(bytes, strides, input.drawn.bytes);
    if (!repeated.ok()) return repeated.status();
    c->repeated.push_back(*std::move(repeated));
  }
  return absl::OkStatus();
}

class ReferenceMaker {
 public:
  explicit ReferenceMaker(const internal::CheckRequest& request) : request_(request) {}

  absl::StatusOr<References> Make();

 private:
  absl::Status AddCases(int index);
  absl::Status Evaluated(ReferenceCase* c);
  absl::Status Sampled(ReferenceCase* c);

  const internal::CheckRequest& request_;
  References made_;
  // Range of integers to draw: the most general that keeps computed indices in range so far.
  IndexChoice choice_ = IndexChoice::kAny;
};

absl::StatusOr<References> ReferenceMaker::Make() {
  if (request_.sizes_size() == 0) return absl::InvalidArgumentError("check: no sizes");
  absl::StatusOr<Graph> graph = ParseGraph(request_.graph_text(), AcceptedLimits());
  if (!graph.ok()) return graph.status();
  if (absl::Status s = Verify(*graph, AcceptedLimits()); !s.ok()) return s;
  made_.graph = WithStatesWritten(*std::move(graph));
  for (int i = 0; i < request_.sizes_size(); ++i) {
    if (absl::Status s = AddCases(i); !s.ok()) return s;
  }
  return std::move(made_);
}

absl::Status ReferenceMaker::AddCases(int index) {
  const auto& sizes = request_.sizes(index).values();
  const v1::Plan& plan = request_.plan();
  if (sizes.size() != plan.dims_size()) {
    return absl::InvalidArgumentError(absl::StrCat("check: ", sizes.size(), " sizes for ",
                                                   plan.dims_size(), " dims of the plan"));
  }
  Expr::Env env;
  std::string text;
  for (int d = 0; d < plan.dims_size(); ++d) {
    env[plan.dims(d).name()] = sizes[d];
    absl::StrAppend(&text, plan.dims(d).name(), "=", sizes[d], " ");
  }
  const bool sampled = request_.sizes(index).sampled();
  for (int s = 0; s < (sampled ? 1 : kSeeds); ++s) {
    const double start = ProcessorSeconds();
    ReferenceCase c;
    c.dims.assign(sizes.begin(), sizes.end());
    c.env = env;
    c.seed = request_.seed() + static_cast<uint64_t>(index) * kSeeds + s;
    c.text = absl::StrCat(text, "seed=", c.seed);
    c.sampled = sampled;
    if (absl::Status made = sampled ? Sampled(&c) : Evaluated(&c); !made.ok()) return made;
    made_.cases.push_back(std::move(c));
    if (ProcessorSeconds() - start > kLongReference) break;
  }
  return absl::OkStatus();
}

absl::Status ReferenceMaker::Evaluated(ReferenceCase* c) {
  absl::StatusOr<BoundedValues> right;
  // Indices computed from inputs are the most likely to be in range for small inputs.
  for (IndexChoice choice : kChoices) {
    c->choice = choice;
    RETURN_IF_ERROR(DrawInputsOf(made_.graph, c));
    right = EvaluateWithBounds(made_.graph, c->inputs, &c->env);
    choice_ = std::max(choice_, choice);
    if (!absl::IsOutOfRange(right.status())) break;
  }
  c->index_error = absl::IsOutOfRange(right.status());
  if (c->index_error) return absl::OkStatus();
  if (!right.ok()) return right.status();
  c->wanted = std::move(right->values);
  c->wanted.resize(made_.graph.outputs.size());  // without the states behind them
  c->bounds = std::move(right->errors);
  return absl::OkStatus();
}

absl::Status ReferenceMaker::Sampled(ReferenceCase* c) {
  for (IndexChoice choice : kChoices) {
    if (choice < choice_) continue;
    c->choice = choice;
    RETURN_IF_ERROR(DrawInputsOf(made_.graph, c));
    std::vector<absl::string_view> inputs;
    for (const RepeatedBytes& repeated : c->repeated) inputs.push_back(repeated.view());
    const absl::StatusOr<bool> in_range = IndicesInRange(made_.graph, c->env, inputs);
    c->index_error = absl::IsOutOfRange(in_range.status());
    if (!in_range.ok() && !c->index_error) return in_range.status();
    c->in_range = in_range.ok() && *in_range;
    if (!c->index_error) break;
  }
  return absl::OkStatus();
}

int64_t BytesOf(const References& references) {
  int64_t bytes = 0;
  for (const ReferenceCase& c : references.cases) {
    for (const Tensor& tensor : c.inputs) bytes += static_cast<int64_t>(tensor.bytes.size());
    for (const Tensor& tensor : c.wanted) bytes += static_cast<int64_t>(tensor.bytes.size());
    for (const auto& bounds : c.bounds) bytes += static_cast<int64_t>(bounds.size() * 8);
    for (const RepeatedBytes& r : c.repeated) {
      bytes += static_cast<int64_t>(std::min(r.period_bytes(), r.view().size()));
    }
  }
  return bytes;
}

// Returns everything that references depend on.
std::string KeyOf(const internal::CheckRequest& request) {
  internal::CheckRequest key;
  key.set_graph_text(request.graph_text());
  *key.mutable_sizes() = request.sizes();
  key.set_seed(request.seed());
  for (const v1::DimRange& dim : request.plan().dims()) {
    key.mutable_plan()->add_dims()->set_name(dim.name());
  }
  return key.SerializeAsString();
}

}  // namespace

absl::Status DrawInputsOf(const Graph& graph, ReferenceCase* c) {
  if (c->sampled) return RepeatInputs(graph, c);
  ASSIGN_OR_RETURN(c->inputs, RandomInputs(graph, c->env, c->seed, c->choice));
  return absl::OkStatus();
}

absl::StatusOr<References> MakeReferences(const internal::CheckRequest& request) {
  return ReferenceMaker(request).Make();
}

absl::StatusOr<std::shared_ptr<const References>> ReferenceMemory::For(
    const internal::CheckRequest& request) {
  std::string key = KeyOf(request);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return found->references;
  }
  absl::StatusOr<References> made = MakeReferences(request);
  if (!made.ok()) return made.status();
  const int64_t bytes = BytesOf(*made) + static_cast<int64_t>(key.size());
  auto references = std::make_shared<const References>(*std::move(made));
  if (bytes > kMostBytes) return references;
  entries_.push_front({std::move(key), references, bytes});
  bytes_ += bytes;
  for (; bytes_ > kMostBytes; entries_.pop_back()) bytes_ -= entries_.back().bytes;
  return references;
}

}  // namespace athanor
