#include "tests/tokens/paged_plans.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/state.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/plan_builder.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/signature.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/state_layout.h"
#include "compiler/search/kernels/task.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gtest/gtest.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/harness.h"

namespace athanor::checkpoint {
namespace {

Checkpoint WideLlama() {
  constexpr int64_t kWidth = 88, kHidden = 120, kHeads = 4, kGroups = 2, kHead = 24;
  Checkpoint checkpoint = Checkpoint::Hf("llama");
  nlohmann::json config = nlohmann::json::parse(checkpoint.files["config.json"]);
  config["hidden_size"] = kWidth;
  config["intermediate_size"] = kHidden;
  config["head_dim"] = kHead;
  Shard shard;
  std::mt19937 rng(5);
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const double scale = shape.size() == 1 ? 1 : 1.5 / std::sqrt(static_cast<double>(shape.back()));
    shard.tensors[name] = {"F32", shape, RandomTensor(DType::kF32, shape, rng, scale).bytes};
  };
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = absl::StrCat("model.layers.", layer, ".");
    add(at + "input_layernorm.weight", {kWidth});
    add(at + "post_attention_layernorm.weight", {kWidth});
    add(at + "self_attn.q_proj.weight", {kHeads * kHead, kWidth});
    add(at + "self_attn.k_proj.weight", {kGroups * kHead, kWidth});
    add(at + "self_attn.v_proj.weight", {kGroups * kHead, kWidth});
    add(at + "self_attn.o_proj.weight", {kWidth, kHeads * kHead});
    add(at + "mlp.gate_proj.weight", {kHidden, kWidth});
    add(at + "mlp.up_proj.weight", {kHidden, kWidth});
    add(at + "mlp.down_proj.weight", {kWidth, kHidden});
  }
  add("model.embed_tokens.weight", {kWords, kWidth});
  add("model.norm.weight", {kWidth});
  add("lm_head.weight", {kWords, kWidth});
  checkpoint.files = {{"config.json", config.dump()}, {"model.safetensors", shard.Write()}};
  return checkpoint;
}

// Draws a genome that a search may choose: values that get memory or lose it, and a schedule for
// each kernel, without another order of sums than the baseline's.
absl::StatusOr<v1::Plan> DrawPlan(const Graph& graph, const v1::Target& target, uint32_t seed) {
  std::mt19937 draw(seed);
  ASSIGN_OR_RETURN(const Prepared prepared, Prepare(graph, /*plain=*/false, /*paged=*/true));
  const auto signature = [&](const Fusion& fusion) {
    ScheduledGraph made = {prepared.graph, ChooseKernels(prepared.graph, target, fusion)};
    PackWeights(&made.graph, &made.genome, target);
    return SignatureOf(made.graph, made.genome, target);
  };
  Fusion fusion = {{}, {.one_panel = true}};
  const std::string usual = signature(fusion);
  constexpr int kChanges = 12;
  for (int change = 0; change < kChanges; ++change) {
    const auto flips =
        FusionFlips(prepared.graph, ChooseKernels(prepared.graph, target, fusion), fusion.rules);
    if (flips.empty()) break;
    const auto& [node, say] = flips[draw() % flips.size()];
    Fusion changed = fusion;
    changed.nodes.insert_or_assign(node, say);
    if (signature(changed) == usual) fusion = std::move(changed);
  }
  ScheduledGraph scheduled = {prepared.graph, ChooseKernels(prepared.graph, target, fusion)};
  const std::vector<bool> memory = MemoryOf(prepared.graph, scheduled.genome);
  const std::vector<bool> weights = WeightsOf(prepared.graph);
  for (KernelChoice& kernel : scheduled.genome.kernels) {
    if (weights[kernel.root]) continue;
    const KernelTask task = CutTask(prepared.graph, memory, weights, kernel);
    std::vector<KernelChoice> able = Schedules(task, target);
    std::erase_if(able, std::not_fn(SameOrders(task, target)));
    if (able.empty()) return absl::InternalError(absl::StrCat("no ", ScheduleText(kernel)));
    const KernelChoice& drawn = able[draw() % able.size()];
    kernel.contract = drawn.contract;
    kernel.attention = drawn.attention;
    kernel.walk = drawn.walk;
  }
  PackWeights(&scheduled.graph, &scheduled.genome, target);
  ASSIGN_OR_RETURN(BuiltPlan built,
                   PlanBuilder(target).Build(scheduled, {"drawn", "", prepared.dim_names}));
  return std::move(built.plan);
}

}  // namespace

