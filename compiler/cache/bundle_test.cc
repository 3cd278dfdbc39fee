#include "compiler/cache/bundle.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compiler/cache/bundle_testing.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using absl::StatusCode;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

TEST(BundleTest, RecipesTravelUnsigned) {
  BundleReader reader(Terms());
  ASSERT_TRUE(Read(Bundle(false, ""), &reader).ok());
  ASSERT_EQ(reader.records().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(MessageDifferencer::Equals(reader.records()[i].recipe(), Recipe(i)));
  }
  EXPECT_EQ(reader.header().origin(), "server one");
  EXPECT_EQ(reader.signed_by(), "");
  EXPECT_EQ(reader.digest().size(), 32u);
  EXPECT_GT(reader.bytes(), 300);
}

TEST(BundleTest, BinariesTravelSigned) {
  BundleReader reader(Terms({kOtherSeed, kSeed}));
  ASSERT_TRUE(Read(Bundle(true, kSeed), &reader).ok());
  ASSERT_EQ(reader.records().size(), 5u);
  EXPECT_TRUE(MessageDifferencer::Equals(reader.records()[4].kernel(), Kernel(1)));
  EXPECT_EQ(reader.signed_by(), KeyOf(kSeed).public_key());
}

TEST(BundleTest, AnEmptyBundleIsOne) {
  BundleWriter writer = BundleWriter::Create(HeaderOf(false), std::nullopt).value();
  EXPECT_TRUE(Read({writer.Header(), writer.Trailer().value()}, Terms()).ok());
}

// A signature by a key that is not trusted neither helps nor harms recipes.
TEST(BundleTest, RecipesOfAnUnknownSigner) {
  BundleReader reader(Terms());
  ASSERT_TRUE(Read(Bundle(false, kSeed), &reader).ok());
  EXPECT_EQ(reader.signed_by(), "");
}

TEST(BundleTest, BinariesOfNobodyTrusted) {
  const Chunks chunks = Bundle(true, kSeed);
  const std::string key = absl::BytesToHexString(KeyOf(kSeed).public_key());
  ExpectRefused(chunks, Terms(), StatusCode::kPermissionDenied,
                "bundle: it holds binaries, and the key that signs it, " + key +
                    ", is not among the 0 trusted here");
  ExpectRefused(chunks, Terms({kOtherSeed}), StatusCode::kPermissionDenied, "not among the 1");

  Chunks unsigned_bundle = chunks;
  unsigned_bundle[0].mutable_header()->clear_public_key();
  ExpectRefused(unsigned_bundle, Terms({kSeed}), StatusCode::kPermissionDenied,
                "bundle: it holds binaries and is not signed");

  // Records of another writer under the name of a trusted key.
  Chunks forged = Bundle(true, kOtherSeed);
  v1::CacheBundleHeader header = forged[0].header();
  header.set_public_key(KeyOf(kSeed).public_key());
  *forged[0].mutable_header() = header;
  std::string link = LinkOf("athanor cache bundle", header);
  for (v1::CacheBundleChunk& chunk : forged) {
    if (!chunk.has_record()) continue;
    chunk.mutable_record()->clear_link();
    link = LinkOf(link, chunk.record());
    chunk.mutable_record()->set_link(link);
  }
  v1::CacheBundleTrailer* trailer = forged.back().mutable_trailer();
  v1::CacheBundleTrailer counted;
  counted.set_records(trailer->records());
  trailer->set_sha256(LinkOf(link, counted));
  const std::string signed_text = "athanor cache bundle" + trailer->sha256();
  trailer->set_signature(KeyOf(kOtherSeed).Sign(signed_text).value());
  ExpectRefused(forged, Terms({kSeed}), StatusCode::kPermissionDenied,
                "trailer: signature: it is not by the header's key");
  // With the right signature it is a bundle: nothing else was wrong with it.
  trailer->set_signature(KeyOf(kSeed).Sign(signed_text).value());
  EXPECT_TRUE(Read(forged, Terms({kSeed})).ok());
}

TEST(BundleTest, WritersKeepThePromises) {
  EXPECT_EQ(BundleWriter::Create(HeaderOf(true), std::nullopt).status().code(),
            StatusCode::kFailedPrecondition);
  BundleWriter writer = BundleWriter::Create(HeaderOf(false), std::nullopt).value();
  EXPECT_EQ(writer.Record(Kernel(0)).status().code(), StatusCode::kFailedPrecondition);
}

