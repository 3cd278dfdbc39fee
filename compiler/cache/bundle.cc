#include "compiler/cache/bundle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "google/protobuf/descriptor.h"

namespace athanor {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kDomain[] = "athanor cache bundle";
constexpr size_t kMaxGenomeBytes = size_t{1} << 20;
constexpr size_t kMaxTextBytes = size_t{64} << 10;  // of any other text
constexpr size_t kHashDigits = 64;

void Add(uint64_t number, Sha256* hash) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
  hash->Update({bytes, sizeof(bytes)});
}

std::string DigestOf(const Message& message);

// `index`: the element of a repeated field, else -1.
void AddValue(const Message& message, const FieldDescriptor& field, int index, Sha256* hash) {
  const Reflection& get = *message.GetReflection();
  const auto number = [&](auto one, auto element) {
    return index < 0 ? (get.*one)(message, &field) : (get.*element)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return Add(number(&Reflection::GetInt32, &Reflection::GetRepeatedInt32), hash);
    case FieldDescriptor::CPPTYPE_INT64:
      return Add(number(&Reflection::GetInt64, &Reflection::GetRepeatedInt64), hash);
    case FieldDescriptor::CPPTYPE_UINT32:
      return Add(number(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32), hash);
    case FieldDescriptor::CPPTYPE_UINT64:
      return Add(number(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64), hash);
    case FieldDescriptor::CPPTYPE_BOOL:
      return Add(number(&Reflection::GetBool, &Reflection::GetRepeatedBool), hash);
    case FieldDescriptor::CPPTYPE_ENUM:
      return Add(number(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue), hash);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Add(
          std::bit_cast<uint64_t>(number(&Reflection::GetDouble, &Reflection::GetRepeatedDouble)),
          hash);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Add(
          std::bit_cast<uint32_t>(number(&Reflection::GetFloat, &Reflection::GetRepeatedFloat)),
          hash);
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string copy;
      const std::string& text = index < 0
                                    ? get.GetStringReference(message, &field, &copy)
                                    : get.GetRepeatedStringReference(message, &field, index, &copy);
      Add(text.size(), hash);
      hash->Update(text);
      return;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      hash->Update(DigestOf(index < 0 ? get.GetMessage(message, &field)
                                      : get.GetRepeatedMessage(message, &field, index)));
      return;
  }
}

std::string DigestOf(const Message& message) {
  Sha256 hash;
  std::vector<const FieldDescriptor*> fields;  // sorted by number
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count =
        field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : -1;
    Add(field->number(), &hash);
    Add(count, &hash);
    if (count < 0) AddValue(message, *field, -1, &hash);
    for (int i = 0; i < count; ++i) AddValue(message, *field, i, &hash);
  }
  return hash.Finish();
}

std::string SignedText(absl::string_view digest) { return Cat(kDomain, std::string(digest)); }

std::string SealOf(absl::string_view link, int64_t records) {
  v1::CacheBundleTrailer counted;
  counted.set_records(records);
  return LinkOf(link, counted);
}

// Finds fields that are unknown here: of a newer format, or smuggled past LinkOf.
bool HasUnknownFields(const Message& message) {
  const Reflection& get = *message.GetReflection();
  if (!get.GetUnknownFields(message).empty()) return true;
  std::vector<const FieldDescriptor*> fields;
  get.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated() && HasUnknownFields(get.GetMessage(message, field))) return true;
    for (int i = 0; field->is_repeated() && i < get.FieldSize(message, field); ++i) {
      if (HasUnknownFields(get.GetRepeatedMessage(message, field, i))) return true;
    }
  }
  return false;
}

