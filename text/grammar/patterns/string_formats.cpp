#include "text/grammar/patterns/string_formats.h"

#include <vector>

namespace nodewright {
namespace {

struct StringFormat {
  std::string_view name;
  std::string pattern;
};

// RFC 3339, with years of four digits that do not begin with 0.
const std::string kDate =
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))";
const std::string kTime =
    R"((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]))";
// ISO 8601 as in appendix A of RFC 3339: no unit is left out between two others.
const std::string kClockPart =
    "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)";
const std::string kDuration =
    "P(?:[0-9]{1,9}W|" + kClockPart +
    "|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)(?:" + kClockPart + ")?)";
// RFC 1123: a label has at most 63 characters; these have at most 50.
const std::string kLabel = "[A-Za-z0-9]{1,16}(?:-[A-Za-z0-9]{1,16}){0,2}";
const std::string kHost = kLabel + R"((?:\.)" + kLabel + "){0,3}";
const std::string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const std::string kUriCharacters = "[A-Za-z0-9._~!$&'()*+,;=:@-]";

const std::vector<StringFormat>& string_formats() {
  static const std::vector<StringFormat> formats = {
      {"date", kDate},
      {"time", kTime},
      {"date-time", kDate + "T" + kTime},
      {"duration", kDuration},
      {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
      {"email", R"([A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@)" + kLabel + R"((?:\.)" + kLabel + "){1,3}"},
      {"hostname", kHost},
      {"ipv4", "(?:" + kByte + R"(\.){3})" + kByte},
      {"ipv6", "(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}"},
      {"uri", "[a-z][a-z0-9]{1,15}://" + kHost + "(?::[1-9][0-9]{0,3})?(?:/" + kUriCharacters + R"(*)*(?:\?)" +
                  kUriCharacters + "*)?(?:#" + kUriCharacters + "*)?"},
  };
  return formats;
}

}  // namespace

std::string string_format_pattern(std::string_view format) {
  for (const StringFormat& one : string_formats())
    if (one.name == format) return one.pattern;
  return "";
}

std::string known_string_formats() {
  std::string names;
  for (const StringFormat& one : string_formats()) names.append(names.empty() ? "" : ", ").append(one.name);
  return names;
}

}  // namespace nodewright
