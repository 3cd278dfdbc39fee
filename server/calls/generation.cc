#include "server/calls/generation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/public_status.h"
#include "server/calls/language_version.h"
#include "server/calls/prompt.h"

namespace athanor {

using Clock = SequenceTime::clock;

Generation::Generation(ServerCore& core, GenerationCaller caller)
    : core_(core), caller_(std::move(caller)), owner_(std::make_shared<CallOwner>(&core.timer())) {}

std::shared_ptr<Generation> Generation::Make(ServerCore& core,
                                             const std::shared_ptr<StreamWriter>& writer,
                                             GenerationCaller caller,
                                             const std::vector<TokenSink*>& sinks) {
  std::shared_ptr<Generation> made(new Generation(core, std::move(caller)));
  for (TokenSink* sink : sinks) {
    if (made->caller_.trace != nullptr) sink = made->Record(sink);
    made->streams_.push_back(std::make_shared<TokenStream>(sink, &core.timer(), writer));
  }
  return made;
}

TokenSink* Generation::Record(TokenSink* sink) {
  return recorded_
      .emplace_back(std::make_unique<RecordedSink>(
          caller_.trace, sink,
          [this]() -> std::optional<RecordedSink::Facts> {
            if (!started_) return std::nullopt;
            return RecordedSink::Facts{caller_.arrived, operation_, version_->name(),
                                       absl::StrCat(version_->version())};
          }))
      .get();
}

void Generation::Begin(std::vector<v1::GenerateRequest> requests,
                       ServerLedger::Reservation memory) {
  requests_ = std::move(requests);
  memory_ = std::move(memory);
  if (requests_.size() > 1) {
    core_.text_queue().Submit([self = shared_from_this()] { self->Read(); });
  } else {
    Read();
  }
}

void Generation::Read() {
  if (absl::Status s = Accept(); !s.ok()) {
    Refuse(s);
  } else if (requests_.size() == 1 &&
             TakesLong(requests_.front(), static_cast<int64_t>(streams_.size()))) {
    core_.text_queue().Submit([self = shared_from_this()] { self->Tokenize(); });
  } else {
    Tokenize();
  }
}

void Generation::Refuse(const absl::Status& status) {
  // The last sink may let go of it.
  const std::shared_ptr<Generation> self = shared_from_this();
  for (const auto& stream : streams_) stream->Refuse(status);
}

absl::Status Generation::Accept() {
  const v1::GenerateRequest& first = requests_.front();
  ASSIGN_OR_RETURN(version_, FindLanguageModel(core_, first.model(), first.version()));
  operation_ = first.has_chat() ? "chat" : "text_completion";
  for (const v1::GenerateRequest& request : requests_) {
    ASSIGN_OR_RETURN(GenerateInput input,
                     ReadSettings(request, *version_->language_model(), caller_.arrived));
    input.sequence.deadline = std::min(input.sequence.deadline, caller_.deadline);
    input.sequence.client = caller_.client;
    input.cache_group = caller_.cache_group;
    inputs_.push_back(std::move(input));
  }
  return absl::OkStatus();
}

absl::Status Generation::MakePrompts() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    // It may have waited for others' texts.
    RETURN_IF_ERROR(streams_.front()->cancelled());
    if (Clock::now() >= inputs_[i].sequence.deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(version_->Describe(), ": its time was up before its prompt was read"));
    }
    ASSIGN_OR_RETURN(inputs_[i].sequence.prompt,
                     PromptTokens(requests_[i], *version_->language_model()));
  }
  return absl::OkStatus();
}

absl::Status Generation::HoldPrompts() {
  size_t tokens = 0;
  for (const GenerateInput& input : inputs_) tokens += input.sequence.prompt.size();
  const size_t choices = streams_.size() / inputs_.size();
  const auto bytes = static_cast<int64_t>(tokens * choices * sizeof(int32_t));
  ASSIGN_OR_RETURN(prompts_, core_.ledger().Reserve(HeldKind::kRequests, bytes, "the prompts"));
  return absl::OkStatus();
}

void Generation::Tokenize() {
  absl::Status made = MakePrompts();
  if (made.ok()) made = HoldPrompts();
  if (!made.ok()) {
    Refuse(made);
    return;
  }
  FreeRequests();
  if (version_->plan() != nullptr) {
    Start();
  } else {
    AwaitPlan();
  }
}

void Generation::FreeRequests() {
  requests_ = {};
  memory_ = {};
  if (caller_.read) caller_.read();
}

