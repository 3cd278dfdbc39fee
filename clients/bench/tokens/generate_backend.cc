#include "clients/bench/tokens/generate_backend.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "clients/bench/tokens/conversation.h"
#include "clients/bench/tokens/stream_collector.h"
#include "grpcpp/grpcpp.h"
#include "proto/athanor/v1/generate.grpc.pb.h"

namespace athanor::bench {
namespace {

using Stub = v1::GenerateService::Stub;

std::unique_ptr<Stub> Connect(const GrpcTarget& target) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = target.client.root_certificates;
  ssl.pem_cert_chain = target.client.certificate;
  ssl.pem_private_key = target.client.key;
  return v1::GenerateService::NewStub(grpc::CreateCustomChannel(
      target.address,
      target.client.tls ? grpc::SslCredentials(ssl) : grpc::InsecureChannelCredentials(),
      arguments));
}

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

struct Shared {
  GenerateOptions options;
  PromptOptions prompts;
  std::vector<std::unique_ptr<Stub>> stubs;  // one per connection
};

// The last message of a stream.
struct Ending {
  bool finished = false;
  v1::GenerateTimes times;
  std::string plan_id;
};

// Reads one stream; deletes itself when it has ended.
class Reader final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Reader(StreamCollector* stream, Ending* ending, std::function<void(absl::Status)> done)
      : stream_(*stream), ending_(*ending), done_(std::move(done)) {}

  void Start(Stub* stub, const v1::GenerateRequest& request, absl::Duration timeout) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    stub->async()->Generate(&context_, &request, this);
    StartRead(&message_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const Clock::time_point now = Clock::now();
    if (message_.tokens_size() > 0) stream_.Chunk(now, message_.tokens_size());
    stream_.Piece(message_.text(), message_.tokens());
    if (message_.finish() != v1::FINISH_UNSPECIFIED) {
      const v1::Usage& usage = message_.usage();
      stream_.Usage({usage.prompt_tokens(), usage.cached_tokens(), usage.generated_tokens(),
                     message_.finish() == v1::FINISH_LENGTH});
      ending_ = {true, message_.times(), usage.plan_id()};
    }
    StartRead(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    const absl::Status judged = Judge(status);
    const std::function<void(absl::Status)> done = std::move(done_);
    delete this;
    done(judged);
  }

 private:
  absl::Status Judge(const grpc::Status& status) const {
    const std::string tokens =
        absl::StrCat(stream_.output_tokens(), " of ", stream_.asked(), " tokens");
    if (!status.ok() && stream_.output_tokens() > 0) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          absl::StrCat(status.error_message(), " (after ", tokens, ")"));
    }
    if (!status.ok()) return ToStatus(status);
    if (!ending_.finished) {
      return absl::DataLossError(
          absl::StrCat("the stream was cut after ", tokens, ": no message said why it finished"));
    }
    return stream_.End();
  }

  StreamCollector& stream_;
  Ending& ending_;
  std::function<void(absl::Status)> done_;
  grpc::ClientContext context_;
  v1::GenerateResponse message_;
};

class GenerateCall final : public Call {
 public:
  explicit GenerateCall(const Shared& shared) : shared_(shared), conversation_(&shared.prompts) {
    request_.set_model(shared.options.model);
    request_.set_version(shared.options.version);
    request_.set_ignore_eos(shared.options.ignore_eos);
    request_.mutable_sampling()->set_temperature(static_cast<float>(shared.options.temperature));
  }

  void Prepare(uint64_t seed, int64_t number) override {
    number_ = number;
    const Prompt& prompt = conversation_.Next(seed, number);
    stream_.Begin({static_cast<int64_t>(prompt.tokens.size()), prompt.output_tokens,
                   shared_.options.ignore_eos, shared_.prompts.max_model_len,
                   conversation_.keeps()});
    ending_ = {};
    request_.set_max_tokens(prompt.output_tokens);
    if (!prompt.tokens.empty()) {
      request_.mutable_tokens()->mutable_ids()->Assign(prompt.tokens.begin(), prompt.tokens.end());
    } else if (shared_.prompts.chat) {
      request_.clear_chat();
      for (size_t i = 0; i < prompt.before.size(); ++i) {
        AddMessage(i % 2 == 0 ? "user" : "assistant", prompt.before[i]);
      }
      AddMessage("user", prompt.text);
    } else {
      request_.set_text(prompt.text);
    }
  }

  void Begin(absl::Duration timeout, std::function<void(absl::Status)> done) override {
    Stub* stub = shared_.stubs[static_cast<size_t>(number_) % shared_.stubs.size()].get();
    (new Reader(&stream_, &ending_, std::move(done)))->Start(stub, request_, timeout);
  }

  void Tell(Clock::time_point start, CallRecord* record, std::string* plan_id) override {
    stream_.Tell(start, record);
    if (conversation_.keeps()) conversation_.Keep(stream_.TakeAnswer());
    record->queue_us = ending_.times.started_us();
    *plan_id = ending_.plan_id;
  }

 private:
  void AddMessage(const char* role, const std::string& content) {
    v1::ChatMessage* message = request_.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content(content);
  }

  const Shared& shared_;
  Conversation conversation_;
  int64_t number_ = 0;
  v1::GenerateRequest request_;
  StreamCollector stream_;
  Ending ending_;
};

class GenerateBackend final : public Backend {
 public:
  explicit GenerateBackend(Shared shared) : shared_(std::move(shared)) {}
  std::unique_ptr<Call> NewCall() override { return std::make_unique<GenerateCall>(shared_); }

 private:
  const Shared shared_;
};

}  // namespace

absl::StatusOr<v1::EngineStatus> GetEngine(const GrpcTarget& target, const std::string& model,
                                           const std::string& version, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::GetEngineRequest request;
  request.set_model(model);
  request.set_version(version);
  v1::EngineStatus engine;
  const grpc::Status status = Connect(target)->GetEngine(&context, request, &engine);
  if (!status.ok()) return ToStatus(status);
  return engine;
}

std::unique_ptr<Backend> MakeGenerateBackend(const GrpcTarget& target,
                                             const GenerateOptions& options,
                                             const PromptOptions& prompts) {
  Shared shared{options, prompts, {}};
  for (int i = 0; i < target.connections; ++i) shared.stubs.push_back(Connect(target));
  return std::make_unique<GenerateBackend>(std::move(shared));
}

}  // namespace athanor::bench
