#include "runtime/program.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr uint32_t kFormat = 1;
constexpr int64_t kAlignment = 64;
// More than any address space; keeps sums of two far from overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 56;

class Builder {
 public:
  explicit Builder(const v1::Plan& plan) : plan_(plan) {}

  absl::StatusOr<Program> Build() {
    absl::Status status = Dims();
    if (status.ok()) status = Buffers();
    if (status.ok())
      status = Steps(plan_.prepare(), "prepare", program_.prepare);
    if (status.ok()) status = Steps(plan_.run(), "run", program_.run);
    if (status.ok()) status = Outputs();
    if (status.ok()) Uses();
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
    if (plan_.format() != kFormat) {
      return Bad("format", absl::StrCat("is ", plan_.format(),
                                        ", this runtime reads ", kFormat));
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
        return Bad(where,
                   absl::StrCat("has the range ", dim.min(), "..", dim.max()));
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

  absl::Status Buffers() {
    for (int i = 0; i < plan_.buffers_size(); ++i) {
      const v1::Buffer& from = plan_.buffers(i);
      const std::string where = absl::StrCat("buffer ", i);
      Program::Buffer to{from.kind(), from.name(), from.dtype(), {}, 0, -1};
      for (const v1::SizeExpr& extent : from.shape()) {
        absl::StatusOr<int> size = Size(extent, where, "shape");
        if (!size.ok()) return size.status();
        to.shape_sizes.push_back(*size);
      }
      absl::StatusOr<int> bytes = Size(from.bytes(), where, "bytes");
      if (!bytes.ok()) return bytes.status();
      to.bytes_size = *bytes;
      absl::Status status = Place(from, i, to);
      if (!status.ok()) return Bad(where, status.message());
      program_.buffers.push_back(std::move(to));
    }
    std::sort(program_.arena_buffers.begin(), program_.arena_buffers.end(),
              [&](int a, int b) {
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
        return absl::OkStatus();  // Outputs() finds its place
      case v1::Buffer::PARAMETER:
        to.place = program_.parameters.size();
        program_.parameters.push_back(index);
        return FixedBytes(to).status();
      case v1::Buffer::CONSTANT:
      case v1::Buffer::PREPARED:
        return PlaceFixed(from, index, to);
      case v1::Buffer::ARENA:
        to.place = from.arena_offset();
        program_.arena_buffers.push_back(index);
        if (to.place < 0 || to.place % kAlignment != 0 ||
            to.place > program_.arena_bytes) {
          return absl::InvalidArgumentError(absl::StrCat(
              "arena_offset is ", to.place, ", must be a multiple of ",
              kAlignment, " within the arena of ", program_.arena_bytes));
        }
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("kind ", static_cast<int>(from.kind()),
                         " is none this runtime knows"));
    }
  }

  absl::StatusOr<int64_t> FixedBytes(const Program::Buffer& buffer) {
    const SizeRange range = program_.sizes.range(buffer.bytes_size);
    if (!program_.sizes.constant(buffer.bytes_size) || range.min < 0 ||
        range.max > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("bytes must be a number from 0 to ", kMaxBytes,
                       " without dims: the buffer outlives a call"));
    }
    return range.min;
  }

  absl::Status PlaceFixed(const v1::Buffer& from, int index,
                          Program::Buffer& to) {
    absl::StatusOr<int64_t> bytes = FixedBytes(to);
    if (!bytes.ok()) return bytes.status();
    if (from.kind() == v1::Buffer::CONSTANT &&
        static_cast<int64_t>(from.literal().size()) != *bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("literal has ", from.literal().size(),
                       " bytes, `bytes` says ", *bytes));
    }
    to.place = program_.fixed.size();
    program_.fixed.push_back({index, *bytes});
    fixed_bytes_ += *bytes + kAlignment;
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
      const std::string where =
          absl::StrCat(part, " step ", i, " '", from[i].label(), "'");
      absl::StatusOr<Program::Step> step = OneStep(from[i], where);
      if (!step.ok()) return step.status();
      if (part == "prepare") {
        absl::Status status = CheckPrepare(*step, where);
        if (!status.ok()) return status;
      }
      to.push_back(*std::move(step));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Program::Step> OneStep(const v1::Step& from,
                                        absl::string_view where) {
    if (from.kernel() >= static_cast<uint32_t>(plan_.kernels_size())) {
      return Bad(where, absl::StrCat("kernel ", from.kernel(), " of ",
                                     plan_.kernels_size()));
    }
    if (from.scratch_bytes() < 0 || from.scratch_bytes() > kMaxBytes) {
      return Bad(where,
                 absl::StrCat("scratch_bytes is ", from.scratch_bytes()));
    }
    program_.scratch_bytes =
        std::max(program_.scratch_bytes, from.scratch_bytes());
    Program::Step to;
    to.label = from.label();
    to.kernel = from.kernel();
    to.first_buffer = program_.buffer_refs.size();
    to.buffers = from.buffers_size();
    for (const uint32_t buffer : from.buffers()) {
      if (buffer >= static_cast<uint32_t>(plan_.buffers_size())) {
        return Bad(where, absl::StrCat("buffer ", buffer, " of ",
                                       plan_.buffers_size()));
      }
      program_.buffer_refs.push_back(buffer);
    }
    to.first_size = program_.size_refs.size();
    to.sizes = from.sizes_size();
    for (const v1::SizeExpr& expr : from.sizes()) {
      absl::StatusOr<int> size = Size(expr, where, "sizes");
      if (!size.ok()) return size.status();
      program_.size_refs.push_back(*size);
    }
    const std::pair<const v1::SizeExpr*, int*> rest[] = {
        {&from.grid(), &to.grid_size},
        {&from.flops(), &to.flops_size},
        {&from.moved_bytes(), &to.moved_size}};
    const absl::string_view names[] = {"grid", "flops", "moved_bytes"};
    for (int i = 0; i < 3; ++i) {
      absl::StatusOr<int> size = Size(*rest[i].first, where, names[i]);
      if (!size.ok()) return size.status();
      *rest[i].second = *size;
    }
    return to;
  }

  // Prepare runs once, before any call: nothing of a call is there yet.
  absl::Status CheckPrepare(const Program::Step& step,
                            absl::string_view where) {
    for (int i = 0; i < step.buffers; ++i) {
      const int buffer = program_.buffer_refs[step.first_buffer + i];
      const v1::Buffer::Kind kind = program_.buffers[buffer].kind;
      if (kind != v1::Buffer::PARAMETER && kind != v1::Buffer::CONSTANT &&
          kind != v1::Buffer::PREPARED) {
        return Bad(where, absl::StrCat("uses buffer ", buffer, " of kind ",
                                       v1::Buffer::Kind_Name(kind),
                                       "; only PARAMETER, CONSTANT and "
                                       "PREPARED are there before a call"));
      }
    }
    bool constant = program_.sizes.constant(step.grid_size);
    for (int i = 0; i < step.sizes; ++i) {
      constant &=
          program_.sizes.constant(program_.size_refs[step.first_size + i]);
    }
    if (!constant) return Bad(where, "sizes and grid must be without dims");
    return absl::OkStatus();
  }

  absl::Status Outputs() {
    for (int i = 0; i < plan_.outputs_size(); ++i) {
      const v1::PlanOutput& from = plan_.outputs(i);
      if (from.buffer() >= static_cast<uint32_t>(plan_.buffers_size())) {
        return Bad(absl::StrCat("output '", from.name(), "'"),
                   absl::StrCat("buffer ", from.buffer(), " of ",
                                plan_.buffers_size()));
      }
      Program::Buffer& buffer = program_.buffers[from.buffer()];
      const bool own = buffer.kind == v1::Buffer::OUTPUT && buffer.place < 0;
      if (own) buffer.place = i;
      program_.outputs.push_back(
          {from.name(), static_cast<int>(from.buffer()), !own});
    }
    for (int i = 0; i < plan_.buffers_size(); ++i) {
      const Program::Buffer& buffer = program_.buffers[i];
      if (buffer.kind == v1::Buffer::OUTPUT && buffer.place < 0) {
        return Bad(absl::StrCat("buffer ", i, " '", buffer.name, "'"),
                   "is of kind OUTPUT but in no output");
      }
    }
    return absl::OkStatus();
  }

  // Who makes the fixed buffers, and which of them outlive `prepare`.
  void Uses() {
    for (size_t s = 0; s < program_.prepare.size(); ++s) {
      int made = 0;
      ForFixed(program_.prepare[s], [&](Program::Fixed& fixed) {
        const bool prepared = program_.buffers[fixed.buffer].kind == v1::Buffer::PREPARED;
        if (!prepared || fixed.step >= 0) return;
        fixed.step = static_cast<int>(s);
        ++made;
      });
      program_.prepares_once &= made == 1;
    }
    for (const Program::Step& step : program_.run) {
      ForFixed(step, [](Program::Fixed& fixed) { fixed.kept = true; });
    }
    for (const Program::Output& output : program_.outputs) {
      if (Program::Fixed* fixed = FixedOf(output.buffer)) fixed->kept = true;
    }
  }

  Program::Fixed* FixedOf(int index) {
    const Program::Buffer& buffer = program_.buffers[index];
    const bool fixed =
        buffer.kind == v1::Buffer::CONSTANT || buffer.kind == v1::Buffer::PREPARED;
    return fixed ? &program_.fixed[buffer.place] : nullptr;
  }

  template <typename Visit>
  void ForFixed(const Program::Step& step, Visit visit) {
    for (int i = 0; i < step.buffers; ++i) {
      if (Program::Fixed* fixed = FixedOf(program_.buffer_refs[step.first_buffer + i])) {
        visit(*fixed);
      }
    }
  }

  const v1::Plan& plan_;
  Program program_;
  int64_t fixed_bytes_ = 0;
};

}  // namespace

absl::StatusOr<Program> BuildProgram(const v1::Plan& plan) {
  return Builder(plan).Build();
}

}  // namespace athanor
