#include "clients/cpp/client/npy.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

std::string File(absl::string_view dict, absl::string_view data, char major = 1) {
  std::string file = absl::StrCat("\x93NUMPY", std::string({major, 0}));
  file.push_back(static_cast<char>(dict.size()));
  file.push_back(0);
  if (major > 1) file.append(2, '\0');
  return absl::StrCat(file, dict, data);
}

void ExpectRefused(absl::string_view file, absl::string_view dtype, const std::string& words) {
  absl::StatusOr<Tensor> t = ParseNpy(file, dtype);
  ASSERT_FALSE(t.ok()) << words;
  EXPECT_EQ(t.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(t.status().message().find(words), absl::string_view::npos) << t.status();
}

TEST(Npy, EveryDTypeAndRankRoundTrips) {
  for (const ClientDType& row : ClientDTypes()) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {3}, {2, 3}, {0, 5}, {1, 1, 1, 7}}) {
      const size_t bytes = *ElementCount(shape) * row.bytes;
      Tensor t{std::string(row.name), shape, std::string(bytes, '\1')};
      const std::string file = FormatNpy(t);
      EXPECT_EQ((file.size() - bytes) % 64, 0u);
      absl::StatusOr<Tensor> again = ParseNpy(file, row.name);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->shape, shape);
      EXPECT_EQ(again->bytes, t.bytes);
    }
  }
}

TEST(Npy, ReadsWhatNumpyWrites) {
  for (char major : {1, 2, 3}) {
    absl::StatusOr<Tensor> t =
        ParseNpy(File("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }  \n",
                      absl::string_view("\1\0\0\0\2\0\0\0", 8), major),
                 "i32");
    ASSERT_TRUE(t.ok()) << t.status();
    EXPECT_EQ(ElementText(*t, 1), "2");
  }
}

TEST(Npy, RefusesWithTheRemedy) {
  ExpectRefused("PK\3\4", "f32", "not an .npy file");
  ExpectRefused(File("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "12345678"), "f32",
                "pickle");
  ExpectRefused(File("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"),
                "f32", "structured");
  ExpectRefused(File("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", "1234"), "f32",
                "ascontiguousarray");
  ExpectRefused(File("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "1234"), "f32",
                "big-endian");
  ExpectRefused(File("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", "12345678"),
                "f32", "astype(\"<f4\")");
  ExpectRefused(File("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234"), "f32",
                "needs 2 elements");
  ExpectRefused(File("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "1234"), "f32",
                "not negative");
  ExpectRefused(File("{'descr': '<f4', 'shape': (1,), }", "1234"), "f32", "fortran_order");
  ExpectRefused(File("", "", 9), "f32", "version 9");
}

TEST(Npy, EveryCutIsRefused) {
  const std::string file = FormatNpy({"f32", {1}, "1234"});
  for (size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(ParseNpy(absl::string_view(file).substr(0, n), "f32").ok()) << n;
  }
}

}  // namespace
}  // namespace athanor::client
