#include "server/calls/embedding.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/generation.h"
#include "server/calls/prompt.h"
#include "server/tracing/trace.h"

namespace athanor {
namespace {

// Runs of one request that are under way: one computes while the next one's inputs wait.
constexpr size_t kMostRuns = 2;

constexpr char kIds[] = "ids", kLengths[] = "lengths", kEmbeddings[] = "embeddings";

// Returns the range of a size of the graph's input `ids`: rows, or positions.
Dim RangeOf(const Graph& graph, size_t axis) {
  for (const NodeId id : graph.InputIds()) {
    const Node& node = graph.node(id);
    if (node.name != kIds || node.type.shape.size() <= axis) continue;
    const Expr& size = node.type.shape[axis];
    if (const auto fixed = size.constant()) return {.min = *fixed, .max = *fixed};
    for (const Dim& dim : graph.dims) {
      if (dim.name == size.symbol()) return dim;
    }
  }
  return {};
}

void AddInput(const char* name, std::initializer_list<int64_t> shape, std::string raw,
              inference::ModelInferRequest* request) {
  auto* input = request->add_inputs();
  input->set_name(name);
  input->set_datatype("INT32");
  for (const int64_t size : shape) input->add_shape(size);
  *request->add_raw_input_contents() = std::move(raw);
}

}  // namespace

// A run that is under way. Keeps the request until it has ended.
class Embedding::Run final : public InferenceSink {
 public:
  Run(std::shared_ptr<Embedding> embedding, const EmbeddingRun& run)
      : embedding_(std::move(embedding)),
        run_(run),
        inference_(embedding_->core_,
                   {.client = embedding_->caller_.client,
                    .deadline = embedding_->caller_.deadline,
                    .trace = embedding_->caller_.trace},
                   this) {}

  void Begin() {
    const auto rows = static_cast<int64_t>(run_.inputs.size());
    // Padding is token 0, which is one of any model.
    std::string ids(static_cast<size_t>(rows * run_.length) * sizeof(int32_t), '\0');
    std::string lengths(static_cast<size_t>(rows) * sizeof(int32_t), '\0');
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int32_t>& tokens = embedding_->request_.inputs[run_.inputs[row]].tokens;
      const auto length = static_cast<int32_t>(tokens.size());
      std::memcpy(&ids[row * run_.length * sizeof(int32_t)], tokens.data(),
                  tokens.size() * sizeof(int32_t));
      std::memcpy(&lengths[row * sizeof(int32_t)], &length, sizeof(length));
      std::vector<int32_t>().swap(tokens);  // with its memory
    }
    inference::ModelInferRequest* request = inference_.request();
    request->set_model_name(embedding_->version_->name());
    request->set_model_version(absl::StrCat(embedding_->version_->version()));
    InferenceStart start{.bytes = static_cast<int64_t>(ids.size() + lengths.size())};
    AddInput(kIds, {rows, run_.length}, std::move(ids), request);
    AddInput(kLengths, {rows}, std::move(lengths), request);
    request->add_outputs()->set_name(kEmbeddings);
    inference_.Begin(std::move(start));
  }
  void Cancel() { inference_.Cancel(); }

  absl::Status Answer(inference::ModelInferResponse* reply) override {
    const std::string& raw = reply->raw_output_contents(0);
    const size_t width = static_cast<size_t>(embedding_->result_.width) * sizeof(float);
    if (raw.size() != run_.inputs.size() * width) {
      return absl::InternalError(Cat(embedding_->version_->Describe(), " made ", raw.size(),
                                     " bytes of ", run_.inputs.size(), " inputs"));
    }
    for (size_t row = 0; row < run_.inputs.size(); ++row) {
      float* values = &embedding_->result_.values[run_.inputs[row] * embedding_->result_.width];
      std::memcpy(values, raw.data() + row * width, width);
    }
    return absl::OkStatus();
  }
  void Release() override {}
  void Done(const absl::Status& status) override { embedding_->Ended(this, status); }

 private:
  const std::shared_ptr<Embedding> embedding_;
  const EmbeddingRun& run_;
  Inference inference_;
};

Embedding::Embedding(ServerCore& core, InferenceCaller caller, EmbeddingRequest request, Done done)
    : core_(core),
      caller_(std::move(caller)),
      request_(std::move(request)),
      done_(std::move(done)) {}

std::shared_ptr<Embedding> Embedding::Make(ServerCore& core, InferenceCaller caller,
                                           EmbeddingRequest request, Done done) {
  return std::shared_ptr<Embedding>(
      new Embedding(core, std::move(caller), std::move(request), std::move(done)));
}

void Embedding::Begin() {
  int64_t bytes = 0;
  for (const EmbeddingInput& input : request_.inputs) {
    bytes += static_cast<int64_t>(input.text.size() + input.tokens.size());
  }
  if (bytes < kLongText) {
    Compute();
  } else {
    core_.text_queue().Submit([self = shared_from_this()] { self->Compute(); });
  }
}

void Embedding::Compute() {
  absl::Status status = Accept();
  if (status.ok()) status = MakeTokens();
  if (status.ok()) status = PlanRuns();
  if (caller_.trace != nullptr) {
    caller_.trace->Set("gen_ai.operation.name", "embeddings");
    caller_.trace->Set("gen_ai.request.model", request_.model);
    caller_.trace->Set("gen_ai.usage.input_tokens", result_.tokens);
  }
  if (!status.ok()) {
    // Runs count themselves.
    CountRequest(core_, version_.get(), caller_.arrived, status);
    Fail(status);
  }
  {
    MutexLock lock(mu_);
    planned_ = true;
  }
  StartRuns();
}

