#include "server/http/pages/model_rows.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/http/pages/chart.h"
#include "server/http/pages/words.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

struct Column {
  const char* label;
  const char* word;  // with a meaning
  // Path below the model, by which the script sorts; "rate " before it: by its speed; "latency "
  // before it: below the latency that the row shows.
  const char* sort;
};
constexpr Column kColumns[] = {
    {"Model", "model", "name"},
    {"State", "compile job", "state"},
    {"Calls/s", "calls/s", "rate requests.all"},
    {"p50", "p50", "latency p50"},
    {"p99", "p99", "latency p99"},
    {"Last 10 min", "last 10 minutes", ""},
    {"Memory", "", "memory.all"},
};
constexpr size_t kColumnCount = std::size(kColumns);

class Rows {
 public:
  Rows(const Drawing& draw, size_t index)
      : draw_(draw),
        m_(absl::StrCat("models.", index, ".")),
        key_(absl::StrCat(draw.Text(m_ + "name"), "/", draw.Text(m_ + "version"))),
        generates_(draw.At(m_ + "generation").is_object()),
        latency_(m_ + (generates_ ? "generation.ttft." : "latency.call.")),
        index_(index) {}

  std::string Draw() {
    html_ =
        absl::StrCat("<tbody data-key=\"", key_, "\" data-index=\"", index_, "\" data-latency=\"",
                     generates_ ? "generation.ttft" : "latency.call", "\">\n<tr>");
    Cell(0, "name",
         absl::StrCat("<details data-key=\"", key_, "\"><summary>", draw_.Text(m_ + "name"),
                      " <span class=\"quiet\">v", draw_.Text(m_ + "version"),
                      "</span></summary></details>", Error()));
    Cell(1, "state", State());
    Cell(2, "number", Speed());
    Cell(3, "number", Alone(draw_.Field(latency_ + "p50", "seconds")) + Ttft());
    Cell(4, "number", Alone(draw_.Field(latency_ + "p99", "seconds")) + Ttft());
    const Json& history = draw_.At(m_ + "history");
    Cell(5, "recent", history.empty() ? "" : SmallChart(history[0]));
    Cell(6, "number", draw_.Field(m_ + "memory.all", "bytes"));
    absl::StrAppend(&html_, "</tr>\n<tr class=\"more\"><td colspan=\"", kColumnCount,
                    "\"><div class=\"parts\">\n");
    Plan();
    Job();
    Calls();
    Latencies();
    if (generates_) Engine();
    Memory();
    absl::StrAppend(&html_, "</div>\n<div class=\"charts\">");
    for (const Json& series : history) absl::StrAppend(&html_, LargeChart(series), "\n");
    absl::StrAppend(&html_, "</div>\n");
    Buckets();
    absl::StrAppend(&html_, "</td></tr>\n</tbody>\n");
    return std::move(html_);
  }

 private:
  void Cell(size_t column, const char* kind, const std::string& content) {
    absl::StrAppend(&html_, "<td class=\"", kind, "\" data-label=\"", kColumns[column].label, "\">",
                    content, "</td>");
  }

  // Returns a figure of this version alone; a dash where others are counted with it.
  std::string Alone(std::string figure) const {
    return draw_.Is(m_ + "counted_alone") ? std::move(figure) : std::string(kMissing);
  }

  std::string Ttft() const {
    return generates_ ? absl::StrCat(" <span class=\"unit\">", Word("TTFT"), "</span>") : "";
  }

  std::string Error() const {
    const std::string error = draw_.Text(m_ + "error");
    return error.empty() ? "" : absl::StrCat("<p class=\"error\">", error, "</p>");
  }

  std::string State() const {
    const std::string state = draw_.At(m_ + "state").get<std::string>();
    const bool serves = draw_.Is(m_ + "serving"), ready = state == "READY";
    const bool works = !draw_.IsNull(m_ + "job") && !draw_.Is(m_ + "job.finished");
    std::string cell;
    // The phase of its job says more than that it compiles.
    if (ready ? !serves : !works) {
      cell = Mark(Spaced(state), ready ? "good" : state == "FAILED" ? "bad" : "busy");
    }
    if (serves) absl::StrAppend(&cell, Mark("serves", "good"));
    if (!works) return cell;
    return absl::StrCat(cell, Mark(Spaced(draw_.At(m_ + "job.phase").get<std::string>()), "busy"),
                        JobBar());
  }

