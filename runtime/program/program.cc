#include "runtime/program/program.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/device/kernel_abi.h"
#include "runtime/program/checked_call.h"

namespace athanor {
namespace {

constexpr uint32_t kFormat = 1;
constexpr uint32_t kFormatWithLoops = 2;
constexpr uint32_t kFormatWithCalls = 3;
constexpr uint32_t kFormatWithZeroed = 4;
constexpr uint32_t kFormatWithStates = 5;
// A cache line, and the widest vector register.
constexpr int64_t kAlignment = 64;
constexpr uint32_t kWaveThreads = 32;
// More than any address space; sums of two are far from overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 56;

class Builder {
 public:
  explicit Builder(const v1::Plan& plan) : plan_(plan) {}

  absl::StatusOr<Program> Build() {
    absl::Status status = Dims();
    if (status.ok()) status = Kernels();
    if (status.ok()) status = Buffers();
    if (status.ok()) status = Loops();
    if (status.ok()) status = Steps(plan_.prepare(), "prepare", program_.prepare);
    if (status.ok()) status = Steps(plan_.run(), "run", program_.run);
    if (status.ok()) status = LoopUses();
    if (status.ok()) status = Outputs();
    if (status.ok()) Uses();
    if (status.ok()) Touches();
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan '", plan_.plan_id(), "': ", status.message()));
    }
    return std::move(program_);
  }

 private:
  static absl::Status Bad(absl::string_view where, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
  }

  absl::Status Dims() {
    const bool calls = std::any_of(plan_.run().begin(), plan_.run().end(),
                                   [](const v1::Step& step) { return step.has_library_call(); });
    const bool zeroed = std::any_of(plan_.buffers().begin(), plan_.buffers().end(),
                                    [](const v1::Buffer& buffer) { return buffer.zeroed(); });
    const bool states =
        std::any_of(plan_.buffers().begin(), plan_.buffers().end(),
                    [](const v1::Buffer& buffer) { return buffer.kind() == v1::Buffer::STATE; });
    const uint32_t format = states                  ? kFormatWithStates
                            : zeroed                ? kFormatWithZeroed
                            : calls                 ? kFormatWithCalls
                            : plan_.loops().empty() ? kFormat
                                                    : kFormatWithLoops;
    if (plan_.format() != format) {
      return Bad("format",
                 absl::StrCat("is ", plan_.format(), ", this runtime reads ", kFormat,
                              ", or with loops ", kFormatWithLoops, ", or with library calls ",
                              kFormatWithCalls, ", or with zeroed buffers ", kFormatWithZeroed,
                              ", or with states ", kFormatWithStates));
    }
    program_.plan_id = plan_.plan_id();
    program_.kernels = plan_.kernels_size();
    program_.arena_bytes = plan_.arena_bytes();
    if (plan_.arena_bytes() < 0 || plan_.arena_bytes() > kMaxBytes) {
      return Bad("arena_bytes", absl::StrCat("is ", plan_.arena_bytes()));
    }
    std::vector<SizeDim> dims;
    std::set<std::string> names;
    for (const v1::DimRange& dim : plan_.dims()) {
      const std::string where = absl::StrCat("dim '", dim.name(), "'");
      if (!names.insert(dim.name()).second) return Bad(where, "is there twice");
      if (dim.min() < 0 || dim.min() > dim.max()) {
        return Bad(where, absl::StrCat("has the range ", dim.min(), "..", dim.max()));
      }
      dims.push_back({dim.name(), dim.min(), dim.max()});
    }
    program_.sizes = SizeTable(std::move(dims));
    return absl::OkStatus();
  }

  absl::StatusOr<int> Size(const v1::SizeExpr& expr, absl::string_view where,
                           absl::string_view field) {
    absl::StatusOr<int> size = program_.sizes.Add(expr);
    if (size.ok()) return size;
    return Bad(absl::StrCat(where, " ", field), size.status().message());
  }

  absl::Status Kernels() const {
    for (int i = 0; i < plan_.kernels_size(); ++i) {
      const uint32_t team = plan_.kernels(i).team();
      const bool part = team <= kWaveThreads && (team & (team - 1)) == 0;
      if (part || team == kCudaBlockThreads) continue;
      return Bad(absl::StrCat("kernel ", i, " '", plan_.kernels(i).name(), "'"),
                 absl::StrCat("team is ", team, "; it must be a power of two up to ", kWaveThreads,
                              ", or ", kCudaBlockThreads));
    }
    return absl::OkStatus();
  }

