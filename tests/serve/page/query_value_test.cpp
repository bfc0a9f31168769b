// Fields of a query, as /plan reads them.
#include <gtest/gtest.h>

#include "serve/page/plan_pages.h"

namespace nodewright {
namespace {

TEST(QueryValue, FieldsAreFoundByTheirWholeName) {
  EXPECT_EQ(query_value("bucket=8", "bucket"), "8");
  EXPECT_EQ(query_value("ticket=a=b&bucket=8", "bucket"), "8");
  EXPECT_EQ(query_value("ticket=a=b&bucket=8", "ticket"), "a=b");
  EXPECT_EQ(query_value("buckets=9&bucket", "bucket"), "");
  EXPECT_EQ(query_value("", "bucket"), "");
  EXPECT_EQ(query_value("&&bucket=1&bucket=2&", "bucket"), "1");
}

}  // namespace
}  // namespace nodewright