// Changes the fields of the message one after the other, of any kind, and names each.
void ForEachChange(Message* message, const std::string& place,
                   const std::function<void(const std::string& place)>& changed) {
  const google::protobuf::Reflection& set = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message->GetDescriptor()->field(i);
    const std::string name = absl::StrCat(place, ".", field.name());
    const std::unique_ptr<Message> before(message->New());
    before->CopyFrom(*message);
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        set.SetInt32(message, &field, set.GetInt32(*message, &field) + 1);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        set.SetInt64(message, &field, set.GetInt64(*message, &field) ^ (int64_t{1} << 40));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        set.SetBool(message, &field, !set.GetBool(*message, &field));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        set.SetDouble(message, &field, std::nextafter(set.GetDouble(*message, &field), 1e9));
        break;
      case FieldDescriptor::CPPTYPE_STRING: {
        // Changes the last character, so that hashes stay hashes.
        std::string text = set.GetString(*message, &field);
        if (text.empty()) text = "0";
        text.back() = text.back() == '0' ? '1' : '0';
        set.SetString(message, &field, text);
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (set.HasField(*message, &field)) {
          ForEachChange(set.MutableMessage(message, &field), name, changed);
        }
        continue;
      default:
        FAIL() << name << ": no change is known for this kind of field";
    }
    changed(name);
    message->CopyFrom(*before);
  }
}

TEST(BundleTest, EveryFieldIsCovered) {
  for (const bool binaries : {false, true}) {
    Chunks chunks = Bundle(binaries, kSeed);
    const BundleTerms terms = Terms({kSeed});
    ASSERT_TRUE(Read(chunks, terms).ok());
    int changes = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      ForEachChange(&chunks[i], absl::StrCat("chunk ", i), [&](const std::string& place) {
        const absl::Status status = Read(chunks, terms);
        EXPECT_FALSE(status.ok()) << place;
        // The error names the changed record, whatever follows it.
        if (chunks[i].has_record()) {
          EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("record ", i - 1)))
              << place;
        }
        ++changes;
      });
    }
    EXPECT_GT(changes, binaries ? 50 : 40);
    ASSERT_TRUE(Read(chunks, terms).ok());
  }
}

TEST(BundleTest, LinksDistinguishMessages) {
  std::set<std::string> links = {LinkOf("", Recipe(0)), LinkOf("x", Recipe(0))};
  v1::CacheBundleRecord record;
  links.insert(LinkOf("", record));
  record.mutable_recipe();  // empty, but set
  links.insert(LinkOf("", record));
  record.mutable_kernel();
  links.insert(LinkOf("", record));
  v1::RegionRecipe recipe;
  recipe.set_region_hash("ab");
  links.insert(LinkOf("", recipe));
  recipe.set_region_hash("a");
  recipe.set_dim_box("b");
  links.insert(LinkOf("", recipe));
  recipe.set_dim_box("");
  recipe.set_facts("b");
  links.insert(LinkOf("", recipe));
  EXPECT_EQ(links.size(), 8u);
  EXPECT_EQ(LinkOf("", Recipe(7)), LinkOf("", Recipe(7)));
}

// LinkOf has no order for the entries of a map.
TEST(BundleTest, NoPartOfABundleIsAMap) {
  std::vector<const Descriptor*> left = {v1::CacheBundleChunk::descriptor()};
  std::set<const Descriptor*> seen;
  while (!left.empty()) {
    const Descriptor* type = left.back();
    left.pop_back();
    if (!seen.insert(type).second) continue;
    for (int i = 0; i < type->field_count(); ++i) {
      EXPECT_FALSE(type->field(i)->is_map()) << type->field(i)->full_name();
      if (type->field(i)->message_type() != nullptr) left.push_back(type->field(i)->message_type());
    }
  }
  // It went down to what lies deepest in a plan.
  EXPECT_TRUE(seen.contains(v1::LibraryCall::descriptor()));
  EXPECT_TRUE(seen.contains(v1::SizeExpr::descriptor()));
}

