#include "clients/bench/tokens/openai_backend.h"

#include <httplib.h>

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "clients/bench/tokens/conversation.h"
#include "clients/bench/tokens/openai_stream.h"
#include "deploy/bazel/libs/mutex.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr size_t kMostErrorBytes = size_t{64} << 10;  // of a body that is no stream

std::unique_ptr<httplib::Client> Connect(const OpenAiTarget& target) {
  const std::string url = absl::StrContains(target.address, "://")
                              ? target.address
                              : absl::StrCat("http://", target.address);
  auto client = std::make_unique<httplib::Client>(url, target.cert_file, target.key_file);
  if (!target.ca_file.empty()) client->set_ca_cert_path(target.ca_file.c_str());
  if (!target.api_key.empty()) client->set_bearer_token_auth(target.api_key.c_str());
  // llama-server ends connections behind a stream though it says that it keeps them; a call that
  // took such a one would fail.
  client->set_keep_alive(false);
  client->set_tcp_nodelay(true);
  return client;
}

void SetTimeout(httplib::Client* client, absl::Duration timeout) {
  const auto time = absl::ToChronoMicroseconds(std::max(timeout, absl::Milliseconds(1)));
  client->set_connection_timeout(time);
  client->set_read_timeout(time);
  client->set_write_timeout(time);
}

absl::Status NotReached(const httplib::Result& result) {
  return absl::UnavailableError(
      absl::StrCat("the connection failed: ", httplib::to_string(result.error())));
}

