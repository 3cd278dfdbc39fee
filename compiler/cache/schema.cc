#include "compiler/cache/schema.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {
namespace {

// Schema 1: kernels and passed checks.
constexpr char kSchema1[] = R"(
CREATE TABLE kernels (key BLOB PRIMARY KEY NOT NULL, source_hash TEXT NOT NULL,
  flags TEXT NOT NULL, triple TEXT NOT NULL, cpu TEXT NOT NULL, features TEXT NOT NULL,
  compiler_version TEXT NOT NULL, codegen_version INTEGER NOT NULL, checksum BLOB NOT NULL,
  bytes INTEGER NOT NULL, created_us INTEGER NOT NULL, object BLOB NOT NULL);
CREATE INDEX kernels_by_source ON kernels (source_hash);
CREATE TABLE checks (key BLOB PRIMARY KEY NOT NULL, created_us INTEGER NOT NULL) WITHOUT ROWID;
)";

// Schema 2: all other tables. Columns of keys have the names of KeyFields (keys.h). `bytes` is the
// row's size towards the limit; `used_us` is when the row was last used, to an hour.
constexpr char kSchema2[] = R"(
ALTER TABLE kernels ADD COLUMN used_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checks ADD COLUMN used_us INTEGER NOT NULL DEFAULT 0;
UPDATE kernels SET used_us = created_us;
UPDATE checks SET used_us = created_us;
CREATE INDEX kernels_by_use ON kernels (used_us);

CREATE TABLE plans (
  key BLOB NOT NULL, conditions BLOB NOT NULL, plan_id TEXT NOT NULL,
  -- the key: whether a row may be used
  semantics_version INTEGER NOT NULL, plan_format INTEGER NOT NULL,
  codegen_version INTEGER NOT NULL, graph_hash TEXT NOT NULL, interface_hash TEXT NOT NULL,
  dim_box TEXT NOT NULL, approximate INTEGER NOT NULL, device TEXT NOT NULL, triple TEXT NOT NULL,
  cpu TEXT NOT NULL, features TEXT NOT NULL,
  -- the conditions: whether a new search is due
  rule_set TEXT NOT NULL, disabled_rules TEXT NOT NULL, compiler_version TEXT NOT NULL,
  libraries TEXT NOT NULL, driver TEXT NOT NULL, threads INTEGER NOT NULL, clocks TEXT NOT NULL,
  kind TEXT NOT NULL,             -- "baseline" or "search"
  incumbent INTEGER NOT NULL,     -- of its key and conditions
  share_of_baseline REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL,
  compared_with TEXT NOT NULL,    -- how it was verified
  kernel_keys BLOB NOT NULL,      -- 32 bytes each
  checksum BLOB NOT NULL, bytes INTEGER NOT NULL, created_us INTEGER NOT NULL,
  used_us INTEGER NOT NULL,
  body BLOB NOT NULL,             -- internal.StoredPlan; last: what is before is read without it
  PRIMARY KEY (key, conditions, plan_id)) STRICT;
CREATE INDEX plans_by_graph ON plans (graph_hash);

-- Portable: where a recipe was found is no part of its key.
CREATE TABLE recipes (
  key BLOB NOT NULL, region_hash TEXT NOT NULL, dim_box TEXT NOT NULL, facts TEXT NOT NULL,
  semantics_version INTEGER NOT NULL, recipe_format INTEGER NOT NULL,
  device TEXT NOT NULL, cpu TEXT NOT NULL, threads INTEGER NOT NULL,
  rule_set TEXT NOT NULL, genome TEXT NOT NULL, share_of_baseline REAL NOT NULL,
  origin TEXT NOT NULL,           -- "search", or a bundle's
  checksum BLOB NOT NULL, bytes INTEGER NOT NULL, created_us INTEGER NOT NULL,
  used_us INTEGER NOT NULL,
  PRIMARY KEY (key, device, cpu, threads, genome)) STRICT;
CREATE INDEX recipes_by_region ON recipes (region_hash);

