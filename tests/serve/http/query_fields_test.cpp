// Fields of a query, as /plan, /sleep and /wake_up read them.
#include "serve/http/messages/query_fields.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

TEST(QueryValue, FieldsAreFoundByTheirWholeName) {
  EXPECT_EQ(query_value("bucket=8", "bucket"), "8");
  EXPECT_EQ(query_value("ticket=a=b&bucket=8", "bucket"), "8");
  EXPECT_EQ(query_value("ticket=a=b&bucket=8", "ticket"), "a=b");
  EXPECT_EQ(query_value("buckets=9&bucket", "bucket"), "");
  EXPECT_EQ(query_value("", "bucket"), "");
  EXPECT_EQ(query_value("&&bucket=1&bucket=2&", "bucket"), "1");
  EXPECT_EQ(query_values("tags=a&b=1&tags=&tags", "tags"), (std::vector<std::string_view>{"a", "", ""}));
}

}  // namespace
}  // namespace nodewright
