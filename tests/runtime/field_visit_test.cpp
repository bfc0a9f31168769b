// What is known of an argument struct's fields, with every compiler: names, places, roles; and which structs are
// refused.
#include "kernels_src/field_visit.h"

#include <gtest/gtest.h>

#include <string>

namespace nodewright {
namespace {

struct Visited {
  Frozen<float> weight;
  In<bf16> x, x2;
  float scale;
  bool on;
};
template <class T>
struct VisitedOf {
  In<T> first;
  Condition more;
};
struct RawPointer {
  float* data;
  uint64_t count;
};
struct alignas(8) Inner {
  float* data;
};
struct PointerInside {
  Inner inner;
  float scale;
};

static_assert(field_visit_detail::field_name<Visited, 0>() == "weight");
static_assert(field_visit_detail::field_name<Visited, 1>() == "x");
static_assert(field_visit_detail::field_name<Visited, 2>() == "x2");
static_assert(field_visit_detail::field_name<Visited, 4>() == "on");
static_assert(field_visit_detail::field_name<VisitedOf<Visited>, 1>() == "more");

static_assert(!holds_raw_pointers<Visited>());
static_assert(!holds_raw_pointers<VisitedOf<float>>());
static_assert(holds_raw_pointers<RawPointer>());
static_assert(holds_raw_pointers<PointerInside>());

TEST(FieldVisitTest, FieldsAreInOrderWithNamePlaceAndRole) {
  struct Local {
    Out<double> y;
    uint8_t flag;
    uint32_t rows;
  };
  const std::span<const FieldInfo> fields = fields_of<Local>();
  ASSERT_EQ(fields.size(), 3u);
  const auto expect = [&](size_t i, std::string_view name, size_t offset, size_t bytes, Role role) {
    EXPECT_EQ(fields[i].name, name);
    EXPECT_EQ(fields[i].offset, offset);
    EXPECT_EQ(fields[i].bytes, bytes);
    EXPECT_EQ(fields[i].role, role);
  };
  expect(0, "y", 0, 16, Role::out);
  expect(1, "flag", 16, 1, Role::scalar);
  expect(2, "rows", 20, 4, Role::scalar);
  EXPECT_EQ(fields[0].element_bytes, 8u);
  EXPECT_EQ(fields[0].element, ElementType::float64);
}

struct RowsOf {
  In<float> x;
  uint32_t rows;
};
struct Span {
  uint64_t begin, end;
};

TEST(FieldVisitTest, StructsWithRolesStandForTheirFields) {
  struct Both {
    RowsOf from;
    Optional<Out<bf16>> y;
  };
  struct Nested {
    float scale;
    Both first, second;
    Span span;  // without a role: one scalar
  };
  const std::span<const FieldInfo> fields = fields_of<Nested>();
  std::string seen;
  for (const FieldInfo& field : fields)
    seen += std::string(field.name) + '@' + std::to_string(field.offset) + (field.optional ? "? " : " ");
  EXPECT_EQ(seen,
            "scale@0 first.from.x@8 first.from.rows@24 first.y@32? second.from.x@48 second.from.rows@64 "
            "second.y@72? span@88 ");
  EXPECT_EQ(fields[1].role, Role::in);
  EXPECT_EQ(fields[1].element, ElementType::float32);
  EXPECT_EQ(fields[3].role, Role::out);
  EXPECT_EQ(fields[7].bytes, sizeof(Span));
}

struct Lent {
  static constexpr bool kIsFlat = true;
  RowsOf from;
  In<bf16> weight;
};

TEST(FieldVisitTest, FlatStructsLendTheirFieldsToTheStructAround) {
  struct Inner {
    Lent lent;
    Out<float> y;
  };
  struct Local {
    Lent lent;
    Inner inner;
  };
  const std::span<const FieldInfo> fields = fields_of<Local>();
  std::string seen;
  for (const FieldInfo& field : fields) seen += std::string(field.name) + '@' + std::to_string(field.offset) + ' ';
  EXPECT_EQ(seen, "from.x@0 from.rows@16 weight@24 inner.from.x@40 inner.from.rows@56 inner.weight@64 inner.y@80 ");
}

struct Strides {
  int64_t of[4];
};
struct Choice {
  Choice() = default;
  explicit Choice(int first) : value(first) {}
  Choice(float first) : value(static_cast<int>(first)) {}
  int value;
};
struct ArrayOfMemory {
  In<float> x[2];
};
static_assert(holds_raw_pointers<ArrayOfMemory>());

TEST(FieldVisitTest, AnArrayIsOneField) {
  struct Local {
    float scales[3][2];
    In<float> x;
    int64_t strides[40];
    Strides by_value[2];
    uint8_t flags[1];
    Optional<Out<bf16>> y;
  };
  const std::span<const FieldInfo> fields = fields_of<Local>();
  std::string seen;
  for (const FieldInfo& field : fields) seen += std::string(field.name) + ' ' + std::to_string(field.bytes) + ' ';
  EXPECT_EQ(seen, "scales 24 x 16 strides 320 by_value 64 flags 1 y 16 ");
  EXPECT_EQ(fields[0].element, ElementType::float32);
  EXPECT_EQ(fields[0].element_bytes, 4u);
  EXPECT_EQ(fields[2].role, Role::scalar);
  EXPECT_EQ(fields[3].element, ElementType::other);
  EXPECT_EQ(fields[4].element_bytes, 1u);
  EXPECT_TRUE(fields[5].optional);
}

TEST(FieldVisitTest, AnArrayAloneIsAField) {
  struct Local {
    uint32_t words[25];
  };
  EXPECT_EQ(fields_of<Local>().size(), 1u);
  EXPECT_EQ(fields_of<Strides>()[0].name, "of");
}

TEST(FieldVisitTest, AClassWithSeveralConstructorsIsAField) {
  struct Local {
    In<float> x;
    Choice choice;
    uint32_t n;
  };
  const std::span<const FieldInfo> fields = fields_of<Local>();
  ASSERT_EQ(fields.size(), 3u);
  EXPECT_EQ(fields[1].name, "choice");
}

}  // namespace
}  // namespace nodewright
