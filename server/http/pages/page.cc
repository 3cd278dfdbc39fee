#include "server/http/pages/page.h"

#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"
#include "server/http/pages/drawing.h"
#include "server/http/pages/model_rows.h"
#include "server/http/pages/words.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

constexpr char kStyle[] =
#include "server/http/pages/page_style.inc"
    ;
constexpr char kScript[] =
#include "server/http/pages/page_script.inc"
    ;

// Draws one page.
class Page {
 public:
  explicit Page(const Json& status) : draw_(status) {}

  std::string Draw() {
    absl::StrAppend(&html_,
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                    "<title>Athanor</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>",
                    kStyle, "</style>\n</head>\n<body>\n");
    Header();
    absl::StrAppend(&html_, "<main data-shape=\"", draw_.Text("shape"),
                    "\">\n<div class=\"tiles\" data-part=\"server\">\n");
    Tiles();
    absl::StrAppend(&html_, "</div>\n");
    Models();
    absl::StrAppend(&html_, "</main>\n<footer>\n");
    Words();
    absl::StrAppend(&html_, "<p class=\"quiet small\">Counts begin when the server starts. ",
                    "<a href=\"status.json\">status.json</a> \u00b7 ",
                    "<a href=\"metrics\">metrics</a></p>\n</footer>\n<script>", kScript,
                    "</script>\n</body>\n</html>\n");
    return std::move(html_);
  }

 private:
  void Header() {
    const std::string state = draw_.At("server.state").get<std::string>();
    const char* kind = state == "serving" ? "good" : state == "draining" ? "busy" : "bad";
    absl::StrAppend(&html_, "<header><h1>Athanor</h1><span class=\"quiet\">",
                    draw_.Text("server.version"), "</span><span data-part=\"state\">",
                    Mark(state, kind), "</span><span class=\"quiet\">up ",
                    draw_.Field("server.uptime", "duration"), "</span>",
                    "<span class=\"quiet\" id=\"live\" role=\"status\">as of the last reload",
                    "</span></header>\n");
  }

  void BeginTile(absl::string_view title, const std::string& big, const std::string& below = "") {
    absl::StrAppend(&html_, "<section class=\"tile\"><h2>", title, "</h2><div class=\"big\">", big,
                    "</div>", below);
  }
  // Ends it with rows that are closed at first.
  void EndTile(absl::string_view summary, const std::string& rows) {
    absl::StrAppend(&html_, Closed(summary, summary, absl::StrCat("<dl>", rows, "</dl>")),
                    "</section>\n");
  }

  std::string OfMost(const char* now, const char* most, const char* as) const {
    return absl::StrCat(draw_.Field(now, as), " <span class=\"unit small\">of ",
                        draw_.Field(most, as), "</span>");
  }

  void Tiles() {
    BeginTile("Memory", OfMost("memory.used", "memory.limit", "bytes"),
              draw_.Bar("memory.used", draw_.At("memory.limit").get<double>(),
                        "memory held of its limit"));
    std::string rows;
    for (const auto& [kind, bytes] : draw_.At("memory.kinds").items()) {
      absl::StrAppend(&rows, draw_.Row(kind, absl::StrCat("memory.kinds.", kind), "bytes"));
    }
    absl::StrAppend(&rows, draw_.Row("resident", "memory.resident", "bytes"));
    EndTile("held for", rows);
    BeginTile("Calls now", OfMost("calls.now", "calls.most", "count"),
              absl::StrCat("<dl>", draw_.Row("wait for a run", "calls.queued", "count"),
                           draw_.Row("uploads now", "uploads.now", "count"),
                           draw_.Row("refused", "refused", "count"), "</dl>"));
    rows.clear();
    for (const auto& [reason, count] : draw_.At("refusals").items()) {
      absl::StrAppend(&rows, draw_.Row(Spaced(reason), absl::StrCat("refusals.", reason), "count"));
    }
    EndTile("refused for", rows);
    BeginTile("Model versions", draw_.Field("versions", "count"),
              absl::StrCat("<dl>", draw_.Row("jobs unfinished", "jobs.unfinished", "count"),
                           draw_.Row("compile workers", "server.compile_workers", "count"),
                           draw_.Row("threads", "server.threads", "count"), "</dl>"));
    absl::StrAppend(&html_, "</section>\n");
    for (size_t i = 0; i < draw_.At("devices").size(); ++i) {
      Device(absl::StrCat("devices.", i, "."));
    }
    Cache();
  }