TEST(BundleTest, OrderAndNumber) {
  const Chunks whole = Bundle(false, "");
  const auto refused = [&](const std::function<void(Chunks*)>& change, const std::string& message) {
    Chunks chunks = whole;
    change(&chunks);
    ExpectRefused(chunks, Terms(), StatusCode::kInvalidArgument, message);
  };
  refused([](Chunks* c) { c->clear(); }, "bundle: it is empty");
  refused([](Chunks* c) { c->erase(c->begin()); }, "does not begin with a header");
  refused([](Chunks* c) { c->pop_back(); }, "it ends after 3 records, without a trailer");
  refused([](Chunks* c) { c->resize(1); }, "it ends after 0 records");
  refused([](Chunks* c) { c->insert(c->begin() + 1, c->front()); }, "it has two headers");
  refused([](Chunks* c) { c->push_back(c->back()); }, "something comes after the trailer");
  refused([](Chunks* c) { c->push_back((*c)[1]); }, "something comes after the trailer");
  refused([](Chunks* c) { c->insert(c->begin() + 2, v1::CacheBundleChunk()); },
          "after 1 records, expected another record");
  refused([](Chunks* c) { c->insert(c->begin(), v1::CacheBundleChunk()); },
          "does not begin with a header");
  refused(
      [](Chunks* c) { (*c)[2].GetReflection()->MutableUnknownFields(&(*c)[2])->AddVarint(99, 1); },
      "the chunk after 1 records has fields that are not known here");
  refused([](Chunks* c) { std::swap((*c)[1], (*c)[2]); },
          "bundle: record 0 (recipe of region aaaaaaaaaaaa): it does not link");
  refused([](Chunks* c) { std::swap((*c)[2], (*c)[3]); }, "record 1 (recipe");
  refused([](Chunks* c) { c->erase(c->begin() + 2); }, "record 1 (recipe");
  refused([](Chunks* c) { c->insert(c->begin() + 2, (*c)[1]); }, "record 1 (recipe");
  refused([](Chunks* c) { c->erase(c->begin() + 3); }, "trailer: records: 3; 2 came");
  refused([](Chunks* c) { *c = Bundle(false, kSeed), c->back() = Bundle(false, "").back(); },
          "trailer: sha256");
  refused([](Chunks* c) { (*c)[0] = Bundle(false, kSeed)[0]; }, "record 0");
}

TEST(BundleTest, SignaturesAndHeadersFit) {
  Chunks chunks = Bundle(false, kSeed);
  const std::string signature = chunks.back().trailer().signature();
  chunks.back().mutable_trailer()->clear_signature();
  ExpectRefused(chunks, Terms(), StatusCode::kInvalidArgument, "signature: is missing");
  chunks.back().mutable_trailer()->set_signature(signature.substr(1));
  ExpectRefused(chunks, Terms(), StatusCode::kInvalidArgument, "it is not by the header's key");
  chunks = Bundle(false, "");
  chunks.back().mutable_trailer()->set_signature(signature);
  ExpectRefused(chunks, Terms(), StatusCode::kInvalidArgument, "the header names no key for it");
}

TEST(BundleTest, ForeignBundles) {
  Chunks chunks = Bundle(false, "");
  const auto refused = [&](const std::function<void(v1::CacheBundleHeader*)>& change,
                           const std::string& message) {
    Chunks changed = chunks;
    change(changed[0].mutable_header());
    ExpectRefused(changed, Terms(), StatusCode::kInvalidArgument, "bundle: header: " + message);
  };
  refused([](auto* h) { h->set_format(2); }, "format: 2; bundles of 1 are read here");
  refused([](auto* h) { h->set_semantics_version(4); }, "semantics_version: 4; here it is 3");
  refused([](auto* h) { h->set_origin("\xff"); }, "origin: is not valid UTF-8");
  refused([](auto* h) { h->set_origin(std::string(100000, 'x')); },
          "origin: 100000 bytes; at most 65536");
  refused([](auto* h) { h->set_public_key("short"); }, "public_key: 5 bytes");
  refused([](auto* h) { h->GetReflection()->MutableUnknownFields(h)->AddVarint(99, 1); },
          "it has fields that are not known here");
}

TEST(BundleTest, WrongRecipes) {
  const auto refused = [&](const std::function<void(v1::RegionRecipe*)>& change,
                           const std::string& message) {
    v1::RegionRecipe recipe = Recipe(1);
    change(&recipe);
    BundleWriter writer = BundleWriter::Create(HeaderOf(false), std::nullopt).value();
    const Chunks chunks = {writer.Header(), writer.Record(Recipe(0)), writer.Record(recipe),
                           writer.Trailer().value()};
    ExpectRefused(chunks, Terms(), StatusCode::kInvalidArgument, message);
    const absl::Status status = Read(chunks, Terms());
    EXPECT_THAT(std::string(status.message()), HasSubstr("bundle: record 1 (recipe of region "));
  };
  refused([](auto* r) { r->set_region_hash("AB\n"); },
          "(recipe of region \"AB\\n\"): region_hash: \"AB\\n\" is not 64 lower-case hex digits");
  refused([](auto* r) { r->set_format(1); }, "format: 1; genomes of 2 are read here");
  refused([](auto* r) { r->clear_genome(); }, "genome: is missing");
  refused([](auto* r) { r->set_genome("\xc3("); }, "genome: is not valid UTF-8");
  refused([](auto* r) { r->set_genome(std::string((1 << 20) + 1, 'g')); },
          "genome: 1048577 bytes; at most 1048576");
  refused([](auto* r) { r->set_threads(0); }, "threads: 0; at least 1");
  refused([](auto* r) { r->set_share_of_baseline(0); }, "share_of_baseline: 0");
  refused([](auto* r) { r->set_share_of_baseline(std::nan("")); }, "share_of_baseline: nan");
  refused([](auto* r) { r->set_share_of_baseline(std::numeric_limits<double>::infinity()); },
          "share_of_baseline: inf");
  refused([](auto* r) { r->clear_device(); }, "device: is missing");
  refused([](auto* r) { r->clear_cpu(); }, "cpu: is missing");
  refused([](auto* r) { r->set_facts("\xff"); }, "facts: is not valid UTF-8");
  refused([](auto* r) { r->set_rule_set(std::string(70000, 'r')); }, "rule_set: 70000 bytes");
  for (const char* box : {"d0", "d0=1", "d0=1..", "=1..2", "d0=1..2  d1=1..2", " d0=1..2",
                          "d0=a..2", "d0=1..2..3", "d0=1..99999999999999999999", "d0=1..2=3"}) {
    refused([&](auto* r) { r->set_dim_box(box); }, "is not NAME=MIN..MAX");
  }
  refused([](auto* r) { r->set_dim_box("d0=3..2"); }, "\"d0=3..2\": no size is in this range");
  refused([](auto* r) { r->set_dim_box("d0=-1..2"); }, "no size is in this range");
  refused([](auto* r) { r->set_dim_box("d0=1..2 d0=1..2"); }, "\"d0\" has two ranges");
  refused([](auto* r) { r->GetReflection()->MutableUnknownFields(r)->AddVarint(99, 1); },
          "it has fields that are not known here");
}

