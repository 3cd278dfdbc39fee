#include "tests/fuzz/checkpoint_target.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "compiler/frontend/checkpoint/files/decode.h"
#include "compiler/frontend/checkpoint/files/gguf.h"
#include "compiler/frontend/checkpoint/files/gguf_testing.h"
#include "compiler/frontend/checkpoint/files/keys.h"
#include "compiler/frontend/checkpoint/files/safetensors.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

using checkpoint::FileTensor;
using checkpoint::GgufWriter;

constexpr int64_t kDecodedBytes = 4096;  // larger tensors are not decoded
constexpr size_t kLargest = 1 << 16;
constexpr size_t kLength = 8;  // bytes of a safetensors file before its JSON

// Returns what a reader gives, in a form that can be compared.
struct HeadRead {
  absl::Status status;
  std::vector<FileTensor> tensors;
  std::string other;  // all else
};
using Reader = std::function<HeadRead(std::string_view bytes, int64_t file_bytes)>;

bool Same(const HeadRead& a, const HeadRead& b) {
  const auto same = [](const FileTensor& x, const FileTensor& y) {
    return x.name == y.name && x.stored == y.stored && x.shape == y.shape && x.file == y.file &&
           x.offset == y.offset && x.bytes == y.bytes;
  };
  return a.status == b.status && a.other == b.other &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(), same);
}

// Looks at tensors by pairs, other than the reader does.
std::string CheckPlaces(const std::vector<FileTensor>& tensors, int64_t file_bytes) {
  std::set<std::string> names;
  for (const FileTensor& a : tensors) {
    if (!names.insert(a.name).second) return "a name is there twice";
    if (a.offset < 0 || a.bytes < 0 || a.offset > file_bytes || a.bytes > file_bytes - a.offset) {
      return Cat("tensor ", Quoted(a.name), " is not inside the file");
    }
    for (const FileTensor& b : tensors) {
      if (&a != &b && a.bytes > 0 && b.bytes > 0 && a.offset <= b.offset &&
          b.offset < a.offset + a.bytes) {
        return "tensors overlap";
      }
    }
  }
  return "";
}

std::string DecodeTensor(const FileTensor& tensor, std::string_view file) {
  const TensorType type = TypeOfBytes(tensor);
  Graph graph;
  GraphBuilder b(&graph);
  const absl::StatusOr<NodeId> bytes = b.Parameter(tensor.name, type);
  if (!bytes.ok()) return BadRefusal(bytes.status(), {absl::StatusCode::kInvalidArgument});
  const absl::StatusOr<NodeId> decoded = Decode(b, graph, *bytes, tensor.stored);
  if (!decoded.ok()) return Cat("Decode: ", decoded.status().ToString());
  b.Output("y", *decoded);
  if (absl::Status s = Verify(graph); !s.ok()) return Cat("Verify: ", s.ToString());
  Tensor value{type.dtype, {}, std::string(file.substr(tensor.offset, tensor.bytes))};
  for (const Expr& size : type.shape) value.shape.push_back(size.constant().value());
  const auto result = Evaluate(graph, {value});
  if (!result.ok()) return Cat("Evaluate: ", result.status().ToString());
  if (result->at(0).shape != tensor.shape) return "decoded to another shape";
  return "";
}

std::string FuzzHead(const Reader& read, const std::string& file, FuzzStats* stats) {
  const auto size = static_cast<int64_t>(file.size());
  const HeadRead whole = read(file, size);
  // Depends on the file only, so that an input fails again.
  size_t place = 0;
  for (const char c : file) place = place * 31 + static_cast<uint8_t>(c);
  for (int i = 0; i < 3; ++i, place /= 251) {
    const HeadRead part = read(std::string_view(file).substr(0, place % (file.size() + 1)), size);
    if (part.status.code() != absl::StatusCode::kOutOfRange && !Same(part, whole)) {
      return Cat("a prefix reads as something else: ", part.status.ToString());
    }
  }
  if (!whole.status.ok()) {
    return BadRefusal(whole.status,
                      {absl::StatusCode::kInvalidArgument, absl::StatusCode::kUnimplemented,
                       absl::StatusCode::kResourceExhausted});
  }
  if (std::string problem = CheckPlaces(whole.tensors, size); !problem.empty()) return problem;
  if (whole.tensors.empty()) return "";
  ++stats->accepted;
  const FileTensor& tensor = whole.tensors[place % whole.tensors.size()];
  if (tensor.bytes == 0 || tensor.bytes > kDecodedBytes || !checkpoint::HoldsWeights(tensor.stored))
    return "";
  ++stats->evaluated;
  const std::string problem = DecodeTensor(tensor, file);
  return problem.empty() ? "" : Cat("tensor ", Quoted(tensor.name), ": ", problem);
}