void Generation::AwaitPlan() {
  const std::shared_ptr<Generation> self = shared_from_this();
  stalled_ = Clock::now();
  const auto longest = caller_.arrived + std::chrono::milliseconds(core_.options().max_wait_ms);
  const SequenceTime limit = std::min(inputs_.front().sequence.deadline, longest);
  switch (owner_->StartWaiting(limit, [self] { self->Expire(); })) {
    case CallOwner::Waiting::kStarted:
      owner_->AwaitPlan(version_->serving(),
                        [self](const absl::Status& status) { self->GotPlan(status); });
      return;
    case CallOwner::Waiting::kCancelled:
      owner_->StopTimer();
      Refuse(streams_.front()->cancelled());
      return;
    case CallOwner::Waiting::kExpired:
      Expire();
      return;
  }
}

void Generation::GotPlan(const absl::Status& status) {
  owner_->StopTimer();
  EndStall();
  if (status.ok()) {
    Start();
  } else {
    Refuse(status);
  }
}

void Generation::Expire() {
  owner_->LeavePlan(version_->serving());
  EndStall();
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - caller_.arrived);
  Refuse(absl::DeadlineExceededError(absl::StrCat(
      version_->Describe(), ": its baseline plan was not ready after ", waited.count(), " ms")));
}

void Generation::EndStall() {
  const SequenceTime now = Clock::now();
  version_->metrics().cells.Observe(Metric::kStallSeconds, now - stalled_);
  if (caller_.trace != nullptr) caller_.trace->Child("await plan", stalled_, now);
}

void Generation::Start() {
  const std::shared_ptr<Generation> self = shared_from_this();
  Engine* engine = version_->language_model()->engine.get();
  const size_t choices = streams_.size() / inputs_.size();
  const std::shared_ptr<const ServedPlan> plan = version_->plan();
  const std::string signature = plan == nullptr ? "" : plan->compiled->plan.signature();
  std::vector<Engine::Started> started;
  for (size_t i = 0; i < streams_.size(); ++i) {
    GenerateInput input = inputs_[i / choices];
    input.sampling.seed += i % choices;
    facts_.push_back({.arrived = caller_.arrived,
                      .seed = input.sampling.seed,
                      .model_version = absl::StrCat(version_->version()),
                      .signature = signature,
                      .logprobs = input.sampling.logprobs.has_value(),
                      .tokenizer = version_->language_model()->text.tokenizer});
    auto next = engine->Start(std::move(input), [stream = streams_[i]] { stream->Ask(); });
    if (!next.ok()) {
      Abandon(engine, started, next.status());
      Refuse(next.status());
      return;
    }
    started.push_back(*std::move(next));
  }
  inputs_ = {};
  started_ = true;
  for (size_t i = 0; i < streams_.size(); ++i) streams_[i]->Open(engine, std::move(started[i]));
}

void Generation::Abandon(Engine* engine, const std::vector<Engine::Started>& started,
                         const absl::Status& why) {
  for (const Engine::Started& sequence : started) {
    sequence.outbox->Abandon();
    engine->Cancel(sequence.id, why);
  }
}

void Generation::Cancel(const absl::Status& status) {
  // The last sink may let go of it.
  const std::shared_ptr<Generation> self = shared_from_this();
  for (const auto& stream : streams_) stream->Cancel(status);
  if (!owner_->Cancel()) return;
  owner_->StopTimer();
  owner_->LeavePlan(version_->serving());
  EndStall();
  Refuse(status);
}

void Generation::Leave() {
  for (const auto& stream : streams_) stream->Leave();
}

void Generation::Count(const absl::Status& status) const {
  if (caller_.trace != nullptr && version_ != nullptr) AddModel(*caller_.trace, *version_);
  CountRequest(core_, version_.get(), caller_.arrived, status);
}

void CountRequest(ServerCore& core, const ModelVersion* version, SequenceTime arrived,
                  const absl::Status& status) {
  MetricCells& cells = version == nullptr ? core.metrics().no_version() : version->metrics().cells;
  cells.Count(Metric::kRequests, PublicStatus(status).code());
  cells.Observe(Metric::kRequestSeconds, Clock::now() - arrived);
}

absl::Status ClientLeft(const ServerCore& core) {
  return core.draining()
             ? absl::UnavailableError("the call did not end within --drain, or the client left")
             : absl::CancelledError("the client left");
}

}  // namespace athanor
