#include "server/http/pages/page.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

constexpr char kStyle[] =
#include "server/http/pages/page_style.inc"
    ;
constexpr char kScript[] =
#include "server/http/pages/page_script.inc"
    ;
constexpr char kMissing[] = "\u2013";
constexpr size_t kBucketsUnfolded = 8;

std::string DurationText(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  if (s < 60) return absl::StrCat(s, " s");
  if (s < 3600) return absl::StrCat(s / 60, " min ", s % 60, " s");
  if (s < 86400) return absl::StrCat(s / 3600, " h ", s % 3600 / 60, " min");
  return absl::StrCat(s / 86400, " d ", s % 86400 / 3600, " h");
}

std::string SecondsText(double value) {
  if (value >= 60) return DurationText(value);
  if (value >= 1) return absl::StrFormat("%.2f s", value);
  if (value >= 1e-3) return absl::StrFormat("%.2f ms", value * 1e3);
  return absl::StrFormat("%.0f \u00b5s", value * 1e6);
}

std::string BytesText(double value) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  if (unit == 0 || value >= 100) return absl::StrCat(std::llround(value), " ", kUnits[unit]);
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

// Returns the name in lower case with spaces: "compile job" for "COMPILE_JOB".
std::string Words(absl::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", " "}});
}

// Draws one page. Fields carry the path of their number in the status, so that the script finds it.
class Page {
 public:
  explicit Page(const Json& status) : status_(status) {}

  std::string Draw() {
    absl::StrAppend(&html_,
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                    "<title>Athanor</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>",
                    kStyle, "</style>\n</head>\n<body>\n");
    Header();
    absl::StrAppend(&html_, "<main data-shape=\"", Text("shape"), "\">\n");
    Tiles();
    Models();
    absl::StrAppend(&html_, "</main>\n<footer class=\"quiet\">Since the server started. ",
                    "<a href=\"status.json\">status.json</a> \u00b7 ",
                    "<a href=\"metrics\">metrics</a></footer>\n<script>", kScript,
                    "</script>\n</body>\n</html>\n");
    return std::move(html_);
  }

 private:
  const Json& At(absl::string_view path) const {
    static const Json null;
    const Json* value = &status_;
    for (absl::string_view key : absl::StrSplit(path, '.')) {
      if (value->is_array()) {
        value = &value->at(std::stoul(std::string(key)));
      } else {
        auto found = value->find(std::string(key));
        if (found == value->end()) return null;
        value = &*found;
      }
    }
    return *value;
  }

  std::string Text(absl::string_view path) const {
    const Json& value = At(path);
    return value.is_string() ? Escaped(value.get_ref<const std::string&>()) : std::string();
  }

  bool Is(absl::string_view path) const {
    const Json& value = At(path);
    return value.is_boolean() && value.get<bool>();
  }

  std::string Field(absl::string_view path, absl::string_view as) const {
    return absl::StrCat("<span data-path=\"", path, "\" data-as=\"", as, "\">",
                        Escaped(Shown(At(path), as)), "</span>");
  }

  std::string Bar(absl::string_view path, double max, absl::string_view label) const {
    const Json& value = At(path);
    return absl::StrCat("<progress max=\"", max, "\" value=\"",
                        value.is_number() ? value.get<double>() : 0, "\" data-path=\"", path,
                        "\" aria-label=\"", label, "\"></progress>");
  }

  static std::string Mark(absl::string_view text, absl::string_view kind) {
    return absl::StrCat("<span class=\"mark ", kind, "\">", Escaped(text), "</span> ");
  }

  void Header() {
    const Json& state = At("server.state");
    const char* kind = state == "serving" ? "good" : state == "draining" ? "busy" : "bad";
    absl::StrAppend(&html_, "<header><h1>Athanor</h1><span class=\"quiet\">",
                    Text("server.version"), "</span>", Mark(state.get<std::string>(), kind),
                    "<span class=\"quiet\">up ", Field("server.uptime", "duration"), "</span>",
                    "<span class=\"quiet\" id=\"live\">as of the last reload</span></header>\n");
  }

