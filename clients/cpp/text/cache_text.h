// Formats the server's cache for the `cache` command: as lines for people, or as JSON with every
// field.
//
//   for (const std::string& line : CacheStatLines(stat)) out.Line(line);
#ifndef ATHANOR_CLIENTS_CPP_TEXT_CACHE_TEXT_H_
#define ATHANOR_CLIENTS_CPP_TEXT_CACHE_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor::client {

// "512 B", "1.5 MiB".
std::string BytesText(int64_t bytes);

std::vector<std::string> CacheStatLines(const v1::CacheStat& stat);
std::vector<std::string> CacheExplanationLines(const v1::BucketExplanation& bucket);
std::vector<std::string> CacheVerificationLines(const v1::CacheVerification& found);
// With `dry_run`, the lines say what would be deleted; nothing was.
std::vector<std::string> CacheGarbageLines(const v1::CollectGarbageReply& reply, bool dry_run);
std::string ImportText(const v1::ImportCacheReply& reply);

nlohmann::json CacheStatJson(const v1::CacheStat& stat);
nlohmann::json CacheExplanationJson(const v1::BucketExplanation& bucket);
nlohmann::json CacheVerificationJson(const v1::CacheVerification& found);
nlohmann::json CacheGarbageJson(const v1::CollectGarbageReply& reply, bool dry_run);
nlohmann::json ImportJson(const v1::ImportCacheReply& reply);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TEXT_CACHE_TEXT_H_