bool IsHash(const std::string& text) {
  return text.size() == kHashDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

absl::Status CheckText(std::string_view field, const std::string& text,
                       size_t max_bytes = kMaxTextBytes) {
  if (text.size() > max_bytes) {
    return Invalid(field, ": ", text.size(), " bytes; at most ", max_bytes);
  }
  if (!IsValidUtf8(text)) return Invalid(field, ": is not valid UTF-8");
  return absl::OkStatus();
}

absl::Status CheckNeeded(std::string_view field, const std::string& text,
                         size_t max_bytes = kMaxTextBytes) {
  if (text.empty()) return Invalid(field, ": is missing");
  return CheckText(field, text, max_bytes);
}

absl::Status CheckHash(std::string_view field, const std::string& text) {
  return IsHash(text) ? absl::OkStatus()
                      : Invalid(field, ": ", Quoted(text), " is not ", kHashDigits,
                                " lower-case hex digits");
}

// "d0=1..64 d1=1..512"
absl::Status CheckDimBox(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckText("dim_box", text));
  std::set<std::string> names;
  for (const std::string& range : std::vector<std::string>(absl::StrSplit(text, ' '))) {
    const std::vector<std::string> sides = absl::StrSplit(range, absl::MaxSplits('=', 1));
    const std::vector<std::string> ends =
        absl::StrSplit(sides.back(), absl::MaxSplits(absl::ByString(".."), 1));
    int64_t min = 0, max = 0;
    if (sides.size() != 2 || sides[0].empty() || ends.size() != 2 ||
        !absl::SimpleAtoi(ends[0], &min) || !absl::SimpleAtoi(ends[1], &max)) {
      return Invalid("dim_box: ", Quoted(range), " is not NAME=MIN..MAX");
    }
    if (min < 0 || min > max) {
      return Invalid("dim_box: ", Quoted(range), ": no size is in this range");
    }
    if (!names.insert(sides[0]).second) {
      return Invalid("dim_box: ", Quoted(sides[0]), " has two ranges");
    }
  }
  return absl::OkStatus();
}

