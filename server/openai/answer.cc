#include "server/openai/answer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/public_status.h"
#include "server/openai/error.h"
#include "server/text/tokens/detokenizer.h"

namespace athanor {
namespace {

constexpr int64_t kFirstReserve = int64_t{64} << 10;
constexpr int64_t kAheadOfTexts = -1;  // of the queue "text": what frees goes first
constexpr char kJson[] = "application/json";

std::string NewId(Endpoint endpoint) {
  static const uint64_t process = uint64_t{std::random_device()()} << 32;
  static std::atomic<uint64_t> last{0};
  return absl::StrFormat("%s-%016x", endpoint == Endpoint::kChats ? "chatcmpl" : "cmpl",
                         process + ++last);
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Answer::Answer(Call call, const OpenAiRequest& request)
    : core_(call.core),
      exchange_(std::move(call.exchange)),
      endpoint_(request.endpoint),
      model_(std::move(call.model)),
      id_(NewId(request.endpoint)),
      created_(UnixSeconds()),
      n_(static_cast<size_t>(request.n)),
      stream_(request.stream),
      include_usage_(request.include_usage),
      logprobs_(request.logprobs),
      echo_(request.echo) {
  std::vector<TokenSink*> sinks;
  for (size_t i = 0; i < static_cast<size_t>(request.choices()); ++i)
    choices_.emplace_back(this, i);
  for (Choice& choice : choices_) sinks.push_back(&choice);
  parts_.resize(choices_.size());
  opened_.resize(choices_.size());
  generation_ = Generation::Make(core_, call.writer,
                                 {.client = exchange_->client(),
                                  .cache_group = exchange_->caller().cache_group(),
                                  .arrived = arrived_,
                                  .trace = exchange_->trace()},
                                 sinks);
}

Answer::~Answer() { generation_->Leave(); }

void Answer::Begin(Call call, OpenAiRequest request, ServerLedger::Reservation memory) {
  std::shared_ptr<Answer> made(new Answer(std::move(call), request));
  {
    MutexLock lock(made->mu_);
    made->self_ = made;
  }
  made->exchange_->Watch(made);
  made->Start(std::move(request.generate), std::move(memory));
}

void Answer::Start(std::vector<v1::GenerateRequest> requests, ServerLedger::Reservation memory) {
  if (echo_) {
    int64_t bytes = 0;
    for (const v1::GenerateRequest& request : requests) {
      bytes += static_cast<int64_t>(request.SpaceUsedLong());
    }
    // In a stream each choice's first chunk has the text, which is written once more as JSON.
    if (stream_) bytes *= 1 + 2 * static_cast<int64_t>(n_);
    MutexLock lock(mu_);
    auto held = core_.ledger().Reserve(HeldKind::kRequests, bytes, "the prompts to echo");
    if (!held.ok()) {
      // Each choice then ends with this.
      lock.Unlock();
      generation_->Refuse(held.status());
      return;
    }
    memory_.push_back(*std::move(held));
    prompts_ = requests;
  }
  generation_->Begin(std::move(requests), std::move(memory));
}

bool Answer::Add(size_t index, std::vector<GenerateEvent> events, const absl::Status* end) {
  MutexLock lock(mu_);
  bool pending = false;
  if (failed_.ok() && !over_) {
    AddEvents(index, std::move(events));
    if (stream_) gathered_of_.push_back(index);
    pending = stream_;
  }
  if (end != nullptr) EndLocked(*end);
  Flush();
  LetGo();
  return pending && !over_;
}

void Answer::AddEvents(size_t index, std::vector<GenerateEvent> events) {
  if (!writer_.has_value()) Open();
  if (const GenerateEvent& last = events.back(); last.summary.has_value()) {
    CountUsage(index, *last.summary);
  }
  const bool opens = !opened_[index];
  opened_[index] = true;
  ChoicePart part;
  ChoicePart& into = stream_ ? part : parts_[index];
  const int64_t before = into.bytes();
  if (opens && echo_) into.text = EchoOf(index);
  readers_[index].Add(std::move(events), &into);
  if (!stream_) {
    if (absl::Status s = Reserve(into.bytes() - before); !s.ok()) Fail(s);
    return;
  }
  if (opens && endpoint_ == Endpoint::kChats) gathered_ += writer_->Opening(index, include_usage_);
  gathered_ += writer_->Chunk(index, part, include_usage_);
}

void Answer::Open() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    readers_.emplace_back(endpoint_, logprobs_, generation_->facts(i).tokenizer);
  }
  const StreamFacts& facts = generation_->facts(0);
  writer_.emplace(
      AnswerHead{.endpoint = endpoint_,
                 .id = id_,
                 .created = created_,
                 .model = model_,
                 .fingerprint = absl::StrCat("v", facts.model_version,
                                             facts.signature.empty() ? "" : "-", facts.signature),
                 .logprobs = logprobs_});
}

std::string Answer::EchoOf(size_t index) const {
  const v1::GenerateRequest& prompt = prompts_[index / n_];
  if (prompt.has_text()) return prompt.text();
  std::string text;
  const std::shared_ptr<const Tokenizer>& tokenizer = generation_->facts(index).tokenizer;
  if (tokenizer == nullptr) return text;
  Detokenizer detokenizer(tokenizer);
  for (const int32_t id : prompt.tokens().ids()) detokenizer.Add(id, &text);
  detokenizer.End(&text);
  return text;
}

void Answer::CountUsage(size_t index, const SequenceSummary& summary) {
  usage_.generated += summary.generated_tokens;
  if (index % n_ != 0) return;
  usage_.prompt += summary.prompt_tokens;
  usage_.cached += summary.cached_tokens;
}

absl::Status Answer::Reserve(int64_t bytes) {
  // The parts are copied once, into the answer's text, which may be escaped.
  held_ += 3 * bytes;
  while (reserved_ < held_) {
    const int64_t more = std::max(kFirstReserve, reserved_);  // doubles
    auto taken = core_.ledger().Reserve(HeldKind::kRequests, more, "the answer");
    if (!taken.ok()) return taken.status();
    reserved_ += more;
    memory_.push_back(*std::move(taken));
  }
  return absl::OkStatus();
}

void Answer::EndChoice(const absl::Status& status) {
  MutexLock lock(mu_);
  EndLocked(status);
  Flush();
  LetGo();
}

void Answer::EndLocked(const absl::Status& status) {
  ++ended_;
  if (!status.ok()) {
    Fail(status);
  } else if (ended_ == choices_.size() && failed_.ok()) {
    Report(absl::OkStatus());
  }
}

void Answer::Fail(const absl::Status& status) {
  if (!failed_.ok() || last_) return;
  failed_ = status;
  Report(status);
  if (ended_ == choices_.size()) return;
  // The other sequences end too. Not here, where a stream's lock is held.
  core_.text_queue().Submit([generation = generation_, status] { generation->Cancel(status); },
                            kAheadOfTexts);
}

void Answer::Break(const absl::Status& why) {
  MutexLock lock(mu_);
  if (over_) return;
  Fail(why);
  over_ = true;
  exchange_->Break();
  LetGo();
}

void Answer::Flush() {
  if (over_ || last_ || writing_) return;
  const bool all = ended_ == choices_.size();
  if (stream_ && (begun_ || !gathered_.empty())) {
    FlushStream();
  } else if (!failed_.ok()) {
    last_ = true;
    ErrorAnswer error = ErrorAnswerOf(failed_);
    exchange_->Answer(error.status, kJson, std::move(error.body), std::move(error.headers));
  } else if (!stream_ && all) {
    last_ = true;
    exchange_->Answer(200, kJson, writer_->Whole(parts_, usage_));
  }
}

void Answer::FlushStream() {
  if (!begun_) {
    begun_ = true;
    exchange_->Begin(200, "text/event-stream; charset=utf-8");
  }
  std::string events = std::exchange(gathered_, {});
  if (!failed_.ok()) {
    last_ = true;
    events += ErrorEvent(failed_);  // and no [DONE]
  } else if (ended_ == choices_.size()) {
    last_ = true;
    if (include_usage_) events += writer_->UsageChunk(usage_);
    events += "data: [DONE]\n\n";
  }
  if (events.empty()) return;
  writing_ = true;
  writing_of_ = std::exchange(gathered_of_, {});
  if (last_) {
    exchange_->End(std::move(events));
  } else {
    exchange_->Write(std::move(events));
  }
}

void Answer::Written() {
  const std::shared_ptr<Answer> self = shared_from_this();
  std::vector<size_t> written;
  {
    MutexLock lock(mu_);
    writing_ = false;
    over_ = last_;
    written = std::exchange(writing_of_, {});
    Flush();
    LetGo();
  }
  for (const size_t index : written) generation_->Written(index, true);
}

void Answer::Left() {
  const std::shared_ptr<Answer> self = shared_from_this();
  {
    MutexLock lock(mu_);
    over_ = true;
  }
  generation_->Cancel(ClientLeft(core_));
  MutexLock lock(mu_);
  LetGo();
}

void Answer::LetGo() {
  if (self_ == nullptr || !over_ || ended_ < choices_.size()) return;
  // Destroyed where no lock of a stream is held, since it leaves the streams.
  core_.text_queue().Submit([self = std::exchange(self_, nullptr)]() mutable { self.reset(); },
                            kAheadOfTexts);
}

void Answer::Report(const absl::Status& status) const {
  generation_->Count(status);
  if (!status.ok()) LogFailedRequest(*exchange_, PublicStatus(status));
}

}  // namespace athanor