  void Row(absl::string_view name, absl::string_view path, absl::string_view as) {
    absl::StrAppend(&html_, "<dt>", Escaped(name), "</dt><dd>", Field(path, as), "</dd>");
  }

  void BeginTile(absl::string_view title, const std::string& big, const std::string& below = "") {
    absl::StrAppend(&html_, "<section class=\"tile\"><h2>", Escaped(title),
                    "</h2><div class=\"big\">", big, "</div>", below, "<dl>");
  }
  void EndTile() { absl::StrAppend(&html_, "</dl></section>\n"); }

  void Tiles() {
    absl::StrAppend(&html_, "<div class=\"tiles\">\n");
    BeginTile("Memory",
              absl::StrCat(Field("memory.used", "bytes"), " <span class=\"unit small\">of ",
                           Field("memory.limit", "bytes"), "</span>"),
              Bar("memory.used", At("memory.limit").get<double>(), "memory held of its limit"));
    for (const auto& [kind, bytes] : At("memory.kinds").items()) {
      Row(kind, absl::StrCat("memory.kinds.", kind), "bytes");
    }
    Row("resident", "memory.resident", "bytes");
    EndTile();
    BeginTile("Calls now",
              absl::StrCat(Field("calls.now", "count"), " <span class=\"unit small\">of ",
                           Field("calls.most", "count"), "</span>"));
    Row("wait for a run", "calls.queued", "count");
    Row("uploads now", "uploads.now", "count");
    for (const auto& [reason, count] : At("refusals").items()) {
      Row(absl::StrCat("refused: ", Words(reason)), absl::StrCat("refusals.", reason), "count");
    }
    EndTile();
    BeginTile("Model versions", Field("versions", "count"));
    Row("compile jobs unfinished", "jobs.unfinished", "count");
    Row("compile workers", "server.compile_workers", "count");
    Row("threads", "server.threads", "count");
    EndTile();
    for (size_t i = 0; i < At("devices").size(); ++i) Device(absl::StrCat("devices.", i, "."));
    Cache();
    absl::StrAppend(&html_, "</div>\n");
  }

  void TextRow(absl::string_view name, const std::string& text) {
    absl::StrAppend(&html_, "<dt>", Escaped(name), "</dt><dd>", text.empty() ? kMissing : text,
                    "</dd>");
  }

  // A GPU has memory and clocks of its own; the CPU's memory has a tile already.
  void Device(const std::string& d) {
    const bool gpu = !Text(d + "compute_capability").empty();
    const std::string lost = Text(d + "lost");
    std::string below = absl::StrCat("<div class=\"small\">", Text(d + "chip"), "</div>");
    if (gpu) {
      absl::StrAppend(&below, Bar(d + "memory.used", At(d + "memory.limit").get<double>(),
                                  "device memory held of its limit"));
    }
    if (!lost.empty()) absl::StrAppend(&below, "<p class=\"error\">", lost, "</p>");
    BeginTile("Device",
              absl::StrCat(Text(d + "name"), " ", lost.empty() ? "" : Mark("lost", "bad")), below);
    if (gpu) {
      Row("memory held", d + "memory.used", "bytes");
      Row("memory limit", d + "memory.limit", "bytes");
      Row("memory in all", d + "memory.all", "bytes");
      Row("core MHz", d + "core_mhz", "count");
      Row("memory MHz", d + "memory_mhz", "count");
      TextRow("compute capability", Text(d + "compute_capability"));
      TextRow("driver", absl::StrCat("CUDA ", Text(d + "driver")));
    }
    Row("threads", d + "threads", "count");
    TextRow("compiler", Text(d + "compiler"));
    Row("kernels", d + "kernels_compiled", "count");
    EndTile();
  }

