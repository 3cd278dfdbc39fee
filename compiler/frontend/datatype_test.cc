#include "compiler/frontend/datatype.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "proto/inference/open_inference_grpc.pb.h"

namespace athanor {
namespace {

TEST(DatatypeTest, EveryComputingDTypeHasExactlyOneRow) {
  std::set<std::string_view> names;
  for (const DTypeRow& dtype : kDTypes) {
    const DatatypeRow* row = DatatypeOf(dtype.dtype);
    ASSERT_EQ(row != nullptr, dtype.computes) << dtype.name;
    if (row == nullptr) continue;
    EXPECT_EQ(FindDatatype(row->name), row);
    EXPECT_TRUE(names.insert(row->name).second) << row->name;
  }
  EXPECT_EQ(names.size(), std::size(kDatatypes));
}

TEST(DatatypeTest, NamesAreTheProtocols) {
  EXPECT_EQ(FindDatatype("FP32")->dtype, DType::kF32);
  EXPECT_EQ(FindDatatype("BF16")->contents, Contents::kRawOnly);
  EXPECT_EQ(FindDatatype("UINT16")->contents, Contents::kUint);
  for (const char* none : {"", "fp32", "BYTES", "FP8", "STRING"}) {
    EXPECT_EQ(FindDatatype(none), nullptr) << none;
  }
}

TEST(DatatypeTest, ContentsFieldsExistInTheMessages) {
  const auto* contents = inference::InferTensorContents::descriptor();
  const auto* request = inference::ModelInferRequest::descriptor();
  for (const DatatypeRow& row : kDatatypes) {
    const std::string field(ContentsField(row.contents));
    EXPECT_NE((row.contents == Contents::kRawOnly ? request : contents)->FindFieldByName(field),
              nullptr)
        << field;
  }
}

}  // namespace
}  // namespace athanor
