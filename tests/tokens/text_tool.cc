// Encodes texts from stdin by a tokenizer's file, for comparing with other tokenizers.
//
//   text_tool json|model|tekken|ranks|gguf FILE [CONFIG]
//   text_tool folder FOLDER
//
// CONFIG is the path of tokenizer_config.json; of a list of ranks it is the model_type. Of a folder
// the texts of a checkpoint are read, as the server does.
//
// A text is its length (u32, little endian), 1 if it is trusted, 2 if tokens are put around it (one
// byte, added), then its bytes. Of each text stdout has the number of ids (u32), the ids (i32), the
// length of their text as decoded (u32) and that text; for one that is refused 0xFFFFFFFF, the
// length of the message and the message. Seconds of processor time spent in Encode go to stderr at
// the end.
#include <cstdint>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/checkpoint/files/gguf.h"
#include "server/text/files/ranks.h"
#include "server/text/files/tokenizer_json.h"
#include "server/text/files/vocabulary.h"
#include "server/text/model_text.h"
#include "server/text/tokens/detokenizer.h"
#include "server/text/tokens/tokenizer.h"

namespace athanor {
namespace {

constexpr size_t kMost = size_t{64} << 20;  // bytes of a file

std::string ReadFile(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(most, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(most));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

absl::StatusOr<TokenizerData> ReadData(std::string_view kind, const std::string& path,
                                       const std::string& config) {
  const std::string bytes = ReadFile(path, kMost);
  if (kind == "json") {
    return ReadTokenizerJson(bytes, config.empty() ? "" : ReadFile(config, kMost));
  }
  if (kind == "model") return ReadSentencePiece(bytes);
  if (kind == "tekken") return ReadTekken(bytes);
  if (kind == "ranks") return ReadRanks(bytes, config, /*special=*/true);
  const auto size = static_cast<int64_t>(std::ifstream(path, std::ios::ate).tellg());
  const absl::StatusOr<checkpoint::Gguf> gguf = checkpoint::ReadGguf(bytes, 0, size);
  if (!gguf.ok()) return gguf.status();
  return ReadVocabulary(*gguf);
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> ReadTokenizer(std::string_view kind,
                                                               const std::string& path,
                                                               const std::string& config) {
  if (kind != "folder") {
    const absl::StatusOr<TokenizerData> data = ReadData(kind, path, config);
    if (!data.ok()) return data.status();
    return Tokenizer::Create(*data);
  }
  std::deque<std::string> texts;
  std::vector<TextFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files.push_back({.path = entry.path().filename(),
                     .bytes = texts.emplace_back(ReadFile(entry.path(), kMost))});
  }
  const absl::StatusOr<ModelText> text = ReadModelText(files);
  if (!text.ok()) return text.status();
  if (text->tokenizer == nullptr) return absl::NotFoundError("the folder has no tokenizer");
  return text->tokenizer;
}

void WriteNumber(uint32_t number) {
  std::cout.write(reinterpret_cast<const char*>(&number), sizeof(number));
}

void WriteText(std::string_view text) {
  WriteNumber(static_cast<uint32_t>(text.size()));
  std::cout.write(text.data(), static_cast<std::streamsize>(text.size()));
}

void EncodeAll(const std::shared_ptr<const Tokenizer>& tokenizer) {
  uint32_t size = 0;
  char flags = 0;
  std::clock_t spent = 0;
  while (std::cin.read(reinterpret_cast<char*>(&size), sizeof(size)) && std::cin.get(flags)) {
    Part part{std::string(size, '\0'), (flags & 1) != 0};
    std::cin.read(part.text.data(), size);
    std::vector<int32_t> ids;
    const std::clock_t start = std::clock();
    const absl::Status status = tokenizer->Encode({&part, 1}, (flags & 2) != 0, &ids);
    spent += std::clock() - start;
    if (!status.ok()) {
      WriteNumber(0xFFFFFFFF);
      WriteText(status.ToString());
      continue;
    }
    WriteNumber(static_cast<uint32_t>(ids.size()));
    std::cout.write(reinterpret_cast<const char*>(ids.data()),
                    static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
    std::string text;
    Detokenizer detokenizer(tokenizer);
    for (int32_t id : ids) detokenizer.Add(id, &text);
    detokenizer.End(&text);
    WriteText(text);
  }
  std::cerr << static_cast<double>(spent) / CLOCKS_PER_SEC << "\n";
}

int Main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto tokenizer = ReadTokenizer(argv[1], argv[2], argc > 3 ? argv[3] : "");
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  EncodeAll(*tokenizer);
  return 0;
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) { return athanor::Main(argc, argv); }