  // A search is as far as its time; other phases have shares of the work.
  std::string JobBar() const {
    const Json& budget = draw_.At(m_ + "job.search.budget_seconds");
    return budget.is_number()
               ? draw_.Bar(m_ + "job.search.seconds", budget.get<double>(), "time of the search")
               : draw_.Bar(m_ + "job.percent", 100, "compile job");
  }

  std::string Speed() const {
    if (!draw_.Is(m_ + "counted_alone")) return kMissing;
    std::string cell = Drawing::Rate(m_ + "requests.all");
    if (generates_) {
      absl::StrAppend(&cell, " <span class=\"unit\">",
                      Drawing::Rate(m_ + "generation.generated_tokens"), " ", Word("tokens/s"),
                      "</span>");
    }
    return cell;
  }

  void Begin(absl::string_view word) {
    absl::StrAppend(&html_, "<section><h3>", Word(word), "</h3><dl>");
  }
  void Row(absl::string_view word, const std::string& path, absl::string_view as) {
    absl::StrAppend(&html_, draw_.Row(word, m_ + path, as));
  }
  void TextRow(absl::string_view word, absl::string_view text) {
    absl::StrAppend(&html_, Drawing::TextRow(word, text));
  }
  void End(const std::string& below = "") {
    absl::StrAppend(&html_, "</dl>", below, "</section>\n");
  }

  void Plan() {
    Begin("plan");
    if (draw_.IsNull(m_ + "plan")) {
      TextRow("plan", "none serves");
    } else {
      const std::string kind = draw_.Text(m_ + "plan.kind");
      TextRow(kind.empty() ? "plan" : kind,
              absl::StrCat("<code>", draw_.Text(m_ + "plan.id"), "</code>",
                           draw_.Is(m_ + "plan.pinned") ? " pinned" : ""));
      Row("kernels", "plan.kernels", "count");
      Row("steps", "plan.steps", "count");
      Row("swaps", "plan_swaps", "count");
    }
    if (const std::string dims = draw_.Text(m_ + "dims"); !dims.empty()) {
      TextRow("dims", absl::StrCat("<code>", dims, "</code>"));
    }
    TextRow("device", draw_.Text(m_ + "device"));
    if (draw_.Is(m_ + "deterministic")) TextRow("deterministic", "yes");
    std::string below;
    if (const std::string why = draw_.Text(m_ + "batching.reason"); !why.empty()) {
      absl::StrAppend(&below, "<p class=\"small quiet\">requests share no calls over <code>",
                      draw_.Text(m_ + "batching.dim"), "</code>: ", why, "</p>");
    }
    End(below);
  }

  void Job() {
    Begin("compile job");
    if (draw_.IsNull(m_ + "job")) {
      TextRow("compile job", "none since the start");
      return End();
    }
    if (draw_.Is(m_ + "job.finished")) {
      absl::string_view reason = draw_.At(m_ + "job.stop_reason").get_ref<const std::string&>();
      absl::ConsumePrefix(&reason, "STOP_");
      TextRow("ended", Escaped(Spaced(reason)));
    } else {
      TextRow("now", Escaped(Spaced(draw_.At(m_ + "job.phase").get<std::string>())));
    }
    Row("time", "job.elapsed", "duration");
    TextRow("kernels", absl::StrCat(draw_.Field(m_ + "job.kernels_done", "count"), " of ",
                                    draw_.Field(m_ + "job.kernels_total", "count")));
    Row("from the cache", "job.kernels_from_cache", "count");
    if (!draw_.IsNull(m_ + "job.search")) {
      TextRow("search", absl::StrCat(draw_.Field(m_ + "job.search.seconds", "duration"), " of ",
                                     draw_.Text(m_ + "job.search.budget")));
      Row("candidates", "job.search.candidates", "count");
      Row("plans taken", "job.search.plans_taken", "count");
      Row("time over baseline's", "job.search.share", "share");
      Row("roofline", "job.search.roofline", "share");
    }
    End(draw_.Is(m_ + "job.finished") ? "" : JobBar());
  }

