// Plans of two devices, built, changed and launched on one thread while a third party's context is current.
#include "tests/support/two_devices.h"

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "graph/graph_exec.h"
#include "graph/run/captured_run.h"
#include "graph/run/eager_run.h"
#include "graph/run/graph_reserve.h"
#include "kernels_src/saxpy.h"
#include "runtime/context_guard.h"
#include "runtime/event.h"
#include "tests/graph/nodes/foreign_blend.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

constexpr uint64_t kCount = 1000;

// What a program holds on one device.
struct World {
  World(Driver& driver, int ordinal) : device(driver, ordinal) {}

  Plan plan(const std::string& name) {
    GraphBuilder g(device, name);
    g.declare(x, {.live_in = true});
    g.declare(y, {.live_out = true});
    g.fill("clear", view_of<float>(y), 1.0f);
    axpy = g.launch("axpy", kernel, {.x = view_of<float>(x), .y = view_of<float>(y), .a = 2.0f});
    return std::move(g).finish(EdgePolicy::programmatic);
  }
  void set_x(float value) {
    const std::vector<float> values(kCount, value);
    write_view<float>(device, view_of<float>(x), values, "x");
  }
  float last_y() {
    stream.synchronize();
    std::vector<float> values(kCount);
    read_view<float>(device, values, view_of<float>(y), "y");
    return values.back();
  }

  Device device;
  KernelCache kernels{device};
  Stream stream{device, "s"};
  DeviceBuffer x{device, "x", kCount * sizeof(float)}, y{device, "y", kCount * sizeof(float)};
  Kernel<Saxpy> kernel = kernels.kernel<Saxpy>("saxpy", saxpy_shape(kCount));
  Node<Saxpy> axpy;
};

class TwoDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(driver_->cuInit(0), CUDA_SUCCESS);
    ASSERT_GE(test::device_count(*driver_), 2);
    a_.emplace(*driver_, 0);
    b_.emplace(*driver_, 1);
    a_->set_x(1.0f);
    b_->set_x(10.0f);
  }

  std::unique_ptr<Driver> driver_ = test::driver_of_several_devices();
  std::optional<World> a_, b_;
};

TEST_F(TwoDevicesTest, EveryRunOfEachWorksWhicheverContextIsCurrent) {
  for (World* current : {static_cast<World*>(nullptr), &*a_, &*b_}) {
    std::optional<ContextGuard> third_party;
    if (current != nullptr) third_party.emplace(current->device);
    const CUcontext before = driver_->current_context();
    const Plan plan_a = a_->plan("a"), plan_b = b_->plan("b");
    run_eager(plan_a, a_->stream);
    run_eager(plan_b, b_->stream);
    EXPECT_EQ(a_->last_y(), 3.0f);
    EXPECT_EQ(b_->last_y(), 21.0f);

    CapturedGraph captured_a(plan_a, a_->stream), captured_b(plan_b, b_->stream);
    a_->set_x(2.0f);
    captured_a.launch(a_->stream);
    captured_b.launch(b_->stream);
    EXPECT_EQ(a_->last_y(), 5.0f);
    EXPECT_EQ(b_->last_y(), 21.0f);

    reserve_graphs(plan_a, 1);
    ExplicitGraph exec_a(plan_a), exec_b(plan_b);
    exec_a.upload(a_->stream);
    exec_b.upload(b_->stream);
    for (int round = 0; round < 3; ++round) {
      const float scale = 1.0f + static_cast<float>(round);
      exec_a.patch(a_->axpy, &Saxpy::a, scale);
      exec_b.patch(b_->axpy, &Saxpy::a, -scale);
      exec_a.launch(a_->stream);
      exec_b.launch(b_->stream);
      EXPECT_EQ(a_->last_y(), 1.0f + 2.0f * scale);
      EXPECT_EQ(b_->last_y(), 1.0f - 10.0f * scale);
    }
    EXPECT_EQ(read_back(exec_a), std::vector<std::string>{});
    EXPECT_EQ(read_back(exec_b), std::vector<std::string>{});
    a_->set_x(1.0f);
    EXPECT_EQ(driver_->current_context(), before);
  }
}

TEST_F(TwoDevicesTest, AGraphIsNotLaunchedOnAStreamOfAnotherDevice) {
  ExplicitGraph exec(a_->plan("a"));
  expect_error([&] { exec.launch(b_->stream); }, {"graph 'a'", "stream 's'", "another device"});
  exec.launch(a_->stream);
  EXPECT_EQ(a_->last_y(), 3.0f);
}

