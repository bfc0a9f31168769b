// Bytes of an HTTP connection, cut into pieces of any size; the first byte is the seed of the cuts. The parser ends
// each request whole within its limits, refuses with a status and a sentence, or waits for more; the cuts change
// nothing, and the work is in proportion to the bytes that it is given.
#include <algorithm>
#include <vector>

#include "serve/http/messages/request_parser.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/meter.h"

using namespace nodewright;

namespace {

using State = RequestParser::State;

constexpr HttpLimits kLimits{.header_bytes = 512, .body_bytes = 1024};

// What came of a connection.
struct Connection {
  std::vector<HttpRequest> requests;
  State state = State::idle;
  int status = 0;
};

void check(const HttpRequest& request) {
  fuzz::require(request.body.size() <= kLimits.body_bytes, "a body is within its limit");
  size_t head = request.method.size() + request.path.size() + request.query.size();
  for (const auto& [name, value] : request.headers) {
    head += name.size() + value.size();
    fuzz::require(!name.empty(), "a header has a name");
    fuzz::require((name + value).find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos,
                  "a header is a line");
  }
  fuzz::require(head <= kLimits.header_bytes, "the head is within its limit");
  fuzz::require(!request.method.empty(), "a request has a method");
  fuzz::require(request.path.starts_with('/') || request.path == "*", "a path begins with /");
  fuzz::require(request.path.find('?') == std::string::npos, "a path ends before the query");
}

// As Connection does it: what the parser leaves comes again, with the next piece after it.
Connection read_in_pieces(std::string_view bytes, uint32_t seed) {
  RequestParser parser(kLimits);
  Connection result;
  std::string unread;
  while (!bytes.empty() && parser.state() != State::refused) {
    seed = seed * 1664525u + 1013904223u;  // Numerical Recipes
    const size_t piece = seed == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 1 + (seed >> 24) % 40);
    unread += bytes.substr(0, piece);
    bytes.remove_prefix(piece);
    while (!unread.empty() && parser.state() != State::refused) {
      const size_t used = fuzz::metered("a piece", {.free = unread.size()}, [&] { return parser.feed(unread); });
      fuzz::require(used <= unread.size(), "no more is used than there is");
      unread.erase(0, used);
      parser.take_expectation();
      if (parser.state() != State::whole) {
        if (used == 0) break;
        continue;
      }
      result.requests.push_back(parser.take());
      fuzz::require(parser.state() == State::idle, "after a request the parser is idle");
      check(result.requests.back());
    }
    fuzz::require(parser.state() == State::refused || unread.size() <= kLimits.header_bytes + 40,
                  "what waits is within the limit");
  }
  result.state = parser.state();
  if (result.state != State::refused) return result;
  result.status = parser.refusal_status();
  const int all[] = {400, 413, 417, 431, 501};
  fuzz::require(std::ranges::count(all, result.status) == 1, "a refusal has a status");
  fuzz::require(!parser.refusal().empty(), "a refusal has a sentence");
  return result;
}

bool same(const Connection& a, const Connection& b) {
  return std::ranges::equal(a.requests, b.requests, [](const HttpRequest& one, const HttpRequest& other) {
    return one.method == other.method && one.path == other.path && one.query == other.query && one.body == other.body &&
           one.headers == other.headers;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto read = [&](uint32_t seed) {
    return fuzz::metered("a connection", {.free = 4 * size}, [&] { return read_in_pieces(bytes, seed); });
  };
  const Connection pieces = read(data[0] + 1u), other = read(data[0] + 1000u);
  fuzz::require(same(pieces, other), "the cuts change no request");
  // What is malformed before its end has come is refused then or, in larger pieces, at once.
  const auto was_complete = [](const Connection& one) { return one.state == State::idle; };
  fuzz::require(pieces.state == other.state || (!was_complete(pieces) && !was_complete(other)),
                "the cuts change no refusal");
  return 0;
}
