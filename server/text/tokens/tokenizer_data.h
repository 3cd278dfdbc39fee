// Holds what a file says of its tokenizer, whatever its format: loaders fill it, Tokenizer::Create
// checks it and builds from it.
#ifndef ATHANOR_SERVER_TEXT_TOKENS_TOKENIZER_DATA_H_
#define ATHANOR_SERVER_TEXT_TOKENS_TOKENIZER_DATA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace athanor {

// A token that is cut out of the text ahead of everything else.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      // found in trusted text only
  bool lstrip = false;       // takes white space ahead of it
  bool rstrip = false;       // takes white space behind it
  bool single_word = false;  // not next to a character of a word
  bool normalized = false;   // looked for in normalised text, in its normalised form
  bool as_written = false;   // with `normalized`: the content is that form
};

struct NormalizeStep {
  enum Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStripLeft,
    kStripRight,
    kPrepend,         // `to`, ahead of text that is not empty
    kReplace,         // `from` by `to`
    kReplaceRegex,    // matches of `from` by `to`, which is literal
    kBertClean,       // controls are dropped, white space becomes spaces
    kBertHan,         // spaces around what BERT takes for Chinese
    kDropNonspacing,  // marks of the category Mn, which stand by themselves in NFD
    kDropMarks,       // and of Mc and Me
    kPrecompiled,     // by the charsmap `from`, as HF's tokenizers apply it
    kCharsmap,        // by the charsmap `from` ("": none), as SentencePiece does
  };
  Kind kind = kNfc;
  std::string from, to;
  // Used by kCharsmap: texts that stay as they are, and whether spaces are taken from the ends and
  // doubled ones become one.
  std::vector<std::string> kept;
  bool strips = false;
};

struct SplitStep {
  enum Kind : uint8_t {
    kLiteral,      // splits at occurrences of `pattern`
    kRegex,        // splits at matches of `pattern`, written for Oniguruma
    kPrefixSpace,  // puts a space ahead of a word that begins with none
    kMetaspace,    // writes `pattern` for spaces, and ahead of words as `prefix` says
    kBert,         // splits at white space, which goes, and around punctuation
  };
  enum Behavior : uint8_t {
    kIsolated,
    kRemoved,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous
  };
  enum Prefix : uint8_t { kNever, kFirst, kAlways };
  Kind kind = kRegex;
  std::string pattern;
  Behavior behavior = kIsolated;
  bool invert = false;  // what does not match are the delimiters
  Prefix prefix = kNever;
};

// Two neighbours that become one; of the merges that a word allows, that of the lowest rank comes
// first, of equal ranks the leftmost.
struct Merge {
  int32_t left = 0, right = 0, result = 0;
  int32_t rank = 0;
};

// How WordPiece writes words: pieces that begin with `prefix` continue one.
struct WordPieceRules {
  std::string prefix = "##";
  int64_t max_characters = 100;  // a longer word is unknown
};

// How tokens of words become text: with a space ahead of each but the first and those that begin
// with `prefix`, which is taken away. `cleans`: spaces are taken from around what English writes
// without them, within each token, as HF's decoder does.
struct WordJoin {
  std::string prefix;
  bool cleans = false;
};

struct TokenizerData {
  std::vector<std::string> pieces;  // by id, as the file writes them; "" where no token is
  std::vector<bool> hidden;         // by id: never found in text (empty: none is)
  std::vector<Merge> merges;
  std::vector<double> scores;  // by id: Unigram takes the words' best sums; empty: merges are made
  double unk_score = 0;        // with `scores`: of a character that is no piece
  bool rounds_scores = false;  // with `scores`: sums are of f32
  std::optional<WordPieceRules> word_pieces;  // the longest pieces are taken; no merges, no scores
  std::vector<AddedToken> added;
  std::vector<NormalizeStep> normalize;
  std::vector<SplitStep> split;

  bool byte_level = false;  // pieces spell bytes by GPT-2's alphabet of 256 characters
  bool byte_fallback =
      false;  // characters that are no piece are written by the pieces <0x00>..<0xFF>
  bool ignore_merges = false;  // a word that is a piece is that piece
  bool fuse_unk = false;       // neighbours that are unknown are one token; with `scores` always
  int32_t unk = -1;            // stands for an unknown character; -1: it is left out

  std::vector<int32_t> begin, end;  // put around a prompt

  std::optional<WordJoin> word_join;  // tokens become text by it alone

  // How tokens become text else, behind `byte_level` or `byte_fallback`.
  std::vector<std::pair<std::string, std::string>> replace;
  int64_t strip_left = 0;          // so many spaces are taken from the beginning of the text
  bool strip_first_token = false;  // all spaces of the first token are
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_TOKENIZER_DATA_H_
