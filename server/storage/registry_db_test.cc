// Tests the registry's file and the migrations of its schema.
#include "server/storage/registry_db.h"

#include <sqlite3.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

std::string FreshPath(const std::string& name) {
  std::string path = testing::TempDir() + "/" + name + ".db";
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
  return path;
}

void Execute(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_free(error);
  sqlite3_close(db);
}

// The schema of servers before searches had rules and modes.
constexpr char kSchema1[] = R"(
  CREATE TABLE versions(
    name TEXT NOT NULL, version INTEGER NOT NULL, format TEXT NOT NULL, graph BLOB NOT NULL,
    search_budget TEXT NOT NULL, buckets BLOB NOT NULL, pinned_plan TEXT NOT NULL,
    created_us INTEGER NOT NULL, PRIMARY KEY(name, version)) STRICT;
  CREATE TABLE version_tensors(
    name TEXT NOT NULL, version INTEGER NOT NULL, hash BLOB NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY(name, version, hash)) STRICT, WITHOUT ROWID;
  CREATE TABLE names(
    name TEXT PRIMARY KEY, next_version INTEGER NOT NULL, serving INTEGER NOT NULL,
    rolled_back INTEGER NOT NULL) STRICT;
  INSERT INTO versions VALUES('m', 3, 'athanor', x'00ff', '5m', x'0102', 'p-1', 77);
  INSERT INTO version_tensors VALUES('m', 3, x'aa', 12);
  INSERT INTO names VALUES('m', 4, 3, 0);
  PRAGMA user_version=1;)";

TEST(RegistryDbTest, ReadsAndGoesOnFromTheFirstSchema) {
  const std::string path = FreshPath("schema1");
  Execute(path, kSchema1);
  auto db = RegistryDb::Open(path);
  ASSERT_TRUE(db.ok()) << db.status();
  const std::vector<VersionRow> rows = (*db)->ReadVersions().value();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name, "m");
  EXPECT_EQ(rows[0].version, 3);
  EXPECT_EQ(rows[0].graph, std::string("\0\xff", 2));
  EXPECT_EQ(rows[0].search_budget, "5m");
  EXPECT_EQ(rows[0].buckets, "\x01\x02");
  ASSERT_EQ(rows[0].plans.size(), 1u);
  EXPECT_EQ(rows[0].plans[0].plan_id, "p-1");
  EXPECT_TRUE(rows[0].plans[0].pinned);
  EXPECT_FALSE(rows[0].plans[0].served);
  EXPECT_EQ(rows[0].created_us, 77);
  ASSERT_EQ(rows[0].tensors.size(), 1u);
  EXPECT_EQ(rows[0].tensors[0].blob, "");
  EXPECT_EQ(rows[0].notes, "");
  EXPECT_EQ(rows[0].disable_rules, "");
  EXPECT_FALSE(rows[0].approximate);
  EXPECT_FALSE(rows[0].deterministic);
  EXPECT_EQ(rows[0].batch_dim, "");
  EXPECT_EQ(rows[0].generation, "");
  EXPECT_TRUE(rows[0].files.empty());
  VersionRow next = rows[0];
  next.version = 4;
  next.batch_dim = "b";
  EXPECT_TRUE((*db)->AddVersion(next).ok());
  EXPECT_EQ((*db)->ReadVersions().value()[1].batch_dim, "b");
}

TEST(RegistryDbTest, KeepsWhatIsKnownOfTensorsAsLongAsAVersionHasThem) {
  const std::string path = FreshPath("magnitudes");
  const std::string a(32, 'a'), b(32, 'b');
  VersionRow row{.name = "m", .version = 1, .format = "athanor"};
  row.tensors = {{a, 4}, {b, 8}};
  row.magnitudes = {{a, "f32", 20}, {a, "bf16", std::nullopt}, {b, "f32", 60}};
  {
    const auto db = RegistryDb::Open(path).value();
    ASSERT_TRUE(db->AddVersion(row).ok());
    row.version = 2;
    row.tensors = {{a, 4}};
    row.magnitudes = {{a, "f32", 20}};
    ASSERT_TRUE(db->AddVersion(row).ok());
  }
  const auto db = RegistryDb::Open(path).value();
  const auto texts = [&] {
    std::vector<std::string> all;
    const std::vector<MagnitudeRow> rows = db->tensors().ReadMagnitudes().value();
    for (const MagnitudeRow& r : rows) {
      all.push_back(r.hash.substr(0, 1) + " " + r.dtype + " " +
                    (r.magnitude ? std::to_string(*r.magnitude) : "none"));
    }
    return all;
  };
  EXPECT_THAT(texts(), testing::UnorderedElementsAre("a f32 20", "a bf16 none", "b f32 60"));
  ASSERT_TRUE(db->DeleteVersions("m", {1}).ok());
  EXPECT_THAT(texts(), testing::UnorderedElementsAre("a f32 20", "a bf16 none"));
  ASSERT_TRUE(db->tensors().AddMagnitudes({{a, "f32", 60}, {a, "f16", 20}}).ok());
  EXPECT_THAT(texts(), testing::UnorderedElementsAre("a f32 20", "a bf16 none", "a f16 20"));
}

