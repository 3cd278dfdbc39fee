// Writes answers as OpenAI's JSON: whole ones, and the chunks of streams.
//
//   ChoiceReader reader(Endpoint::kChats, /*logprobs=*/true, tokenizer);
//   ChoicePart part;
//   reader.Add(std::move(events), &part);
//   AnswerWriter writer({.endpoint = Endpoint::kChats, .id = "chatcmpl-1", .model = "m"});
//   stream += writer.Chunk(0, part, /*usage_follows=*/false);
#ifndef ATHANOR_SERVER_OPENAI_COMPLETION_H_
#define ATHANOR_SERVER_OPENAI_COMPLETION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/generate/outbox.h"
#include "server/openai/request.h"
#include "server/text/tokens/tokenizer.h"

namespace athanor {

// Holds what a choice has said: so far, or since its last chunk. The lists are elements of JSON
// with commas between them.
struct ChoicePart {
  int64_t bytes() const;

  std::string text;
  std::string tokens, token_logprobs, top_logprobs, text_offset;  // of completions
  std::string content;                                            // of chats
  const char* finish_reason = nullptr;                            // null: it goes on
};

// Counts tokens. A prompt counts once, however many choices it has.
struct UsageCounts {
  int64_t prompt = 0, cached = 0, generated = 0;
};

// Makes parts of the events of one choice, in their order. Not thread-safe.
class ChoiceReader {
 public:
  // `tokenizer` may be null: then a token's text is "token_id:" and its number, as vLLM has it.
  ChoiceReader(Endpoint endpoint, bool logprobs, std::shared_ptr<const Tokenizer> tokenizer)
      : endpoint_(endpoint), logprobs_(logprobs), tokenizer_(std::move(tokenizer)) {}

  // Adds to `part`. The stop token that ended a sequence has no text, and so no logprobs.
  void Add(std::vector<GenerateEvent> events, ChoicePart* part);

 private:
  void AddToken(const Sampled& token, ChoicePart* part);
  void AddToCompletion(const Sampled& token, ChoicePart* part);
  void AddToChat(const Sampled& token, ChoicePart* part) const;
  absl::string_view BytesOf(int32_t token) const;
  // Returns the token's text; half characters as their bytes.
  std::string NameOf(int32_t token) const;
  std::string ChatEntry(int32_t token, float logprob) const;

  const Endpoint endpoint_;
  const bool logprobs_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t offset_ = 0;  // in characters, of the next token
};

struct AnswerHead {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string id;
  int64_t created = 0;      // Unix time in seconds
  std::string model;        // as the client named it
  std::string fingerprint;  // of what computes
  bool logprobs = false;
};

// Immutable.
class AnswerWriter {
 public:
  explicit AnswerWriter(AnswerHead head) : head_(std::move(head)) {}

  // Returns the chunk that opens a chat's choice with its role.
  std::string Opening(size_t index, bool usage_follows) const;
  // Returns an event of a stream; with `usage_follows` it has a usage, which is null.
  std::string Chunk(size_t index, const ChoicePart& part, bool usage_follows) const;
  std::string UsageChunk(const UsageCounts& usage) const;
  // Returns a whole answer with a choice for each part.
  std::string Whole(const std::vector<ChoicePart>& parts, const UsageCounts& usage) const;

 private:
  // Returns the beginning of an answer, up to its choices.
  std::string Begin(bool chunk) const;
  std::string Event(std::string choices, absl::string_view usage) const;
  std::string Logprobs(const ChoicePart& part) const;

  const AnswerHead head_;
};

// Returns the JSON of a text; what is no UTF-8 is replaced by U+FFFD.
std::string JsonText(const std::string& text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_COMPLETION_H_