  void Cache() {
    const Json& tiers = At("cache");
    if (tiers.empty()) return;
    absl::StrAppend(&html_, "<section class=\"tile\"><h2>Cache: hits / misses</h2><dl>");
    for (const auto& [tier, counts] : tiers.items()) {
      const std::string path = absl::StrCat("cache.", tier, ".");
      absl::StrAppend(&html_, "<dt>", Escaped(Words(tier)), "</dt><dd>",
                      Field(path + "hits", "count"), " / ", Field(path + "misses", "count"),
                      "</dd>");
    }
    EndTile();
  }

  void Models() {
    absl::StrAppend(&html_, "<h2>Models</h2>\n");
    const size_t count = At("models").size();
    if (count == 0) {
      absl::StrAppend(&html_, "<p class=\"empty\">None yet. <code>athanor upload</code> or ",
                      "<code>Client.upload</code> brings one.</p>\n");
      return;
    }
    absl::StrAppend(&html_, "<table>\n<thead><tr>");
    for (const char* name :
         {"Model", "Plan", "Compiling and search", "Calls", "Latency", "Memory"}) {
      absl::StrAppend(&html_, "<th scope=\"col\">", name, "</th>");
    }
    absl::StrAppend(&html_, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < count; ++i) Model(absl::StrCat("models.", i, "."));
    absl::StrAppend(&html_, "</tbody>\n</table>\n");
    if (At("versions_left_out") != 0) {
      absl::StrAppend(&html_, "<p class=\"quiet\">", Field("versions_left_out", "count"),
                      " more are not listed.</p>\n");
    }
  }

  void Cell(absl::string_view label, const std::string& content) {
    absl::StrAppend(&html_, "<td data-label=\"", label, "\"><div>", content, "</div></td>\n");
  }

  void Model(const std::string& m) {
    absl::StrAppend(&html_, "<tr>\n");
    Cell("Model", NameCell(m));
    Cell("Plan", PlanCell(m));
    Cell("Search", JobCell(m));
    Cell("Calls", CallsCell(m));
    Cell("Latency", LatencyCell(m));
    Cell("Memory", MemoryCell(m));
    absl::StrAppend(&html_, "</tr>\n");
  }

  std::string NameCell(const std::string& m) const {
    const std::string state = At(m + "state").get<std::string>();
    const char* kind = state == "READY" ? "good" : state == "FAILED" ? "bad" : "busy";
    std::string cell = absl::StrCat("<p class=\"name\">", Text(m + "name"), "</p><p><span ",
                                    "class=\"quiet\">version ", Text(m + "version"), "</span> ",
                                    Mark(Words(state), kind));
    if (Is(m + "serving")) absl::StrAppend(&cell, Mark("serves", "good"));
    if (At("devices").size() > 1) absl::StrAppend(&cell, Mark(Text(m + "device"), "quiet"));
    if (Is(m + "deterministic")) absl::StrAppend(&cell, Mark("deterministic", "quiet"));
    absl::StrAppend(&cell, "</p>");
    if (const std::string error = Text(m + "error"); !error.empty()) {
      absl::StrAppend(&cell, "<p class=\"error\">", error, "</p>");
    }
    return cell;
  }

  std::string PlanCell(const std::string& m) const {
    std::string cell;
    if (At(m + "plan").is_null()) {
      cell = absl::StrCat("<p class=\"quiet\">none serves</p>");
    } else {
      cell = absl::StrCat("<p><code>", Text(m + "plan.id"), "</code></p><p class=\"small\">",
                          Text(m + "plan.kind"), Is(m + "plan.pinned") ? ", pinned" : "", "; ",
                          Field(m + "plan.kernels", "count"), " kernels, ",
                          Field(m + "plan.steps", "count"), " steps; ",
                          Field(m + "plan_swaps", "count"), " swaps</p>");
    }
    if (const std::string dims = Text(m + "dims"); !dims.empty()) {
      absl::StrAppend(&cell, "<p class=\"small quiet\"><code>", dims, "</code></p>");
    }
    absl::StrAppend(&cell, BucketList(m));
    if (const std::string why = Text(m + "batching.reason"); !why.empty()) {
      absl::StrAppend(&cell, "<p class=\"small quiet\">requests share no calls over <code>",
                      Text(m + "batching.dim"), "</code>: ", why, "</p>");
    }
    return cell;
  }

