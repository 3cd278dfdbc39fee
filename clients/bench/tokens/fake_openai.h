// An in-process server of OpenAI's protocol whose answers the test chooses.
//
//   FakeOpenAi server;
//   server.body = "data: {}\n\n";       // instead of the tokens asked for
//   server.address();                   // "127.0.0.1:40123"
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_FAKE_OPENAI_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_FAKE_OPENAI_H_

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deploy/bazel/libs/mutex.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

// Returns the events of a whole stream of so many tokens.
inline std::string OpenAiEvents(int64_t tokens, bool chat, int64_t prompt_tokens = 5) {
  using nlohmann::json;
  std::string events;
  const auto add = [&](const json& chunk) { events += "data: " + chunk.dump() + "\n\n"; };
  const auto choice = [&](json choice, json reason) {
    choice["index"] = 0;
    choice["finish_reason"] = std::move(reason);
    add({{"choices", json::array({std::move(choice)})}});
  };
  if (chat) choice({{"delta", {{"role", "assistant"}, {"content", json()}}}}, json());
  for (int64_t i = 0; i < tokens; ++i) {
    choice(chat ? json{{"delta", {{"content", "a"}}}} : json{{"text", "a"}}, json());
  }
  choice(chat ? json{{"delta", json::object()}} : json{{"text", ""}}, "length");
  add({{"choices", json::array()},
       {"usage", {{"prompt_tokens", prompt_tokens}, {"completion_tokens", tokens}}}});
  return events + "data: [DONE]\n\n";
}

// Fields that are not atomic must be set before the first call.
class FakeOpenAi {
 public:
  FakeOpenAi() {
    server_.Post("/v1/completions", [this](const auto& request, auto& response) {
      Answer(request, /*chat=*/false, &response);
    });
    server_.Post("/v1/chat/completions", [this](const auto& request, auto& response) {
      Answer(request, /*chat=*/true, &response);
    });
    server_.Get("/v1/models", [this](const auto&, auto& response) {
      response.set_content(models, "application/json");
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~FakeOpenAi() {
    server_.stop();
    thread_.join();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<nlohmann::json> requests() {
    MutexLock lock(mu_);
    return requests_;
  }
  // Returns the header of the latest call.
  std::string authorization() {
    MutexLock lock(mu_);
    return authorization_;
  }

  std::string models =
      R"({"data": [{"id": "llm", "owned_by": "fake", "meta": {"n_vocab": 90, "n_ctx": 50}}]})";
  std::optional<std::string> body;  // instead of the tokens asked for
  std::string type = "text/event-stream";
  int status = 200;
  bool cut = false;                             // the connection is closed before the body's end
  std::atomic<int64_t> calls = 0, closing = 0;  // closing: that asked for no further use

 private:
  void Answer(const httplib::Request& request, bool chat, httplib::Response* response) {
    const nlohmann::json asked = nlohmann::json::parse(request.body);
    {
      MutexLock lock(mu_);
      requests_.push_back(asked);
      authorization_ = request.get_header_value("Authorization");
    }
    ++calls;
    closing += request.get_header_value("Connection") == "close";
    response->status = status;
    const std::string events =
        body.value_or(OpenAiEvents(asked.value("max_tokens", int64_t{0}), chat));
    const size_t announced = events.size() + (cut ? 1 : 0);
    response->set_content_provider(announced, type,
                                   [=](size_t offset, size_t, httplib::DataSink& sink) {
                                     if (offset >= events.size()) return false;
                                     sink.write(events.data() + offset, events.size() - offset);
                                     return true;
                                   });
  }

  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  Mutex mu_;
  std::vector<nlohmann::json> requests_ ABSL_GUARDED_BY(mu_);
  std::string authorization_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_FAKE_OPENAI_H_