CREATE TABLE timings (
  key BLOB PRIMARY KEY NOT NULL,
  kernel TEXT NOT NULL, sizes TEXT NOT NULL, flags TEXT NOT NULL, context TEXT NOT NULL,
  measure_version INTEGER NOT NULL, device TEXT NOT NULL, triple TEXT NOT NULL, cpu TEXT NOT NULL,
  features TEXT NOT NULL, compiler_version TEXT NOT NULL, libraries TEXT NOT NULL,
  driver TEXT NOT NULL, threads INTEGER NOT NULL, clocks TEXT NOT NULL,
  seconds BLOB NOT NULL, low BLOB NOT NULL, high BLOB NOT NULL,  -- f64, little-endian
  rounds INTEGER NOT NULL,
  checked INTEGER NOT NULL,       -- 0: slower than the best and never checked: may not serve
  checksum BLOB NOT NULL, bytes INTEGER NOT NULL, created_us INTEGER NOT NULL,
  used_us INTEGER NOT NULL) STRICT;

CREATE TABLE failures (
  key BLOB NOT NULL,
  kind TEXT NOT NULL,             -- lower, compile, check, measure, plan_check, load
  code INTEGER NOT NULL, message TEXT NOT NULL, about TEXT NOT NULL,
  checksum BLOB NOT NULL, bytes INTEGER NOT NULL, created_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL, used_us INTEGER NOT NULL,
  PRIMARY KEY (key, kind)) STRICT;

-- How far the search of a plan's key went, so that a restart begins none.
CREATE TABLE searches (
  key BLOB NOT NULL, conditions BLOB NOT NULL, options BLOB NOT NULL,
  stop INTEGER NOT NULL, seconds REAL NOT NULL, candidates INTEGER NOT NULL,
  checksum BLOB NOT NULL, bytes INTEGER NOT NULL, created_us INTEGER NOT NULL,
  used_us INTEGER NOT NULL,
  PRIMARY KEY (key, conditions, options)) STRICT;

-- What the compiler says of a machine, so that a start needs none.
CREATE TABLE targets (
  machine TEXT NOT NULL, tuner TEXT NOT NULL, reply BLOB NOT NULL,
  checksum BLOB NOT NULL, bytes INTEGER NOT NULL, created_us INTEGER NOT NULL,
  used_us INTEGER NOT NULL,
  PRIMARY KEY (machine, tuner)) STRICT;

CREATE TABLE leases (
  key BLOB NOT NULL, kind TEXT NOT NULL,  -- plan, search
  owner TEXT NOT NULL, boot_id TEXT NOT NULL, pid INTEGER NOT NULL,
  pid_namespace INTEGER NOT NULL, pid_start INTEGER NOT NULL, about TEXT NOT NULL,
  taken_boot_us INTEGER NOT NULL, beat_boot_us INTEGER NOT NULL,
  PRIMARY KEY (key, kind)) STRICT;

-- The bad row itself is gone; what it was for stays.
CREATE TABLE quarantine (
  tier TEXT NOT NULL, key BLOB NOT NULL, found_us INTEGER NOT NULL, why TEXT NOT NULL,
  about TEXT NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY (tier, key)) STRICT;

CREATE TABLE bundles (
  hash BLOB PRIMARY KEY NOT NULL, origin TEXT NOT NULL, rows INTEGER NOT NULL,
  imported_us INTEGER NOT NULL) STRICT;
)";

constexpr const char* kSteps[] = {kSchema1, kSchema2};

}  // namespace

SqliteSchema CacheSchema() {
  return {.what = "cache",
          .steps = kSteps,
          .application_id = 0x41744361,  // "AtCa"
          .table = "kernels",
          .gives_back = true};
}

absl::string_view TierName(Tier tier) {
  constexpr absl::string_view kNames[kTierCount] = {"plans",    "recipes", "timings",
                                                    "kernels",  "checks",  "failures",
                                                    "searches", "targets", "quarantine"};
  return kNames[static_cast<int>(tier)];
}

std::string HashOfFields(absl::Span<const absl::string_view> fields) {
  Sha256 hash;
  for (absl::string_view field : fields) {
    hash.Update(absl::StrCat(field.size(), ":")).Update(field);
  }
  return hash.Finish();
}

int64_t WallMicroseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace athanor