absl::Status Embedding::Accept() {
  ASSIGN_OR_RETURN(version_, core_.registry().versions().Find(request_.model, ""));
  RETURN_IF_ERROR(version_->unusable());
  encoder_ = version_->encoder();
  if (encoder_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Cat(version_->Describe(), " is no encoder: it makes no embeddings",
          version_->language_model() != nullptr ? "; it generates tokens" : ""));
}

absl::Status Embedding::MakeTokens() {
  for (EmbeddingInput& input : request_.inputs) {
    RETURN_IF_ERROR(failed());
    RETURN_IF_ERROR(MakeTokensOf(&input));
    result_.tokens += static_cast<int64_t>(input.tokens.size());
    if (result_.tokens > kMostEmbeddingTokens) {
      return Invalid("input has more than ", kMostEmbeddingTokens,
                     " tokens, the most of one request; send its parts one after another");
    }
  }
  return absl::OkStatus();
}

absl::Status Embedding::MakeTokensOf(EmbeddingInput* input) const {
  const int64_t context = encoder_->context;
  if (input->tokens.empty()) {
    if (encoder_->tokenizer == nullptr) {
      return absl::FailedPreconditionError(
          Cat(input->name,
              " is a text, and the model has no tokenizer: its checkpoint came without one. Send "
              "tokens"));
    }
    if (static_cast<int64_t>(input->text.size()) > context * kMostTokenBytes) {
      return Invalid(input->name, " has ", input->text.size(),
                     " bytes, and the model takes at most ", context, " tokens of ",
                     kMostTokenBytes, " bytes on average");
    }
    RETURN_IF_ERROR(
        Prefixed(input->name + ": ",
                 encoder_->tokenizer->Encode({Part{input->text, false}}, true, &input->tokens)));
    std::string().swap(input->text);  // with its memory
    if (input->tokens.empty()) {
      return Invalid(input->name, " has no tokens: the tokenizer makes none of it");
    }
  }
  const auto tokens = static_cast<int64_t>(input->tokens.size());
  if (tokens > context) {
    return Invalid(input->name, " has ", tokens, " tokens, and the model takes at most ", context);
  }
  for (int64_t i = 0; i < tokens; ++i) {
    const int32_t token = input->tokens[i];
    if (token >= 0 && token < encoder_->vocabulary) continue;
    return Invalid(input->name, "[", i, "] is ", token, "; the model's tokens are 0 to ",
                   encoder_->vocabulary - 1);
  }
  return absl::OkStatus();
}

absl::Status Embedding::PlanRuns() {
  result_.width = encoder_->width;
  const auto values = static_cast<int64_t>(request_.inputs.size()) * result_.width;
  ASSIGN_OR_RETURN(result_.memory, core_.ledger().Reserve(
                                       HeldKind::kRequests,
                                       values * static_cast<int64_t>(sizeof(float)) +
                                           result_.tokens * static_cast<int64_t>(sizeof(int32_t)),
                                       "embeddings of " + version_->Describe()));
  result_.values.resize(values);
  std::vector<int64_t> lengths;
  for (const EmbeddingInput& input : request_.inputs) {
    lengths.push_back(static_cast<int64_t>(input.tokens.size()));
  }
  runs_ = EmbeddingRuns(lengths, {.rows = RangeOf(version_->graph(), 0).max,
                                  .least_length = RangeOf(version_->graph(), 1).min});
  return absl::OkStatus();
}

void Embedding::StartRuns() {
  const std::shared_ptr<Embedding> self = shared_from_this();
  while (true) {
    std::shared_ptr<Run> run;
    {
      MutexLock lock(mu_);
      run = NextRun();
    }
    if (run == nullptr) break;
    run->Begin();  // may end at once
  }
  FinishIfOver();
}

std::shared_ptr<Embedding::Run> Embedding::NextRun() {
  if (!failed_.ok() || next_ == runs_.size() || active_.size() >= kMostRuns) return nullptr;
  return active_.emplace_back(std::make_shared<Run>(shared_from_this(), runs_[next_++]));
}

void Embedding::Ended(Run* run, const absl::Status& status) {
  const std::shared_ptr<Embedding> self = shared_from_this();
  std::shared_ptr<Run> kept;  // and with it `run`, which calls this
  {
    MutexLock lock(mu_);
    const auto at = std::find_if(active_.begin(), active_.end(),
                                 [run](const auto& other) { return other.get() == run; });
    kept = std::move(*at);
    active_.erase(at);
  }
  if (!status.ok()) Fail(status);
  kept.reset();  // with its memory, ahead of an answer; nobody uses `run` any more
  StartRuns();
}

void Embedding::FinishIfOver() {
  Done done;
  absl::StatusOr<EmbeddingResult> result;
  {
    MutexLock lock(mu_);
    if (done_ == nullptr || !planned_ || !active_.empty()) return;
    if (failed_.ok() && next_ < runs_.size()) return;  // another thread is about to start it
    done = std::exchange(done_, nullptr);
    if (failed_.ok()) {
      result = std::move(result_);
    } else {
      result = failed_;
    }
  }
  request_ = {};
  done(std::move(result));
}

absl::Status Embedding::failed() const {
  MutexLock lock(mu_);
  return failed_;
}

void Embedding::Fail(const absl::Status& status) {
  std::vector<std::shared_ptr<Run>> active;
  {
    MutexLock lock(mu_);
    if (!failed_.ok() || done_ == nullptr) return;
    failed_ = status;
    active = active_;
  }
  // Without the lock: a run may end here.
  for (const auto& run : active) run->Cancel();
}

void Embedding::Cancel(const absl::Status& status) {
  const std::shared_ptr<Embedding> self = shared_from_this();
  Fail(status);
}

}  // namespace athanor
