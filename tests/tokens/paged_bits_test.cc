// A sequence's logits are the same bits however its rows are computed: alone and one at a time, or
// in steps with any others, in any pieces, rows in any order, in any blocks of a pool that holds
// NaN wherever nobody has written, in blocks shared with others, and by any plan of the version's
// signature, which changes between two steps.
//
// A thousand random schedules; ATHANOR_PAGED_SCHEDULES=100000 runs more. A failure names its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compiler/frontend/checkpoint/import_testing.h"
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
#include "runtime/cpu/device.h"
#include "runtime/executor.h"
#include "runtime/state_memory.h"
#include "server/plans/bucket_grid.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/harness.h"

namespace athanor::checkpoint {
namespace {

// Attention goes through the keys in splits of 256: some sequences are longer.
constexpr int64_t kContext = 320, kTokens = 96, kSequences = 8, kBlock = 16;
// Block 0 is nobody's, as in the server. The others are fewer than the sequences could use.
constexpr int32_t kBlocks = 56;
constexpr int32_t kWords = 48;

// Breaks what the equality rests on, to see that a schedule would notice.
enum class Fault { kNone, kSharedBlockWritten, kLinesSwapped, kFreedTooEarly, kOtherSignature };

struct Row {
  int32_t token, sequence, position;
};
struct Step {
  std::vector<Row> rows;
  std::vector<std::vector<int32_t>> table;  // lines of equal length
  std::vector<int32_t> wanted;
};

struct LoadedPlan {
  std::string name, signature;
  std::array<DimSpan, 3> spans;  // of T, R, S
  std::shared_ptr<const Executable> executable;
};

// A llama whose sums are several vectors long and end within one, so that their order shows.
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
    const double scale = 1 / std::sqrt(static_cast<double>(shape.back()));
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

// Returns a checkpoint for the long context.
Checkpoint CheckpointOf(const std::string& family) {
  Checkpoint checkpoint = family == "wide_llama" ? WideLlama() : Checkpoint::Hf(family);
  nlohmann::json config = nlohmann::json::parse(checkpoint.files["config.json"]);
  config["max_position_embeddings"] = kContext;
  checkpoint.files["config.json"] = config.dump();
  return checkpoint;
}

// Draws a schedule for each kernel among those that a search may choose: whose sums have the
// baseline's order.
absl::StatusOr<v1::Plan> DrawPlan(const Graph& graph, const v1::Target& target, uint32_t seed) {
  std::mt19937 draw(seed);
  ASSIGN_OR_RETURN(const Prepared prepared, Prepare(graph, /*plain=*/false, /*paged=*/true));
  const Fusion fusion = {{}, {.one_panel = true}};
  ScheduledGraph scheduled = {prepared.graph, ChooseKernels(prepared.graph, target, fusion)};
  const std::vector<bool> memory = MemoryOf(prepared.graph, scheduled.genome);
  const std::vector<bool> weights = WeightsOf(prepared.graph);
  for (KernelChoice& kernel : scheduled.genome.kernels) {
    if (weights[kernel.root]) continue;
    const KernelTask task = CutTask(prepared.graph, memory, weights, kernel);
    std::vector<KernelChoice> able = Schedules(task, target);
    std::erase_if(able, [&](const KernelChoice& c) { return !SameOrders(task.choice, c); });
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

// A decoder of one family, compiled as a server does it, and more often.
class Decoder {
 public:
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(Checkpoint checkpoint) {
    checkpoint.options.form = DecoderForm::kPaged;
    checkpoint.options.limits = {.tokens = kTokens, .sequences = kSequences, .block = kBlock};
    auto decoder = std::make_unique<Decoder>();
    ASSIGN_OR_RETURN(const ImportedDecoder imported, checkpoint.Import());
    decoder->graph_ = imported.graph;
    decoder->parameters_ = ParametersOf(checkpoint, imported);
    ASSIGN_OR_RETURN(decoder->device_, CpuDevice::Create({.threads = 2}));
    RETURN_IF_ERROR(decoder->LoadPlans());
    return decoder;
  }

  const Graph& graph() const { return graph_; }
  Device* device() const { return device_.get(); }
  // The first is of the full range, the second of one row.
  const std::vector<LoadedPlan>& plans() const { return plans_; }
  // Sums in another order, over the full range.
  const LoadedPlan& foreign() const { return foreign_[0]; }

 private:
  absl::Status LoadPlans() {
    const v1::Target target = HostTarget();
    std::set<std::string> done;
    // Of fewer boxes, the first hold more rows: such plans serve the same steps.
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
    ASSIGN_OR_RETURN(const v1::Plan parted,
                     BuildBaselinePlan(graph_, target, {.epilogues = false}));
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

  absl::Status Load(const Graph& graph, const std::string& name, const v1::Plan& plan,
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

  Graph graph_;
  std::vector<Tensor> parameters_;
  std::unique_ptr<CpuDevice> device_;
  std::map<std::string, std::string> objects_;  // by source
  std::vector<LoadedPlan> plans_;
  std::vector<LoadedPlan> foreign_;  // one
};

// States over which all plans of a decoder run.
class Pool {
 public:
  explicit Pool(const Decoder& decoder) {
    std::vector<StateMemory::Spec> specs;
    for (const NodeId id : decoder.graph().StateIds()) {
      const Node& state = decoder.graph().node(id);
      const Shape& shape = state.type.shape;
      const int64_t elements = *Product({shape.begin() + 1, shape.end()}).constant();
      specs.push_back({state.name, StateLayout(RoleOf(state), shape),
                       elements * static_cast<int64_t>(sizeof(float))});
    }
    auto states = StateMemory::Create(decoder.device(), nullptr, specs, kBlocks * kBlock, kBlock);
    EXPECT_TRUE(states.ok()) << states.status();
    states_ = *std::move(states);
    for (int32_t block = 0; block < kBlocks; ++block) {
      EXPECT_TRUE(states_->Commit(block).ok());
      Clear(block);
    }
  }

  // Makes all of a block NaN.
  void Clear(int32_t block) {
    ForBlock(block, [](char* data, size_t bytes) { std::memset(data, 0xFF, bytes); });
  }
  bool IsClear(int32_t block) {
    bool clear = true;
    ForBlock(block, [&](const char* data, size_t bytes) {
      clear = clear && std::all_of(data, data + bytes, [](char c) { return c == '\xFF'; });
    });
    return clear;
  }

  // Returns logits, a row for each that is wanted.
  absl::StatusOr<std::vector<float>> Run(const LoadedPlan& plan, const Step& step) {
    std::unique_ptr<Executable::Context>& context = contexts_[&plan];
    if (context == nullptr) {
      ASSIGN_OR_RETURN(context, plan.executable->NewContext(states_.get()));
    }
    std::map<std::string, std::vector<int32_t>> inputs = {{"wanted", step.wanted}};
    for (const Row& row : step.rows) {
      inputs["ids"].push_back(row.token);
      inputs["sequence"].push_back(row.sequence);
      inputs["position"].push_back(row.position);
    }
    for (const std::vector<int32_t>& line : step.table) {
      inputs["table"].insert(inputs["table"].end(), line.begin(), line.end());
    }
    const std::map<std::string, size_t> sizes = {{"T", step.rows.size()},
                                                 {"R", step.wanted.size()},
                                                 {"S", step.table.size()},
                                                 {"B", step.table[0].size()},
                                                 {"N", kBlocks}};
    std::vector<int64_t> dims;
    for (const SizeDim& dim : plan.executable->dims()) {
      dims.push_back(static_cast<int64_t>(sizes.at(dim.name)));
    }
    std::vector<absl::string_view> in;
    for (int i = 0; i < plan.executable->inputs(); ++i) {
      const std::vector<int32_t>& values = inputs.at(plan.executable->input_name(i));
      in.emplace_back(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(int32_t));
    }
    std::vector<float> logits(step.wanted.size() * kWords);
    const absl::Span<char> out(reinterpret_cast<char*>(logits.data()),
                               logits.size() * sizeof(float));
    RETURN_IF_ERROR(plan.executable->Run(context.get(), dims, in, {out}, {}));
    return logits;
  }

 private:
  template <typename Use>
  void ForBlock(int32_t block, Use use) {
    for (size_t s = 0; s < states_->specs().size(); ++s) {
      const int64_t bytes = kBlock * states_->specs()[s].slot_bytes;
      use(states_->data(static_cast<int>(s)) + block * bytes, static_cast<size_t>(bytes));
    }
  }

  std::unique_ptr<StateMemory> states_;
  std::map<const LoadedPlan*, std::unique_ptr<Executable::Context>> contexts_;
};

// A sequence of tokens, and its logits alone: a row a step, by the plan of one row.
struct Text {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

absl::Status ComputeAlone(const Decoder& decoder, Text* text) {
  Pool pool(decoder);
  std::vector<int32_t> line(kContext / kBlock);
  std::iota(line.begin(), line.end(), 1);
  for (size_t i = 0; i < text->tokens.size(); ++i) {
    const auto position = static_cast<int32_t>(i);
    ASSIGN_OR_RETURN(const std::vector<float> row,
                     pool.Run(decoder.plans()[1], {{{text->tokens[i], 0, position}}, {line}, {0}}));
    if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
      return absl::InternalError(absl::StrCat("position ", i, " alone is not finite"));
    }
    text->logits.insert(text->logits.end(), row.begin(), row.end());
  }
  return absl::OkStatus();
}

// Makes texts, of which every other begins as the one before it.
absl::StatusOr<std::vector<Text>> MakeTexts(const Decoder& decoder, int count, uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<Text> texts(count);
  for (int t = 0; t < count; ++t) {
    std::vector<int32_t>& tokens = texts[t].tokens;
    if (t % 2 == 1) tokens.assign(texts[t - 1].tokens.begin(), texts[t - 1].tokens.begin() + 40);
    while (tokens.size() < kContext) tokens.push_back(static_cast<int32_t>(draw() % kWords));
    RETURN_IF_ERROR(ComputeAlone(decoder, &texts[t]));
  }
  return texts;
}

// Runs random sequences to their ends and compares what they give.
class Schedule {
 public:
  Schedule(const Decoder& decoder, Pool& pool, const std::vector<Text>& texts, uint32_t seed,
           Fault fault)
      : decoder_(decoder), pool_(pool), texts_(texts), draw_(seed), fault_(fault) {
    free_.resize(kBlocks - 1);
    std::iota(free_.begin(), free_.end(), 1);
    waiting_ = 1 + Below(7);
  }

  void Run() {
    while (waiting_ > 0 || !active_.empty()) {
      while (waiting_ > 0 && std::ssize(active_) < kSequences &&
             (active_.empty() || Below(3) == 0)) {
        if (!Start()) break;
      }
      RunStep();
      if (!error_.empty()) break;
      std::erase_if(active_, [&](const Sequence& s) {
        if (s.at == s.end) Release(s.blocks);
        return s.at == s.end;
      });
    }
    for (const Sequence& s : active_) Release(s.blocks);  // after an error
    for (int32_t block = 0; block < kBlocks; ++block) {
      if (!pool_.IsClear(block)) Fail(absl::StrCat("block ", block, " was written by a stranger"));
      pool_.Clear(block);
    }
  }

  // What went wrong first; empty: nothing.
  const std::string& error() const { return error_; }
  int64_t compared() const { return compared_; }
  const std::set<std::string>& plans() const { return used_plans_; }
  bool shared() const { return shared_; }

 private:
  struct Sequence {
    const Text* text;
    int32_t prompt, end;  // positions: of the prompt, of all
    int32_t at;           // positions computed
    std::vector<int32_t> blocks;
  };
  struct Piece {
    size_t sequence;  // in active_
    int32_t first, count;
  };

  uint32_t Below(uint32_t n) { return draw_() % n; }
  void Fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
  }

  // Begins a sequence, with blocks of one that has begun in the same way; false: too few are free.
  bool Start() {
    Sequence s = {.text = &texts_[Below(static_cast<uint32_t>(texts_.size()))], .at = 0};
    s.prompt = static_cast<int32_t>(Below(8) == 0 ? 200 + Below(96) : 1 + Below(50));
    s.end = s.prompt + static_cast<int32_t>(Below(24)) + 1;
    for (const Sequence& other : active_) {
      const auto& [a, b] = std::pair(s.text->tokens.begin(), other.text->tokens.begin());
      const auto most = std::min(other.at, s.prompt - 1);
      const auto equal = static_cast<int32_t>(std::mismatch(a, a + most, b).first - a);
      const int32_t blocks = equal / kBlock;
      if (blocks == 0 || Below(4) == 0) continue;
      s.blocks.assign(other.blocks.begin(), other.blocks.begin() + 1 + Below(blocks));
      shared_ = true;
      break;
    }
    const size_t needed = (s.end + kBlock - 1) / kBlock - s.blocks.size();
    if (needed > free_.size()) return false;
    s.at = static_cast<int32_t>(s.blocks.size() * kBlock);
    std::shuffle(free_.begin(), free_.end(), draw_);
    s.blocks.insert(s.blocks.end(), free_.end() - static_cast<int64_t>(needed), free_.end());
    free_.resize(free_.size() - needed);
    for (const int32_t block : s.blocks) ++users_[block];
    active_.push_back(std::move(s));
    --waiting_;
    return true;
  }

  void Release(const std::vector<int32_t>& blocks) {
    for (const int32_t block : blocks) {
      if (--users_[block] > 0) continue;
      pool_.Clear(block);
      free_.push_back(block);
    }
  }

  // Chooses which sequences have rows in the step, and how many: a piece of a prompt, or one.
  std::vector<Piece> Pieces() {
    constexpr uint32_t kMost[] = {1, 4, 16, 64, kTokens};
    int32_t left = static_cast<int32_t>(1 + Below(kMost[Below(5)]));
    std::vector<size_t> order(active_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), draw_);
    std::vector<Piece> pieces;
    for (const size_t i : order) {
      const Sequence& s = active_[i];
      if (left == 0 || (!pieces.empty() && Below(5) == 0)) continue;
      const int32_t most = std::min(left, std::max(s.prompt - s.at, 1));
      const auto count =
          static_cast<int32_t>(Below(2) == 0 ? most : 1 + Below(static_cast<uint32_t>(most)));
      pieces.push_back({i, s.at, count});
      left -= count;
    }
    return pieces;
  }

  const LoadedPlan& ChoosePlan(int64_t rows) {
    if (fault_ == Fault::kOtherSignature && Below(2) == 0) return decoder_.foreign();
    std::vector<const LoadedPlan*> able;
    for (const LoadedPlan& plan : decoder_.plans()) {
      if (plan.spans[0].min <= rows && rows <= plan.spans[0].max) able.push_back(&plan);
    }
    const LoadedPlan& plan = *able[Below(static_cast<uint32_t>(able.size()))];
    used_plans_.insert(plan.name);
    return plan;
  }

  // Returns the lines of the sequences in active_, by number, as wide as they need or wider. Cells
  // that no row may read name any block.
  std::vector<std::vector<int32_t>> Table(const std::vector<size_t>& sequences) {
    size_t width = 1;
    for (const size_t i : sequences) width = std::max(width, active_[i].blocks.size());
    constexpr size_t kMost = kContext / kBlock;
    if (Below(2) == 0) width = std::min(std::bit_ceil(width), kMost);
    if (Below(8) == 0) width = kMost;
    const bool strangers = Below(2) == 0;
    std::vector<std::vector<int32_t>> table;
    for (const size_t i : sequences) {
      std::vector<int32_t>& line = table.emplace_back(active_[i].blocks);
      while (line.size() < width) {
        line.push_back(strangers ? static_cast<int32_t>(Below(kBlocks)) : 0);
      }
    }
    return table;
  }

  void RunStep() {
    const std::vector<Piece> pieces = Pieces();
    Step step;
    std::vector<size_t> lines;
    for (const Piece& piece : pieces) {
      const Sequence& s = active_[piece.sequence];
      for (int32_t p = piece.first; p < piece.first + piece.count; ++p) {
        step.rows.push_back({s.text->tokens[p], static_cast<int32_t>(lines.size()), p});
      }
      lines.push_back(piece.sequence);
    }
    if (Below(4) == 0) std::shuffle(step.rows.begin(), step.rows.end(), draw_);
    for (size_t r = 0; r < step.rows.size(); ++r) {
      if (Below(2) == 0) step.wanted.push_back(static_cast<int32_t>(r));
    }
    if (Below(4) == 0) std::shuffle(step.wanted.begin(), step.wanted.end(), draw_);
    const LoadedPlan& plan = ChoosePlan(std::ssize(step.rows));
    // Lines without rows.
    for (size_t i = 0; i < active_.size() && std::ssize(lines) < plan.spans[2].max; ++i) {
      if (Below(3) == 0) lines.push_back(i);
    }
    step.table = Table(lines);
    Step computed = step;
    Break(lines, &computed);
    const absl::StatusOr<std::vector<float>> logits = pool_.Run(plan, computed);
    if (!logits.ok()) return Fail(absl::StrCat(plan.name, ": ", logits.status().ToString()));
    Compare(plan, step, lines, *logits);
    for (const Piece& piece : pieces) active_[piece.sequence].at += piece.count;
  }

  // Commits the fault, where the step allows it.
  void Break(const std::vector<size_t>& lines, Step* step) {
    if (fault_ == Fault::kLinesSwapped && lines.size() > 1) {
      std::swap(step->table[0], step->table[1]);
    } else if (fault_ == Fault::kFreedTooEarly && active_[lines[0]].at > 0 && Below(8) == 0) {
      pool_.Clear(active_[lines[0]].blocks[(active_[lines[0]].at - 1) / kBlock]);
    } else if (fault_ == Fault::kSharedBlockWritten) {
      for (size_t i = 0; i < lines.size(); ++i) {
        const Sequence& s = active_[lines[i]];
        // A row of another token, computed again, of which no one wants logits.
        if (users_[s.blocks[0]] < 2 || s.at < kBlock || std::ssize(step->rows) == kTokens) continue;
        Step rewrite = *step;
        rewrite.rows = {{(s.text->tokens[3] + 1) % kWords, static_cast<int32_t>(i), 3}};
        rewrite.wanted = {};
        const auto written = pool_.Run(decoder_.plans()[0], rewrite);
        if (!written.ok()) Fail(written.status().ToString());
        return;
      }
    }
  }

  void Compare(const LoadedPlan& plan, const Step& step, const std::vector<size_t>& lines,
               const std::vector<float>& logits) {
    for (size_t r = 0; r < step.wanted.size(); ++r) {
      const Row& row = step.rows[step.wanted[r]];
      const float* const alone =
          active_[lines[row.sequence]].text->logits.data() + int64_t{row.position} * kWords;
      const float* const found = logits.data() + r * kWords;
      ++compared_;
      if (std::memcmp(found, alone, kWords * sizeof(float)) == 0) continue;
      const auto at = std::mismatch(found, found + kWords, alone).first - found;
      Fail(absl::StrCat("position ", row.position, ", row ", step.wanted[r], " of ",
                        step.rows.size(), ", ", step.table.size(), " lines of ",
                        step.table[0].size(), ", plan ", plan.name, ": logit ", at, " is ",
                        found[at], ", alone ", alone[at]));
    }
  }

  const Decoder& decoder_;
  Pool& pool_;
  const std::vector<Text>& texts_;
  std::mt19937 draw_;
  const Fault fault_;
  int waiting_ = 0;
  std::vector<Sequence> active_;
  std::vector<int32_t> free_;
  std::array<int, kBlocks> users_ = {};
  std::string error_;
  int64_t compared_ = 0;
  std::set<std::string> used_plans_;
  bool shared_ = false;
};

int Schedules() {
  const char* const given = std::getenv("ATHANOR_PAGED_SCHEDULES");
  int schedules = 1000;
  EXPECT_TRUE(given == nullptr || absl::SimpleAtoi(given, &schedules)) << given;
  return schedules;
}

// Shared by all tests of a family.
const Decoder& DecoderOf(const std::string& family) {
  static auto& decoders = *new std::map<std::string, absl::StatusOr<std::unique_ptr<Decoder>>>;
  const auto [at, added] = decoders.try_emplace(family, absl::UnknownError(""));
  if (added) at->second = Decoder::Create(CheckpointOf(family));
  return *at->second.value();
}

class PagedBits : public testing::TestWithParam<const char*> {};

TEST_P(PagedBits, PlansHaveOneSignature) {
  const Decoder& decoder = DecoderOf(GetParam());
  ASSERT_EQ(decoder.plans().size(), 11);
  EXPECT_EQ(decoder.plans()[1].spans[0], (DimSpan{1, 1}));
  for (const LoadedPlan& plan : decoder.plans()) {
    EXPECT_EQ(plan.signature, decoder.plans()[0].signature) << plan.name;
  }
  EXPECT_NE(decoder.plans()[0].signature, "");
  EXPECT_NE(decoder.plans()[0].signature, decoder.foreign().signature);
}

// Bits that are equal and wrong would pass the rest.
TEST_P(PagedBits, AloneIsWhatTheReferenceComputes) {
  Checkpoint checkpoint = CheckpointOf(GetParam());
  const absl::StatusOr<ImportedDecoder> whole = checkpoint.Import();
  ASSERT_TRUE(whole.ok()) << whole.status();
  Text text;
  std::vector<int32_t> all;
  for (int32_t i = 0; i < 70; ++i) {
    text.tokens.push_back((i * 7 + i / 5) % kWords);
    all.push_back(i);
  }
  ASSERT_TRUE(ComputeAlone(DecoderOf(GetParam()), &text).ok());
  std::vector<std::vector<float>> rows;
  for (auto row = text.logits.begin(); row != text.logits.end(); row += kWords) {
    rows.emplace_back(row, row + kWords);
  }
  ExpectGolden(rows, Logits(checkpoint, *whole, text.tokens, all));
}

TEST_P(PagedBits, EqualInAnySchedule) {
  constexpr int kSchedulesOfTexts = 500;
  const Decoder& decoder = DecoderOf(GetParam());
  Pool pool(decoder);
  absl::StatusOr<std::vector<Text>> texts;
  int64_t compared = 0;
  int shared = 0;
  std::set<std::string> plans;
  const int schedules = Schedules();
  for (int seed = 0; seed < schedules; ++seed) {
    if (seed % kSchedulesOfTexts == 0) {
      texts = MakeTexts(decoder, 12, seed + 1);
      ASSERT_TRUE(texts.ok()) << texts.status();
    }
    Schedule schedule(decoder, pool, *texts, seed, Fault::kNone);
    schedule.Run();
    ASSERT_EQ(schedule.error(), "") << "seed " << seed;
    compared += schedule.compared();
    shared += schedule.shared() ? 1 : 0;
    plans.insert(schedule.plans().begin(), schedule.plans().end());
  }
  EXPECT_GT(compared, 40 * schedules);
  EXPECT_GT(shared, schedules / 20);
  EXPECT_EQ(plans.size(), decoder.plans().size());
  RecordProperty("rows_compared", absl::StrCat(compared));
}

TEST_P(PagedBits, FaultsAreSeen) {
  const Decoder& decoder = DecoderOf(GetParam());
  Pool pool(decoder);
  const absl::StatusOr<std::vector<Text>> texts = MakeTexts(decoder, 6, 0);
  ASSERT_TRUE(texts.ok()) << texts.status();
  for (const Fault fault : {Fault::kSharedBlockWritten, Fault::kLinesSwapped, Fault::kFreedTooEarly,
                            Fault::kOtherSignature}) {
    int seen = 0;
    for (int seed = 0; seed < 60; ++seed) {
      Schedule schedule(decoder, pool, *texts, seed, fault);
      schedule.Run();
      seen += schedule.error().empty() ? 0 : 1;
    }
    EXPECT_GT(seen, 5) << "fault " << static_cast<int>(fault);
  }
}

// Full attention; a window in the second layer, and biases.
INSTANTIATE_TEST_SUITE_P(Tiny, PagedBits, testing::Values("wide_llama", "qwen2_window"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace athanor::checkpoint