absl::Status FirstOf(std::initializer_list<absl::Status> statuses) {
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckRecipe(const v1::RegionRecipe& recipe, int32_t format) {
  if (recipe.format() != format) {
    return Invalid("format: ", recipe.format(), "; genomes of ", format, " are read here");
  }
  if (recipe.threads() < 1) return Invalid("threads: ", recipe.threads(), "; at least 1");
  if (!std::isfinite(recipe.share_of_baseline()) || recipe.share_of_baseline() <= 0) {
    return Invalid("share_of_baseline: ", recipe.share_of_baseline(),
                   "; it must be finite and above 0");
  }
  return FirstOf({CheckHash("region_hash", recipe.region_hash()), CheckDimBox(recipe.dim_box()),
                  CheckText("facts", recipe.facts()),
                  CheckNeeded("genome", recipe.genome(), kMaxGenomeBytes),
                  CheckNeeded("device", recipe.device()), CheckNeeded("cpu", recipe.cpu()),
                  CheckText("rule_set", recipe.rule_set())});
}

absl::Status CheckKernel(const v1::KernelBinary& kernel) {
  if (kernel.object().empty()) return Invalid("object: is missing");
  return FirstOf({CheckHash("source_hash", kernel.source_hash()),
                  CheckText("flags", kernel.flags()), CheckNeeded("triple", kernel.triple()),
                  CheckNeeded("cpu", kernel.cpu()), CheckText("features", kernel.features()),
                  CheckNeeded("compiler_version", kernel.compiler_version())});
}

absl::Status CheckPlanKey(const v1::CachedPlanKey& key) {
  if (key.threads() < 1) return Invalid("key.threads: ", key.threads(), "; at least 1");
  if (key.approximate() != 0 && key.approximate() != 1) {
    return Invalid("key.approximate: ", key.approximate(), "; 0 or 1");
  }
  return FirstOf({CheckHash("key.graph_hash", key.graph_hash()),
                  CheckHash("key.interface_hash", key.interface_hash()), CheckDimBox(key.dim_box()),
                  CheckNeeded("key.device", key.device()), CheckText("key.triple", key.triple()),
                  CheckNeeded("key.cpu", key.cpu()), CheckText("key.features", key.features()),
                  CheckText("key.rule_set", key.rule_set()),
                  CheckText("key.disabled_rules", key.disabled_rules()),
                  CheckNeeded("key.compiler_version", key.compiler_version()),
                  CheckText("key.libraries", key.libraries()),
                  CheckText("key.driver", key.driver()), CheckText("key.clocks", key.clocks())});
}

bool IsShare(double share) { return std::isfinite(share) && share > 0; }

// Checks only the record's own fields. Loading the plan checks that its parts fit together.
absl::Status CheckPlan(const v1::CachedPlan& plan) {
  if (plan.kernel_keys_size() != plan.plan().kernels_size()) {
    return Invalid("kernel_keys: ", plan.kernel_keys_size(), "; the plan has ",
                   plan.plan().kernels_size(), " kernels");
  }
  for (const std::string& key : plan.kernel_keys()) {
    if (key.size() != kSha256Bytes) {
      return Invalid("kernel_keys: one has ", key.size(), " bytes; a key has ", kSha256Bytes);
    }
  }
  if (plan.plan().kind() != "baseline" && plan.plan().kind() != "search") {
    return Invalid("plan.kind: ", Quoted(plan.plan().kind()), " is neither baseline nor search");
  }
  if (!IsShare(plan.share_of_baseline()) || !IsShare(plan.low()) || !IsShare(plan.high())) {
    return Invalid("share_of_baseline: ", plan.share_of_baseline(), " (", plan.low(), " to ",
                   plan.high(), "); each must be finite and above 0");
  }
  return FirstOf({CheckPlanKey(plan.key()), CheckNeeded("plan.plan_id", plan.plan().plan_id()),
                  CheckText("compared_with", plan.compared_with())});
}

absl::Status CheckSearch(const v1::EndedSearch& search) {
  if (search.options().size() != kSha256Bytes) {
    return Invalid("options: ", search.options().size(), " bytes; a hash has ", kSha256Bytes);
  }
  if (!std::isfinite(search.seconds()) || search.seconds() < 0 || search.candidates() < 0) {
    return Invalid("seconds and candidates: ", search.seconds(), " and ", search.candidates(),
                   "; neither is negative");
  }
  return CheckPlanKey(search.key());
}

// "record 3 (recipe of region 12ab34cd): "
std::string NameOf(size_t index, const v1::CacheBundleRecord& record) {
  constexpr size_t kShownDigits = 12;
  const auto shown = [](const std::string& hash) {
    return IsHash(hash) ? hash.substr(0, kShownDigits) : Quoted(hash);
  };
  const std::string what =
      record.has_recipe()   ? Cat(" (recipe of region ", shown(record.recipe().region_hash()), ")")
      : record.has_kernel() ? Cat(" (kernel ", shown(record.kernel().source_hash()), ")")
      : record.has_plan()   ? Cat(" (plan ", Quoted(record.plan().plan().plan_id()), ")")
      : record.has_search()
          ? Cat(" (search of graph ", shown(record.search().key().graph_hash()), ")")
          : "";
  return Cat("bundle: record ", index, what, ": ");
}

}  // namespace

std::string LinkOf(absl::string_view before, const Message& message) {
  Sha256 hash;
  Add(before.size(), &hash);
  return hash.Update(before).Update(DigestOf(message)).Finish();
}

BundleWriter::BundleWriter(v1::CacheBundleHeader header, std::optional<Ed25519Key> key)
    : header_(std::move(header)), key_(std::move(key)), link_(LinkOf(kDomain, header_)) {}

absl::StatusOr<BundleWriter> BundleWriter::Create(v1::CacheBundleHeader header,
                                                  std::optional<Ed25519Key> key) {
  if (header.binaries() && !key) {
    return absl::FailedPreconditionError(
        "bundle: exports with binaries must be signed, and there is no key to sign with");
  }
  header.set_format(kBundleFormat);
  header.set_public_key(key ? key->public_key() : "");
  return BundleWriter(std::move(header), std::move(key));
}

v1::CacheBundleChunk BundleWriter::Header() const {
  v1::CacheBundleChunk chunk;
  *chunk.mutable_header() = header_;
  return chunk;
}

v1::CacheBundleChunk BundleWriter::Linked(v1::CacheBundleRecord record) {
  link_ = LinkOf(link_, record);
  record.set_link(link_);
  ++records_;
  v1::CacheBundleChunk chunk;
  *chunk.mutable_record() = std::move(record);
  return chunk;
}