// Writes a number over the bytes at a place.
template <typename T>
void PutNumber(std::string* file, size_t at, Mutator* mutator) {
  if (file->size() < sizeof(T)) return;
  at = std::min(at, file->size() - sizeof(T));
  T old;
  std::memcpy(&old, file->data() + at, sizeof(T));
  const T number = mutator->OneIn(3)
                       ? static_cast<T>(mutator->Below(40))
                       : static_cast<T>(mutator->AnyInteger(static_cast<int64_t>(old)));
  std::memcpy(file->data() + at, &number, sizeof(T));
}

// Copies, drops or exchanges a run of bytes.
void MoveRun(std::string* bytes, Mutator* mutator) {
  if (bytes->empty()) return;
  const size_t from = mutator->Below(bytes->size());
  const std::string run = bytes->substr(from, 1 + mutator->Below(64));
  switch (mutator->Below(3)) {
    case 0:
      bytes->insert(mutator->Below(bytes->size() + 1), run);
      break;
    case 1:
      bytes->erase(from, run.size());
      break;
    default:
      bytes->replace(mutator->Below(bytes->size()), run.size(), run);
  }
}

// Replaces a number in a text, or a run between quotes by another.
void ChangeJson(std::string* text, Mutator* mutator) {
  std::vector<std::pair<size_t, size_t>> numbers, quoted;
  size_t quote = std::string::npos;
  for (size_t i = 0; i < text->size(); ++i) {
    if ((*text)[i] == '"') {
      if (quote != std::string::npos) quoted.emplace_back(quote, i + 1 - quote);
      quote = quote == std::string::npos ? i : std::string::npos;
    } else if (quote == std::string::npos &&
               std::isdigit(static_cast<unsigned char>((*text)[i])) != 0) {
      const size_t end = text->find_first_not_of("0123456789", i);
      numbers.emplace_back(i, std::min(end, text->size()) - i);
      i = std::min(end, text->size()) - 1;
    }
  }
  if (mutator->OneIn(3) && !quoted.empty()) {
    const auto [at, size] = quoted[mutator->Below(quoted.size())];
    const auto [from, length] = quoted[mutator->Below(quoted.size())];
    text->replace(at, size, text->substr(from, length));
  } else if (!numbers.empty()) {
    const auto [at, size] = numbers[mutator->Below(numbers.size())];
    const auto [from, length] = numbers[mutator->Below(numbers.size())];
    text->replace(at, size,
                  mutator->OneIn(2) ? text->substr(from, length) : Cat(mutator->AnyInteger(8)));
  }
}

}  // namespace

std::vector<std::string> SeedGgufFiles() {
  GgufWriter every;  // form and type
  for (const uint32_t type : {0, 1, 2, 3, 4, 5, 6, 10, 11, 12}) {
    const int bytes = type < 2 ? 1 : type < 4 ? 2 : type < 7 ? 4 : 8;
    every.RawKey(Cat("key ", type), type, std::string(bytes, '\1'));
    every.RawKey(
        Cat("list ", type), 9,
        GgufWriter::Bytes(type) + GgufWriter::Bytes<uint64_t>(2) + std::string(2 * bytes, '\1'));
  }
  every.Key("bool", true);
  every.Key("text", "llama");
  every.Key("texts", std::vector<std::string>{"a", "", "bc"});
  for (const checkpoint::StoredRow& row : checkpoint::kStored) {
    every.Tensor(row.name, {2, row.elements}, row.gguf, std::string(2 * row.bytes, '\x35'));
  }
  GgufWriter few;
  few.version = 2;
  few.alignment = 8;
  few.Key("general.alignment", uint32_t{8});
  few.Tensor("scalar", {}, 0, "abcd");
  few.Tensor("empty", {3, 0}, 0, "");
  few.Tensor("q", {2, 1, 64}, 3, std::string(80, 'q'));
  return {every.File(), few.File()};
}