  absl::Status Buffers() {
    for (int i = 0; i < plan_.buffers_size(); ++i) {
      const v1::Buffer& from = plan_.buffers(i);
      const std::string where = absl::StrCat("buffer ", i);
      Program::Buffer to{from.kind(), from.name(), from.dtype(), {}, 0, -1};
      for (const v1::SizeExpr& extent : from.shape()) {
        ASSIGN_OR_RETURN(int size, Size(extent, where, "shape"));
        to.shape_sizes.push_back(size);
      }
      ASSIGN_OR_RETURN(to.bytes_size, Size(from.bytes(), where, "bytes"));
      to.zeroed = from.zeroed();
      if (to.zeroed && to.kind != v1::Buffer::ARENA) {
        return Bad(where, absl::StrCat("of kind ", v1::Buffer::Kind_Name(to.kind),
                                       " is zeroed; only those of the ARENA are"));
      }
      to.layout = from.layout();
      absl::Status status = Place(from, i, to);
      if (!status.ok()) return Bad(where, status.message());
      program_.buffers.push_back(std::move(to));
    }
    std::sort(program_.arena_buffers.begin(), program_.arena_buffers.end(), [&](int a, int b) {
      const int64_t x = program_.buffers[a].place;
      const int64_t y = program_.buffers[b].place;
      return x != y ? x < y : a < b;
    });
    return absl::OkStatus();
  }

  absl::Status Place(const v1::Buffer& from, int index, Program::Buffer& to) {
    switch (from.kind()) {
      case v1::Buffer::INPUT:
        to.place = program_.inputs.size();
        program_.inputs.push_back(index);
        return absl::OkStatus();
      case v1::Buffer::OUTPUT:
        return absl::OkStatus();  // Outputs() sets its place
      case v1::Buffer::PARAMETER:
        to.place = program_.parameters.size();
        program_.parameters.push_back(index);
        return FixedBytes(to).status();
      case v1::Buffer::CONSTANT:
      case v1::Buffer::PREPARED:
        return PlaceFixed(from, index, to);
      case v1::Buffer::WINDOW:
        return absl::OkStatus();  // Loops() sets its place
      case v1::Buffer::STATE:
        return PlaceState(index, to);
      case v1::Buffer::ARENA:
        to.place = from.arena_offset();
        program_.arena_buffers.push_back(index);
        if (to.place < 0 || to.place % kAlignment != 0 || to.place > program_.arena_bytes) {
          return absl::InvalidArgumentError(
              absl::StrCat("arena_offset is ", to.place, ", must be a multiple of ", kAlignment,
                           " within the arena of ", program_.arena_bytes));
        }
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("kind ", static_cast<int>(from.kind()), " is unknown to this runtime"));
    }
  }

  absl::Status PlaceState(int index, Program::Buffer& to) {
    for (const int other : program_.states) {
      if (program_.buffers[other].name == to.name) {
        return absl::InvalidArgumentError(
            absl::StrCat("state '", to.name, "' is buffer ", other, " already"));
      }
    }
    if (to.shape_sizes.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("state '", to.name, "' has no axis; the first one counts its slots"));
    }
    to.place = program_.states.size();
    program_.states.push_back(index);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> FixedBytes(const Program::Buffer& buffer) {
    const SizeRange range = program_.sizes.range(buffer.bytes_size);
    if (!program_.sizes.constant(buffer.bytes_size) || range.min < 0 || range.max > kMaxBytes) {
      return absl::InvalidArgumentError(absl::StrCat("bytes must be a number from 0 to ", kMaxBytes,
                                                     " without dims: the buffer outlives a call"));
    }
    return range.min;
  }