Checkpoint CheckpointOf(const std::string& family) {
  Checkpoint checkpoint = family == "wide_llama" ? WideLlama() : Checkpoint::Hf(family);
  nlohmann::json config = nlohmann::json::parse(checkpoint.files["config.json"]);
  config["max_position_embeddings"] = kContext;
  checkpoint.files["config.json"] = config.dump();
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(Checkpoint checkpoint) {
  checkpoint.options.form = DecoderForm::kPaged;
  checkpoint.options.limits = {.tokens = kTokens, .sequences = kSequences, .block = kBlock};
  auto decoder = std::make_unique<Decoder>();
  ASSIGN_OR_RETURN(const ImportedCheckpoint imported, checkpoint.Import());
  decoder->graph_ = imported.graph;
  decoder->parameters_ = ParametersOf(checkpoint, imported);
  ASSIGN_OR_RETURN(decoder->device_, CpuDevice::Create({.threads = 2}));
  RETURN_IF_ERROR(decoder->LoadPlans());
  return decoder;
}

absl::Status Decoder::LoadPlans() {
  const v1::Target target = HostTarget();
  std::set<std::string> done;
  // With fewer boxes, the first hold more rows: such plans serve the same steps.
  for (const int64_t most : {5, 3}) {
    ASSIGN_OR_RETURN(const BucketGrid grid,
                     BucketGrid::Create(graph_, DecoderRanges(graph_, most), most));
    for (int bucket = 0; bucket < grid.size(); ++bucket) {
      if (!done.insert(grid.Text(bucket)).second) continue;
      const Graph narrowed = NarrowedTo(graph_, grid.box(bucket));
      ASSIGN_OR_RETURN(const v1::Plan plan, BuildBaselinePlan(narrowed, target));
      RETURN_IF_ERROR(Load(narrowed, grid.Text(bucket), plan, target, &plans_));
    }
  }
  // More kernels, and other tiles: as a search may find them.
  ASSIGN_OR_RETURN(const v1::Plan parted, BuildBaselinePlan(graph_, target, {.epilogues = false}));
  RETURN_IF_ERROR(Load(graph_, "parted", parted, target, &plans_));
  for (const int seed : {1, 2, 3}) {
    ASSIGN_OR_RETURN(const v1::Plan drawn, DrawPlan(graph_, target, seed));
    RETURN_IF_ERROR(Load(graph_, absl::StrCat("drawn ", seed), drawn, target, &plans_));
  }
  const int half = target.vector_bytes() / 2;
  const v1::Target narrow = HostTarget(half < 16 ? 1 : half);
  ASSIGN_OR_RETURN(const v1::Plan foreign, BuildBaselinePlan(graph_, narrow));
  return Load(graph_, "foreign", foreign, narrow, &foreign_);
}

absl::Status Decoder::Load(const Graph& graph, const std::string& name, const v1::Plan& plan,
                           const v1::Target& target, std::vector<LoadedPlan>* plans) {
  std::vector<absl::string_view> objects;
  for (const v1::Kernel& kernel : plan.kernels()) {
    std::string& object = objects_[kernel.source()];
    if (object.empty()) {
      ASSIGN_OR_RETURN(object, CpuCode(kernel.source(), target, /*opt_level=*/3));
    }
    objects.push_back(object);
  }
  std::vector<ParameterView> views;
  const std::vector<NodeId> ids = graph.ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    views.push_back({graph.node(ids[i]).name, parameters_[i].bytes, nullptr});
  }
  LoadedPlan loaded = {.name = name, .signature = plan.signature()};
  for (const Dim& dim : graph.dims) {
    const size_t at = std::string("TRS").find(dim.name);
    if (at != std::string::npos) loaded.spans[at] = {dim.min, dim.max};
  }
  ASSIGN_OR_RETURN(loaded.executable,
                   Executable::Load(plan, objects, views, device_.get(), {.poison = true}));
  plans->push_back(std::move(loaded));
  return absl::OkStatus();
}