// Threads that run jobs, as many as there are jobs at a time. Jobs may add jobs.
class Threads {
 public:
  ~Threads() {
    {
      MutexLock lock(mu_);
      stopped_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  // A job gets a connection that no other job uses meanwhile.
  using Job = std::function<void(httplib::Client* client)>;
  void Run(Job job, const OpenAiTarget& target) {
    MutexLock lock(mu_);
    jobs_.push_back(std::move(job));
    if (static_cast<int>(jobs_.size()) > free_) {
      ++free_;
      threads_.emplace_back([this, &target] { Work(target); });
    }
    changed_.NotifyOne();
  }
  // Called by a job at its end, so that what it begins next needs no other thread.
  void AlmostDone() {
    MutexLock lock(mu_);
    ++free_;
  }

 private:
  void Work(const OpenAiTarget& target) {
    const std::unique_ptr<httplib::Client> client = Connect(target);
    MutexLock lock(mu_);
    for (;;) {
      while (jobs_.empty() && !stopped_) changed_.Wait(lock);
      if (jobs_.empty()) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      --free_;
      lock.Unlock();
      job(client.get());
      lock.Lock();
    }
  }

  Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  int free_ ABSL_GUARDED_BY(mu_) = 0;  // threads that will take a job
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

struct Shared {
  OpenAiTarget target;
  GenerateOptions options;
  PromptOptions prompts;
  mutable Threads threads;
};

class OpenAiCall final : public Call {
 public:
  explicit OpenAiCall(const Shared& shared) : shared_(shared), conversation_(&shared.prompts) {}

  void Prepare(uint64_t seed, int64_t number) override {
    const Prompt& prompt = conversation_.Next(seed, number);
    collector_.Begin({static_cast<int64_t>(prompt.tokens.size()), prompt.output_tokens,
                      shared_.options.ignore_eos, shared_.prompts.max_model_len,
                      conversation_.keeps()});
    json body = {{"model", shared_.options.model},
                 {"max_tokens", prompt.output_tokens},
                 {"temperature", shared_.options.temperature},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}}};
    // Not part of OpenAI's own protocol, but of those of the servers that are measured.
    if (shared_.options.ignore_eos) body["ignore_eos"] = true;
    if (shared_.prompts.chat) {
      json& messages = body["messages"] = json::array();
      for (size_t i = 0; i < prompt.before.size(); ++i) {
        messages.push_back(
            {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", prompt.before[i]}});
      }
      messages.push_back({{"role", "user"}, {"content", prompt.text}});
    } else if (prompt.tokens.empty()) {
      body["prompt"] = prompt.text;
    } else {
      body["prompt"] = prompt.tokens;
    }
    request_ = httplib::Request();
    request_.method = "POST";
    request_.path = shared_.prompts.chat ? "/v1/chat/completions" : "/v1/completions";
    request_.set_header("Content-Type", "application/json");
    request_.set_header("Accept", "text/event-stream");
    request_.set_header("Accept-Encoding", "identity");
    request_.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  void Begin(absl::Duration timeout, std::function<void(absl::Status)> done) override {
    const Clock::time_point end = Clock::now() + absl::ToChronoNanoseconds(timeout);
    shared_.threads.Run(
        [this, end, done = std::move(done)](httplib::Client* client) {
          const absl::Status status = Send(client, end);
          shared_.threads.AlmostDone();
          done(status);
        },
        shared_.target);
  }

  void Tell(Clock::time_point start, CallRecord* record, std::string* plan_id) override {
    collector_.Tell(start, record);
    if (conversation_.keeps()) conversation_.Keep(collector_.TakeAnswer());
    plan_id->clear();
  }

 private:
  absl::Status Send(httplib::Client* client, Clock::time_point end) {
    OpenAiStream stream(&collector_);
    bool is_stream = false, late = false;
    int http_status = 0;
    std::string error;  // the body, if it is no stream
    request_.response_handler = [&](const httplib::Response& response) {
      http_status = response.status;
      is_stream = response.status == 200 &&
                  absl::StrContains(response.get_header_value("Content-Type"), "text/event-stream");
      return true;
    };
    request_.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      const Clock::time_point now = Clock::now();
      late = now >= end;
      if (late) return false;
      if (is_stream) return stream.Feed({data, size}, now);
      error.append(data, std::min(size, kMostErrorBytes - error.size()));
      return error.size() < kMostErrorBytes;
    };
    SetTimeout(client, absl::FromChrono(end - Clock::now()));
    const httplib::Result result = client->send(request_);
    const std::string tokens =
        absl::StrCat("after ", collector_.output_tokens(), " of ", collector_.asked(), " tokens");
    if (late || (!result && Clock::now() >= end)) {
      return absl::DeadlineExceededError(absl::StrCat("the time of the call was over ", tokens));
    }
    if (http_status == 0) return NotReached(result);
    if (http_status != 200) return HttpError(http_status, error);
    if (!is_stream) {
      return absl::DataLossError(
          "the answer is no stream of events (text/event-stream), though one was asked for");
    }
    const absl::Status ended = stream.End();
    // A wrong event ends the transfer from this side, so it is the reason of the other error.
    if (!result && ended.code() == absl::StatusCode::kDataLoss && !stream.wrong()) {
      return absl::UnavailableError(absl::StrCat("the connection was lost ", tokens, ": ",
                                                 httplib::to_string(result.error())));
    }
    return ended;
  }

  const Shared& shared_;
  Conversation conversation_;
  httplib::Request request_;
  StreamCollector collector_;
};

class OpenAiBackend final : public Backend {
 public:
  OpenAiBackend(const OpenAiTarget& target, const GenerateOptions& options,
                const PromptOptions& prompts)
      : shared_{target, options, prompts, {}} {}
  std::unique_ptr<Call> NewCall() override { return std::make_unique<OpenAiCall>(shared_); }

 private:
  const Shared shared_;
};

int64_t CountAt(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) return 0;
  return object[key].is_number_integer() ? object[key].get<int64_t>() : 0;
}

OpenAiModel ModelOf(const json& row) {
  const json meta = row.value("meta", json());  // llama-server's
  OpenAiModel model;
  if (row.contains("owned_by") && row["owned_by"].is_string()) model.owner = row["owned_by"];
  model.vocabulary = CountAt(meta, "n_vocab");
  model.max_model_len = CountAt(row, "max_model_len");  // vLLM's
  if (model.max_model_len == 0) model.max_model_len = CountAt(meta, "n_ctx");
  return model;
}

}  // namespace

absl::StatusOr<OpenAiModel> FindModel(const OpenAiTarget& target, const std::string& id,
                                      absl::Duration timeout) {
  const std::unique_ptr<httplib::Client> client = Connect(target);
  SetTimeout(client.get(), timeout);
  const httplib::Result result = client->Get("/v1/models");
  if (!result) return NotReached(result);
  if (result->status != 200) return HttpError(result->status, result->body);
  const json answer = json::parse(result->body, nullptr, /*allow_exceptions=*/false);
  std::vector<json> rows;
  if (answer.is_object() && answer.contains("data") && answer["data"].is_array()) {
    for (const json& row : answer["data"]) {
      if (row.is_object()) rows.push_back(row);
    }
  }
  for (const json& row : rows) {
    if (rows.size() == 1 || row.value("id", json()) == json(id)) return ModelOf(row);
  }
  return OpenAiModel();
}

std::unique_ptr<Backend> MakeOpenAiBackend(const OpenAiTarget& target,
                                           const GenerateOptions& options,
                                           const PromptOptions& prompts) {
  return std::make_unique<OpenAiBackend>(target, options, prompts);
}

}  // namespace athanor::bench