  absl::Status PlaceFixed(const v1::Buffer& from, int index, Program::Buffer& to) {
    ASSIGN_OR_RETURN(int64_t bytes, FixedBytes(to));
    if (from.kind() == v1::Buffer::CONSTANT &&
        static_cast<int64_t>(from.literal().size()) != bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("literal has ", from.literal().size(), " bytes, but `bytes` is ", bytes));
    }
    to.place = program_.fixed.size();
    program_.fixed.push_back({index, bytes});
    fixed_bytes_ += bytes + kAlignment;
    if (fixed_bytes_ > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("prepared buffers exceed ", kMaxBytes, " bytes"));
    }
    return absl::OkStatus();
  }

  template <typename ProtoSteps>
  absl::Status Steps(const ProtoSteps& from, absl::string_view part,
                     std::vector<Program::Step>& to) {
    for (int i = 0; i < from.size(); ++i) {
      const std::string where = absl::StrCat(part, " step ", i, " '", from[i].label(), "'");
      ASSIGN_OR_RETURN(Program::Step step, OneStep(from[i], where));
      if (from[i].has_library_call() != plan_.kernels(step.kernel).library_call()) {
        return Bad(where, absl::StrCat("has ", from[i].has_library_call() ? "a" : "no",
                                       " library_call, and kernel ", step.kernel, " is ",
                                       from[i].has_library_call() ? "none" : "one"));
      }
      if (from[i].has_library_call()) {
        if (part == "prepare") {
          return Bad(where, "has a library_call, which only steps of `run` may have");
        }
        RETURN_IF_ERROR(AddCall(from[i], where, step));
      }
      if (part == "prepare") {
        absl::Status status = CheckPrepare(step, where);
        if (!status.ok()) return status;
      }
      to.push_back(std::move(step));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Program::Step> OneStep(const v1::Step& from, absl::string_view where) {
    if (from.kernel() >= static_cast<uint32_t>(plan_.kernels_size())) {
      return Bad(where, absl::StrCat("kernel ", from.kernel(), " of ", plan_.kernels_size()));
    }
    if (from.scratch_bytes() < 0 || from.scratch_bytes() > kMaxBytes) {
      return Bad(where, absl::StrCat("scratch_bytes is ", from.scratch_bytes()));
    }
    program_.scratch_bytes = std::max(program_.scratch_bytes, from.scratch_bytes());
    Program::Step to;
    to.label = from.label();
    to.kernel = static_cast<int>(from.kernel());
    to.team = std::max(static_cast<int>(plan_.kernels(to.kernel).team()), 1);
    to.first_buffer = program_.buffer_refs.size();
    to.buffers = from.buffers_size();
    for (const uint32_t buffer : from.buffers()) {
      if (buffer >= static_cast<uint32_t>(plan_.buffers_size())) {
        return Bad(where, absl::StrCat("buffer ", buffer, " of ", plan_.buffers_size()));
      }
      program_.buffer_refs.push_back(buffer);
    }
    to.first_size = program_.size_refs.size();
    to.sizes = from.sizes_size();
    for (const v1::SizeExpr& expr : from.sizes()) {
      ASSIGN_OR_RETURN(int size, Size(expr, where, "sizes"));
      program_.size_refs.push_back(size);
    }
    const std::pair<const v1::SizeExpr*, int*> rest[] = {{&from.grid(), &to.grid_size},
                                                         {&from.flops(), &to.flops_size},
                                                         {&from.moved_bytes(), &to.moved_size}};
    const absl::string_view names[] = {"grid", "flops", "moved_bytes"};
    for (int i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(int size, Size(*rest[i].first, where, names[i]));
      *rest[i].second = size;
    }
    return to;
  }

  // Checks a step that calls the library, and completes it. What it touches must lie inside its
  // buffers: no kernel compares its indices.
  absl::Status AddCall(const v1::Step& from, absl::string_view where, Program::Step& step) {
    if (from.sizes_size() != 0 || from.scratch_bytes() != 0) {
      return Bad(where, "has a library_call, and sizes or scratch_bytes beside it");
    }
    const SizeRange grid = program_.sizes.range(step.grid_size);
    if (grid.min != 1 || grid.max != 1) {
      return Bad(where, absl::StrCat("calls a library with a grid of ", grid.min, " to ", grid.max,
                                     "; it must be 1"));
    }
    ASSIGN_OR_RETURN(const int rows_size, Size(from.library_call().rows(), where, "rows"));
    const SizeRange rows = program_.sizes.range(rows_size);
    if (rows.min < 0) return Bad(where, absl::StrCat("library_call.rows are down to ", rows.min));
    std::vector<CallBuffer> buffers;
    for (int i = 0; i < step.buffers; ++i) {
      const Program::Buffer& buffer = program_.buffers[program_.buffer_refs[step.first_buffer + i]];
      buffers.push_back({buffer.dtype, OwnBytes(buffer, /*all=*/rows.min != rows.max)});
    }
    absl::StatusOr<std::vector<LibraryCall>> ways =
        CheckedCall(from.library_call(), rows.max, buffers);
    if (!ways.ok()) return Bad(where, ways.status().message());
    const int count = static_cast<int>(ways->size());
    if (count > 1 && program_.levels > 1 && count != program_.levels) {
      return Bad(where, absl::StrCat("calls a library in ", count, " ways, an earlier step in ",
                                     program_.levels, "; they must be as many, or one"));
    }
    program_.levels = std::max(program_.levels, count);
    for (int i = 0; i < step.buffers; ++i) RETURN_IF_ERROR(CheckCallBuffer(from, where, i));
    step.call = static_cast<int>(program_.calls.size());
    program_.calls.push_back({rows_size, *std::move(ways)});
    return absl::OkStatus();
  }

  // Returns the bytes that a buffer has at every size of the bucket; `all`: at the largest one, for
  // which it has its place at every size.
  int64_t OwnBytes(const Program::Buffer& buffer, bool all) const {
    const SizeRange range = program_.sizes.range(buffer.bytes_size);
    const int64_t bytes = std::max<int64_t>(0, all ? range.max : range.min);
    return buffer.kind == v1::Buffer::ARENA ? std::min(bytes, program_.arena_bytes - buffer.place)
                                            : bytes;
  }

  // Finds what calls touch of their buffers at each level.
  void Touches() {
    for (const Program::Step& step : program_.run) {
      if (step.call < 0) continue;
      for (int level = 0; level < program_.levels; ++level) {
        const TouchedBytes touched = TouchedBy(program_.calls[step.call].at(level));
        for (int i = 0; i < step.buffers; ++i) {
          std::vector<int64_t>& most =
              program_.buffers[program_.buffer_refs[step.first_buffer + i]].touched;
          most.resize(program_.levels);
          // A way without workspace has one buffer less.
          if (i < static_cast<int>(touched.size())) most[level] = std::max(most[level], touched[i]);
        }
      }
    }
  }

  // Checks the kind of the i-th buffer of a library call.
  absl::Status CheckCallBuffer(const v1::Step& from, absl::string_view where, int i) const {
    const auto kind = [&](uint32_t buffer) {
      return plan_.buffers(static_cast<int>(buffer)).kind();
    };
    const uint32_t buffer = from.buffers(i);
    const bool workspace = i == (from.library_call().bias() ? 4 : 3);
    const auto wrong = [&](absl::string_view why) {
      return Bad(where, absl::StrCat("uses buffer ", buffer, " of kind ",
                                     v1::Buffer::Kind_Name(kind(buffer)), why));
    };
    if (kind(buffer) == v1::Buffer::WINDOW) {
      return wrong("; a library call keeps its addresses, and a WINDOW moves");
    }
    if (workspace && kind(buffer) != v1::Buffer::ARENA) {
      return wrong(" as workspace; that must be in the ARENA");
    }
    if (workspace && program_.buffers[buffer].place % kWorkspaceAlignment != 0) {
      return wrong(absl::StrCat(" at ", program_.buffers[buffer].place,
                                " as workspace; that must be at a multiple of ",
                                kWorkspaceAlignment));
    }
    if (i == 0 && kind(buffer) != v1::Buffer::ARENA && kind(buffer) != v1::Buffer::OUTPUT) {
      return wrong(" as result; only ARENA and OUTPUT can be written");
    }
    if (std::count(from.buffers().begin(), from.buffers().end(), buffer) > 1 &&
        (i == 0 || workspace)) {
      return wrong(" twice, and writes it");
    }
    return absl::OkStatus();
  }

  // Prepare runs once, before any call, so no buffer of a call exists yet.
  absl::Status CheckPrepare(const Program::Step& step, absl::string_view where) {
    for (int i = 0; i < step.buffers; ++i) {
      const int buffer = program_.buffer_refs[step.first_buffer + i];
      const v1::Buffer::Kind kind = program_.buffers[buffer].kind;
      if (kind != v1::Buffer::PARAMETER && kind != v1::Buffer::CONSTANT &&
          kind != v1::Buffer::PREPARED) {
        return Bad(where,
                   absl::StrCat("uses buffer ", buffer, " of kind ", v1::Buffer::Kind_Name(kind),
                                "; only PARAMETER, CONSTANT and "
                                "PREPARED are there before a call"));
      }
    }
    bool constant = program_.sizes.constant(step.grid_size);
    for (int i = 0; i < step.sizes; ++i) {
      constant &= program_.sizes.constant(program_.size_refs[step.first_size + i]);
    }
    if (!constant) return Bad(where, "sizes and grid must be without dims");
    return absl::OkStatus();
  }

  absl::Status Outputs() {
    for (int i = 0; i < plan_.outputs_size(); ++i) {
      const v1::PlanOutput& from = plan_.outputs(i);
      if (from.buffer() >= static_cast<uint32_t>(plan_.buffers_size())) {
        return Bad(absl::StrCat("output '", from.name(), "'"),
                   absl::StrCat("buffer ", from.buffer(), " of ", plan_.buffers_size()));
      }
      Program::Buffer& buffer = program_.buffers[from.buffer()];
      if (buffer.kind == v1::Buffer::WINDOW) {
        return Bad(absl::StrCat("output '", from.name(), "'"),
                   absl::StrCat("buffer ", from.buffer(),
                                " is a WINDOW, which exists only during its loop's steps"));
      }
      const bool own = buffer.kind == v1::Buffer::OUTPUT && buffer.place < 0;
      if (own) buffer.place = i;
      program_.outputs.push_back({from.name(), static_cast<int>(from.buffer()), !own});
    }
    for (int i = 0; i < plan_.buffers_size(); ++i) {
      const Program::Buffer& buffer = program_.buffers[i];
      if (buffer.kind == v1::Buffer::OUTPUT && buffer.place < 0) {
        return Bad(absl::StrCat("buffer ", i, " '", buffer.name, "'"),
                   "has kind OUTPUT, but no output uses it");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Window(uint32_t buffer, int loop, const std::string& where) {
    if (buffer >= static_cast<uint32_t>(plan_.buffers_size())) {
      return Bad(where, absl::StrCat("buffer ", buffer, " of ", plan_.buffers_size()));
    }
    Program::Buffer& window = program_.buffers[buffer];
    if (window.kind != v1::Buffer::WINDOW || window.place >= 0) {
      return Bad(where, absl::StrCat("buffer ", buffer, " is not a WINDOW, or is placed twice"));
    }
    window.place = loop;
    return absl::OkStatus();
  }

  // Checks a buffer that a loop slices or carries: a WINDOW must be that of a loop around it.
  absl::Status Around(uint32_t buffer, const Program::Loop& loop, bool written,
                      const std::string& where) {
    if (buffer >= static_cast<uint32_t>(plan_.buffers_size())) {
      return Bad(where, absl::StrCat("buffer ", buffer, " of ", plan_.buffers_size()));
    }
    const Program::Buffer& at = program_.buffers[buffer];
    if (at.kind == v1::Buffer::WINDOW) {
      const Program::Loop* outer = at.place < 0 ? nullptr : &program_.loops[at.place];
      if (outer == nullptr || outer == &loop || outer->first > loop.first ||
          outer->end < loop.end || at.place >= &loop - program_.loops.data()) {
        return Bad(where, absl::StrCat("uses buffer ", buffer,
                                       ", a WINDOW that belongs to no loop around it"));
      }
      return absl::OkStatus();
    }
    if (written && at.kind != v1::Buffer::ARENA && at.kind != v1::Buffer::OUTPUT) {
      return Bad(where,
                 absl::StrCat("fills buffer ", buffer, " of kind ", v1::Buffer::Kind_Name(at.kind),
                              "; only ARENA and OUTPUT "
                              "can be written"));
    }
    return absl::OkStatus();
  }

  absl::Status Loops() {
    std::vector<int> around;  // indices of the open loops
    for (int l = 0; l < plan_.loops_size(); ++l) {
      const v1::Loop& from = plan_.loops(l);
      const std::string where = absl::StrCat("loop ", l);
      const int64_t first = from.first(), end = first + from.steps();
      if (from.steps() == 0 || end > plan_.run_size()) {
        return Bad(where, absl::StrCat("steps ", first, " to ", end, " of ", plan_.run_size()));
      }
      Program::Loop to;
      to.first = static_cast<int>(first);
      to.end = static_cast<int>(end);
      // Loops are sorted by their first step, so the open ones form a stack: a loop lies inside the
      // innermost open one, or begins after it has ended.
      while (!around.empty() && program_.loops[around.back()].end <= first) around.pop_back();
      if (!around.empty() && program_.loops[around.back()].end < end) {
        return Bad(where, absl::StrCat("overlaps loop ", around.back()));
      }
      if (l > 0 && program_.loops[l - 1].first > first) {
        return Bad(where, absl::StrCat("begins before loop ", l - 1));
      }
      ASSIGN_OR_RETURN(to.count_size, Size(from.count(), where, "count"));
      (around.empty() ? program_.outer_loops : program_.loops[around.back()].inside).push_back(l);
      around.push_back(l);
      for (const v1::Loop::Slice& slice : from.slices()) {
        absl::Status s = Window(slice.buffer(), l, where);
        if (!s.ok()) return s;
        to.slices.push_back(
            {static_cast<int>(slice.buffer()), static_cast<int>(slice.of()), slice.reverse()});
      }
      for (const v1::Loop::Carry& carry : from.carries()) {
        absl::Status s = Window(carry.read(), l, where);
        if (s.ok()) s = Window(carry.next(), l, where);
        if (!s.ok()) return s;
        to.carries.push_back({static_cast<int>(carry.initial()), static_cast<int>(carry.read()),
                              static_cast<int>(carry.next()), static_cast<int>(carry.last()),
                              static_cast<int>(carry.other())});
      }
      if (from.has_turn()) {
        RETURN_IF_ERROR(Window(from.turn(), l, where));
        to.turn = static_cast<int>(from.turn());
      }
      program_.loops.push_back(std::move(to));
    }
    for (int b = 0; b < plan_.buffers_size(); ++b) {
      const Program::Buffer& buffer = program_.buffers[b];
      if (buffer.kind == v1::Buffer::WINDOW && buffer.place < 0) {
        return Bad(absl::StrCat("buffer ", b), "is a WINDOW that belongs to no loop");
      }
    }
    return absl::OkStatus();
  }

  // Finds the steps' buffers that move with each loop, and checks that windows are used by their
  // loop's steps only.
  absl::Status LoopUses() {
    std::set<int> written;
    for (size_t i = 0; i < program_.run.size(); ++i) {
      const Program::Step& step = program_.run[i];
      if (step.buffers > 0) written.insert(program_.buffer_refs[step.first_buffer]);
      for (int b = 0; b < step.buffers; ++b) {
        const int position = step.first_buffer + b, buffer = program_.buffer_refs[position];
        if (program_.buffers[buffer].kind != v1::Buffer::WINDOW) continue;
        Program::Loop& loop = program_.loops[program_.buffers[buffer].place];
        if (static_cast<int>(i) < loop.first || static_cast<int>(i) >= loop.end) {
          return Bad(absl::StrCat("run step ", i, " '", step.label, "'"),
                     absl::StrCat("uses buffer ", buffer, " outside its loop"));
        }
        loop.uses.push_back({position, buffer});
      }
    }
    for (size_t l = 0; l < program_.loops.size(); ++l) {
      const Program::Loop& loop = program_.loops[l];
      const std::string where = absl::StrCat("loop ", l);
      for (const Program::Loop::Slice& slice : loop.slices) {
        absl::Status s = Around(slice.of, loop, written.contains(slice.buffer), where);
        if (!s.ok()) return s;
      }
      for (const Program::Loop::Carry& carry : loop.carries) {
        absl::Status s = Around(carry.initial, loop, /*written=*/false, where);
        if (s.ok()) s = Around(carry.last, loop, /*written=*/true, where);
        if (s.ok()) s = Around(carry.other, loop, /*written=*/true, where);
        if (!s.ok()) return s;
      }
    }
    return absl::OkStatus();
  }

  // Finds the steps that make the fixed buffers, and the buffers that outlive `prepare`.
  void Uses() {
    for (size_t s = 0; s < program_.prepare.size(); ++s) {
      int made = 0;
      ForBuffers(program_.prepare[s], [&](Program::Buffer& buffer) {
        if (buffer.kind != v1::Buffer::PREPARED || program_.fixed[buffer.place].step >= 0) return;
        program_.fixed[buffer.place].step = static_cast<int>(s);
        ++made;
      });
      program_.prepares_once &= made == 1;
    }
    for (const Program::Step& step : program_.run) {
      ForBuffers(step, [](Program::Buffer& buffer) { buffer.kept = true; });
    }
    for (const Program::Loop& loop : program_.loops) {
      for (const Program::Loop::Slice& slice : loop.slices) program_.buffers[slice.of].kept = true;
      for (const Program::Loop::Carry& carry : loop.carries) {
        program_.buffers[carry.initial].kept = true;
      }
    }
    for (const Program::Output& output : program_.outputs) {
      program_.buffers[output.buffer].kept = true;
    }
  }

  template <typename Visit>
  void ForBuffers(const Program::Step& step, Visit visit) {
    for (int i = 0; i < step.buffers; ++i) {
      visit(program_.buffers[program_.buffer_refs[step.first_buffer + i]]);
    }
  }

  const v1::Plan& plan_;
  Program program_;
  int64_t fixed_bytes_ = 0;
};

}  // namespace

absl::StatusOr<Program> BuildProgram(const v1::Plan& plan) { return Builder(plan).Build(); }

}  // namespace athanor
