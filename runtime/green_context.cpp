#include "runtime/green_context.h"

#include "runtime/context_guard.h"
#include "runtime/error.h"
#include "runtime/moved_into.h"

namespace nodewright {

GreenContext::GreenContext(Device& device, const CUdevResource& share) {
  const Driver& driver = device.driver();
  const std::string object = std::to_string(share.sm.smCount) + " multiprocessors";
  const auto check = [&](CUresult result, std::string_view call) {
    driver.check(result, call, "make a green context of", object, "of " + describe_device(device));
  };
  CUdevResource resource = share;
  CUdevResourceDesc descriptor = nullptr;
  check(driver.cuDevResourceGenerateDesc(&descriptor, &resource, 1), "cuDevResourceGenerateDesc");
  check(driver.cuGreenCtxCreate(&green_, descriptor, device.get(), CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate");
  place_ = {nullptr, share.sm.smCount, &device};
  if (const CUresult result = driver.cuCtxFromGreenCtx(&place_.context, green_); result != CUDA_SUCCESS) {
    driver.cuGreenCtxDestroy(green_);
    check(result, "cuCtxFromGreenCtx");
  }
}

GreenContext::GreenContext(GreenContext&& other) noexcept
    : green_(std::exchange(other.green_, nullptr)), place_(std::exchange(other.place_, {})) {}

GreenContext& GreenContext::operator=(GreenContext&& other) noexcept { return moved_into(*this, std::move(other)); }

GreenContext::~GreenContext() {
  if (green_ == nullptr) return;
  const ContextGuard current(*place_.device, std::nothrow);
  place_.device->driver().cuGreenCtxDestroy(green_);
}

std::pair<GreenContext, GreenContext> split_multiprocessors(Device& device, unsigned multiprocessors) {
  const ContextGuard current(device);
  const Driver& driver = device.driver();
  const std::string object = describe_device(device);
  CUdevResource all{}, share{}, rest{};
  driver.check(driver.cuDeviceGetDevResource(device.get(), &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource",
               "read the multiprocessors of", object);
  if (multiprocessors == 0)
    throw Error({.doing = "split the multiprocessors of",
                 .object = object,
                 .detail = "0 multiprocessors are no share",
                 .advice = "ask for at least one"});
  unsigned groups = 1;
  const std::string detail = std::to_string(multiprocessors) + " of its " + std::to_string(all.sm.smCount);
  driver.check(driver.cuDevSmResourceSplitByCount(&share, &groups, &all, &rest, 0, multiprocessors),
               "cuDevSmResourceSplitByCount", "split the multiprocessors of", object, detail, "ask for fewer");
  if (rest.type != CU_DEV_RESOURCE_TYPE_SM || rest.sm.smCount == 0)
    throw Error({.doing = "split the multiprocessors of",
                 .object = object,
                 .detail = detail + " take all, since the driver hands them out in groups",
                 .advice = "ask for fewer"});
  return {GreenContext(device, share), GreenContext(device, rest)};
}

}  // namespace nodewright
