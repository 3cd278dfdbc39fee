#include "clients/cpp/client/npy.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
// The file starts with magic, two version bytes and the length of the dictionary that follows.
constexpr size_t kAlignment = 64;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(".npy: ", what));
}

// Returns the text between `'key':` and `end`.
absl::StatusOr<absl::string_view> Field(absl::string_view dict, absl::string_view key, char end) {
  const std::string quoted = absl::StrCat("'", key, "'");
  size_t at = dict.find(quoted);
  if (at == absl::string_view::npos) return Bad(absl::StrCat("the header has no ", quoted));
  at = dict.find(':', at + quoted.size());
  const size_t stop = at == absl::string_view::npos ? at : dict.find(end, at);
  if (stop == absl::string_view::npos) return Bad(absl::StrCat("the header ends inside ", quoted));
  return absl::StripAsciiWhitespace(dict.substr(at + 1, stop - at - 1));
}

absl::StatusOr<Header> ParseHeader(absl::string_view dict) {
  Header header;
  ASSIGN_OR_RETURN(absl::string_view descr, Field(dict, "descr", ','));
  if (descr.size() < 2 || descr.front() != '\'') {
    return Bad(absl::StrCat("descr ", descr, " is a structured dtype; save one plain array"));
  }
  header.descr = std::string(descr.substr(1, descr.size() - 2));
  ASSIGN_OR_RETURN(absl::string_view order, Field(dict, "fortran_order", ','));
  if (order != "True" && order != "False") {
    return Bad(absl::StrCat("fortran_order ", order, " must be True or False"));
  }
  header.fortran_order = order == "True";
  ASSIGN_OR_RETURN(absl::string_view shape, Field(dict, "shape", ')'));
  if (!absl::ConsumePrefix(&shape, "(")) return Bad("shape must be a tuple");
  for (absl::string_view part : absl::StrSplit(shape, ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;  // the empty part of "(3,)" and "()"
    int64_t size;
    if (!absl::SimpleAtoi(part, &size) || size < 0) {
      return Bad(
          absl::StrCat("size \"", part, "\" of the shape must be a number that is not negative"));
    }
    header.shape.push_back(size);
  }
  return header;
}

// Takes the header off `file` and returns its dictionary.
absl::StatusOr<absl::string_view> TakeDict(absl::string_view* file) {
  if (!absl::ConsumePrefix(file, absl::string_view(kMagic, kMagicBytes))) {
    return Bad("not an .npy file (numpy.save makes one; .npz archives are not read)");
  }
  if (file->size() < 2) return Bad("ends inside the header");
  const int major = static_cast<unsigned char>((*file)[0]);
  if (major < 1 || major > 3) {
    return Bad(absl::StrCat("format version ", major, " is unknown; it must be 1, 2 or 3"));
  }
  file->remove_prefix(2);
  const size_t width = major == 1 ? 2 : 4;
  if (file->size() < width) return Bad("ends inside the header");
  size_t length = 0;
  for (size_t i = 0; i < width; ++i) {
    length |= static_cast<size_t>(static_cast<unsigned char>((*file)[i])) << (8 * i);
  }
  file->remove_prefix(width);
  if (file->size() < length) return Bad("ends inside the header");
  const absl::string_view dict = file->substr(0, length);
  file->remove_prefix(length);
  return dict;
}

absl::Status CheckDescr(const Header& header, const ClientDType& wanted) {
  const std::string& descr = header.descr;
  if (absl::StrContains(descr, 'O')) {
    return Bad("holds Python objects, which would need pickle; save an array of plain numbers");
  }
  // Single bytes have no byte order, even if the file names one.
  const bool big = !descr.empty() && descr[0] == '>' && wanted.bytes > 1;
  if (big) {
    return Bad(
        absl::StrCat("dtype ", descr, " is big-endian; save array.astype(\"", wanted.npy, "\")"));
  }
  const absl::string_view kind = absl::string_view(descr).substr(descr.empty() ? 0 : 1);
  const bool bits = wanted.name == "bf16" && kind == "u2";
  if (kind == wanted.npy.substr(1) || bits) return absl::OkStatus();
  return Bad(absl::StrCat("holds ", descr, ", but ", wanted.name,
                          " is wanted: save array.astype(\"",
                          wanted.name == "bf16" ? "bfloat16" : wanted.npy, "\")"));
}

}  // namespace

absl::StatusOr<Tensor> ParseNpy(absl::string_view file, absl::string_view dtype) {
  const ClientDType* row = FindDType(dtype);
  if (row == nullptr) return Bad(absl::StrCat("dtype \"", dtype, "\" cannot be sent"));
  ASSIGN_OR_RETURN(absl::string_view dict, TakeDict(&file));
  ASSIGN_OR_RETURN(Header header, ParseHeader(dict));
  RETURN_IF_ERROR(CheckDescr(header, *row));
  if (header.fortran_order && header.shape.size() > 1) {
    return Bad("is in Fortran order; save numpy.ascontiguousarray(array)");
  }
  Tensor tensor{std::string(dtype), std::move(header.shape), std::string(file)};
  if (absl::Status s = CheckTensor(tensor); !s.ok()) return Bad(s.message());
  return tensor;
}

std::string FormatNpy(const Tensor& tensor) {
  const std::string sizes = absl::StrJoin(tensor.shape, ", ");
  std::string dict = absl::StrCat("{'descr': '", FindDType(tensor.dtype)->npy,
                                  "', 'fortran_order': False, 'shape': (", sizes,
                                  tensor.shape.size() == 1 ? "," : "", "), }");
  // The format wants the data at a multiple of 64 bytes, after a newline.
  const size_t before = kMagicBytes + 4;
  dict.append(kAlignment - 1 - (before + dict.size()) % kAlignment, ' ');
  dict.push_back('\n');
  std::string file(kMagic, kMagicBytes);
  file.append({1, 0, static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)});
  return absl::StrCat(file, dict, tensor.bytes);
}

}  // namespace athanor::client