  // Lists the boxes by their ranges: the plan of each, or why the full range's plan serves it. A
  // long list is collapsed.
  std::string BucketList(const std::string& m) const {
    const Json& buckets = At(m + "buckets");
    if (buckets.empty()) return "";
    std::string items;
    size_t own = 0;
    for (const Json& bucket : buckets) {
      const auto text = [&](const char* key) {
        return Escaped(bucket.at(key).get_ref<const std::string&>());
      };
      absl::StrAppend(&items, "<li><code>", text("ranges"), "</code> ");
      const std::string reason = text("reason");
      if (bucket.at("plan").is_null()) {
        absl::StrAppend(&items, "<span class=\"quiet\">full range\u2019s plan",
                        reason.empty() ? "" : ": ", reason, "</span></li>");
        continue;
      }
      ++own;
      absl::StrAppend(&items, "<code class=\"plan\">", text("plan"), "</code>",
                      bucket.at("state") == "PINNED" ? " pinned" : "", "</li>");
    }
    const std::string summary =
        absl::StrCat(own, " of ", buckets.size(), " buckets with plans of ", "their own");
    if (At(m + "buckets_left_out") != 0) {
      absl::StrAppend(&items, "<li class=\"quiet\">", Field(m + "buckets_left_out", "count"),
                      " more are not listed</li>");
    }
    return absl::StrCat("<details class=\"small\"",
                        buckets.size() <= kBucketsUnfolded ? " open" : "", "><summary>", summary,
                        "</summary><ul class=\"buckets\">", items, "</ul></details>");
  }

  std::string JobCell(const std::string& m) const {
    if (At(m + "job").is_null()) return absl::StrCat("<p class=\"quiet\">", kMissing, "</p>");
    const bool finished = Is(m + "job.finished");
    std::string cell;
    if (finished) {
      absl::string_view reason = At(m + "job.stop_reason").get_ref<const std::string&>();
      absl::ConsumePrefix(&reason, "STOP_");
      cell = absl::StrCat("<p>ended: ", Escaped(Words(reason)), "</p>");
    } else {
      cell = absl::StrCat("<p>", Escaped(Words(At(m + "job.phase").get<std::string>())), "</p>",
                          Bar(m + "job.percent", 100, "compile job"));
    }
    if (At(m + "job.search").is_null()) {
      absl::StrAppend(&cell, "<p class=\"small quiet\">", Field(m + "job.kernels_done", "count"),
                      " of ", Field(m + "job.kernels_total", "count"), " kernels, ",
                      Field(m + "job.kernels_from_cache", "count"), " from the cache</p>");
      return cell;
    }
    absl::StrAppend(&cell, "<p class=\"small\">", Field(m + "job.search.share", "share"),
                    " of the baseline\u2019s time</p><p class=\"small quiet\">",
                    Field(m + "job.search.candidates", "count"), " candidates, ",
                    Field(m + "job.search.plans_taken", "count"), " plans taken, ",
                    Field(m + "job.search.seconds", "seconds"), " of ",
                    Text(m + "job.search.budget"), "</p>");
    return cell;
  }

  std::string CallsCell(const std::string& m) const {
    if (!Is(m + "counted_alone")) return "<p class=\"quiet\">counted with others</p>";
    std::string cell = absl::StrCat(
        "<p><span data-rate=\"", m, "requests.all\">", kMissing, "</span></p>",
        "<p class=\"small\">", Field(m + "requests.ok", "count"), " answered</p>",
        "<p class=\"small quiet\">", Field(m + "requests.failed", "count"), " failed</p>");
    if (Generates(m)) {
      const std::string path = m + "generation.";
      absl::StrAppend(&cell, "<p class=\"small\">", Field(path + "running", "count"), " running, ",
                      Field(path + "waiting", "count"), " waiting, ",
                      Field(path + "paused", "count"),
                      " paused</p><p class=\"small quiet\">tokens ", "<span data-rate=\"", path,
                      "generated_tokens\">", kMissing, "</span></p>");
    }
    if (Is(m + "batching.on")) {
      absl::StrAppend(&cell, "<p class=\"small quiet\">", Field(m + "batching.rows_mean", "mean"),
                      " rows a run</p>");
    }
    return cell;
  }

