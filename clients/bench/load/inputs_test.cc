#include "clients/bench/load/inputs.h"

#include <cstring>
#include <set>

#include "clients/cpp/client/npy.h"
#include "clients/cpp/inputs/text_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::HasSubstr;

inference::ModelMetadataResponse Model() {
  inference::ModelMetadataResponse model;
  model.set_name("m");
  auto add = [&](const char* name, const char* datatype, std::vector<int64_t> shape) {
    auto* input = model.add_inputs();
    input->set_name(name);
    input->set_datatype(datatype);
    input->mutable_shape()->Assign(shape.begin(), shape.end());
  };
  add("x", "FP32", {-1, 4});
  add("ids", "INT32", {-1});
  add("scale", "FP16", {});
  return model;
}

InputFlags Flags() {
  InputFlags flags;
  flags.shapes = {"x=bx4", "ids=b"};
  flags.dims = {"b=2..5"};
  flags.values = {"ids=-3..9"};
  flags.requests = 40;
  flags.seed = 3;
  return flags;
}

TEST(InputsTest, SizesAndValuesAreInTheirRangesAndAgreeWithinARequest) {
  const auto requests = MakeRequests(Model(), "2", Flags());
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_EQ(requests->size(), 40u);
  std::set<int64_t> sizes;
  std::set<int32_t> values;
  for (const client::InferRequest& request : *requests) {
    EXPECT_EQ(request.model, "m");
    EXPECT_EQ(request.version, "2");
    const client::Tensor &x = request.inputs.at("x"), &ids = request.inputs.at("ids");
    EXPECT_TRUE(client::CheckTensor(x).ok());
    EXPECT_TRUE(client::CheckTensor(ids).ok());
    EXPECT_TRUE(client::CheckTensor(request.inputs.at("scale")).ok());
    EXPECT_EQ(x.shape[0], ids.shape[0]);
    sizes.insert(ids.shape[0]);
    for (size_t at = 0; at < ids.bytes.size(); at += 4) {
      int32_t value;
      std::memcpy(&value, ids.bytes.data() + at, 4);
      values.insert(value);
    }
  }
  EXPECT_EQ(sizes, (std::set<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(*values.begin(), -3);
  EXPECT_EQ(*values.rbegin(), 9);
  EXPECT_NE((*requests)[0].inputs.at("x").bytes, (*requests)[1].inputs.at("x").bytes);
}

TEST(InputsTest, TheSeedDecides) {
  const auto one = MakeRequests(Model(), "", Flags()), again = MakeRequests(Model(), "", Flags());
  InputFlags flags = Flags();
  flags.seed = 4;
  const auto other = MakeRequests(Model(), "", flags);
  ASSERT_TRUE(one.ok() && again.ok() && other.ok());
  EXPECT_EQ((*one)[0].inputs.at("x").bytes, (*again)[0].inputs.at("x").bytes);
  EXPECT_NE((*one)[0].inputs.at("x").bytes, (*other)[0].inputs.at("x").bytes);
}

TEST(InputsTest, SizesThatNothingSaysAreOne) {
  InputFlags flags;
  flags.values = {"ids=0..1"};
  const auto requests = MakeRequests(Model(), "", flags);
  ASSERT_TRUE(requests.ok()) << requests.status();
  for (const client::InferRequest& request : *requests) {
    EXPECT_EQ(request.inputs.at("x").shape, (std::vector<int64_t>{1, 4}));
    EXPECT_EQ(request.inputs.at("ids").shape, (std::vector<int64_t>{1}));
  }
}

TEST(InputsTest, SizesThatAreTakenForOneAreSaid) {
  InputFlags flags;
  const std::vector<std::string> sentences = AssumedSizes(Model(), flags);
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_THAT(sentences[0],
              HasSubstr("input \"x\" is FP32[-1, 4]: sizes that are not fixed are 1"));
  EXPECT_THAT(sentences[0], HasSubstr("--shape x=1x4"));
  EXPECT_THAT(sentences[1], HasSubstr("--shape ids=1"));
  flags.shapes = {"x=1x4"};
  flags.values = {"ids=@ids.npy"};
  EXPECT_TRUE(AssumedSizes(Model(), flags).empty());
}

TEST(InputsTest, AFileIsSentAsItIs) {
  client::Tensor ids{"i32", {3}, std::string(12, '\1')};
  const std::string path = testing::TempDir() + "/ids.npy";
  ASSERT_TRUE(client::WriteFile(path, client::FormatNpy(ids)).ok());
  InputFlags flags = Flags();
  flags.shapes = {"x=3x4"};
  flags.dims = {};
  flags.values = {"ids=@" + path, "x=0..1"};
  const auto requests = MakeRequests(Model(), "", flags);
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_EQ((*requests)[7].inputs.at("ids").bytes, ids.bytes);
  for (size_t at = 0; at < 48; at += 4) {
    float value;
    std::memcpy(&value, (*requests)[7].inputs.at("x").bytes.data() + at, 4);
    EXPECT_GE(value, 0);
    EXPECT_LE(value, 1);
  }
}

// The file is sent unchanged, so another shape is refused instead of ignored.
TEST(InputsTest, AShapeBesideAFileIsTheFiles) {
  const client::Tensor ids{"i32", {3}, std::string(12, '\1')};
  const std::string path = testing::TempDir() + "/ids_shape.npy";
  ASSERT_TRUE(client::WriteFile(path, client::FormatNpy(ids)).ok());
  struct Case {
    const char* shape;
    std::vector<std::string> dims;
    bool right;
  };
  for (const Case& c : {Case{"3", {}, true}, Case{"n", {"n=3..3"}, true}, Case{"7", {}, false},
                        Case{"n", {"n=1..3"}, false}, Case{"n", {}, false}}) {
    InputFlags flags;
    flags.shapes = {"x=3x4", std::string("ids=") + c.shape};
    flags.dims = c.dims;
    flags.values = {"ids=@" + path};
    const auto requests = MakeRequests(Model(), "", flags);
    ASSERT_EQ(requests.ok(), c.right) << c.shape << ": " << requests.status();
    if (c.right) continue;
    EXPECT_THAT(std::string(requests.status().message()),
                HasSubstr(std::string("--shape ids=") + c.shape));
    EXPECT_THAT(std::string(requests.status().message()), HasSubstr("or say ids=3"));
  }
}

TEST(InputsTest, MistakesAreNamedWithWhatWouldBeRight) {
  struct Case {
    const char* what;
    std::vector<std::string> shapes, dims, values;
  };
  const Case cases[] = {
      {"must be 4", {"x=2x5", "ids=3"}, {}, {"ids=0..1"}},
      {"has 1 sizes", {"x=2", "ids=3"}, {}, {"ids=0..1"}},
      {"no such input", {"y=2"}, {}, {"ids=0..1"}},
      {"given twice", {"x=2x4", "x=3x4"}, {}, {"ids=0..1"}},
      {"NAME=", {"2x4"}, {}, {"ids=0..1"}},
      {"--dims b=1..64", {"x=bx4", "ids=3"}, {}, {"ids=0..1"}},
      {"--dims b=5..2", {"x=bx4", "ids=b"}, {"b=5..2"}, {"ids=0..1"}},
      {"--dims b=-1..2", {"x=bx4", "ids=b"}, {"b=-1..2"}, {"ids=0..1"}},
      {"--dims q=1..4", {"x=2x4", "ids=3"}, {"q=1..4"}, {"ids=0..1"}},
      {"--dims 3=1..4", {"x=2x4", "ids=3"}, {"3=1..4"}, {"ids=0..1"}},
      {"more than", {"x=99999999999x4", "ids=3"}, {}, {"ids=0..1"}},
      {"--input ids=0..9", {"x=2x4", "ids=3"}, {}, {}},
      {"range such as", {"x=2x4", "ids=3"}, {}, {"ids=5"}},
      {"ascending order", {"x=2x4", "ids=3"}, {}, {"ids=9..0"}},
      {"integer in", {"x=2x4", "ids=3"}, {}, {"ids=0..99999999999"}},
      {"/no/such", {"x=2x4", "ids=3"}, {}, {"ids=@/no/such.npy"}},
  };
  for (const Case& c : cases) {
    InputFlags flags;
    flags.shapes = c.shapes;
    flags.dims = c.dims;
    flags.values = c.values;
    const auto requests = MakeRequests(Model(), "", flags);
    ASSERT_FALSE(requests.ok()) << c.what;
    EXPECT_THAT(std::string(requests.status().message()), HasSubstr(c.what));
  }
  InputFlags none = Flags();
  none.requests = 0;
  EXPECT_THAT(std::string(MakeRequests(Model(), "", none).status().message()),
              HasSubstr("--requests 0"));
}

}  // namespace
}  // namespace athanor::bench