TEST(BundleTest, WrongKernels) {
  const auto read = [&](const v1::KernelBinary& kernel) {
    BundleWriter writer = BundleWriter::Create(HeaderOf(true), KeyOf(kSeed)).value();
    Chunks chunks = {writer.Header(), writer.Record(kernel).value()};
    chunks.push_back(writer.Trailer().value());
    return chunks;
  };
  const auto refused = [&](const std::function<void(v1::KernelBinary*)>& change,
                           const std::string& message) {
    v1::KernelBinary kernel = Kernel(1);
    change(&kernel);
    ExpectRefused(read(kernel), Terms({kSeed}), StatusCode::kInvalidArgument,
                  "bundle: record 0 (kernel ");
    ExpectRefused(read(kernel), Terms({kSeed}), StatusCode::kInvalidArgument, message);
  };
  EXPECT_TRUE(Read(read(Kernel(1)), Terms({kSeed})).ok());
  refused([](auto* k) { k->clear_object(); }, "object: is missing");
  refused([](auto* k) { k->set_source_hash("x"); }, "source_hash: \"x\"");
  refused([](auto* k) { k->clear_triple(); }, "triple: is missing");
  refused([](auto* k) { k->clear_cpu(); }, "cpu: is missing");
  refused([](auto* k) { k->clear_compiler_version(); }, "compiler_version: is missing");
  refused([](auto* k) { k->set_flags("\xff"); }, "flags: is not valid UTF-8");
}

// A kernel in a bundle whose header promised none, its links in order.
TEST(BundleTest, SmuggledKernel) {
  BundleWriter writer = BundleWriter::Create(HeaderOf(false), std::nullopt).value();
  Chunks chunks = {writer.Header(), v1::CacheBundleChunk()};
  v1::CacheBundleRecord* record = chunks[1].mutable_record();
  *record->mutable_kernel() = Kernel(0);
  const std::string link = LinkOf(LinkOf("athanor cache bundle", chunks[0].header()), *record);
  record->set_link(link);
  ExpectRefused(chunks, Terms({kSeed}), StatusCode::kInvalidArgument,
                "record 0 (kernel bbbbbbbbbbbb): the header promises that there are no binaries");
}

TEST(BundleTest, Limits) {
  const Chunks chunks = Bundle(false, "");
  BundleTerms terms = Terms();
  terms.max_records = 2;
  ExpectRefused(chunks, terms, StatusCode::kResourceExhausted,
                "record 2 (recipe of region aaaaaaaaaaaa): at most 2 records");
  terms = Terms();
  terms.max_bytes = static_cast<int64_t>(chunks[1].record().ByteSizeLong());
  ExpectRefused(chunks, terms, StatusCode::kResourceExhausted, "record 1 (recipe");
  terms.max_records = 1000;
  terms.max_bytes = 1000000;
  EXPECT_TRUE(Read(chunks, terms).ok());
}

TEST(BundleTest, AfterAnErrorNothingIsHeldOrTaken) {
  const Chunks chunks = Bundle(false, "");
  BundleReader reader(Terms());
  ASSERT_TRUE(reader.Take(chunks[0]).ok());
  ASSERT_TRUE(reader.Take(chunks[1]).ok());
  const absl::Status first = reader.Take(chunks[3]);
  EXPECT_FALSE(first.ok());
  EXPECT_EQ(reader.Take(chunks[2]), first);
  EXPECT_EQ(reader.Finish(), first);
  EXPECT_FALSE(reader.complete());
}

}  // namespace
}  // namespace athanor