  std::string LatencyCell(const std::string& m) const {
    if (!Is(m + "counted_alone")) return "<p class=\"quiet\">counted with others</p>";
    if (Generates(m)) {
      const std::string path = m + "generation.";
      return absl::StrCat("<div class=\"times small\">", Times("TTFT", path + "ttft.", "p95"),
                          Times("TPOT", path + "tpot.", "p95"),
                          Times("call", m + "latency.call.", "p99"),
                          Times("stall", m + "latency.stall.", "p99"), "</div>");
    }
    std::string cell = "<div class=\"times small\">";
    struct Line {
      const char* name;
      const char* key;
    };
    for (const Line& line : {Line{"call", "call"}, Line{"queue", "queue"}, Line{"batch", "batch"},
                             Line{"run", "exec"}, Line{"stall", "stall"}}) {
      cell += Times(line.name, absl::StrCat(m, "latency.", line.key, "."), "p99");
    }
    return cell + "</div>";
  }

  std::string Times(absl::string_view name, const std::string& path, absl::string_view high) const {
    return absl::StrCat("<span class=\"quiet\">", name, "</span><span>",
                        Field(path + "p50", "seconds"), " <span class=\"unit\">p50</span> ",
                        Field(absl::StrCat(path, high), "seconds"), " <span class=\"unit\">", high,
                        "</span></span>");
  }

  // Reports whether it is a language model, whose calls are streams of tokens.
  bool Generates(const std::string& m) const { return At(m + "generation").is_object(); }

  std::string MemoryCell(const std::string& m) const {
    const std::string path = m + "memory.";
    std::string cell = absl::StrCat(
        "<p>", Field(path + "all", "bytes"), "</p><p class=\"small quiet\">",
        Field(path + "parameters", "bytes"), " parameters, ", Field(path + "prepared", "bytes"),
        " prepared, ", Field(path + "arenas", "bytes"), " arenas</p>");
    if (!Generates(m)) return cell;
    const std::string g = m + "generation.";
    absl::StrAppend(
        &cell, "<p class=\"small\">", Field(g + "kv_bytes", "bytes"),
        " keys and values</p><p class=\"small quiet\">", Field(g + "blocks_used", "count"), " of ",
        Field(g + "blocks", "count"), " blocks</p>",
        Bar(g + "blocks_used", At(g + "blocks").get<double>(), "blocks of keys and values in use"));
    return cell;
  }

  const Json& status_;
  std::string html_;
};

std::string HashSource(absl::string_view text) {
  return absl::StrCat("'sha256-", absl::Base64Escape(Sha256Of(text)), "'");
}

}  // namespace

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string Shown(const nlohmann::json& value, absl::string_view as) {
  if (!value.is_number()) return kMissing;
  const double number = value.get<double>();
  if (as == "bytes") return BytesText(number);
  if (as == "share") return absl::StrFormat("%.1f %%", number * 100);
  if (as == "mean") return absl::StrFormat("%.1f", number);
  if (as == "seconds") return SecondsText(number);
  if (as == "duration") return DurationText(number);
  return value.is_number_float() ? absl::StrCat(number) : absl::StrCat(value.get<int64_t>());
}

std::string StatusPage(const nlohmann::json& status) { return Page(status).Draw(); }

std::string StatusPagePolicy() {
  return absl::StrCat("default-src 'none'; script-src ", HashSource(kScript), "; style-src ",
                      HashSource(kStyle),
                      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

}  // namespace athanor
