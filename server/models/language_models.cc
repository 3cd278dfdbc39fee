#include "server/models/language_models.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "proto/athanor/internal/stored.pb.h"
#include "server/generate/language_model.h"
#include "server/generate/plan_step_runner.h"

namespace athanor {
namespace {

// Sequences of the longest kind that the states have room for unless --kv_memory says otherwise.
constexpr int64_t kDefaultSequences = 64;
// Blocks kept for their contents give way once less than one in so many of the ledger's bytes is
// free, or an eighth of what weights leave.
constexpr int64_t kLeastFree = 16;
// Says what to do where the range of dim N, which an upload sets, bounds the blocks.
constexpr char kMoreNumbers[] = "upload the model with a higher --max_tensor_bytes";

int64_t MostOf(const Graph& graph, std::string_view dim) {
  for (const Dim& own : graph.dims) {
    if (own.name == dim) return own.max;
  }
  return 0;
}

int64_t BlockOf(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (IsPagedAttention(node.op)) return GetAttr<int64_t>(node.attrs, "block");
  }
  return 0;
}

// Returns the bytes of a slot in all states together.
int64_t SlotBytes(const Graph& graph) {
  int64_t all = 0;
  for (NodeId id : graph.StateIds()) {
    const TensorType& type = graph.node(id).type;
    int64_t bytes = DTypeBytes(type.dtype);
    for (size_t i = 1; i < type.shape.size(); ++i) bytes *= *type.shape[i].constant();
    all += bytes;
  }
  return all;
}

// Returns the bytes of the weights as plans prepare them: computed in f32 and packed. Those that
// are only looked up are not prepared, and count here.
int64_t PreparedBytes(const Graph& graph) {
  int64_t all = 0;
  for (NodeId id : graph.ParameterIds()) {
    int64_t bytes = DTypeBytes(DType::kF32);
    for (const Expr& size : graph.node(id).type.shape) bytes *= *size.constant();
    all += bytes;
  }
  return all;
}

Sampling SamplingOf(const internal::Generation& generation) {
  Sampling sampling;
  sampling.temperature = static_cast<float>(generation.temperature());
  sampling.top_k = generation.top_k();
  sampling.top_p = static_cast<float>(generation.top_p());
  sampling.min_p = static_cast<float>(generation.min_p());
  sampling.repetition = static_cast<float>(generation.repetition_penalty());
  return sampling;
}

absl::StatusOr<internal::Generation> SettingsOf(const ModelVersion& version) {
  internal::Generation settings;
  if (settings.ParseFromString(version.row().generation)) return settings;
  return absl::DataLossError(Cat(version.Describe(), ": its settings cannot be read"));
}

// Multiplies two numbers that are not negative; a product beyond int64 is the largest of these.
int64_t Times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace

absl::StatusOr<EngineSizes> EngineSizesOf(const ServerOptions& options, const Graph& graph,
                                          int64_t free, int64_t promised) {
  EngineSizes sizes;
  sizes.token_kv_bytes = SlotBytes(graph);
  const int64_t block = BlockOf(graph), block_bytes = block * sizes.token_kv_bytes;
  SchedulerOptions& scheduler = sizes.scheduler;
  scheduler.block = block;
  scheduler.max_batched_tokens = std::min(options.max_batched_tokens, MostOf(graph, "T"));
  scheduler.max_sequences = std::min(options.max_sequences, MostOf(graph, "S"));
  scheduler.itl_target = std::chrono::milliseconds(options.itl_target_ms);
  scheduler.max_preemptions = options.max_preemptions;
  scheduler.max_model_len = MostOf(graph, "B") * block;
  if (options.max_model_len > 0) {
    scheduler.max_model_len = std::min(scheduler.max_model_len, options.max_model_len);
  }
  sizes.table_blocks = (scheduler.max_model_len + block - 1) / block;
  int64_t bytes = options.kv_memory;
  if (bytes == 0) {
    const int64_t one = Times(sizes.table_blocks, block_bytes);
    const int64_t left = std::max((free - promised) / 2, std::min(one, free / 2));
    bytes = std::min(Times(kDefaultSequences, one), left);
  }
  const int64_t given = bytes / block_bytes;  // to sequences; block 0 is beside them
  if (given < 1) {
    return absl::ResourceExhaustedError(
        Cat("keys and values of a block of ", block, " positions have ", block_bytes,
            " bytes, and there is room for ", std::max<int64_t>(0, bytes), ", ",
            options.kv_memory > 0
                ? "as --kv_memory says"
                : "half of what --memory_limit leaves behind weights and prepared weights"));
  }
  // The graph's sequences use no more than that, whatever is given.
  const int64_t wanted = std::min(given, Times(MostOf(graph, "S"), MostOf(graph, "B"))) + 1;
  const int64_t numbers = MostOf(graph, "N");
  // Side by side, a block takes a number for each state.
  if (numbers / std::ssize(graph.StateIds()) < wanted) sizes.order = StateMemory::Order::kByState;
  sizes.blocks = std::min(wanted, numbers);
  if (sizes.blocks < wanted) scheduler.more_blocks = kMoreNumbers;
  if (sizes.blocks < 2) {
    return absl::ResourceExhaustedError(Cat("keys and values need 2 blocks of ", block,
                                            " positions, and the graph has room for ", numbers,
                                            " (dim \"N\"): ", kMoreNumbers));
  }
  return sizes;
}

bool LanguageModels::Generates(const ModelVersion& version) {
  return !version.row().generation.empty() && !version.graph().StateIds().empty();
}

bool LanguageModels::Encodes(const ModelVersion& version) {
  const absl::StatusOr<internal::Generation> settings = SettingsOf(version);
  return settings.ok() && settings->width() > 0;
}

absl::StatusOr<std::shared_ptr<const EncoderModel>> LanguageModels::ReadEncoder(
    const ModelVersion& version, absl::Span<const TextFile> files) {
  ASSIGN_OR_RETURN(const internal::Generation settings, SettingsOf(version));
  auto encoder = std::make_shared<EncoderModel>();
  encoder->family = settings.family();
  encoder->width = settings.width();
  encoder->vocabulary = settings.vocabulary();
  encoder->context = settings.context();
  ASSIGN_OR_RETURN(ModelText text, ReadModelText(files));
  if (text.tokenizer != nullptr && text.tokenizer->size() > encoder->vocabulary) {
    return Invalid("the tokenizer makes the token ", text.tokenizer->size() - 1,
                   "; the model's tokens are 0 to ", encoder->vocabulary - 1);
  }
  encoder->tokenizer = std::move(text.tokenizer);
  return encoder;
}

absl::StatusOr<HostedModel> LanguageModels::Read(const ModelVersion& version,
                                                 absl::Span<const TextFile> files,
                                                 int64_t unreserved) const {
  ASSIGN_OR_RETURN(const internal::Generation generation, SettingsOf(version));
  HostedModel hosted;
  // A GPU prepares weights in memory of its own.
  if (!GpuOrdinal(version.device()).has_value()) {
    hosted.prepared_bytes = PreparedBytes(version.graph());
  }
  const Promised others = promised();
  const int64_t free = ledger_.free() - unreserved - hosted.prepared_bytes - others.prepared;
  // Blocks are half of what is left: a full pool alone is no lack, however little that is.
  hosted.least_free = std::min(ledger_.limit() / kLeastFree, std::max<int64_t>(0, free) / 8);
  ASSIGN_OR_RETURN(hosted.sizes, EngineSizesOf(options_, version.graph(), free, others.states));
  // A context may end within a block.
  SchedulerOptions& scheduler = hosted.sizes.scheduler;
  scheduler.max_model_len = std::min<int64_t>(scheduler.max_model_len, generation.context());
  hosted.vocabulary = generation.vocabulary();
  hosted.model = std::make_shared<LanguageModel>();
  ASSIGN_OR_RETURN(hosted.model->text, ReadModelText(files));
  hosted.model->family = generation.family();
  hosted.model->sampling = SamplingOf(generation);
  hosted.model->end_tokens.assign(generation.end_tokens().begin(), generation.end_tokens().end());
  hosted.model->token_kv_bytes = hosted.sizes.token_kv_bytes;
  return hosted;
}

class LanguageModels::Promise {
 public:
  Promise(LanguageModels* models, int64_t prepared, int64_t states)
      : models_(*models), prepared_(prepared), states_(states) {
    models_.promised_prepared_ += prepared_;
    models_.promised_states_ += states_;
  }
  ~Promise() {
    models_.promised_prepared_ -= prepared_;
    models_.promised_states_ -= states_;
  }
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;