// As in a framework that owns context, stream and event.
TEST_F(TwoDevicesTest, APlanRunsOnBorrowedHandlesInAnAdoptedContext) {
  World& framework = *b_;
  const Event done_of_framework(framework.device, "done");
  Device adopted = Device::adopt(*driver_, framework.device.context());
  KernelCache kernels(adopted);
  const Stream stream = Stream::borrow(adopted, framework.stream.get(), "the framework's");
  const Event done = Event::borrow(adopted, done_of_framework.get(), "the framework's");
  GraphBuilder g(adopted, "guest");
  const View<float> x = view_of<float>(framework.x), y = view_of<float>(framework.y);
  g.declare({"x", x.address(), x.bytes(), "input"}, {.live_in = true});
  g.declare({"y", y.address(), y.bytes(), "output"}, {.live_out = true});
  g.fill("clear", y, 1.0f);
  g.launch("axpy", kernels.kernel<Saxpy>("saxpy", saxpy_shape(kCount)), {.x = x, .y = y, .a = 2.0f});
  g.record_event("done", done, {reads(y)});
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  exec.launch(stream);
  done_of_framework.synchronize();
  EXPECT_EQ(framework.last_y(), 21.0f);
}

// A wrong device is named when it is declared or used, not by a fault when the graph runs.
TEST_F(TwoDevicesTest, WhatBelongsToAnotherDeviceIsRefusedWithBoth) {
  const std::string first = describe_device(a_->device), second = describe_device(b_->device);
  ASSERT_NE(first, second);
  GraphBuilder g(a_->device, "wrong");
  expect_error([&] { g.declare(b_->x, {.live_in = true}); },
               {"declare buffer 'x'", "plan 'wrong' of " + first, "is memory of " + second, "Live::peer"});
  const View<float> far = view_of<float>(b_->x), near = view_of<float>(a_->y);
  expect_error([&] { g.declare({"part", far.address() + 400, 40, "input"}); }, {"'part'", "is memory of " + second});
  CUdeviceptr adopted = 0;
  {
    const ContextGuard current(b_->device);
    ASSERT_EQ(driver_->cuMemAlloc(&adopted, 256), CUDA_SUCCESS);
  }
  expect_error([&] { g.declare({"adopted", adopted, 256, "input"}); }, {"'adopted'", "is memory of " + second});
  {
    const ContextGuard current(b_->device);
    ASSERT_EQ(driver_->cuMemFree(adopted), CUDA_SUCCESS);
  }
  g.fill("near", near, 1.0f);
  expect_error([&] { g.fill("far", far, 1.0f); }, {"node 'far'", "memory of " + second, "the plan is for " + first});
  expect_error([&] { g.launch("axpy", b_->kernel, {.x = near, .y = near, .a = 1.0f}); },
               {"node 'axpy'", "kernel 'saxpy' was loaded on " + second, "the plan is for " + first});
  const ForeignKernel foreign = load_foreign_blend(b_->device);
  expect_error([&] { g.launch("foreign", foreign, LaunchShape{}); }, {"node 'foreign'", "was loaded on " + second});
  const Event event(b_->device, "far event");
  expect_error([&] { g.record_event("record", event, {reads(near)}); },
               {"node 'record'", "event 'far event' is of " + second, "the plan is for " + first});
  const Plan child = b_->plan("child");
  expect_error([&] { g.child("child", child); }, {"node 'child'", first, second});
  EXPECT_EQ(g.node_count(), 1u);
}

TEST_F(TwoDevicesTest, EveryRunRefusesAStreamOfAnotherDevice) {
  const std::string first = describe_device(a_->device), second = describe_device(b_->device);
  const Plan plan = a_->plan("a");
  const auto refused = [&](const std::function<void()>& action) {
    expect_error(action, {"'a'", "stream 's' is of another device or context", "of " + second, "the plan of " + first});
  };
  refused([&] { run_eager(plan, b_->stream); });
  refused([&] { CapturedGraph captured(plan, b_->stream); });
  CapturedGraph captured(plan, a_->stream);
  refused([&] { captured.launch(b_->stream); });
  ExplicitGraph exec(plan);
  refused([&] { exec.launch(b_->stream); });
  refused([&] { exec.upload(b_->stream); });
  expect_error([&] { exec.patch(a_->axpy, b_->kernel); }, {"'axpy'", "was loaded on " + second});
  run_eager(plan, a_->stream);
  EXPECT_EQ(a_->last_y(), 3.0f);
}

// Peer memory has a word of its own, and copies between devices need no access.
TEST_F(TwoDevicesTest, PeerMemoryIsDeclaredAsSuchAndAnEventOfAnotherDeviceMayBeWaitedFor) {
  const Event done(b_->device, "done");
  done.record(b_->stream);
  GraphBuilder g(a_->device, "peer");
  g.declare(a_->x, {.live_in = true});
  g.declare(b_->y, {.live_out = true, .peer = true});
  g.wait_event("arrived", done, {});
  g.copy("over", view_of<float>(b_->y), view_of<float>(a_->x), a_->x.bytes());
  ExplicitGraph exec(std::move(g).finish());
  exec.launch(a_->stream);
  a_->stream.synchronize();
  EXPECT_EQ(b_->last_y(), 1.0f);
}

}  // namespace
}  // namespace nodewright
