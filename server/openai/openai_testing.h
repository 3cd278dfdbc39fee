// Test fixture: the OpenAI side's routes over a core with a language model "m" whose engine is
// scripted (server/calls/scripted_model_testing.h), and clients of a fake HTTP side.
#ifndef ATHANOR_SERVER_OPENAI_OPENAI_TESTING_H_
#define ATHANOR_SERVER_OPENAI_OPENAI_TESTING_H_

#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/calls/scripted_model_testing.h"
#include "server/http/exchange_testing.h"
#include "server/http/json_body.h"
#include "server/openai/routes.h"
#include "server/testing/core_testing.h"

namespace athanor {

// Returns the texts of a stream's chunks, by choice.
inline std::vector<std::string> TextsOf(const std::string& stream, size_t choices) {
  std::vector<std::string> texts(choices);
  for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; ++at) {
    const size_t begin = at + 6;
    const Json chunk = Json::parse(stream.substr(begin, stream.find("\n\n", begin) - begin));
    if (!chunk.contains("choices")) continue;
    for (const Json& choice : chunk["choices"]) {
      const Json& said = choice.contains("delta") ? choice["delta"] : choice;
      const char* key = choice.contains("delta") ? "content" : "text";
      if (said.contains(key)) texts.at(choice["index"]) += said[key].get<std::string>();
    }
  }
  return texts;
}

// Leaves at last, as a connection that ends does: an answer holds itself until then.
class TestClient final : public FakeClient {
 public:
  using FakeClient::FakeClient;
  ~TestClient() { Leave(); }
};

class OpenAiTest : public CoreTest {
 protected:
  using Sequence = ScriptedEngine::Sequence;

  void TearDown() override {
    writer_->Stop();
    // Models go ahead of the engines' last users.
    routes_.reset();
  }

  // Makes the routes, and the model.
  void Begin(EngineOptions engine = {}) {
    auto routes = OpenAiRoutes(core_.get(), writer_);
    ASSERT_TRUE(routes.ok()) << routes.status();
    routes_ = std::make_unique<Routes>(*std::move(routes));
    engine.vocabulary = kTestVocabulary;
    version_ = AddModel("m", std::move(engine));
  }
  std::shared_ptr<ModelVersion> AddModel(const std::string& name, EngineOptions options) {
    std::shared_ptr<ModelVersion> version = Store(name, ScaleModel({1}));
    version->SetLanguageModel(ScriptedModel(std::move(options), &engine_));
    EXPECT_TRUE(core_->workers().Start(version).ok());
    EXPECT_TRUE(Await(*version).ok());
    return version;
  }

  std::unique_ptr<TestClient> Ask(const std::string& method, const std::string& path,
                                  std::string body = "", HttpHeaders headers = {}) {
    auto client = std::make_unique<TestClient>(HttpRequest{.method = method,
                                                           .path = path,
                                                           .body = std::move(body),
                                                           .peer = "ipv4:10.0.0.7:43210",
                                                           .headers = std::move(headers)});
    const Routes::Found found = routes_->Find(method, path);
    EXPECT_NE(found.route, nullptr) << method << path;
    if (found.route != nullptr) found.route->handler(client->Ask());
    return client;
  }
  std::unique_ptr<TestClient> Complete(const std::string& fields) {
    return Ask("POST", "/v1/completions", "{\"model\":\"m\"," + fields + "}");
  }
  std::unique_ptr<TestClient> Chat(const std::string& fields = "") {
    return Ask("POST", "/v1/chat/completions",
               R"({"model":"m","messages":[{"role":"user","content":"a"}])" +
                   (fields.empty() ? "" : "," + fields) + "}");
  }
  FakeClient::Answer Get(const std::string& path) { return Ask("GET", path)->AwaitEnd(); }

  static void Put(const Sequence& sequence, const std::string& text) {
    GenerateEvent event{.text = text};
    for (char c : text) event.tokens.push_back({.token = IdOf(c), .logprob = -1});
    static_cast<void>(sequence.outbox->Put(std::move(event)));
  }
  static void End(const Sequence& sequence, const std::string& text = "",
                  Finish finish = Finish::kLength, int64_t generated = 2) {
    GenerateEvent last = LastEvent(finish, generated);
    last.text = text;
    for (char c : text) last.tokens.push_back({.token = IdOf(c), .logprob = -1});
    static_cast<void>(sequence.outbox->Put(std::move(last)));
    sequence.outbox->Close(absl::OkStatus());
  }

  // Returns the text with the id, the time and the fingerprint of answers replaced.
  static std::string Plain(std::string text) {
    text = std::regex_replace(text, std::regex("\"(chatcmpl|cmpl)-[0-9a-f]{16}\""), "\"ID\"");
    text = std::regex_replace(text, std::regex("\"created\":[0-9]+"), "\"created\":0");
    return std::regex_replace(text, std::regex("\"system_fingerprint\":\"v1[^\"]*\""),
                              "\"system_fingerprint\":\"F\"");
  }
  static std::string HeaderOf(const FakeClient::Answer& answer, const std::string& name) {
    for (const auto& [key, value] : answer.headers) {
      if (key == name) return value;
    }
    return "";
  }
  static Json ErrorOf(const FakeClient::Answer& answer) {
    const Json body = Json::parse(answer.body(), nullptr, false);
    return body.is_object() && body.contains("error") ? body["error"] : Json::object();
  }
  // Waits until all that requests hold is given back.
  void AwaitNothingHeld() {
    while (core_->ledger().used(HeldKind::kRequests) != 0) std::this_thread::yield();
  }

  const std::shared_ptr<StreamWriter> writer_ = std::make_shared<StreamWriter>();
  std::unique_ptr<Routes> routes_;
  std::shared_ptr<ModelVersion> version_;
  ScriptedEngine* engine_ = nullptr;  // of the model that was added last
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_OPENAI_TESTING_H_