Pool::Pool(const Decoder& decoder) {
  std::vector<StateMemory::Spec> specs;
  for (const NodeId id : decoder.graph().StateIds()) {
    const Node& state = decoder.graph().node(id);
    const Shape& shape = state.type.shape;
    const int64_t elements = *Product({shape.begin() + 1, shape.end()}).constant();
    specs.push_back({state.name, StateLayout(RoleOf(state), shape),
                     elements * static_cast<int64_t>(sizeof(float))});
  }
  auto states = StateMemory::Create(decoder.device(), nullptr, specs, kBlocks * kBlock, kBlock,
                                    StateMemory::Order::kByBlock);
  EXPECT_TRUE(states.ok()) << states.status();
  states_ = *std::move(states);
  EXPECT_EQ(states_->stride(), std::ssize(specs)) << "else they do not lie as the server's";
  for (int32_t block = 0; block < kBlocks; ++block) {
    EXPECT_TRUE(states_->Commit(block).ok());
    Clear(block);
  }
}

void Pool::Clear(int32_t block) {
  ForBlock(block, [](char* data, size_t bytes) { std::memset(data, 0xFF, bytes); });
}

bool Pool::IsClear(int32_t block) {
  bool clear = true;
  ForBlock(block, [&](const char* data, size_t bytes) {
    clear = clear && std::all_of(data, data + bytes, [](char c) { return c == '\xFF'; });
  });
  return clear;
}

absl::StatusOr<std::vector<float>> Pool::Run(const LoadedPlan& plan, const Step& step) {
  std::unique_ptr<Executable::Context>& context = contexts_[&plan];
  if (context == nullptr) {
    ASSIGN_OR_RETURN(context, plan.executable->NewContext(states_.get()));
  }
  const auto stride = static_cast<int32_t>(states_->stride());
  std::map<std::string, std::vector<int32_t>> inputs = {{"wanted", step.wanted}};
  for (const Row& row : step.rows) {
    inputs["ids"].push_back(row.token);
    inputs["sequence"].push_back(row.sequence);
    inputs["position"].push_back(row.position);
  }
  for (const std::vector<int32_t>& line : step.table) {
    for (const int32_t block : line) inputs["table"].push_back(block * stride);
  }
  const std::map<std::string, size_t> sizes = {{"T", step.rows.size()},
                                               {"R", step.wanted.size()},
                                               {"S", step.table.size()},
                                               {"B", step.table[0].size()},
                                               {"N", kBlocks * stride}};
  std::vector<int64_t> dims;
  for (const SizeDim& dim : plan.executable->dims()) {
    dims.push_back(static_cast<int64_t>(sizes.at(dim.name)));
  }
  std::vector<absl::string_view> in;
  for (int i = 0; i < plan.executable->inputs(); ++i) {
    const std::vector<int32_t>& values = inputs.at(plan.executable->input_name(i));
    in.emplace_back(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t));
  }
  std::vector<float> logits(step.wanted.size() * kWords);
  const absl::Span<char> out(reinterpret_cast<char*>(logits.data()), logits.size() * sizeof(float));
  RETURN_IF_ERROR(plan.executable->Run(context.get(), dims, in, {out}, {}));
  return logits;
}

}  // namespace athanor::checkpoint
