// Makes language models of the versions of checkpoints: their text, their defaults, and an engine
// with as many blocks of keys and values as flags and memory allow.
//
//   LanguageModels models(options, &ledger);
//   ASSIGN_OR_RETURN(HostedModel hosted, models.Read(*version, {{"tokenizer.json", bytes}}, 0));
//   models.Open(std::move(hosted), version.get());
//   version->language_model()->engine->Start(...);
//
// Thread-safe. Must outlive the versions.
#ifndef ATHANOR_SERVER_MODELS_LANGUAGE_MODELS_H_
#define ATHANOR_SERVER_MODELS_LANGUAGE_MODELS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "deploy/bazel/libs/mutex.h"
#include "runtime/memory/state_memory.h"
#include "server/base/options.h"
#include "server/generate/block_room.h"
#include "server/generate/schedule/scheduler.h"
#include "server/memory/server_ledger.h"
#include "server/metrics/metrics.h"
#include "server/models/encoder_model.h"
#include "server/models/model_version.h"
#include "server/text/model_text.h"

namespace athanor {

// Sizes of an engine. A block is `scheduler.block` positions in all states.
struct EngineSizes {
  SchedulerOptions scheduler;
  int64_t blocks = 0;  // block 0 included
  StateMemory::Order order = StateMemory::Order::kByBlock;
  int64_t table_blocks = 0;    // of a sequence of max_model_len tokens
  int64_t token_kv_bytes = 0;  // of a position
};

// Returns the sizes that the flags ask for, as far as the dims of a decoder in form kPaged go.
// `free` is what is left behind the weights, as files and as prepared, and `promised` what blocks
// of other engines may still take of that: without --kv_memory it is kept for them, but for one
// sequence of the longest kind. Blocks of all states lie side by side if the range of dim N numbers
// them so; else each state lies by itself. RESOURCE_EXHAUSTED, with the numbers: there is not one
// block for sequences.
absl::StatusOr<EngineSizes> EngineSizesOf(const ServerOptions& options, const Graph& graph,
                                          int64_t free, int64_t promised = 0);

// A language model that has no engine yet.
struct HostedModel {
  std::shared_ptr<LanguageModel> model;
  EngineSizes sizes;
  int64_t vocabulary = 0;
  int64_t prepared_bytes = 0;
  int64_t least_free = 0;  // bytes of the ledger below which kept blocks give way
};

class LanguageModels {
 public:
  // Both outlive it.
  LanguageModels(const ServerOptions& options, ServerLedger* ledger, Metrics* metrics)
      : options_(options), ledger_(*ledger), metrics_(*metrics) {}

  // Reports whether the version generates: its graph has states, which its engine keeps.
  static bool Generates(const ModelVersion& version);
  // Reports whether the version is an encoder of texts.
  static bool Encodes(const ModelVersion& version);
  // Reads an encoder's text and sizes. INVALID_ARGUMENT: the tokenizer has tokens that the model
  // does not know; other errors are those of ReadModelText. REQUIRES: Encodes(version)
  static absl::StatusOr<std::shared_ptr<const EncoderModel>> ReadEncoder(
      const ModelVersion& version, absl::Span<const TextFile> files);

  // Reads the version's text and defaults. `files` are those that it keeps beside its weights, and
  // `unreserved` the bytes of weights that the ledger does not count yet. The room for blocks is
  // of what the ledger has left behind them, and behind prepared weights in f32. What others take
  // later (arenas, requests, further models, an upload at the same time) is not known: where the
  // ledger is full, sequences give way to each other, and one that is alone and needs a block ends
  // with RESOURCE_EXHAUSTED. Errors are those of ReadModelText and EngineSizesOf.
  // REQUIRES: Generates(version)
  absl::StatusOr<HostedModel> Read(const ModelVersion& version, absl::Span<const TextFile> files,
                                   int64_t unreserved) const;
  // Makes the engine, and the model that of the version. REQUIRES: the version has its metrics, and
  // nobody shares it yet.
  void Open(HostedModel hosted, ModelVersion* version);
  // Has engines of the memory that `device` uses, whose ledger is `memory`, give back that of
  // blocks that no sequence has, until `bytes` are free or it is `until`. Returns whether they are.
  // Asks nobody where they cannot be. Not for an engine's thread.
  bool MakeRoom(const std::string& device, const MemoryLedger& memory, int64_t bytes,
                SequenceTime until);
  // As MakeRoom of the host's memory, without waiting, for any thread.
  void AskRoom(int64_t bytes);

  // Bytes that engines may still take beside those that the ledger counts.
  struct Promised {
    int64_t prepared = 0;  // the ledger counts those of other models too: it may be too little
    int64_t states = 0;
  };
  Promised promised() const;

 private:
  // Counts what an engine may take while it lives.
  class Promise;

  const ServerOptions& options_;
  ServerLedger& ledger_;
  Metrics& metrics_;
  std::atomic<int64_t> promised_prepared_{0}, promised_states_{0};
  using Rooms = std::vector<std::shared_ptr<BlockRoom>>;
  // Returns those of engines with blocks on this GPU, or on the host, that together have about so
  // many bytes; none where all have fewer.
  Rooms RoomsOf(std::optional<int> gpu, int64_t bytes);

  Mutex mu_;
  struct Opened {
    std::optional<int> gpu;  // none: blocks are in the host's memory
    std::weak_ptr<BlockRoom> room;
  };
  std::vector<Opened> opened_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_LANGUAGE_MODELS_H_