TEST(RegistryDbTest, KeepsSealsAsLongAsAVersionHasTheTensor) {
  const std::string path = FreshPath("seals");
  const std::string a(32, 'a'), b(32, 'b'), seal(32, 's');
  VersionRow row{.name = "m", .version = 1, .format = "athanor"};
  row.tensors = {{a, 4}, {b, 8}};
  row.tensors[0].seal = seal;
  const auto db = RegistryDb::Open(path).value();
  ASSERT_TRUE(db->AddVersion(row).ok());
  const auto seals = [&] {
    std::vector<std::string> all;
    const std::vector<VersionRow> rows = db->ReadVersions().value();
    for (const TensorRow& tensor : rows[0].tensors) all.push_back(tensor.hash + tensor.seal);
    return all;
  };
  EXPECT_THAT(seals(), testing::UnorderedElementsAre(a + seal, b));
  // A later seal replaces an earlier one: it was computed from the bytes later.
  row.tensors[0].seal = std::string(32, 'x');
  row.tensors[1].seal = std::string(32, 't');
  ASSERT_TRUE(db->tensors().SetSeals(row.tensors).ok());
  const auto found =
      testing::UnorderedElementsAre(a + std::string(32, 'x'), b + std::string(32, 't'));
  EXPECT_THAT(seals(), found);
  // A tensor without a seal keeps the one stored.
  ASSERT_TRUE(db->tensors().SetSeals({{a, 4}}).ok());
  EXPECT_THAT(seals(), found);
  ASSERT_TRUE(db->DeleteVersions("m", {1}).ok());
  row.tensors = {{a, 4}};
  ASSERT_TRUE(db->AddVersion(row).ok());
  EXPECT_THAT(seals(), testing::UnorderedElementsAre(a));
}

TEST(RegistryDbTest, KeepsWhereTensorsAreAsLongAsAVersionHasThem) {
  const std::string path = FreshPath("blobs");
  const std::string a(32, 'a'), b(32, 'b'), blob(32, '\0');
  VersionRow row{.name = "m", .version = 1, .format = "onnx", .notes = "n"};
  row.tensors = {{a, 4, blob, int64_t{5} << 32}, {b, 8}};
  {
    const auto db = RegistryDb::Open(path).value();
    ASSERT_TRUE(db->AddVersion(row).ok());
    row.version = 2;
    ASSERT_TRUE(db->AddVersion(row).ok());
    ASSERT_TRUE(db->DeleteVersions("m", {1}).ok());
  }
  const auto db = RegistryDb::Open(path).value();
  const std::vector<VersionRow> rows = db->ReadVersions().value();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].notes, "n");
  ASSERT_EQ(rows[0].tensors.size(), 2u);
  EXPECT_EQ(rows[0].tensors[0].blob, blob);
  EXPECT_EQ(rows[0].tensors[0].blob_offset, int64_t{5} << 32);
  EXPECT_EQ(rows[0].tensors[1].blob, "");
  // Damaged tensors are relocated for every version that has them.
  const std::string other(32, 'o');
  ASSERT_TRUE(db->tensors().SetPlaces({{a, 4}, {b, 8, other, 7}}).ok());
  const std::vector<VersionRow> moved = db->ReadVersions().value();
  EXPECT_EQ(moved[0].tensors[0].blob, "");
  EXPECT_EQ(moved[0].tensors[1].blob, other);
  EXPECT_EQ(moved[0].tensors[1].blob_offset, 7);
  // Once no version has it, a tensor of the same bytes may be stored elsewhere.
  ASSERT_TRUE(db->DeleteVersions("m", {2}).ok());
  row.version = 3;
  row.tensors = {{a, 4}};
  ASSERT_TRUE(db->AddVersion(row).ok());
  EXPECT_EQ(db->ReadVersions().value()[0].tensors[0].blob, "");
}

