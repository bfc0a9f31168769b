// What the driver tells of an address: whose memory it is, and where that begins.
#include "tests/cpu_driver/cpu_driver_fixture.h"

namespace nodewright {
namespace {

class KnownMemoryTest : public CpuDriverTest {
 protected:
  struct Told {
    unsigned int type = 99;
    int device = 99;
    CUdeviceptr begin = 99;
    size_t bytes = 99;
    CUcontext context = nullptr;
  };
  Told tell(uint64_t address) {
    Told told;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                        CU_POINTER_ATTRIBUTE_CONTEXT};
    void* values[] = {&told.type, &told.device, &told.begin, &told.bytes, &told.context};
    EXPECT_OK(api().cuPointerGetAttributes(5, attributes, values, address));
    return told;
  }
  void expect_none(uint64_t address) {
    const Told told = tell(address);
    EXPECT_EQ(told.type, 0u);
    EXPECT_EQ(told.begin, 0u);
    EXPECT_EQ(told.bytes, 0u);
    EXPECT_EQ(told.context, nullptr);
  }
};

TEST_F(KnownMemoryTest, DevicePinnedAndRegisteredMemoryIsToldByAnyAddressInIt) {
  CUdeviceptr device = 0;
  ASSERT_OK(api().cuMemAlloc(&device, 1000));
  for (const uint64_t offset : {0, 1, 999}) {
    const Told told = tell(device + offset);
    EXPECT_EQ(told.type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
    EXPECT_EQ(told.device, 0);
    EXPECT_EQ(told.begin, device);
    EXPECT_EQ(told.bytes, 1000u);
    EXPECT_NE(told.context, nullptr);
  }
  expect_none(device + 1000);
  expect_none(device - 1);
  ASSERT_OK(api().cuMemFree(device));
  expect_none(device);

  void* pinned = nullptr;
  ASSERT_OK(api().cuMemHostAlloc(&pinned, 64, 0));
  EXPECT_EQ(tell(reinterpret_cast<uint64_t>(pinned) + 63).type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  ASSERT_OK(api().cuMemFreeHost(pinned));

  std::vector<std::byte> own(4096);
  const auto address = reinterpret_cast<uint64_t>(own.data());
  expect_none(address);
  ASSERT_OK(api().cuMemHostRegister(own.data(), own.size(), 0));
  EXPECT_EQ(tell(address + 5).type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(tell(address + 5).begin, address);
  ASSERT_OK(api().cuMemHostUnregister(own.data()));
  expect_none(address);
}

TEST_F(KnownMemoryTest, NumbersAreNoAddressesAndOtherAttributesAreRefused) {
  for (const uint64_t number : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) expect_none(number);
  CUpointer_attribute unknown = CU_POINTER_ATTRIBUTE_BUFFER_ID;
  uint64_t value = 0;
  void* values[] = {&value};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuPointerGetAttributes(1, &unknown, values, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuPointerGetAttributes(0, &unknown, values, 0));
}

}  // namespace
}  // namespace nodewright