absl::StatusOr<v1::CacheBundleChunk> BundleWriter::Record(v1::CacheBundleRecord record) {
  if (!record.has_recipe() && !header_.binaries()) {
    return absl::FailedPreconditionError("bundle: its header promises that it holds no binaries");
  }
  return Linked(std::move(record));
}

v1::CacheBundleChunk BundleWriter::Record(v1::RegionRecipe recipe) {
  v1::CacheBundleRecord record;
  *record.mutable_recipe() = std::move(recipe);
  return Linked(std::move(record));
}

absl::StatusOr<v1::CacheBundleChunk> BundleWriter::Record(v1::KernelBinary kernel) {
  v1::CacheBundleRecord record;
  *record.mutable_kernel() = std::move(kernel);
  return Record(std::move(record));
}

absl::StatusOr<v1::CacheBundleChunk> BundleWriter::Trailer() const {
  v1::CacheBundleChunk chunk;
  v1::CacheBundleTrailer& trailer = *chunk.mutable_trailer();
  trailer.set_records(records_);
  trailer.set_sha256(SealOf(link_, records_));
  if (key_) {
    ASSIGN_OR_RETURN(std::string signature, key_->Sign(SignedText(trailer.sha256())));
    trailer.set_signature(std::move(signature));
  }
  return chunk;
}

bool BundleReader::Trusted() const {
  const std::vector<std::string>& trusted = terms_.trusted_keys;
  return std::find(trusted.begin(), trusted.end(), header_.public_key()) != trusted.end();
}

std::string BundleReader::signed_by() const { return Trusted() ? header_.public_key() : ""; }

absl::Status BundleReader::Take(v1::CacheBundleChunk chunk) {
  if (state_ == State::kFailed) return failure_;
  absl::Status status = TakeChunk(std::move(chunk));
  if (!status.ok()) {
    state_ = State::kFailed;
    records_.clear();
    failure_ = status;
  }
  return status;
}