TEST(RegistryDbTest, AVersionThatBringsATensorAgainSaysWhereItLies) {
  const auto db = RegistryDb::Open(FreshPath("again")).value();
  const std::string a(32, 'a'), blob(32, 'b'), other(32, 'c');
  VersionRow row{.name = "m", .version = 1, .format = "onnx"};
  const auto places = [&](std::vector<TensorRow> tensors) {
    row.tensors = std::move(tensors);
    EXPECT_TRUE(db->AddVersion(row).ok());
    ++row.version;
    std::vector<std::string> all;
    const std::vector<VersionRow> rows = db->ReadVersions().value();
    for (const VersionRow& stored : rows) {
      all.push_back(stored.tensors[0].blob.substr(0, 1) +
                    std::to_string(stored.tensors[0].blob_offset));
    }
    return all;
  };
  EXPECT_THAT(places({{a, 4, blob, 5}}), testing::Each("b5"));
  EXPECT_THAT(places({{a, 4, other, 6}}), testing::Each("c6"));
  EXPECT_THAT(places({{a, 4}}), testing::Each("0"));
}

TEST(RegistryDbTest, KeepsWhichFilesWereVerifiedAsLongAsAVersionHasThem) {
  const std::string path = FreshPath("verified");
  const std::string a(32, 'a'), b(32, 'b');
  VersionRow row{.name = "m", .version = 1, .format = "athanor"};
  row.tensors = {{a, 4}, {b, 8}};
  row.verified = {{a, {1, 4, 2, 3}}};
  {
    const auto db = RegistryDb::Open(path).value();
    ASSERT_TRUE(db->AddVersion(row).ok());
    ASSERT_TRUE(
        db->tensors().SetVerified({{a, {7, 4, 8, 9}}, {b, {5, 8, 6, int64_t{7} << 40}}}).ok());
  }
  const auto db = RegistryDb::Open(path).value();
  const std::vector<VerifiedRow> rows = db->tensors().ReadVerified().value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].hash, a);
  EXPECT_EQ(rows[0].stamp, (FileStamp{7, 4, 8, 9}));
  EXPECT_EQ(rows[1].stamp, (FileStamp{5, 8, 6, int64_t{7} << 40}));
  ASSERT_TRUE(db->DeleteVersions("m", {1}).ok());
  EXPECT_TRUE(db->tensors().ReadVerified().value().empty());
}

TEST(RegistryDbTest, ARowFromBeforeThereWereChecksumsGetsItsOwn) {
  const std::string path = FreshPath("checksums");
  Execute(path, kSchema1);
  EXPECT_EQ(RegistryDb::Open(path).value()->ReadVersions().value()[0].damage, "");
  Execute(path, "UPDATE versions SET graph=x'00fe'");
  const std::vector<VersionRow> rows = RegistryDb::Open(path).value()->ReadVersions().value();
  EXPECT_THAT(rows[0].damage, testing::HasSubstr(path));
  EXPECT_THAT(rows[0].damage, testing::HasSubstr("expected"));
  // The row stays damaged.
  EXPECT_NE(RegistryDb::Open(path).value()->ReadVersions().value()[0].damage, "");
}

TEST(RegistryDbTest, KeepsTheFilesOfAVersionInItsChecksum) {
  const std::string path = FreshPath("files");
  VersionRow row{.name = "m", .version = 1, .format = "gguf"};
  const std::string a(32, 'a'), b(32, 'b');
  row.tensors = {{a, 4}, {b, 0}};
  row.generation = std::string("g\0n", 3);
  row.files = {{"a/config.json", a}, {"tokenizer.json", b}};
  {
    const auto db = RegistryDb::Open(path).value();
    ASSERT_TRUE(db->AddVersion(row).ok());
    ASSERT_TRUE(db->AddVersion({.name = "m", .version = 2, .format = "athanor"}).ok());
  }
  const std::vector<VersionRow> rows = RegistryDb::Open(path).value()->ReadVersions().value();
  ASSERT_EQ(rows[0].files.size(), 2u);
  EXPECT_EQ(rows[0].files[0].path, "a/config.json");
  EXPECT_EQ(rows[0].files[0].hash, a);
  EXPECT_EQ(rows[0].files[1].path, "tokenizer.json");
  EXPECT_EQ(rows[0].generation, row.generation);
  EXPECT_TRUE(rows[1].files.empty());
  for (const VersionRow& whole : rows) EXPECT_EQ(whole.damage, "");
  for (const char* damage : {"UPDATE versions SET generation=x'67' WHERE version=1",
                             "UPDATE version_files SET path='b' WHERE path='tokenizer.json'",
                             "UPDATE version_files SET hash=x'00' WHERE path='tokenizer.json'",
                             "DELETE FROM version_files WHERE path='tokenizer.json'"}) {
    const std::string copy = FreshPath("damaged_files");
    std::filesystem::copy_file(path, copy);
    Execute(copy, damage);
    EXPECT_NE(RegistryDb::Open(copy).value()->ReadVersions().value()[0].damage, "") << damage;
  }
  const auto db = RegistryDb::Open(path).value();
  ASSERT_TRUE(db->DeleteVersions("m", {1}).ok());
  row.files = {{"tokenizer.json", a}};
  ASSERT_TRUE(db->AddVersion(row).ok());
  ASSERT_EQ(db->ReadVersions().value()[0].files.size(), 1u);
}