  // A GPU has memory and clocks of its own; the CPU's memory has a tile already.
  void Device(const std::string& d) {
    const bool gpu = !draw_.Text(d + "compute_capability").empty();
    const std::string lost = draw_.Text(d + "lost");
    std::string below = absl::StrCat("<div class=\"small\">", draw_.Text(d + "chip"), "</div>");
    if (gpu) {
      absl::StrAppend(&below,
                      draw_.Bar(d + "memory.used", draw_.At(d + "memory.limit").get<double>(),
                                "device memory held of its limit"));
    }
    if (!lost.empty()) absl::StrAppend(&below, "<p class=\"error\">", lost, "</p>");
    BeginTile("Device",
              absl::StrCat(draw_.Text(d + "name"), " ", lost.empty() ? "" : Mark("lost", "bad")),
              below);
    std::string rows;
    if (gpu) {
      absl::StrAppend(&rows, draw_.Row("memory held", d + "memory.used", "bytes"),
                      draw_.Row("memory limit", d + "memory.limit", "bytes"),
                      draw_.Row("memory in all", d + "memory.all", "bytes"),
                      draw_.Row("core MHz", d + "core_mhz", "count"),
                      draw_.Row("memory MHz", d + "memory_mhz", "count"));
      absl::StrAppend(&rows,
                      Drawing::TextRow("compute capability", draw_.Text(d + "compute_capability")),
                      Drawing::TextRow("driver", absl::StrCat("CUDA ", draw_.Text(d + "driver"))));
    }
    absl::StrAppend(&rows, draw_.Row("threads", d + "threads", "count"),
                    Drawing::TextRow("compiler", draw_.Text(d + "compiler")),
                    draw_.Row("kernels", d + "kernels_compiled", "count"));
    EndTile(absl::StrCat("about ", draw_.Text(d + "name")), rows);
  }

  void Cache() {
    const Json& tiers = draw_.At("cache");
    if (tiers.empty()) return;
    BeginTile("Cache hits", draw_.Field("cache_hit_rate", "share"));
    std::string rows;
    for (const auto& [tier, counts] : tiers.items()) {
      const std::string path = absl::StrCat("cache.", tier, ".");
      absl::StrAppend(
          &rows,
          Drawing::TextRow(Spaced(tier), absl::StrCat(draw_.Field(path + "hits", "count"), " / ",
                                                      draw_.Field(path + "misses", "count"))));
    }
    EndTile("hits / misses", rows);
  }

  void Models() {
    absl::StrAppend(
        &html_, "<div class=\"bar\"><h2>Models</h2><input type=\"search\" id=\"filter\" ",
        "placeholder=\"filter by name or state\" aria-label=\"filter models by name or ",
        "state\" autocomplete=\"off\" hidden><span class=\"quiet small\" id=\"shown\" ",
        "role=\"status\"></span></div>\n<div data-part=\"models\">\n");
    const size_t count = draw_.At("models").size();
    if (count == 0) {
      None();
    } else {
      absl::StrAppend(&html_, "<table>\n", ModelHead());
      for (size_t i = 0; i < count; ++i) absl::StrAppend(&html_, ModelRows(draw_, i));
      absl::StrAppend(&html_, "</table>\n");
    }
    if (draw_.At("versions_left_out") != 0) {
      absl::StrAppend(&html_, "<p class=\"quiet\">", draw_.Field("versions_left_out", "count"),
                      " more are not listed.</p>\n");
    }
    absl::StrAppend(&html_, "</div>\n");
  }

  void None() {
    const std::string address = draw_.Text("server.address");
    absl::StrAppend(
        &html_, "<div class=\"empty\"><p>No models yet. Upload one, from a shell</p><pre>athanor ",
        address.empty() ? "" : absl::StrCat("--address ", address, " "),
        "upload model.onnx --name digits</pre><p>or from Python:</p><pre>import athanor\n",
        "client = athanor.Client(",
        address.empty() ? "" : absl::StrCat("&quot;", address, "&quot;"),
        ")\nmodel = client.upload(&quot;model.onnx&quot;, name=&quot;digits&quot;)</pre>",
        "<p class=\"quiet\">It answers about a second later, and appears here.</p></div>\n");
  }

  void Words() {
    std::string rows = "<dl class=\"words\">";
    for (const WordRow& row : WordTable()) {
      absl::StrAppend(&rows, "<dt>", Escaped(row.word), "</dt><dd>", Escaped(row.meaning), "</dd>");
    }
    absl::StrAppend(&html_, Closed("words", "What the words mean", rows + "</dl>"), "\n");
  }

  const Drawing draw_;
  std::string html_;
};

std::string HashSource(absl::string_view text) {
  return absl::StrCat("'sha256-", absl::Base64Escape(Sha256Of(text)), "'");
}

}  // namespace

std::string StatusPage(const Json& status) { return Page(status).Draw(); }

std::string StatusPagePolicy() {
  return absl::StrCat("default-src 'none'; script-src ", HashSource(kScript), "; style-src ",
                      HashSource(kStyle),
                      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

}  // namespace athanor
