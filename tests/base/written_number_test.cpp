// Numbers of JSON that come back as they were written.
#include "base/written_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace nodewright {
namespace {

TEST(WrittenNumbers, ComeBackAsTheyWereWritten) {
  for (const char* text :
       {"0", "-0", "1", "-1", "1.0", "1.50", "1e5", "1E+5", "0.1234567890123456789", "123456789012345678901234567890",
        "18446744073709551615", "18446744073709551616", "-9223372036854775808", "-9223372036854775809", "1E400",
        "-1e999", "1e-400", R"([1e2,{"a":1E400,"b \"1E400\"":"1E400\\"},1e400,7])", R"({"a":[[]],"b":{}})"})
    EXPECT_EQ(json_text(parse_as_written(text)), text);
  EXPECT_EQ(json_text(parse_as_written(" [ 1E400 , 2 ] ")), "[1E400,2]");
  EXPECT_THROW(parse_as_written("[1E400,]"), WrittenJson::parse_error);
  EXPECT_THROW(parse_as_written("01"), WrittenJson::parse_error);
}

TEST(WrittenNumbers, HaveValues) {
  EXPECT_EQ(number_value(parse_as_written("1e5")), 1e5);
  EXPECT_TRUE(std::isinf(number_value(parse_as_written("1E400"))));
  for (const auto& [text, value] : {std::pair<const char*, int64_t>{"1e2", 100},
                                    {"1.0", 1},
                                    {"-0", 0},
                                    {"0e9", 0},
                                    {"12.50e1", 125},
                                    {"9223372036854775807.0", INT64_MAX},
                                    {"-9223372036854775808", INT64_MIN}})
    EXPECT_EQ(whole_number(parse_as_written(text)), value) << text;
  for (const char* text : {"1.5", "1e-1", "9223372036854775808", "1E400", "true", "\"1\"", "1e99999999999"})
    EXPECT_FALSE(whole_number(parse_as_written(text))) << text;
  EXPECT_TRUE(is_whole_number(parse_as_written("123456789012345678901234567890.0")));
  EXPECT_FALSE(is_whole_number(parse_as_written("1E-400")));
}

TEST(WrittenNumbers, MeanTheSameInEverySpelling) {
  const auto same = [](const char* a, const char* b) { return same_json(parse_as_written(a), parse_as_written(b)); };
  EXPECT_TRUE(same("1", "1.0"));
  EXPECT_TRUE(same("100", "1e2"));
  EXPECT_TRUE(same("0", "-0.0"));
  EXPECT_TRUE(same(R"({"a":[1],"b":2})", R"({"b":2.0,"a":[1e0]})"));
  EXPECT_FALSE(same("18446744073709551616", "18446744073709551617"));
  EXPECT_FALSE(same("1", "\"1\""));
  EXPECT_FALSE(same("[1]", "[1,1]"));
  EXPECT_FALSE(same(R"({"a":1})", R"({"b":1})"));
}

}  // namespace
}  // namespace nodewright