TEST(RegistryDbTest, KnowsTheNextVersionOfANameWithoutVersions) {
  const std::string path = FreshPath("next_version");
  {
    const auto db = RegistryDb::Open(path).value();
    EXPECT_EQ(db->NextVersion("m").value(), 1);
    for (int64_t version : {1, 2}) {
      ASSERT_TRUE(db->AddVersion({.name = "m", .version = version, .format = "athanor"}).ok());
    }
    ASSERT_TRUE(db->DeleteVersions("m", {1, 2}).ok());
    EXPECT_EQ(db->NextVersion("m").value(), 3);
  }
  const auto db = RegistryDb::Open(path).value();
  EXPECT_EQ(db->NextVersion("m").value(), 3);
  EXPECT_EQ(db->NextVersion("n").value(), 1);
}

TEST(RegistryDbTest, KeepsWhatASearchMayDo) {
  const std::string path = FreshPath("search");
  VersionRow row{.name = "m", .version = 1, .format = "athanor"};
  row.search_budget = "exhaust:200c";
  row.disable_rules = "algebra,layout";
  row.approximate = true;
  row.deterministic = true;
  ASSERT_TRUE(RegistryDb::Open(path).value()->AddVersion(row).ok());
  const std::vector<VersionRow> rows = RegistryDb::Open(path).value()->ReadVersions().value();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].search_budget, "exhaust:200c");
  EXPECT_EQ(rows[0].disable_rules, "algebra,layout");
  EXPECT_TRUE(rows[0].approximate);
  EXPECT_TRUE(rows[0].deterministic);
}

TEST(RegistryDbTest, KeepsThePlansOfAVersionInTheirOrder) {
  const std::string path = FreshPath("plans");
  VersionRow row{.name = "m", .version = 1, .format = "athanor"};
  {
    const auto db = RegistryDb::Open(path).value();
    ASSERT_TRUE(db->AddVersion(row).ok());
    row.version = 2;
    ASSERT_TRUE(db->AddVersion(row).ok());
    ASSERT_TRUE(db->SetPlans("m", 1, {{.plan_id = "p-9", .first = true, .served = true}}).ok());
    ASSERT_TRUE(db->SetPlans("m", 1,
                             {{.plan_id = "p-9", .first = true, .served = true, .info = "i"},
                              {.plan_id = "p-3", .pinned = true},
                              {.plan_id = "p-5", .served = true}})
                    .ok());
    ASSERT_TRUE(db->SetPlans("m", 2, {{.plan_id = "p-9", .served = true}}).ok());
    // Rows for a version that does not exist are not stored.
    ASSERT_TRUE(db->SetPlans("m", 3, {{.plan_id = "p-9", .served = true}}).ok());
  }
  const auto db = RegistryDb::Open(path).value();
  const auto texts = [](const VersionRow& version) {
    std::vector<std::string> all;
    for (const VersionPlanRow& plan : version.plans) {
      all.push_back(plan.plan_id + (plan.first ? " first" : "") + (plan.served ? " served" : "") +
                    (plan.pinned ? " pinned" : "") + (plan.info.empty() ? "" : " " + plan.info));
    }
    return all;
  };
  std::vector<VersionRow> rows = db->ReadVersions().value();
  EXPECT_THAT(texts(rows[0]),
              testing::ElementsAre("p-9 first served i", "p-3 pinned", "p-5 served"));
  EXPECT_THAT(texts(rows[1]), testing::ElementsAre("p-9 served"));
  ASSERT_TRUE(db->DeleteVersions("m", {1}).ok());
  ASSERT_TRUE(db->AddVersion({.name = "m", .version = 1, .format = "athanor"}).ok());
  rows = db->ReadVersions().value();
  EXPECT_THAT(texts(rows[0]), testing::IsEmpty());
  EXPECT_THAT(texts(rows[1]), testing::ElementsAre("p-9 served"));
}