std::vector<std::string> SeedSafetensorsFiles() {
  std::vector<std::string> files;
  for (
      const std::string_view head :
      {R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
       R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
       R"("c":{"dtype":"F16","shape":[],"data_offsets":[32,34]},)"
       R"("d":{"dtype":"F32","shape":[0,9],"data_offsets":[34,34]}})",
       R"({"w":{"shape":[1,2,4],"data_offsets":[2,34],"dtype":"F32"},)"
       R"("v":{"data_offsets":[0,2],"dtype":"F16","shape":[1]}}   )"}) {
    files.push_back(GgufWriter::Text(head) + std::string(34, '\x35'));
  }
  return files;
}

std::string MutateGguf(const std::string& file, Mutator* mutator) {
  std::string changed = file;
  const uint64_t changes = 1 + (mutator->OneIn(2) ? 0 : mutator->Below(3));
  for (uint64_t i = 0; i < changes; ++i) {
    const size_t at = mutator->Below(std::max<size_t>(changed.size(), 1));
    switch (mutator->Below(6)) {
      case 0:
        mutator->MutateBytes(&changed);
        break;
      case 1:
        MoveRun(&changed, mutator);
        break;
      case 2:
        PutNumber<uint64_t>(&changed, 8 + 8 * mutator->Below(2), mutator);
        break;
      case 3:
        PutNumber<uint64_t>(&changed, at, mutator);
        break;
      default:
        PutNumber<uint32_t>(&changed, at, mutator);
    }
  }
  if (changed.size() > kLargest) changed.resize(kLargest);
  return changed;
}

std::string MutateSafetensors(const std::string& file, Mutator* mutator) {
  if (file.size() < kLength) return SeedSafetensorsFiles()[mutator->Below(2)];
  uint64_t size;
  std::memcpy(&size, file.data(), sizeof(size));
  size = std::min<uint64_t>(size, file.size() - kLength);
  std::string head = file.substr(kLength, size), data = file.substr(kLength + size);
  const uint64_t changes = 1 + (mutator->OneIn(2) ? 0 : mutator->Below(3));
  for (uint64_t i = 0; i < changes; ++i) {
    switch (mutator->Below(8)) {
      case 0:
        mutator->MutateBytes(&head);
        break;
      case 1:
        MoveRun(&head, mutator);
        break;
      case 2:
        data.resize(mutator->Below(80));
        break;
      default:
        ChangeJson(&head, mutator);
    }
  }
  std::string changed = GgufWriter::Text(head) + data;
  if (mutator->OneIn(20)) PutNumber<uint64_t>(&changed, 0, mutator);
  if (changed.size() > kLargest) changed.resize(kLargest);
  return changed;
}

std::string FuzzGguf(const std::string& file, FuzzStats* stats) {
  const Reader read = [](std::string_view bytes, int64_t file_bytes) {
    absl::StatusOr<checkpoint::Gguf> head = checkpoint::ReadGguf(bytes, 0, file_bytes);
    if (!head.ok()) return HeadRead{head.status(), {}, ""};
    std::string other = Cat(head->head_bytes);
    for (const auto& [key, value] : head->keys) {
      other += Cat(" ", key, " ", value.index(), " ", checkpoint::TextOf(value));
    }
    return HeadRead{absl::OkStatus(), std::move(head->tensors), std::move(other)};
  };
  if (file.starts_with("GGUF") && file.size() > 24) ++stats->parsed;
  return FuzzHead(read, file, stats);
}

std::string FuzzSafetensors(const std::string& file, FuzzStats* stats) {
  const Reader read = [](std::string_view bytes, int64_t file_bytes) {
    auto tensors = checkpoint::ReadSafetensors(bytes, 0, file_bytes);
    if (!tensors.ok()) return HeadRead{tensors.status(), {}, ""};
    return HeadRead{absl::OkStatus(), *std::move(tensors), ""};
  };
  if (file.size() > kLength && file[kLength] == '{') ++stats->parsed;
  return FuzzHead(read, file, stats);
}

}  // namespace athanor
