#include "server/rest/infer.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/inference.h"
#include "server/rest/infer_answer.h"
#include "server/rest/infer_message.h"
#include "server/rest/rest_error.h"
#include "server/rest/shared_memory.h"

namespace athanor {
namespace {

// JSON from so many bytes on is read and written away from the threads of HTTP and of runs, and so
// are bodies whose tensors take long to copy.
constexpr int64_t kLongJson = int64_t{64} << 10, kLongBody = int64_t{4} << 20;
constexpr int64_t kBehindTexts = 1;  // of the queue "text": a huge body holds up no chat

// A request, from its body to its answer. Holds itself until it has ended.
class RestInfer final : public InferenceSink,
                        public HttpExchange::Watcher,
                        public std::enable_shared_from_this<RestInfer> {
 public:
  RestInfer(ServerCore& core, RestModel model, std::shared_ptr<HttpExchange> exchange)
      : core_(core),
        model_(std::move(model)),
        exchange_(std::move(exchange)),
        inference_(core,
                   {.client = exchange_->client(),
                    .shared = SharedUserOf(*exchange_),
                    .trace = exchange_->trace()},
                   this) {}

  void Begin() {
    self_ = shared_from_this();
    exchange_->Watch(self_);
    const HttpRequest& http = exchange_->request();
    const absl::StatusOr<size_t> json = JsonBytesOf(http);
    if (!json.ok() || (static_cast<int64_t>(*json) < kLongJson &&
                       static_cast<int64_t>(http.body.size()) < kLongBody)) {
      Read(/*runs_here=*/true);
    } else {
      core_.text_queue().Submit([this] { Read(/*runs_here=*/false); }, kBehindTexts);
    }
  }

  void Written() override {}
  void Left() override { inference_.Cancel(); }

  absl::Status Accept(const inference::ModelInferResponse& reply) override {
    RETURN_IF_ERROR(CheckForms(reply, request_));
    json_bytes_ = MostJsonBytes(reply, request_);
    // Held until the answer is written, which takes as long as its client likes.
    ASSIGN_OR_RETURN(auto memory, core_.ledger().Reserve(HeldKind::kRequests,
                                                         json_bytes_ + BinaryBytes(reply, request_),
                                                         "the answer"));
    exchange_->Keep(std::make_shared<ServerLedger::Reservation>(std::move(memory)));
    return absl::OkStatus();
  }
  absl::Status Answer(inference::ModelInferResponse* reply) override {
    reply_.Swap(reply);
    return absl::OkStatus();
  }
  void Release() override { request_ = {}; }
  void Done(const absl::Status& status) override {
    if (!status.ok()) {
      AnswerRestError(*exchange_, status);
      self_.reset();
    } else if (json_bytes_ < kLongJson) {
      Send();
    } else {
      core_.text_queue().Submit([this] { Send(); });
    }
  }

 private:
  void Read(bool runs_here) {
    absl::StatusOr<RestRequest> read = Parse();
    exchange_->memory() = {};
    if (!read.ok()) {
      inference_.Refuse(read.status());
      return;
    }
    InferenceStart start{.memory = std::move(read->memory), .runs_here = runs_here};
    *inference_.request() = std::move(read->message);
    inference_.request()->set_model_name(model_.name);
    inference_.request()->set_model_version(model_.version);
    request_ = *std::move(read);
    request_.message.set_id(inference_.request()->id());
    inference_.Begin(std::move(start));
  }

  absl::StatusOr<RestRequest> Parse() {
    if (exchange_->left()) return absl::CancelledError("the client left");
    HttpRequest& http = exchange_->request();
    const std::string* encoding = http.Header("Content-Encoding");
    if (encoding != nullptr && !absl::EqualsIgnoreCase(*encoding, "identity")) {
      return absl::UnimplementedError(
          Cat("Content-Encoding ", Quoted(*encoding), " is not supported; send the body as it is"));
    }
    return ReadInferRequest(&http, &core_.ledger());
  }

  void Send() {
    RestAnswer answer = WriteInferAnswer(reply_, request_);
    exchange_->Answer(200, answer.type(), std::move(answer.body), answer.headers());
    self_.reset();
  }

  ServerCore& core_;
  const RestModel model_;
  const std::shared_ptr<HttpExchange> exchange_;
  RestRequest request_;     // whose message has nothing but its id once the inference has begun
  int64_t json_bytes_ = 0;  // most of the answer's
  inference::ModelInferResponse reply_;
  Inference inference_;
  std::shared_ptr<RestInfer> self_;
};

}  // namespace

void AnswerInfer(ServerCore& core, const RestModel& model, std::shared_ptr<HttpExchange> exchange) {
  std::make_shared<RestInfer>(core, model, std::move(exchange))->Begin();
}

}  // namespace athanor
