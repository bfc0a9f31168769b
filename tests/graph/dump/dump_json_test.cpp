// Arguments in JSON: scalars by their type, memory by its elements; never an address.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "graph/dump/graph_dump.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

enum class Order : uint16_t { first = 3 };
struct Pair {
  float a, b;
};
struct Scalars {
  Out<bf16> y;
  bool flag;
  int8_t i8;
  uint8_t u8;
  int16_t i16;
  Order order;
  int32_t i32;
  uint32_t u32;
  int64_t i64;
  uint64_t u64;
  bf16 half;
  float f32;
  double f64;
  Pair pair;
};

class DumpJsonTest : public SketchTest {
 protected:
  nlohmann::json arguments_of(const Scalars& args) {
    LoadedKernel loaded = named_kernel("scalars", true);
    loaded.args_bytes = sizeof(Scalars);
    const Kernel<Scalars> kernel{&loaded, mix_shape(64)};
    GraphBuilder g(device(), "scalars.b1");
    g.declare({"y", 0x10000, 1024, "output"}, {.live_out = true});
    Scalars with_memory = args;
    with_memory.y = {reinterpret_cast<bf16*>(0x10000), 64};
    g.launch("one", kernel, with_memory);
    const Plan plan = std::move(g).finish(EdgePolicy::full);
    const auto json = nlohmann::json::parse(to_json(plan));
    nlohmann::json values;
    for (const auto& argument : json["nodes"][0]["arguments"]) values[argument["field"]] = argument;
    return values;
  }
};

TEST_F(DumpJsonTest, ScalarsHaveTheirTypeAndValue) {
  const auto arguments = arguments_of({.flag = true,
                                       .i8 = -5,
                                       .u8 = 200,
                                       .i16 = -300,
                                       .order = Order::first,
                                       .i32 = -70000,
                                       .u32 = 4000000000u,
                                       .i64 = -5000000000,
                                       .u64 = 9007199254740992,
                                       .half = {0x3fc0},
                                       .f32 = 0.1f,
                                       .f64 = 0.1,
                                       .pair = {}});
  const auto expect = [&](const char* field, const char* type, const nlohmann::json& value) {
    EXPECT_EQ(arguments[field]["type"], type) << field;
    EXPECT_EQ(arguments[field]["value"], value) << field;
    EXPECT_EQ(arguments[field]["role"], "scalar") << field;
  };
  expect("flag", "bool", true);
  expect("i8", "int8", -5);
  expect("u8", "uint8", 200);
  expect("i16", "int16", -300);
  expect("order", "uint16", 3);
  expect("i32", "int32", -70000);
  expect("u32", "uint32", 4000000000u);
  expect("i64", "int64", -5000000000);
  expect("u64", "uint64", 9007199254740992u);
  expect("half", "bf16", 1.5);
  expect("f32", "float32", 0.1);
  expect("f64", "float64", 0.1);
  expect("pair", "other", nullptr);
}

TEST_F(DumpJsonTest, NumbersThatJsonOrADoubleCannotHoldAreStrings) {
  const auto arguments = arguments_of({.i64 = std::numeric_limits<int64_t>::min(),
                                       .u64 = std::numeric_limits<uint64_t>::max(),
                                       .half = {0x7fc0},
                                       .f32 = -std::numeric_limits<float>::infinity(),
                                       .f64 = std::nan("")});
  EXPECT_EQ(arguments["i64"]["value"], "-9223372036854775808");
  EXPECT_EQ(arguments["u64"]["value"], "18446744073709551615");
  EXPECT_EQ(arguments["half"]["value"], "nan");
  EXPECT_EQ(arguments["f32"]["value"], "-inf");
  EXPECT_EQ(arguments["f64"]["value"], "nan");
  const auto beyond = arguments_of({.i64 = -9007199254740993, .u64 = 9007199254740993u});
  EXPECT_EQ(beyond["i64"]["value"], "-9007199254740993");
  EXPECT_EQ(beyond["u64"]["value"], "9007199254740993");
}

TEST_F(DumpJsonTest, MemoryHasItsElementsAndNoAddress) {
  const auto y = arguments_of({})["y"];
  EXPECT_EQ(y, nlohmann::json::parse(R"({"field": "y", "role": "out", "type": "bf16", "count": 64})"));
}

TEST_F(DumpJsonTest, BuffersSayFromWhichNodeToWhichTheyAreNeededAndThePlanItsPeak) {
  const auto json = nlohmann::json::parse(to_json(nested_plan()));
  EXPECT_EQ(json["buffers"][0]["name"], "x");
  EXPECT_EQ(json["buffers"][0]["needed"], nlohmann::json::parse("[0, 2]"));
  EXPECT_EQ(json["peak"], nlohmann::json::parse(R"({"bytes": 2048, "node": 0})"));
}

TEST_F(DumpJsonTest, AKernelSaysWithWhichConstantsItWasBuilt) {
  Plan plan = nested_plan();
  LoadedKernel built = named_kernel("mix", true);
  built.request = {"mix", {{"kStages", 2}}};
  plan.nodes[0].kernel = &built;
  const auto json = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(json["nodes"][0]["request"], "mix[kStages=2]");
  EXPECT_FALSE(json["nodes"][2].contains("request"));
}

}  // namespace
}  // namespace nodewright