  void Calls() {
    Begin("call");
    if (!draw_.Is(m_ + "counted_alone")) {
      TextRow("answered", "counted with others");
      return End();
    }
    TextRow("calls/s", Drawing::Rate(m_ + "requests.all"));
    Row("answered", "requests.ok", "count");
    Row("failed", "requests.failed", "count");
    if (draw_.Is(m_ + "batching.on")) Row("rows a run", "batching.rows_mean", "mean");
    End();
  }

  void Latencies() {
    if (!draw_.Is(m_ + "counted_alone")) return;
    absl::StrAppend(&html_, "<section><h3>Latency</h3><div class=\"times\"><span></span><span>",
                    Word("p50"), "</span><span>", Word("p99"), "</span>");
    const auto line = [this](absl::string_view word, const std::string& path) {
      absl::StrAppend(&html_, "<span>", Word(word), "</span>",
                      draw_.Field(m_ + path + ".p50", "seconds"),
                      draw_.Field(m_ + path + ".p99", "seconds"));
    };
    if (generates_) {
      line("TTFT", "generation.ttft");
      line("ITL", "generation.itl");
      line("TPOT", "generation.tpot");
    }
    line("call", "latency.call");
    if (!generates_) {
      line("queue", "latency.queue");
      line("batch", "latency.batch");
      line("run", "latency.exec");
    }
    line("stall", "latency.stall");
    absl::StrAppend(&html_, "</div></section>\n");
  }

  void Engine() {
    Begin("engine");
    Row("running", "generation.running", "count");
    Row("waiting", "generation.waiting", "count");
    Row("paused", "generation.paused", "count");
    TextRow("tokens/s", Drawing::Rate(m_ + "generation.generated_tokens"));
    Row("prefix hits", "generation.hit_rate", "share");
    TextRow("blocks", absl::StrCat(draw_.Field(m_ + "generation.blocks_used", "count"), " of ",
                                   draw_.Field(m_ + "generation.blocks", "count")));
    Row("keys and values", "generation.kv_bytes", "bytes");
    End(draw_.Bar(m_ + "generation.blocks_used", draw_.At(m_ + "generation.blocks").get<double>(),
                  "blocks of keys and values in use"));
  }

  void Memory() {
    absl::StrAppend(&html_, "<section><h3>Memory</h3><dl>");
    Row("parameters", "memory.parameters", "bytes");
    Row("prepared", "memory.prepared", "bytes");
    Row("arenas", "memory.arenas", "bytes");
    End();
  }

  // Lists the boxes by their ranges: the plan of each, or why the full range's plan serves it.
  void Buckets() {
    const Json& buckets = draw_.At(m_ + "buckets");
    if (buckets.empty()) return;
    std::string items = "<ul class=\"buckets\">";
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
    if (draw_.At(m_ + "buckets_left_out") != 0) {
      absl::StrAppend(&items, "<li class=\"quiet\">", draw_.Field(m_ + "buckets_left_out", "count"),
                      " more are not listed</li>");
    }
    const std::string summary =
        absl::StrCat(own, " of ", buckets.size(), " ", Word("buckets"), " with plans of their own");
    absl::StrAppend(&html_, "<details class=\"small\" data-key=\"", key_, " buckets\"><summary>",
                    summary, "</summary>", items, "</ul></details>");
  }

  const Drawing& draw_;
  const std::string m_;    // path of the model, with a dot behind it
  const std::string key_;  // name and version, escaped
  const bool generates_;   // a language model, whose calls are streams of tokens
  const std::string latency_;
  const size_t index_;
  std::string html_;
};

}  // namespace

std::string ModelHead() {
  std::string head = "<thead><tr>";
  for (const Column& column : kColumns) {
    const absl::string_view meaning = MeaningOf(column.word);
    absl::StrAppend(&head, "<th scope=\"col\"");
    if (absl::string_view(column.sort) == "name")
      absl::StrAppend(&head, " aria-sort=\"ascending\"");
    absl::StrAppend(&head, "><button type=\"button\" disabled title=\"", meaning, "\" data-sort=\"",
                    column.sort, "\">", column.label, "</button></th>");
  }
  return head + "</tr></thead>\n";
}

std::string ModelRows(const Drawing& draw, size_t index) { return Rows(draw, index).Draw(); }

}  // namespace athanor
