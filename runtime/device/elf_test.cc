#include "runtime/device/elf.h"

#include <elf.h>

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// An object of one segment, one section with bytes, and one without.
struct Parts {
  Elf64_Ehdr header = {};
  Elf64_Phdr segment = {};
  Elf64_Shdr sections[2] = {};
  char contents[16] = {};

  Parts() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_EXEC;
    header.e_machine = 190;
    header.e_phoff = offsetof(Parts, segment);
    header.e_phnum = 1;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_shoff = offsetof(Parts, sections);
    header.e_shnum = 2;
    header.e_shentsize = sizeof(Elf64_Shdr);
    segment.p_type = PT_LOAD;
    segment.p_offset = sections[0].sh_offset = offsetof(Parts, contents);
    segment.p_filesz = sections[0].sh_size = sizeof(contents);
    sections[0].sh_type = SHT_PROGBITS;
    sections[1].sh_type = SHT_NOBITS;
    sections[1].sh_offset = sections[1].sh_size = 1 << 20;  // takes no place in the file
  }
  std::string Bytes() const {
    return std::string(reinterpret_cast<const char*>(this), sizeof(*this));
  }
};

void ExpectRefused(const std::string& object, const std::string& why) {
  const absl::Status status = CheckElf(object).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

TEST(ElfTest, TellsWhatAnObjectIs) {
  Parts parts;
  absl::StatusOr<ElfObject> elf = CheckElf(parts.Bytes());
  ASSERT_TRUE(elf.ok()) << elf.status();
  EXPECT_EQ(elf->machine, 190);
  EXPECT_EQ(elf->type, ET_EXEC);
  EXPECT_FALSE(elf->dynamic);
  parts.segment.p_type = PT_DYNAMIC;
  EXPECT_TRUE(CheckElf(parts.Bytes())->dynamic);
}

TEST(ElfTest, ObjectsWithoutSegmentsOrSectionsAreWhole) {
  Parts parts;
  parts.header.e_phnum = parts.header.e_shnum = 0;
  parts.header.e_phoff = parts.header.e_shoff = ~uint64_t{0};
  EXPECT_TRUE(CheckElf(parts.Bytes()).ok());
}

TEST(ElfTest, EveryCutOffObjectIsRefused) {
  const std::string whole = Parts().Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const absl::Status status = CheckElf(whole.substr(0, size)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST(ElfTest, WhatLiesOutsideIsNamed) {
  Parts parts;
  parts.segment.p_offset = ~uint64_t{0};
  ExpectRefused(parts.Bytes(), "segment 0");
  parts = {};
  parts.sections[0].sh_size = ~uint64_t{0};
  ExpectRefused(parts.Bytes(), "section 0");
  parts = {};
  parts.header.e_shoff = ~uint64_t{0} - 8;
  ExpectRefused(parts.Bytes(), "the headers it announces");
  parts = {};
  parts.header.e_phentsize = 8;
  ExpectRefused(parts.Bytes(), "program headers of 8 bytes, expected 56");
}

TEST(ElfTest, OtherFormatsAreRefused) {
  ExpectRefused("", "not an ELF file");
  ExpectRefused("#!/bin/sh\n", "not an ELF file");
  Parts parts;
  parts.header.e_ident[EI_CLASS] = ELFCLASS32;
  ExpectRefused(parts.Bytes(), "not a 64-bit little-endian ELF file");
}

}  // namespace
}  // namespace athanor