 private:
  LanguageModels& models_;
  const int64_t prepared_, states_;
};

LanguageModels::Promised LanguageModels::promised() const {
  return {.prepared = std::max<int64_t>(0, promised_prepared_ - ledger_.used(HeldKind::kPrepared)),
          .states = std::max<int64_t>(0, promised_states_ - ledger_.used(HeldKind::kStates))};
}

void LanguageModels::Open(HostedModel hosted, ModelVersion* version) {
  const EngineSizes& sizes = hosted.sizes;
  // With --kv_memory no engine asks what others may take.
  const int64_t states = options_.kv_memory > 0
                             ? 0
                             : Times(sizes.blocks * sizes.scheduler.block, sizes.token_kv_bytes);
  auto promise = std::make_shared<const Promise>(this, hosted.prepared_bytes, states);
  auto runner = std::make_unique<PlanStepRunner>(&version->plans(), version->graph(),
                                                 PlanStepOptions{.block = sizes.scheduler.block,
                                                                 .blocks = sizes.blocks,
                                                                 .table_blocks = sizes.table_blocks,
                                                                 .vocabulary = hosted.vocabulary,
                                                                 .order = sizes.order,
                                                                 .promise = std::move(promise)});
  EngineOptions engine;
  engine.scheduler = sizes.scheduler;
  engine.vocabulary = hosted.vocabulary;
  engine.blocks = static_cast<int32_t>(sizes.blocks);
  if (sizes.order == StateMemory::Order::kByBlock) {
    engine.block_bytes = sizes.scheduler.block * sizes.token_kv_bytes;
  }
  engine.metrics = version->shared_metrics();
  // States on a GPU are counted with its memory: nothing of the host's is gained by them.
  if (!GpuOrdinal(version->device()).has_value()) {
    engine.refused = [&cells = metrics_.server()] {
      cells.Count(Metric::kRefusals, Refusal::kMemory);
    };
    engine.lacks = [&ledger = ledger_, least = hosted.least_free] { return ledger.free() < least; };
  }
  hosted.model->engine = Engine::Create(engine, std::move(runner), hosted.model->text.tokenizer);
  {
    MutexLock lock(mu_);
    std::erase_if(opened_, [](const Opened& opened) { return opened.room.expired(); });
    opened_.push_back({GpuOrdinal(version->device()), hosted.model->engine->room()});
  }
  version->SetLanguageModel(std::move(hosted.model));
}

LanguageModels::Rooms LanguageModels::RoomsOf(std::optional<int> gpu, int64_t bytes) {
  Rooms rooms;
  MutexLock lock(mu_);
  for (const Opened& opened : opened_) {
    if (bytes <= 0) break;
    std::shared_ptr<BlockRoom> room = opened.gpu == gpu ? opened.room.lock() : nullptr;
    const int64_t unused = room == nullptr ? 0 : room->unused_bytes();
    if (unused == 0) continue;
    bytes -= std::min(bytes, unused);
    rooms.push_back(std::move(room));
  }
  return bytes <= 0 ? std::move(rooms) : Rooms();
}

void LanguageModels::AskRoom(int64_t bytes) {
  int64_t missing = bytes - ledger_.free();
  for (const std::shared_ptr<BlockRoom>& room : RoomsOf(std::nullopt, missing)) {
    const int64_t gives = std::min(missing, room->unused_bytes());
    room->Ask(gives);
    missing -= gives;
  }
}

bool LanguageModels::MakeRoom(const std::string& device, const MemoryLedger& memory, int64_t bytes,
                              SequenceTime until) {
  for (const auto& room : RoomsOf(GpuOrdinal(device), bytes - memory.free())) {
    const int64_t missing = bytes - memory.free();
    if (missing > 0) room->Await(missing, until);
  }
  return bytes <= memory.free();
}

}  // namespace athanor
