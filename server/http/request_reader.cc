#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace athanor {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// A body that grows as it comes: Beast's own reserves what a client announces.
struct GrowingBody {
  using value_type = std::string;
  static uint64_t size(const value_type& body) { return body.size(); }

  class reader {
   public:
    template <bool kRequest, typename Fields>
    reader(http::header<kRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, error_code& ec) { ec = {}; }
    template <typename Buffers>
    size_t put(const Buffers& buffers, error_code& ec) {
      ec = {};
      size_t bytes = 0;
      for (auto at = asio::buffer_sequence_begin(buffers); at != asio::buffer_sequence_end(buffers);
           ++at) {
        const asio::const_buffer piece = *at;
        body_.append(static_cast<const char*>(piece.data()), piece.size());
        bytes += piece.size();
      }
      return bytes;
    }
    void finish(error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

std::string StringOf(beast::string_view text) { return std::string(text.data(), text.size()); }

}  // namespace

class RequestReader::Parser {
 public:
  explicit Parser(size_t most) : buffer(most) { Renew(); }

  void Renew() {
    parser.emplace();
    parser->header_limit(static_cast<uint32_t>(buffer.max_size()));
    parser->body_limit(std::numeric_limits<uint64_t>::max());  // none means 0 to Beast 1.74
    header_bytes = 0;
  }
  // Parses until there is nothing more to do; returns Beast's need_more if bytes lack.
  error_code Put() {
    const bool in_header = !parser->is_header_done();
    error_code ec;
    const size_t used = parser->put(buffer.data(), ec);
    buffer.consume(used);
    if (!in_header) return ec;
    // Beast counts only what it has not parsed: fields that come one by one have no limit.
    header_bytes += used;
    const bool lacks = ec == http::error::need_more;
    const size_t least = header_bytes + (lacks ? buffer.size() + 1 : 0);
    if ((lacks || !ec) && least > buffer.max_size()) ec = http::error::header_limit;
    return ec;
  }

  beast::flat_buffer buffer;
  size_t header_bytes = 0;  // of this request, parsed so far
  std::optional<http::request_parser<GrowingBody>> parser;
};

RequestReader::RequestReader(const HeaderLimits& limits)
    : limits_(limits), parser_(std::make_unique<Parser>(limits.header_bytes)) {}

RequestReader::~RequestReader() = default;

void RequestReader::Feed(absl::string_view bytes) {
  if (bytes.empty()) return;
  const asio::mutable_buffer room = parser_->buffer.prepare(bytes.size());
  std::memcpy(room.data(), bytes.data(), bytes.size());
  parser_->buffer.commit(bytes.size());
}

size_t RequestReader::held() const { return parser_->buffer.size(); }

bool RequestReader::begun() const { return parser_->header_bytes > 0 || held() > 0; }

RequestReader::Got RequestReader::Refuse(int status, absl::string_view message) {
  refusal_ = {status, std::string(message)};
  return Got::kRefused;
}

RequestReader::Got RequestReader::Advance() {
  if (lacking_.has_value()) TakeBody();
  if (whole()) return Got::kWhole;
  if (held() == 0) return Got::kMore;
  error_code ec;
  try {
    ec = parser_->Put();
  } catch (const std::exception&) {  // a field beyond Beast's limits, or no memory
    return Refuse(431, "the header's fields are too long");
  }
  if (ec == http::error::need_more) {
    if (held() < parser_->buffer.max_size()) return Got::kMore;
    ec = http::error::header_limit;
  }
  if (ec == http::error::header_limit) {
    return Refuse(431, "the header, a chunk's extensions or the trailers are too long");
  }
  if (ec) return Refuse(400, ec.message());
  if (!head_taken_) return TakeHead();
  return whole() ? Got::kWhole : Got::kMore;
}

RequestReader::Got RequestReader::TakeHead() {
  const auto& message = parser_->parser->get();
  parser_->parser->eager(true);
  head_taken_ = true;
  if (const uint64_t bytes = body_bytes().value_or(0); bytes > 0) lacking_ = bytes;
  const beast::string_view target = message.target();
  if (target.size() > limits_.target_bytes) return Refuse(414, "the request's target is too long");
  const size_t question = std::min(target.find('?'), target.size());
  head_ = {};
  head_.method = StringOf(message.method_string());
  const absl::string_view path(target.data(), question);
  const std::optional<std::string> decoded = PercentDecoded(path);
  if (!absl::StartsWith(path, "/") || !decoded.has_value()) {
    return Refuse(400, "the request's target is not a path, such as /status.json");
  }
  head_.path = *decoded;
  if (question < target.size()) head_.query = StringOf(target.substr(question + 1));
  for (const auto& field : message) {
    head_.headers.emplace_back(StringOf(field.name_string()), StringOf(field.value()));
  }
  if (const absl::string_view fault = HeadFault(); !fault.empty()) return Refuse(400, fault);
  return Got::kHead;
}

void RequestReader::TakeBody() {
  const size_t bytes = std::min<uint64_t>(*lacking_, held());
  std::memcpy(GrowBody(bytes), parser_->buffer.data().data(), bytes);
  parser_->buffer.consume(bytes);
  Came(bytes);
}

size_t RequestReader::came() const {
  return lacking_.has_value() ? came_ : parser_->parser->get().body().size();
}

char* RequestReader::GrowBody(size_t bytes) {
  if (body().size() < came_ + bytes) body().resize(came_ + bytes);
  return body().data() + came_;
}

void RequestReader::Came(size_t bytes) {
  came_ += bytes;
  *lacking_ -= bytes;
}

// Returns a fault of the head that Beast lets through; empty: none.
absl::string_view RequestReader::HeadFault() const {
  const std::string* encoding = head_.Header("Transfer-Encoding");
  if (encoding == nullptr) return "";
  if (http_1_0()) return "HTTP/1.0 has no Transfer-Encoding";
  if (!absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(*encoding), "chunked")) {
    return "Transfer-Encoding must be chunked and nothing else";
  }
  return "";
}

void RequestReader::Next() {
  parser_->Renew();
  head_taken_ = false;
  lacking_.reset();
  came_ = 0;
  head_ = {};
  if (held() == 0) parser_->buffer.shrink_to_fit();
}

bool RequestReader::whole() const {
  return lacking_.has_value() ? *lacking_ == 0 : parser_->parser->is_done();
}

bool RequestReader::keeps_alive() const { return parser_->parser->keep_alive(); }

bool RequestReader::http_1_0() const { return parser_->parser->get().version() < 11; }

bool RequestReader::expects_continue() const {
  const auto& message = parser_->parser->get();
  const auto found = message.find(http::field::expect);
  return found != message.end() && beast::iequals(found->value(), "100-continue");
}

std::optional<uint64_t> RequestReader::body_bytes() const {
  if (parser_->parser->chunked()) return std::nullopt;
  const auto length = parser_->parser->content_length();
  return length ? *length : 0;
}

std::string& RequestReader::body() { return parser_->parser->get().body(); }

std::optional<std::string> PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (text.size() - i < 3 || !absl::ascii_isxdigit(text[i + 1]) ||
          !absl::ascii_isxdigit(text[i + 2])) {
        return std::nullopt;
      }
      c = static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    }
    if (absl::ascii_iscntrl(c)) return std::nullopt;
    decoded.push_back(c);
  }
  return decoded;
}

}  // namespace athanor