TEST(RegistryDbTest, KeepsWhatAVersionOfARepositoryWasMadeOf) {
  const std::string path = FreshPath("sources");
  VersionRow row{.name = "m", .version = 3, .format = "onnx"};
  row.source = {std::string(32, 'c'), std::string(32, 's')};
  const auto db = RegistryDb::Open(path).value();
  ASSERT_TRUE(db->AddVersion(row).ok());
  ASSERT_TRUE(db->AddVersion({.name = "n", .version = 4, .format = "onnx"}).ok());
  ASSERT_TRUE(db->SetStamp("m", 3, std::string(32, 't')).ok());
  ASSERT_TRUE(db->SetStamp("n", 4, std::string(32, 't')).ok());
  std::vector<VersionRow> rows = db->ReadVersions().value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].source.content, std::string(32, 'c'));
  EXPECT_EQ(rows[0].source.stamp, std::string(32, 't'));
  EXPECT_EQ(rows[1].source.content, "");
  EXPECT_EQ(rows[1].source.stamp, "");
  // A version that is uploaded beside it makes both uploaded ones.
  ASSERT_TRUE(db->AddVersion({.name = "m", .version = 5, .format = "onnx"}).ok());
  rows = db->ReadVersions().value();
  EXPECT_EQ(rows[0].source.content, "");
  EXPECT_EQ(rows[1].source.content, "");
  ASSERT_TRUE(db->DeleteVersions("m", {3, 5}).ok());
  ASSERT_TRUE(db->AddVersion(row).ok());
  EXPECT_EQ(db->ReadVersions().value()[0].source.content, std::string(32, 'c'));
  ASSERT_TRUE(db->DeleteVersions("m", {3}).ok());
  ASSERT_TRUE(db->AddVersion({.name = "m", .version = 3, .format = "onnx"}).ok());
  EXPECT_EQ(db->ReadVersions().value()[0].source.content, "");
}

TEST(RegistryDbTest, AVersionTakesThePlaceOfOneOfItsNumber) {
  const std::string path = FreshPath("replaced");
  const std::string a(32, 'a'), b(32, 'b');
  VersionRow row{.name = "m", .version = 3, .format = "onnx", .graph = "old"};
  row.tensors = {{a, 4}};
  row.magnitudes = {{a, "f32", 20}};
  const auto db = RegistryDb::Open(path).value();
  ASSERT_TRUE(db->AddVersion(row).ok());
  ASSERT_TRUE(db->SetPlans("m", 3, {{.plan_id = "p-1", .served = true}}).ok());
  ASSERT_TRUE(
      db->SetServing({.name = "m", .next_version = 4, .serving = 3, .rolled_back = 3}).ok());
  row.graph = "new";
  row.tensors = {{b, 8}};
  row.magnitudes = {{b, "f32", 60}};
  ASSERT_TRUE(db->AddVersion(row).ok());
  const std::vector<VersionRow> rows = db->ReadVersions().value();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].graph, "new");
  ASSERT_EQ(rows[0].tensors.size(), 1u);
  EXPECT_EQ(rows[0].tensors[0].hash, b);
  EXPECT_TRUE(rows[0].plans.empty());
  EXPECT_EQ(db->tensors().ReadMagnitudes().value().size(), 1u);
  const std::vector<NameRow> names = db->ReadNames().value();
  EXPECT_EQ(names[0].serving, 3);
  EXPECT_EQ(names[0].next_version, 4);
  EXPECT_EQ(names[0].rolled_back, 2);  // or it would never serve by itself
  row.version = 1;
  ASSERT_TRUE(db->AddVersion(row).ok());
  EXPECT_EQ(db->NextVersion("m").value(), 4);
  EXPECT_EQ(db->ReadNames().value()[0].rolled_back, 2);  // no reason for version 2 to take over
  ASSERT_TRUE(db->DeleteVersions("m", {3}).ok());
  EXPECT_EQ(db->ReadNames().value()[0].rolled_back, 2);
  ASSERT_TRUE(db->DeleteVersions("m", {1}).ok());
  EXPECT_EQ(db->ReadNames().value()[0].rolled_back, 0);  // with the name's last version
}

TEST(RegistryDbTest, ANewerSchemaIsRefused) {
  const std::string path = FreshPath("newer");
  RegistryDb::Open(path).value();
  Execute(path, "PRAGMA user_version=99");
  const absl::Status status = RegistryDb::Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("has schema 99"));
}

}  // namespace
}  // namespace athanor
