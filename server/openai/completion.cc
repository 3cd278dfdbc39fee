#include "server/openai/completion.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

constexpr float kLeastLogprob = -9999;  // OpenAI's number for tokens that are all but impossible

// Appends an element to a list without its brackets.
void AddElement(absl::string_view element, std::string* list) {
  absl::StrAppend(list, list->empty() ? "" : ",", element);
}

// Returns the shortest decimal that reads as the same float.
std::string NumberText(float logprob) {
  if (!(logprob > kLeastLogprob)) logprob = kLeastLogprob;
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), logprob).ptr);
}

bool IsUtf8(absl::string_view bytes) {
  return !FindBrokenUtf8({bytes.data(), bytes.size()}).has_value();
}

// Returns the number of characters that begin in the bytes.
int64_t CountCharacters(absl::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

std::string UsageText(const UsageCounts& usage) {
  return absl::StrCat("{\"prompt_tokens\":", usage.prompt,
                      ",\"completion_tokens\":", usage.generated,
                      ",\"total_tokens\":", usage.prompt + usage.generated,
                      ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached, "}}");
}

std::string FinishText(const char* reason) {
  return reason == nullptr ? "null" : absl::StrCat("\"", reason, "\"");
}

}  // namespace

std::string JsonText(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

int64_t ChoicePart::bytes() const {
  return static_cast<int64_t>(text.size() + tokens.size() + token_logprobs.size() +
                              top_logprobs.size() + text_offset.size() + content.size());
}

absl::string_view ChoiceReader::BytesOf(int32_t token) const {
  if (tokenizer_ == nullptr) return "";
  const std::string_view bytes = tokenizer_->BytesOf(token);
  return {bytes.data(), bytes.size()};
}

std::string ChoiceReader::NameOf(int32_t token) const {
  const absl::string_view bytes = BytesOf(token);
  if (bytes.empty()) return absl::StrCat("token_id:", token);
  if (IsUtf8(bytes)) return std::string(bytes);
  std::string name = endpoint_ == Endpoint::kCompletions ? "bytes:" : "";
  for (const char c : bytes) {
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      name += c;
    } else {
      absl::StrAppendFormat(&name, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return name;
}

void ChoiceReader::Add(std::vector<GenerateEvent> events, ChoicePart* part) {
  for (GenerateEvent& event : events) {
    part->text += event.text;
    if (event.summary.has_value() && event.summary->stop_token.has_value() &&
        !event.tokens.empty()) {
      event.tokens.pop_back();
    }
    if (logprobs_) {
      for (const Sampled& token : event.tokens) AddToken(token, part);
    }
    if (event.finish == Finish::kStop) part->finish_reason = "stop";
    if (event.finish == Finish::kLength) part->finish_reason = "length";
  }
}

void ChoiceReader::AddToken(const Sampled& token, ChoicePart* part) {
  if (endpoint_ == Endpoint::kChats) {
    AddToChat(token, part);
  } else {
    AddToCompletion(token, part);
  }
}

void ChoiceReader::AddToCompletion(const Sampled& token, ChoicePart* part) {
  const std::string name = NameOf(token.token);
  AddElement(JsonText(name), &part->tokens);
  AddElement(NumberText(token.logprob), &part->token_logprobs);
  const absl::string_view bytes = BytesOf(token.token);
  // A token that goes on with a character is where that character is.
  const bool goes_on = !bytes.empty() && (bytes[0] & 0xc0) == 0x80 && offset_ > 0;
  AddElement(absl::StrCat(offset_ - (goes_on ? 1 : 0)), &part->text_offset);
  // Special tokens are not written.
  if (tokenizer_ == nullptr || !tokenizer_->special(token.token)) offset_ += CountCharacters(bytes);
  std::vector<std::string> names;
  std::string top;
  const auto add = [&](std::string other, float logprob) {
    // Tokens of equal text have one key; the likelier one comes first.
    if (std::find(names.begin(), names.end(), other) != names.end()) return;
    AddElement(absl::StrCat(JsonText(other), ":", NumberText(logprob)), &top);
    names.push_back(std::move(other));
  };
  for (const TokenLogprob& likely : token.likeliest) add(NameOf(likely.token), likely.logprob);
  add(name, token.logprob);
  AddElement(absl::StrCat("{", top, "}"), &part->top_logprobs);
}

// Returns an entry without its closing bracket.
std::string ChoiceReader::ChatEntry(int32_t token, float logprob) const {
  std::string bytes;
  for (const char c : BytesOf(token)) {
    AddElement(absl::StrCat(static_cast<unsigned char>(c)), &bytes);
  }
  return absl::StrCat("{\"token\":", JsonText(NameOf(token)), ",\"logprob\":", NumberText(logprob),
                      ",\"bytes\":[", bytes, "]");
}

void ChoiceReader::AddToChat(const Sampled& token, ChoicePart* part) const {
  std::string top;
  for (const TokenLogprob& likely : token.likeliest) {
    AddElement(absl::StrCat(ChatEntry(likely.token, likely.logprob), "}"), &top);
  }
  AddElement(absl::StrCat(ChatEntry(token.token, token.logprob), ",\"top_logprobs\":[", top, "]}"),
             &part->content);
}

std::string AnswerWriter::Begin(bool chunk) const {
  const bool chats = head_.endpoint == Endpoint::kChats;
  return absl::StrCat("{\"id\":", JsonText(head_.id), ",\"object\":\"",
                      chats && chunk ? "chat.completion.chunk"
                      : chats        ? "chat.completion"
                                     : "text_completion",
                      "\",\"created\":", head_.created, ",\"model\":", JsonText(head_.model),
                      ",\"system_fingerprint\":", JsonText(head_.fingerprint), ",\"choices\":[");
}

std::string AnswerWriter::Event(std::string choices, absl::string_view usage) const {
  return absl::StrCat("data: ", Begin(true), choices, "]",
                      usage.empty() ? "" : absl::StrCat(",\"usage\":", usage), "}\n\n");
}

std::string AnswerWriter::Logprobs(const ChoicePart& part) const {
  if (!head_.logprobs) return "null";
  if (head_.endpoint == Endpoint::kChats) {
    return absl::StrCat("{\"content\":[", part.content, "],\"refusal\":null}");
  }
  return absl::StrCat("{\"tokens\":[", part.tokens, "],\"token_logprobs\":[", part.token_logprobs,
                      "],\"top_logprobs\":[", part.top_logprobs, "],\"text_offset\":[",
                      part.text_offset, "]}");
}

std::string AnswerWriter::Opening(size_t index, bool usage_follows) const {
  return Event(absl::StrCat("{\"index\":", index,
                            ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                            "\"logprobs\":null,\"finish_reason\":null}"),
               usage_follows ? "null" : "");
}

std::string AnswerWriter::Chunk(size_t index, const ChoicePart& part, bool usage_follows) const {
  std::string said;
  if (head_.endpoint == Endpoint::kCompletions) {
    said = absl::StrCat("\"text\":", JsonText(part.text));
  } else if (part.text.empty() && part.finish_reason != nullptr) {
    said = "\"delta\":{}";
  } else {
    said = absl::StrCat("\"delta\":{\"content\":", JsonText(part.text), "}");
  }
  // The last chunk of a stream may have no token; then it has no logprobs.
  const bool bare = part.content.empty() && part.tokens.empty();
  return Event(absl::StrCat("{\"index\":", index, ",", said,
                            ",\"logprobs\":", bare ? "null" : Logprobs(part),
                            ",\"finish_reason\":", FinishText(part.finish_reason), "}"),
               usage_follows ? "null" : "");
}

std::string AnswerWriter::UsageChunk(const UsageCounts& usage) const {
  return Event("", UsageText(usage));
}

std::string AnswerWriter::Whole(const std::vector<ChoicePart>& parts,
                                const UsageCounts& usage) const {
  std::string answer = Begin(false);
  for (size_t i = 0; i < parts.size(); ++i) {
    const ChoicePart& part = parts[i];
    absl::StrAppend(&answer, i > 0 ? "," : "", "{\"index\":", i);
    if (head_.endpoint == Endpoint::kChats) {
      absl::StrAppend(&answer,
                      ",\"message\":{\"role\":\"assistant\",\"content\":", JsonText(part.text),
                      ",\"refusal\":null}");
    } else {
      absl::StrAppend(&answer, ",\"text\":", JsonText(part.text));
    }
    absl::StrAppend(&answer, ",\"logprobs\":", Logprobs(part),
                    ",\"finish_reason\":", FinishText(part.finish_reason), "}");
  }
  absl::StrAppend(&answer, "],\"usage\":", UsageText(usage), "}");
  return answer;
}

}  // namespace athanor
