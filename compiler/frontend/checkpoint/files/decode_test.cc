// Compares decoded blocks with what the gguf package reads (testdata/make_decode.py), bit for bit.
#include "compiler/frontend/checkpoint/files/decode.h"

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::checkpoint {
namespace {

std::string OfHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

struct Golden {
  std::string form;
  FileTensor tensor;
  std::string bytes, numbers;
};

std::vector<Golden> Goldens() {
  std::vector<Golden> goldens;
  std::ifstream file("compiler/frontend/checkpoint/files/testdata/decode.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Golden golden;
    std::string bytes, numbers;
    int64_t rows = 0, columns = 0;
    words >> golden.form >> rows >> columns >> bytes >> numbers;
    golden.tensor.name = "w";
    golden.tensor.shape = {rows, columns};
    for (const StoredRow& row : kStored) {
      if (row.name == golden.form) golden.tensor.stored = row.stored;
    }
    golden.bytes = OfHex(bytes);
    golden.numbers = OfHex(numbers);
    goldens.push_back(std::move(golden));
  }
  return goldens;
}

Tensor Evaluated(const Graph& graph, std::vector<Tensor> inputs) {
  EXPECT_EQ(Verify(graph).ToString(), "OK");
  const auto outputs = Evaluate(graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? outputs->at(0) : Tensor{};
}

std::vector<int64_t> Sizes(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (const Expr& size : shape) sizes.push_back(size.constant().value());
  return sizes;
}

// Counts elements whose bits differ.
int Differing(const std::string& a, const std::string& b) {
  EXPECT_EQ(a.size(), b.size());
  int count = 0;
  for (size_t i = 0; i + 4 <= std::min(a.size(), b.size()); i += 4) {
    count += std::memcmp(a.data() + i, b.data() + i, 4) != 0 ? 1 : 0;
  }
  return count;
}

TEST(DecodeTest, GoldensHoldEveryForm) {
  std::set<std::string> forms;
  for (const Golden& golden : Goldens()) forms.insert(golden.form);
  for (const StoredRow& row : kStored) {
    EXPECT_EQ(forms.contains(std::string(row.name)), HoldsWeights(row.stored)) << row.name;
  }
}

TEST(DecodeTest, EqualsGgufBitForBit) {
  for (const Golden& golden : Goldens()) {
    const TensorType type = TypeOfBytes(golden.tensor);
    Graph graph;
    GraphBuilder b(&graph);
    const NodeId bytes = b.Parameter("w", type).value();
    const auto decoded = Decode(b, graph, bytes, golden.tensor.stored);
    ASSERT_TRUE(decoded.ok()) << golden.form << ": " << decoded.status();
    b.Output("y", *decoded);
    const Tensor y = Evaluated(graph, {{type.dtype, Sizes(type.shape), golden.bytes}});
    EXPECT_EQ(y.dtype, DType::kF32);
    EXPECT_EQ(y.shape, golden.tensor.shape);
    EXPECT_EQ(Differing(y.bytes, golden.numbers), 0) << golden.form;
  }
}

// Decodes rows that were gathered by ids, with a dim for their number, also none.
TEST(DecodeTest, GatheredRowsDecodeAlike) {
  for (const Golden& golden : Goldens()) {
    const TensorType type = TypeOfBytes(golden.tensor);
    Graph graph;
    graph.dims = {{"t", 0, 8}};
    GraphBuilder b(&graph);
    const NodeId ids = b.Input("ids", {DType::kI32, {Expr::Symbol("t")}}).value();
    const NodeId table = b.Parameter("w", type).value();
    const NodeId rows = b.Add(Op::kGather, {table, ids}, {{"axis", int64_t{0}}}).value();
    const auto decoded = Decode(b, graph, rows, golden.tensor.stored);
    ASSERT_TRUE(decoded.ok()) << golden.form << ": " << decoded.status();
    b.Output("y", *decoded);
    const Tensor bytes{type.dtype, Sizes(type.shape), golden.bytes};
    const size_t half = golden.numbers.size() / 2;
    const std::string first = golden.numbers.substr(0, half), second = golden.numbers.substr(half);
    const Tensor y = Evaluated(graph, {Tensor::Of<int32_t>(DType::kI32, {3}, {1, 0, 1}), bytes});
    EXPECT_EQ(Differing(y.bytes, second + first + second), 0) << golden.form;
    EXPECT_EQ(Evaluated(graph, {Tensor::Zeros(DType::kI32, {0}), bytes}).bytes, "");
  }
}

TEST(DecodeTest, OneRowAndThreeAxes) {
  for (const Golden& golden : Goldens()) {
    for (const bool row : {true, false}) {
      FileTensor tensor = golden.tensor;
      tensor.shape = row ? std::vector<int64_t>{2 * golden.tensor.shape[1]}
                         : std::vector<int64_t>{1, 2, golden.tensor.shape[1]};
      const TensorType type = TypeOfBytes(tensor);
      Graph graph;
      GraphBuilder b(&graph);
      const NodeId bytes = b.Parameter("w", type).value();
      b.Output("y", Decode(b, graph, bytes, tensor.stored).value());
      const Tensor y = Evaluated(graph, {{type.dtype, Sizes(type.shape), golden.bytes}});
      EXPECT_EQ(y.shape, tensor.shape);
      EXPECT_EQ(Differing(y.bytes, golden.numbers), 0) << golden.form;
    }
  }
}

TEST(DecodeTest, AnotherTypeIsRefused) {
  const auto decode = [](TensorType type, Stored how) {
    Graph graph;
    GraphBuilder b(&graph);
    const NodeId x = b.Parameter("w", std::move(type)).value();
    return Decode(b, graph, x, how).status().ToString();
  };
  EXPECT_EQ(decode({DType::kF16, {4}}, Stored::kF32),
            "INVALID_ARGUMENT: F32 is held in f32, not in f16[4]");
  EXPECT_EQ(decode({DType::kU8, {4, 18}}, Stored::kQ4_1),
            "INVALID_ARGUMENT: Q4_1 is held in blocks, [rows.., blocks, 20], not in u8[4, 18]");
  EXPECT_EQ(decode({DType::kU8, {20}}, Stored::kQ4_1),
            "INVALID_ARGUMENT: Q4_1 is held in blocks, [rows.., blocks, 20], not in u8[20]");
}

}  // namespace
}  // namespace athanor::checkpoint
