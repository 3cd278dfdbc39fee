// A language model whose engine does what a test says (scripted_engine_testing.h).
//
//   ScriptedEngine* engine = nullptr;
//   version->SetLanguageModel(ScriptedModel({.vocabulary = kTestVocabulary}, &engine));
//
// Its tokens are <s> (0), <|end|> (1), <|user|> (2), <|assistant|> (3), then the printable
// characters of ASCII from the space on (4 to 98). 99 is a row of the logits without a token.
#ifndef ATHANOR_SERVER_CALLS_SCRIPTED_MODEL_TESTING_H_
#define ATHANOR_SERVER_CALLS_SCRIPTED_MODEL_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/generate/language_model.h"
#include "server/generate/scripted_engine_testing.h"

namespace athanor {

inline constexpr int32_t kTestVocabulary = 100;
inline constexpr char kTestTemplate[] =
    "{% if forbidden is defined %}{{ raise_exception('not so') }}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

inline std::shared_ptr<const Tokenizer> MakeTokenizer() {
  TokenizerData data;
  data.pieces = {"<s>", "<|end|>", "<|user|>", "<|assistant|>"};
  for (int32_t id = 0; id < 4; ++id) {
    data.added.push_back({.content = data.pieces[id], .id = id, .special = true});
  }
  for (char c = ' '; c <= '~'; ++c) data.pieces.emplace_back(1, c);
  data.begin = {0};
  return Tokenizer::Create(std::move(data)).value();
}

inline int32_t IdOf(char c) { return c - ' ' + 4; }
inline std::vector<int32_t> IdsOf(const std::string& text) {
  std::vector<int32_t> ids;
  for (char c : text) ids.push_back(IdOf(c));
  return ids;
}

// Sets `engine` to the model's.
inline std::shared_ptr<LanguageModel> ScriptedModel(EngineOptions options,
                                                    ScriptedEngine** engine) {
  auto model = std::make_shared<LanguageModel>();
  model->family = "llama";
  model->text.tokenizer = MakeTokenizer();
  model->text.chat = ChatTemplate::Parse(kTestTemplate).value();
  model->text.variables = nlohmann::ordered_json::object();
  model->sampling = {.temperature = 0.5f, .top_k = 40};
  model->end_tokens = {1};
  model->token_kv_bytes = 64;
  auto scripted = std::make_unique<ScriptedEngine>(std::move(options));
  *engine = scripted.get();
  model->engine = std::move(scripted);
  return model;
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_SCRIPTED_MODEL_TESTING_H_
