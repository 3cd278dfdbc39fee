#include "runtime/device/elf.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

bool Fits(uint64_t offset, uint64_t size, size_t total) {
  return offset <= total && size <= total - offset;
}

absl::Status Truncated(absl::string_view object, absl::string_view what) {
  return MalformedObject(absl::StrCat("truncated: ", object.size(), " bytes do not hold ", what));
}

// Reads the i-th of a table's entries, which lie inside the object.
template <typename T>
T Entry(absl::string_view object, uint64_t table, int i) {
  T entry;
  std::memcpy(&entry, object.data() + table + i * sizeof(T), sizeof(T));
  return entry;
}

absl::Status CheckTable(absl::string_view object, absl::string_view what, uint64_t offset,
                        uint64_t count, uint64_t entry_bytes, uint64_t expected_bytes) {
  if (count == 0) return absl::OkStatus();
  if (entry_bytes != expected_bytes) {
    return MalformedObject(
        absl::StrCat(what, " headers of ", entry_bytes, " bytes, expected ", expected_bytes));
  }
  if (!Fits(offset, count * entry_bytes, object.size())) {
    return Truncated(object, "the headers it announces");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MalformedObject(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("kernel object: ", what));
}

absl::StatusOr<ElfObject> CheckElf(absl::string_view object) {
  if (object.size() < SELFMAG || std::memcmp(object.data(), ELFMAG, SELFMAG) != 0) {
    return MalformedObject("not an ELF file");
  }
  if (object.size() < sizeof(Elf64_Ehdr)) return Truncated(object, "an ELF header");
  const auto header = Entry<Elf64_Ehdr>(object, 0, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return MalformedObject("not a 64-bit little-endian ELF file");
  }
  RETURN_IF_ERROR(CheckTable(object, "program", header.e_phoff, header.e_phnum, header.e_phentsize,
                             sizeof(Elf64_Phdr)));
  RETURN_IF_ERROR(CheckTable(object, "section", header.e_shoff, header.e_shnum, header.e_shentsize,
                             sizeof(Elf64_Shdr)));
  ElfObject found{.machine = header.e_machine, .type = header.e_type};
  for (int i = 0; i < header.e_phnum; ++i) {
    const auto segment = Entry<Elf64_Phdr>(object, header.e_phoff, i);
    if (!Fits(segment.p_offset, segment.p_filesz, object.size())) {
      return Truncated(object, absl::StrCat("segment ", i));
    }
    found.dynamic |= segment.p_type == PT_DYNAMIC;
  }
  for (int i = 0; i < header.e_shnum; ++i) {
    const auto section = Entry<Elf64_Shdr>(object, header.e_shoff, i);
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
    if (!Fits(section.sh_offset, section.sh_size, object.size())) {
      return Truncated(object, absl::StrCat("section ", i));
    }
  }
  return found;
}

}  // namespace athanor
