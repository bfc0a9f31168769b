// What `nodewright doctor` says of cards: the forms that the lowering chooses there, and whether anybody has run them.
#include "models/lowering/device_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace nodewright {
namespace {

DeviceProperties card(const char* name, int major, int minor, int sm_count, unsigned shared_kib) {
  DeviceProperties device;
  device.name = name;
  device.cc_major = major, device.cc_minor = minor;
  device.sm_count = sm_count;
  device.shared_optin_bytes = shared_kib << 10;
  return device;
}
DeviceProperties h100() { return card("NVIDIA H100 80GB HBM3", 9, 0, 132, 227); }
DeviceProperties rtx_5090() { return card("NVIDIA GeForce RTX 5090", 12, 0, 170, 99); }
DeviceProperties a10() { return card("NVIDIA A10", 8, 6, 72, 99); }

std::string forms_of(const DeviceProperties& device, bool emulated = false) {
  return fmt::format("{}\n", fmt::join(device_forms(device, emulated), "\n"));
}

TEST(DeviceForms, AreThoseThatTheLoweringChooses) {
  EXPECT_EQ(
      forms_of(h100()),
      "edges: programmatic, where the kernels allow it, and full\n"
      "clusters: up to 16 blocks\n"
      "tiles of weights: bulk copies\n"
      "products: 1 to 2 rows: dot products; 3 to 4: tiles on tensor cores; 5 to 8: tiles on tensor cores, x in "
      "registers "
      "and tiles on tensor cores; 9 to 32: tiles on tensor cores, x in registers, in clusters of up to 4 blocks; from "
      "33, and prompts: cuBLASLt\n"
      "products in FP8: 1 to 2 rows: dot products; 3 to 64: tiles on tensor cores, x in registers, in clusters of up "
      "to 4 blocks; from 65, and prompts: cuBLASLt in bf16\n"
      "products in int4: 1 to 2 rows: dot products; 3 to 64: tiles on tensor cores, x in registers, in clusters of up "
      "to 4 blocks; from 65, and prompts: cuBLASLt in bf16\n"
      "attention: 1 to 8 rows: tensor cores, the parts of a row in a cluster; 9 to 32: tensor cores; from 33, and "
      "prompts: tensor cores, a prompt's rows by warpgroups\n"
      "sums over ranks: 1 to 32 rows: packets, within the product; from 33, and prompts: bulk exchange after the "
      "product\n");
  // Blocks of 99 KiB do not hold the tiles of 17 rows.
  EXPECT_EQ(
      forms_of(rtx_5090()),
      "edges: programmatic, where the kernels allow it, and full\n"
      "clusters: up to 8 blocks\n"
      "tiles of weights: bulk copies\n"
      "products: 1 to 2 rows: dot products; 3 to 8: tiles on tensor cores; 9 to 16: tiles on tensor cores, x in "
      "registers and tiles on tensor cores; from 17, and prompts: cuBLASLt\n"
      "products in FP8: 1 to 2 rows: dot products; 3 to 16: tiles on tensor cores, x in registers, in clusters of up "
      "to 4 blocks; from 17, and prompts: cuBLASLt in bf16\n"
      "products in int4: 1 to 2 rows: dot products; 3 to 64: tiles on tensor cores, x in registers, in clusters of up "
      "to 4 blocks; from 65, and prompts: cuBLASLt in bf16\n"
      "attention: 1 to 10 rows: tensor cores, the parts of a row in a cluster; from 11, and prompts: tensor cores\n"
      "sums over ranks: 1 to 16 rows: packets, within the product; from 17, and prompts: bulk exchange after the "
      "product\n");
  EXPECT_EQ(forms_of(a10()),
            "edges: full\n"
            "clusters: none\n"
            "tiles of weights: copies by threads\n"
            "products: 1 to 2 rows: dot products; 3 to 16: tiles on tensor cores; from 17, and prompts: cuBLASLt\n"
            "products in FP8: 1 to 2 rows: dot products; 3 to 8: tiles on tensor cores; 9 to 16: tiles on tensor cores "
            "and dot products; from 17, and prompts: cuBLASLt in bf16\n"
            "products in int4: 1 to 2 rows: dot products; 3 to 8: tiles on tensor cores; 9 to 16: tiles on tensor "
            "cores and dot products; from 17, and prompts: cuBLASLt in bf16\n"
            "attention: 1 to 9 rows: tensor cores, the parts of a row merged through global memory; from 10, and "
            "prompts: tensor cores\n"
            "sums over ranks: 1 to 16 rows: packets, within the product; from 17, and prompts: bulk exchange after the "
            "product\n");
}

TEST(DeviceForms, OfTheCpuDriverDifferInCopiesAndTheLibrary) {
  const std::vector<std::string> gpu = device_forms(h100(), false), cpu = device_forms(h100(), true);
  EXPECT_EQ(cpu[2], "tiles of weights: copies by threads");
  for (const auto& [line, ending] : {std::pair{3u, ""}, {4u, " in bf16"}, {5u, " in bf16"}})
    EXPECT_EQ(cpu[line], gpu[line].substr(0, gpu[line].find("cuBLASLt")) + "the driver's own products" + ending);
  for (const size_t same : {0u, 1u, 6u, 7u}) EXPECT_EQ(cpu[same], gpu[same]);
}

TEST(DeviceForms, SayWhereNobodyHasRunThem) {
  EXPECT_EQ(untried_on(h100()), "");
  EXPECT_EQ(untried_on(card("NVIDIA H200", 9, 0, 132, 227)), "");
  EXPECT_EQ(untried_on(card("NVIDIA GH200 480GB", 9, 0, 132, 227)),
            "the tests compile the kernels for compute capability 9.0, and they have never run on NVIDIA GH200 480GB: "
            "only on H100 and H200");
  EXPECT_EQ(untried_on(a10()),
            "the tests compile the kernels for compute capability 8.6, and they have never run on NVIDIA A10: only on "
            "H100 and H200");
  EXPECT_EQ(
      untried_on(card("NVIDIA GB10", 12, 1, 48, 99)),
      "the tests compile the kernels for 8.0, 8.6, 8.9, 9.0, 10.0, 12.0, not for 12.1, and they have never run on "
      "NVIDIA GB10: only on H100 and H200");
  EXPECT_EQ(untried_on(card("Tesla T4", 7, 5, 40, 64)),
            "the kernels need compute capability 8.0, and Tesla T4 has 7.5");
}

}  // namespace
}  // namespace nodewright
