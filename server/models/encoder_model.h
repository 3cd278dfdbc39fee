// Holds an encoder's text and sizes, which a version has beside its plans. Its graph takes `ids`
// i32[B, T] and `lengths` i32[B], the tokens of each row; positions behind them are padding, of any
// valid id, and change nothing. It gives `embeddings` f32[B, width]; a row without tokens makes
// zeros.
#ifndef ATHANOR_SERVER_MODELS_ENCODER_MODEL_H_
#define ATHANOR_SERVER_MODELS_ENCODER_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "server/text/tokens/tokenizer.h"

namespace athanor {

struct EncoderModel {
  std::string family;      // "bert"
  int64_t width = 0;       // of an embedding
  int64_t vocabulary = 0;  // tokens are 0 to this - 1
  // The most tokens of an input, those that the tokenizer adds counted.
  int64_t context = 0;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the files have none, and inputs are tokens
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_ENCODER_MODEL_H_