absl::Status BundleReader::Finish() const {
  switch (state_) {
    case State::kHeader:
      return Invalid("bundle: it is empty");
    case State::kRecords:
      return Invalid("bundle: it ends after ", records_.size(), " records, without a trailer");
    case State::kFailed:
      return failure_;
    case State::kComplete:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status BundleReader::TakeChunk(v1::CacheBundleChunk chunk) {
  if (state_ == State::kComplete) return Invalid("bundle: something comes after the trailer");
  if (state_ == State::kHeader && !chunk.has_header()) {
    return Invalid("bundle: it does not begin with a header");
  }
  if (!chunk.GetReflection()->GetUnknownFields(chunk).empty()) {
    return Invalid("bundle: the chunk after ", records_.size(),
                   " records has fields that are not known here");
  }
  switch (chunk.kind_case()) {
    case v1::CacheBundleChunk::kHeader:
      return TakeHeader(std::move(*chunk.mutable_header()));
    case v1::CacheBundleChunk::kRecord:
      return TakeRecord(std::move(*chunk.mutable_record()));
    case v1::CacheBundleChunk::kTrailer:
      return TakeTrailer(chunk.trailer());
    case v1::CacheBundleChunk::KIND_NOT_SET:
      break;
  }
  return Invalid("bundle: after ", records_.size(),
                 " records, expected another record or the trailer");
}

absl::Status BundleReader::TakeHeader(v1::CacheBundleHeader header) {
  if (state_ != State::kHeader) return Invalid("bundle: it has two headers");
  const auto invalid = [](const auto&... pieces) { return Invalid("bundle: header: ", pieces...); };
  if (header.format() != kBundleFormat) {
    return invalid("format: ", header.format(), "; bundles of ", kBundleFormat, " are read here");
  }
  if (HasUnknownFields(header)) return invalid("it has fields that are not known here");
  if (header.semantics_version() != terms_.semantics_version) {
    return invalid("semantics_version: ", header.semantics_version(), "; here it is ",
                   terms_.semantics_version, ": its contents have another meaning");
  }
  if (absl::Status status = CheckText("origin", header.origin()); !status.ok()) {
    return Prefixed("bundle: header: ", status);
  }
  const size_t key_bytes = header.public_key().size();
  if (key_bytes != 0 && key_bytes != kEd25519KeyBytes) {
    return invalid("public_key: ", key_bytes, " bytes; an Ed25519 key has ", kEd25519KeyBytes);
  }
  header_ = std::move(header);
  if (header_.binaries() && !Trusted()) {
    return absl::PermissionDeniedError(
        key_bytes == 0 ? std::string("bundle: it holds binaries and is not signed")
                       : Cat("bundle: it holds binaries, and the key that signs it, ",
                             std::string(absl::BytesToHexString(header_.public_key())),
                             ", is not among the ", terms_.trusted_keys.size(), " trusted here"));
  }
  link_ = LinkOf(kDomain, header_);
  state_ = State::kRecords;
  return absl::OkStatus();
}

absl::Status BundleReader::CheckLimits(const v1::CacheBundleRecord& record) const {
  if (static_cast<int64_t>(records_.size()) >= terms_.max_records) {
    return absl::ResourceExhaustedError(Cat("at most ", terms_.max_records, " records"));
  }
  const auto bytes = static_cast<int64_t>(record.ByteSizeLong());
  if (bytes_ + bytes > terms_.max_bytes) {
    return absl::ResourceExhaustedError(
        Cat("with it the records have ", bytes_ + bytes, " bytes; at most ", terms_.max_bytes,
            terms_.max_bytes_by.empty() ? "" : Cat(" (", terms_.max_bytes_by, ")")));
  }
  return absl::OkStatus();
}

absl::Status BundleReader::CheckRecord(const v1::CacheBundleRecord& record) const {
  if (HasUnknownFields(record)) return Invalid("it has fields that are not known here");
  if (record.has_recipe()) return CheckRecipe(record.recipe(), terms_.recipe_format);
  if (record.kind_case() == v1::CacheBundleRecord::KIND_NOT_SET) {
    return Invalid("it is neither a recipe nor a kernel, plan or search");
  }
  if (!header_.binaries()) return Invalid("the header promises that there are no binaries");
  if (record.has_plan()) return CheckPlan(record.plan());
  if (record.has_search()) return CheckSearch(record.search());
  return CheckKernel(record.kernel());
}

absl::Status BundleReader::TakeRecord(v1::CacheBundleRecord record) {
  const auto named = [&](const absl::Status& status) {
    return Prefixed(NameOf(records_.size(), record), status);
  };
  if (absl::Status status = CheckLimits(record); !status.ok()) return named(status);
  const auto bytes = static_cast<int64_t>(record.ByteSizeLong());
  const std::string link = std::move(*record.mutable_link());
  record.clear_link();
  const std::string expected = LinkOf(link_, record);
  if (link != expected) {
    return named(
        Invalid("it does not link to the record before it: it was changed, or another one was put "
                "in, left out or moved"));
  }
  if (absl::Status status = CheckRecord(record); !status.ok()) return named(status);
  link_ = expected;
  bytes_ += bytes;
  records_.push_back(std::move(record));
  return absl::OkStatus();
}

absl::Status BundleReader::TakeTrailer(const v1::CacheBundleTrailer& trailer) {
  const auto invalid = [](const auto&... pieces) {
    return Invalid("bundle: trailer: ", pieces...);
  };
  if (HasUnknownFields(trailer)) return invalid("it has fields that are not known here");
  if (trailer.records() != static_cast<int64_t>(records_.size())) {
    return invalid("records: ", trailer.records(), "; ", records_.size(), " came");
  }
  if (trailer.sha256() != SealOf(link_, trailer.records())) {
    return invalid("sha256: it does not match the header and the records");
  }
  if (header_.public_key().empty() != trailer.signature().empty()) {
    return invalid(trailer.signature().empty() ? "signature: is missing, and the header names a key"
                                               : "signature: the header names no key for it");
  }
  if (!trailer.signature().empty() &&
      !Ed25519Verify(header_.public_key(), SignedText(trailer.sha256()), trailer.signature())) {
    const std::string message = "bundle: trailer: signature: it is not by the header's key";
    return header_.binaries() ? absl::PermissionDeniedError(message)
                              : absl::InvalidArgumentError(message);
  }
  digest_ = trailer.sha256();
  state_ = State::kComplete;
  return absl::OkStatus();
}

}  // namespace athanor
