#include "server/openai/embeddings.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/calls/generation.h"
#include "server/openai/completion.h"
#include "server/openai/error.h"

namespace athanor {
namespace {

// Bytes of a number's text with its comma, and of what is around an embedding and the answer.
constexpr int64_t kNumberBytes = 17, kBesideBytes = 64, kHeadBytes = 256;
// Answers from so many bytes on are written away from the threads that run calls.
constexpr int64_t kLongAnswer = int64_t{64} << 10;

int64_t MostBytes(const EmbeddingsCall& call, const EmbeddingResult& result) {
  const auto values = static_cast<int64_t>(result.values.size());
  const int64_t count = result.width == 0 ? 0 : values / result.width;
  const int64_t each = call.base64 ? (result.width * 4 + 2) / 3 * 4 : result.width * kNumberBytes;
  return kHeadBytes + static_cast<int64_t>(call.model.size()) * 6 + count * (kBesideBytes + each);
}

void AddNumbers(absl::Span<const float> values, std::string* text) {
  text->push_back('[');
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text->push_back(',');
    char buffer[kNumberBytes];
    if (std::isfinite(values[i])) {
      text->append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), values[i]).ptr - buffer);
    } else {
      text->append("null");
    }
  }
  text->push_back(']');
}

// Cancels what is computed for a client that leaves.
class Leaver final : public HttpExchange::Watcher {
 public:
  Leaver(ServerCore& core, std::shared_ptr<Embedding> embedding)
      : core_(core), embedding_(std::move(embedding)) {}
  void Written() override {}
  void Left() override { embedding_->Cancel(ClientLeft(core_)); }

 private:
  ServerCore& core_;
  const std::shared_ptr<Embedding> embedding_;
};

void AnswerResult(ServerCore& core, HttpExchange& exchange, const EmbeddingsCall& call,
                  const EmbeddingResult& result) {
  auto memory =
      core.ledger().Reserve(HeldKind::kRequests, MostBytes(call, result), "the embeddings' answer");
  if (!memory.ok()) {
    AnswerError(exchange, memory.status());
    return;
  }
  exchange.Keep(std::make_shared<ServerLedger::Reservation>(*std::move(memory)));
  exchange.Answer(200, "application/json", EmbeddingsText(call, result));
}

}  // namespace

std::string EmbeddingsText(const EmbeddingsCall& call, const EmbeddingResult& result) {
  std::string text;
  text.reserve(MostBytes(call, result));
  text += R"({"object":"list","data":[)";
  const absl::Span<const float> values(result.values);
  for (size_t i = 0; i * result.width < values.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "," : "", R"({"object":"embedding","index":)", i,
                    R"(,"embedding":)");
    const auto one = values.subspan(i * result.width, result.width);
    if (call.base64) {
      const absl::string_view bytes(reinterpret_cast<const char*>(one.data()), one.size() * 4);
      absl::StrAppend(&text, "\"", absl::Base64Escape(bytes), "\"");
    } else {
      AddNumbers(one, &text);
    }
    text += "}";
  }
  absl::StrAppend(&text, R"(],"model":)", JsonText(call.model), R"(,"usage":{"prompt_tokens":)",
                  result.tokens, R"(,"total_tokens":)", result.tokens, "}}");
  return text;
}

void AnswerEmbeddings(ServerCore& core, std::shared_ptr<HttpExchange> exchange, EmbeddingsCall call,
                      EmbeddingRequest request) {
  InferenceCaller caller{.client = exchange->client(), .trace = exchange->trace()};
  auto done = [&core, exchange, call = std::move(call)](absl::StatusOr<EmbeddingResult> result) {
    if (!result.ok()) {
      AnswerError(*exchange, result.status());
    } else if (MostBytes(call, *result) < kLongAnswer) {
      AnswerResult(core, *exchange, call, *result);
    } else {
      core.text_queue().Submit([&core, exchange, call, result = *std::move(result)] {
        AnswerResult(core, *exchange, call, result);
      });
    }
  };
  const auto embedding =
      Embedding::Make(core, std::move(caller), std::move(request), std::move(done));
  const auto leaver = std::make_shared<Leaver>(core, embedding);
  exchange->Keep(leaver);
  exchange->Watch(leaver);
  embedding->Begin();
}

}  // namespace athanor
