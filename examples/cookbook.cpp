// The snippets of docs/cookbook.md, in programs around them: tests/examples/test_cookbook.py compares the two.
// `cookbook cpu:devices=2` runs all of them without a GPU.
#include <nodewright/nodewright.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <vector>

NODEWRIGHT_ARGS(CountDown, {
  InOut<uint32_t> count;  // [1]: one less
  Condition more;         // whether it is still above 0
})

NODEWRIGHT_ARGS(Scale, {
  InOut<float> y;  // [n]: y *= kFactor
})

using namespace nodewright;

namespace {

constexpr unsigned kCount = 1000;

// What every recipe finds: two buffers of a thousand floats, and y += a x.
struct Machine {
  Device& device;
  Stream stream{device, "main"};
  KernelCache kernels{device};
  Kernel<Saxpy> saxpy = kernels.kernel<Saxpy>("saxpy", saxpy_shape(kCount));
  DeviceBuffer x_buffer{device, "x", kCount * sizeof(float)}, y_buffer{device, "y", kCount * sizeof(float)};
  View<float> x = view_of<float>(x_buffer), y = view_of<float>(y_buffer);

  explicit Machine(Device& device) : device(device) {
    const std::vector<float> ones(kCount, 1.0f), twos(kCount, 2.0f);
    write_view<float>(device, x, ones, "x");
    write_view<float>(device, y, twos, "y");
  }
};

void expect(const Machine& on, View<float> view, float expected, const char* recipe) {
  on.stream.synchronize();
  std::vector<float> values(view.count);
  read_view<float>(on.device, values, view, recipe);
  for (const float value : values)
    if (value != expected)
      throw Error({.doing = "follow the recipe",
                   .object = recipe,
                   .detail = std::to_string(value) + " in place of " + std::to_string(expected)});
  std::printf("%s: %g\n", recipe, static_cast<double>(expected));
}

void bring_a_kernel(Device& device) {
  const Machine on(device);
  const auto& [stream, y_buffer, y] = std::tie(on.stream, on.y_buffer, on.y);
  // Recipe: Bring a kernel
  constexpr std::string_view text = R"(extern "C" __global__ void halve(unsigned n, float* y) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] *= 0.5f;
  })";
  const auto on_host = [](unsigned n, float* y) {
    for (unsigned i = 0; i < n; ++i) y[i] *= 0.5f;
  };
  KernelCache kernels(device);
  kernels.add({"kernels_src/halve.cu", text});
  const ForeignKernel halve = compile_kernel(kernels, {"halve", {}}, on_host);

  GraphBuilder g(device, "bring_a_kernel");
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  g.launch("halve", halve, launch_shape_1d(4, 256), 1000u, updates(y));
  ExplicitGraph graph(std::move(g).finish());
  // End.
  graph.launch(stream);
  expect(on, y, 1.0f, "bring a kernel");
}

// A library as its vendor ships it: it submits to the stream it is given.
struct VendorHandle {
  Driver& driver;
};
void vendor_fill(VendorHandle handle, CUstream stream, float* to, uint32_t bits, uint64_t count) {
  const CUresult result = handle.driver.cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(to), bits, count, stream);
  handle.driver.check(result, "cuMemsetD32Async", "fill", "a vendor's memory");
}

void bring_a_library(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x_buffer, y_buffer] = std::tie(on.stream, on.saxpy, on.x_buffer, on.y_buffer);
  const View<float> x = on.x, y = on.y;
  const VendorHandle handle{device.driver()};
  constexpr uint32_t kFour = 0x40800000;  // the bits of 4.0f
  // Recipe: Bring a library
  GraphBuilder g(device, "bring_a_library");
  g.declare(x_buffer);
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  const auto submit = [=](CUstream stream) { vendor_fill(handle, stream, x.data, kFour, x.count); };
  const auto on_host = [=] { std::fill_n(x.data, x.count, 4.0f); };
  g.library("vendor", {writes(x)}, submit, on_host);
  g.launch("saxpy", saxpy, {.x = x, .y = y, .a = 1.0f});  // follows it: reads x
  ExplicitGraph graph(std::move(g).finish());
  // End.
  graph.launch(stream);
  expect(on, y, 6.0f, "bring a library");
}

void bring_a_stream(Device& opened) {
  const Machine on(opened);
  Driver& driver = opened.driver();
  CUcontext framework_context = opened.context();
  CUstream framework_stream = nullptr;
  driver.check(driver.cuStreamCreate(&framework_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate", "make", "a stream");
  const uint64_t framework_pointer = on.y.address();
  {
    // Recipe: Bring a stream, and memory
    Device device = Device::adopt(driver, framework_context);
    const Stream stream = Stream::borrow(device, framework_stream, "framework");
    const View<float> hidden{reinterpret_cast<float*>(framework_pointer), 1000};

    GraphBuilder g(device, "bring_a_stream");
    g.declare({"hidden", hidden.address(), hidden.bytes(), "activation"}, {.live_out = true});
    g.fill("clear", hidden, 0.0f);
    ExplicitGraph graph(std::move(g).finish());
    graph.launch(stream);
    // End.
    stream.synchronize();
  }
  driver.cuStreamDestroy(framework_stream);
  expect(on, on.y, 0.0f, "bring a stream");
}

void port_from_capture(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x_buffer, y_buffer, x, y] =
      std::tie(on.stream, on.saxpy, on.x_buffer, on.y_buffer, on.x, on.y);
  const Driver& driver = device.driver();
  CUgraph captured = nullptr;
  driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  driver.cuMemsetD32Async(x.address(), 0x40400000, x.count, stream.get());  // the bits of 3.0f
  driver.check(driver.cuStreamEndCapture(stream.get(), &captured), "cuStreamEndCapture", "capture", "a fill");
  {
    // Recipe: Port from capture
    GraphBuilder g(device, "port_from_capture");
    g.declare(x_buffer);
    g.declare(y_buffer, {.live_in = true, .live_out = true});
    g.graph("not_ported_yet", captured, {writes(x)});       // all that the captured graph touches
    g.launch("saxpy", saxpy, {.x = x, .y = y, .a = 2.0f});  // what was its last kernel
    ExplicitGraph graph(std::move(g).finish());
    // End.
    graph.launch(stream);
    expect(on, y, 8.0f, "port from capture");
  }
  driver.cuGraphDestroy(captured);
}

void keep_a_buffer(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x_buffer, x] = std::tie(on.stream, on.saxpy, on.x_buffer, on.x);
  // Recipe: Keep a buffer from launch to launch
  const DeviceBuffer cache(device, "cache", 4000);
  fill_device(device, cache.address(), std::byte{0}, cache.bytes(), "cache");

  GraphBuilder g(device, "keep_a_buffer");
  g.declare(x_buffer, {.live_in = true});                          // written before the plan runs
  g.declare(cache, {.live_in = true, .live_out = true}, "state");  // and read after it
  g.launch("add", saxpy, {.x = x, .y = view_of<float>(cache), .a = 1.0f});
  ExplicitGraph graph(std::move(g).finish());
  for (int step = 0; step < 3; ++step) graph.launch(stream);
  // End.
  expect(on, view_of<float>(cache), 3.0f, "keep a buffer");
}

void allocate_scratch(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x_buffer, y_buffer, x, y] =
      std::tie(on.stream, on.saxpy, on.x_buffer, on.y_buffer, on.x, on.y);
  // Recipe: Allocate scratch memory
  GraphBuilder g(device, "allocate_scratch");
  g.declare(x_buffer, {.live_in = true});
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  const Allocation scratch = g.allocate("scratch", 4000);
  const View<float> doubled = scratch.view<float>();
  g.fill("zero", doubled, 0.0f);
  g.launch("double", saxpy, {.x = x, .y = doubled, .a = 2.0f});
  g.launch("add", saxpy, {.x = doubled, .y = y, .a = 1.0f});
  g.free(scratch);
  ExplicitGraph graph(std::move(g).finish());
  // End.
  graph.launch(stream);
  expect(on, y, 4.0f, "allocate scratch");
}

void copy_a_box(Device& device) {
  const Machine on(device);
  const Stream& stream = on.stream;
  // Recipe: Copy a box
  const DeviceArray<float> from(device, "from", 4 * 5 * 6), to(device, "to", 3 * 4 * 5);
  GraphBuilder g(device, "copy_a_box");
  g.fill("ones", from, 1.0f);
  g.fill("zeros", to, 0.0f);
  g.copy_box("box", to, from,  // 2 slices of 3 rows of 4 floats: of a tensor [4, 5, 6] into one of [3, 4, 5]
             {.bytes = 4 * sizeof(float),
              .rows = 3,
              .slices = 2,
              .to_pitch = 5 * sizeof(float),
              .to_height = 4,
              .from_pitch = 6 * sizeof(float),
              .from_height = 5});
  ExplicitGraph graph(std::move(g).finish());
  // End.
  graph.launch(stream);
  float sum = 0;
  for (const float value : to.read(stream)) sum += value;
  if (sum != 24.0f) throw Error({.doing = "copy", .object = "a box", .detail = std::to_string(sum)});
}

void copy_through_an_array(Device& device) {
  const Machine on(device);
  const auto& [stream, x, y_buffer, y] = std::tie(on.stream, on.x, on.y_buffer, on.y);
  const ContextGuard current(device);
  const CUDA_ARRAY_DESCRIPTOR of_floats{.Width = 100, .Height = 10, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUarray array = nullptr;
  device.driver().check(device.driver().cuArrayCreate(&array, &of_floats), "cuArrayCreate", "create", "pixels");
  {
    // Recipe: Copy to and from an array
    GraphBuilder g(device, "copy_through_an_array");  // `array`: a CUarray of 10 rows of 100 floats
    g.declare(y_buffer, {.live_out = true});
    const ArrayRange pixels = g.declare_array("pixels", array);
    g.fill("ones", x, 1.0f);
    g.copy_box("upload", pixels.at(), x, {.bytes = 400, .rows = 10, .from_pitch = 400});
    // A node that reads its texture lists reads(pixels.bytes()).
    g.copy_rows("download", y, pixels.at(40, 2), {.bytes = 80, .rows = 8, .to_pitch = 80});  // from byte 40 of row 2
    ExplicitGraph graph(std::move(g).finish());
    // End.
    graph.launch(stream);
    stream.synchronize();
  }
  device.driver().cuArrayDestroy(array);
  expect(on, y.subview(0, 160), 1.0f, "copy to and from an array");
}

void leave_a_result(Device& device) {
  const Machine on(device);
  const auto& [stream, x_buffer, x] = std::tie(on.stream, on.x_buffer, on.x);
  // Recipe: Leave memory allocated
  GraphBuilder g(device, "leave_a_result");
  g.declare(x_buffer, {.live_in = true});
  const Allocation result = g.allocate("result", x.bytes());
  g.copy("copy", result.view<float>(), x, x.bytes());
  g.declare(result.range(), {.live_out = true});  // no node frees it
  ExplicitGraph graph(std::move(g).finish(), {.auto_free_on_launch = true, .upload = &stream});
  graph.launch(stream);
  const View<float> held{reinterpret_cast<float*>(graph.memory().address_of(result.address)), x.count};
  // End.
  expect(on, held, 1.0f, "leave memory allocated");
}

void wait_for_a_value(Device& device) {
  const Machine on(device);
  const auto& [stream, y_buffer, y] = std::tie(on.stream, on.y_buffer, on.y);
  const PinnedBuffer flags(device, "flags", 2 * sizeof(uint32_t));
  const View<uint32_t> go{flags.as<uint32_t>().data(), 1}, done{go.data + 1, 1};
  *go.data = *done.data = 0;
  // Recipe: Wait for a value
  GraphBuilder g(device, "wait_for_a_value");
  g.declare(flags, {.live_in = true, .live_out = true});
  g.declare(y_buffer, {.live_out = true});
  g.wait_value("go", go, Until::at_least, 1u, {writes(y)});
  g.fill("clear", y, 0.0f);
  g.write_value("done", done, 1u, {reads(y)});
  ExplicitGraph graph(std::move(g).finish());
  graph.launch(stream);
  std::atomic_ref(*go.data).store(1);  // when the host is ready
  // End.
  expect(on, y, 0.0f, "wait for a value");
  if (*done.data != 1) throw Error({.doing = "read", .object = "a value that a graph has written"});
}

void loop(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x_buffer, y_buffer, x, y] =
      std::tie(on.stream, on.saxpy, on.x_buffer, on.y_buffer, on.x, on.y);
  const DeviceBuffer count_buffer(device, "count", 4);
  const View<uint32_t> count = view_of<uint32_t>(count_buffer);
  const InlineKernel source("count_down", kCountDownText, R"(
    NODEWRIGHT_KERNEL(count_down, CountDown, 32) {
      wait_for_inputs();
      if (threadIdx.x == 0) set_condition(args.more, --args.count.data[0]);
    })");
  KernelCache kernels(device, {.folder = {}, .extra_sources = {source}, .progress = {}});
  const auto count_down = kernels.kernel<CountDown>("count_down", launch_shape_1d(1, 32));
  // Recipe: Loop on the device
  GraphBuilder g(device, "loop");
  g.declare(x_buffer, {.live_in = true});
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  g.declare(count_buffer);
  g.fill("rounds", count, 5u);
  const ConditionHandle more = g.condition("more", 1);
  g.while_loop("five_times", more, [&](GraphBuilder& body) {
    body.launch("saxpy", saxpy, {.x = x, .y = y, .a = 2.0f});
    body.launch("count_down", count_down, {.count = count, .more = more});
  });
  ExplicitGraph graph(std::move(g).finish());
  // End.
  graph.launch(stream);
  expect(on, y, 12.0f, "loop");
}

void set_a_condition(Device& device) {
  const Machine on(device);
  const auto& [stream, x_buffer, y_buffer, x, y] = std::tie(on.stream, on.x_buffer, on.y_buffer, on.x, on.y);
  constexpr std::string_view text = R"(
    extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned value);
    extern "C" __global__ void choose(unsigned long long handle, const float* x) {
      cudaGraphSetConditional(handle, x[0] > 0.5f);
    })";
  KernelCache kernels(device);
  kernels.add({"kernels_src/choose.cu", text});
  // Recipe: Set a condition in a kernel you bring
  const auto on_host = [&](unsigned long long handle, const float* x) {
    device.driver().set_condition(handle, x[0] > 0.5f);
  };
  const ForeignKernel choose = compile_kernel(kernels, {"choose", {}}, on_host);

  GraphBuilder g(device, "branch");
  g.declare(x_buffer, {.live_in = true});
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  const ConditionHandle large = g.condition("large", 0);
  g.launch("choose", choose, launch_shape_1d(1, 1), large, reads(x));
  g.if_else("if", large, [&](GraphBuilder& then) { then.fill("clear", y, 0.0f); });
  ExplicitGraph graph(std::move(g).finish());
  // End.
  graph.launch(stream);
  expect(on, y, 0.0f, "set a condition");
}

void patch_a_scalar(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x_buffer, y_buffer, x, y] =
      std::tie(on.stream, on.saxpy, on.x_buffer, on.y_buffer, on.x, on.y);
  // Recipe: Patch a scalar
  GraphBuilder g(device, "patch_a_scalar");
  g.declare(x_buffer, {.live_in = true});
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  const auto node = g.launch("saxpy", saxpy, {.x = x, .y = y, .a = 1.0f});
  ExplicitGraph graph(std::move(g).finish());
  for (const float a : {1.0f, 10.0f}) {
    graph.patch(node, &Saxpy::a, a);  // of a foreign kernel: graph.patch<"a">(node, a)
    graph.launch(stream);
  }
  // End.
  expect(on, y, 13.0f, "patch a scalar");
}

void change_a_kernel(Device& device) {
  const Machine on(device);
  const auto& [stream, y_buffer, y] = std::tie(on.stream, on.y_buffer, on.y);
  const InlineKernel source("scale", kScaleText, R"(
    NODEWRIGHT_KERNEL(scale, Scale, 256) {
      const uint64_t i = blockIdx.x * 256ull + threadIdx.x;
      wait_for_inputs();
      if (i < args.y.count) args.y.data[i] *= static_cast<float>(kFactor);
    })");
  KernelCache kernels(device, {.folder = {}, .extra_sources = {source}, .progress = {}});
  // Recipe: Change a kernel
  const LaunchShape shape = launch_shape_1d(4, 256);
  const auto twofold = kernels.kernel<Scale>({.name = "scale", .constants = {{"kFactor", 2}}}, shape);
  const auto tenfold = kernels.kernel<Scale>({.name = "scale", .constants = {{"kFactor", 10}}}, shape);
  GraphBuilder g(device, "change_a_kernel");
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  const auto node = g.launch("scale", twofold, {.y = y});
  ExplicitGraph graph(std::move(g).finish());
  graph.launch(stream);
  graph.patch(node, tenfold);  // of a foreign kernel: graph.patch(node, kernel, shape)
  graph.launch(stream);
  const std::string now = to_text(plan_as_patched(graph));  // with the new kernel
  // End.
  expect(on, y, 40.0f, "change a kernel");
  if (now.empty()) throw Error({.doing = "dump", .object = "a patched plan"});
}

void grow_shared_memory(Device& device) {
  const Machine on(device);
  const auto& [stream, y_buffer, y] = std::tie(on.stream, on.y_buffer, on.y);
  const InlineKernel source("scale", kScaleText, R"(
    NODEWRIGHT_KERNEL(scale, Scale, 256) {
      const uint64_t i = blockIdx.x * 256ull + threadIdx.x;
      wait_for_inputs();
      if (i < args.y.count) args.y.data[i] *= static_cast<float>(kFactor);
    })");
  KernelCache kernels(device, {.folder = {}, .extra_sources = {source}, .progress = {}});
  // Recipe: Grow shared memory
  const KernelRequest request{.name = "scale", .constants = {{"kFactor", 2}}, .allow_shared = 64 << 10};
  const auto scale = kernels.kernel<Scale>(request, launch_shape_1d(4, 256, 1 << 10));
  GraphBuilder g(device, "grow_shared_memory");
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  const auto node = g.launch("scale", scale, {.y = y});
  ExplicitGraph graph(std::move(g).finish());
  PatchSet patches(graph);
  patches.shape(node, launch_shape_1d(4, 256, 64 << 10));
  patches.apply();
  graph.launch(stream);
  // End.
  expect(on, y, 4.0f, "grow shared memory");
}

void change_a_function(Device& device) {
  const Machine on(device);
  const auto& [stream, y_buffer, y] = std::tie(on.stream, on.y_buffer, on.y);
  const PinnedBuffer seen(device, "seen", 4000);
  float sum = 0;
  // Recipe: Change a host function
  const auto values = seen.as<float>();
  GraphBuilder g(device, "change_a_function");
  g.declare(y_buffer, {.live_in = true});
  g.declare(seen, {.live_out = true});
  g.copy("download", seen, y_buffer, 4000);
  const NodeId node = g.host("first", [&] { sum = values[0]; }, {{"seen", seen, Access::in}});
  ExplicitGraph graph(std::move(g).finish());
  PatchSet patches(graph);
  patches.host(node, [&] { sum = values[0] + values[1]; });  // of an event node: patches.event(node, event)
  patches.apply();
  graph.launch(stream);
  // End.
  expect(on, y, 2.0f, "change a host function");
  if (sum != 4.0f) throw Error({.doing = "call", .object = "another function"});
}

void keep_an_object(Device& device) {
  const Machine on(device);
  const auto& [stream, y_buffer, y] = std::tie(on.stream, on.y_buffer, on.y);
  const PinnedBuffer seen(device, "seen", kCount * sizeof(float));
  for (float& value : seen.as<float>()) value = 3.0f;
  // Recipe: Keep an object
  const auto table = std::make_shared<const std::vector<float>>(100, 3.0f);
  const auto values = seen.as<float>();
  GraphBuilder g(device, "keep_an_object");
  g.declare(y_buffer, {.live_out = true});
  g.declare(seen, {.live_in = true, .live_out = true});
  g.keep("table", table);  // the graph refers to it until its last launch has ended
  g.host("look up", [values, table = table.get()] { values[0] = (*table)[42]; }, {{"seen", seen, Access::inout}});
  g.copy("upload", y_buffer, seen, 4000);
  ExplicitGraph graph(std::move(g).finish());
  // End.
  graph.launch(stream);
  expect(on, y, 3.0f, "keep an object");
}

void update_a_graph(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x, y] = std::tie(on.stream, on.saxpy, on.x, on.y);
  // Recipe: Update a graph
  const auto plan_of = [&](View<float> from, View<float> to, float a) {
    GraphBuilder g(device, "step");
    g.declare(on.x_buffer, {.live_in = true, .live_out = true});
    g.declare(on.y_buffer, {.live_in = true, .live_out = true});
    g.launch("saxpy", saxpy, {.x = from, .y = to, .a = a});
    return std::move(g).finish();
  };
  ExplicitGraph graph(plan_of(x, y, 1.0f));
  graph.launch(stream);
  const Plan next = plan_of(y, x, 2.0f);               // the same nodes over other memory
  for (const NodeChange& change : graph.update(next))  // all of it, or an Error and the graph as it was
    std::puts(describe(change, next).c_str());         // saxpy: scalars, memory
  graph.launch(stream);
  // End.
  expect(on, x, 7.0f, "update a graph");
}

void list_what_a_recapture_changes(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x, y] = std::tie(on.stream, on.saxpy, on.x, on.y);
  const auto plan_of = [&](float a) {
    GraphBuilder g(on.device, "step");
    g.declare(on.x_buffer, {.live_in = true});
    g.declare(on.y_buffer, {.live_in = true, .live_out = true});
    g.launch("saxpy", saxpy, {.x = x, .y = y, .a = a});
    return std::move(g).finish();
  };
  // Recipe: List what a recapture changes
  CapturedGraph graph(plan_of(1.0f), stream);
  const auto on_change = [](const RecaptureChange& change) {
    std::puts(describe(change).c_str());  // saxpy: argument 'a'
    return change.updatable;              // false: the graph stays as it was
  };
  if (device.driver().cuStreamBeginRecaptureToGraph)  // CUDA 13.3
    graph.recapture(plan_of(3.0f), stream, on_change);
  else
    graph.recapture(plan_of(3.0f), stream);
  graph.launch(stream);
  // End.
  expect(on, y, 5.0f, "list what a recapture changes");
}

void confine_a_node(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x, y] = std::tie(on.stream, on.saxpy, on.x, on.y);
  const auto& [x_buffer, y_buffer] = std::tie(on.x_buffer, on.y_buffer);
  // Recipe: Confine nodes to some multiprocessors
  const auto [few, others] = split_multiprocessors(device, 2);  // 8 and 124 on an H200
  GraphBuilder g(device, "confine");
  g.declare(x_buffer, {.live_in = true});
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  g.fill("reset", y, 1.0f);
  g.launch("saxpy", saxpy, {.x = x, .y = y, .a = 4.0f}, {.attributes = {.green = few.place()}});
  ExplicitGraph graph(std::move(g).finish());
  // End.
  graph.launch(stream);
  expect(on, y, 5.0f, "confine nodes");
}

void edit_a_plan(Device& device) {
  const Machine on(device);
  const auto& [stream, saxpy, x, y] = std::tie(on.stream, on.saxpy, on.x, on.y);
  const auto& [x_buffer, y_buffer] = std::tie(on.x_buffer, on.y_buffer);
  // Recipe: Edit a plan
  GraphBuilder g(device, "edit_a_plan");
  g.declare(x_buffer, {.live_in = true});
  g.declare(y_buffer, {.live_in = true, .live_out = true});
  g.launch("first", saxpy, {.x = x, .y = y, .a = 1.0f});
  const auto last = g.launch("last", saxpy, {.x = x, .y = y, .a = 2.0f});

  PlanEdit edit(std::move(g).finish());
  edit.insert_before("last", [&](GraphBuilder& builder) { builder.fill("reset", y, 10.0f); });
  edit.remove("first");
  const Plan edited = edit.finish();   // reset, then last: edges are inferred anew
  std::puts(to_text(edited).c_str());  // edited inserted reset before last; removed first
  ExplicitGraph graph(edited);
  graph.patch(edit.handle(last), &Saxpy::a, 5.0f);  // a handle of the plan before
  // End.
  graph.launch(stream);
  expect(on, y, 15.0f, "edit a plan");
}

Plan two_fills_and_saxpy(const Machine& on) {
  GraphBuilder g(on.device, "three_nodes");
  g.declare(on.x_buffer);
  g.declare(on.y_buffer, {.live_out = true});
  g.fill("ones", on.x, 1.0f);
  g.fill("twos", on.y, 2.0f);
  g.launch("saxpy", on.saxpy, {.x = on.x, .y = on.y, .a = 3.0f});
  return std::move(g).finish();
}

void time_nodes(Device& device) {
  Machine on(device);
  const auto& [kernels, stream] = std::tie(on.kernels, on.stream);
  const Plan plan = two_fills_and_saxpy(on);
  // Recipe: Time every node
  NodeTimer timer(plan, kernels, stream);
  const PlanTimings timings = timer.measure({.samples = 3, .launches_per_sample = 2});
  for (const NodeTiming& timing : timings.nodes)
    std::printf("%s: %.2f us\n", plan.nodes[timing.node].name.c_str(), timing.time_us);
  const std::string page = to_html(plan, &timings);  // for a browser
  // End.
  if (timings.nodes.size() != 3 || page.empty()) throw Error({.doing = "time", .object = "three nodes"});
}

void two_devices(Driver& driver) {
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount", "count", "devices");
  if (count < 2) {
    std::puts("two devices: skipped, there is one");
    return;
  }
  // Recipe: Two devices on one thread
  Device first(driver, 0), second(driver, 1);
  const auto filled = [](Device& device, const DeviceBuffer& to, float value) {
    GraphBuilder g(device, "fill_" + to.name());
    g.declare(to, {.live_out = true});
    g.fill("fill", view_of<float>(to), value);
    return ExplicitGraph(std::move(g).finish());
  };
  const DeviceBuffer a(first, "a", 4000), b(second, "b", 4000);
  const Stream on_first(first, "first"), on_second(second, "second");
  ExplicitGraph fill_a = filled(first, a, 1.0f), fill_b = filled(second, b, 2.0f);
  fill_a.launch(on_first);
  fill_b.launch(on_second);  // a graph runs on streams of its own device
  // End.
  on_first.synchronize();
  on_second.synchronize();
  expect(Machine(second), view_of<float>(b), 2.0f, "two devices");
}

void sum_over_devices(Driver& driver) {
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount", "count", "devices");
  if (count < 2) {
    std::puts("sum over devices: skipped, there is one");
    return;
  }
  Device first(driver, 0), second(driver, 1);
  const Machine of_first(first), of_second(second);
  const std::vector<const Machine*> on = {&of_first, &of_second};
  std::vector<std::unique_ptr<KernelCache>> caches;
  std::vector<Kernel<AllReduce>> sum;
  for (Device* device : {&first, &second}) {
    caches.push_back(std::make_unique<KernelCache>(*device));
    sum.push_back(caches.back()->kernel<AllReduce>({.name = "all_reduce", .constants = {{"kRanks", 2}}},
                                                   all_reduce_shape(kCount, 4)));
  }
  // Recipe: A sum over devices
  Team team({&first, &second});
  ExchangeMemory memory(team, "partial", {.packets = kCount, .most = 2});
  const auto describe_rank = [&](GraphBuilder& g, TeamRank& rank) {  // called once a rank
    const Machine& own = *on[rank.index()];
    g.declare(own.x_buffer, {.live_in = true});
    g.declare(own.y_buffer, {.live_out = true});
    g.launch("sum", sum[rank.index()], {.x = own.x, .y = own.y, .exchange = rank.exchange(kCount)});
    g.launch("again", sum[rank.index()], {.x = own.y, .y = own.x, .exchange = rank.exchange(kCount)});
  };
  TeamGraph graph(memory, plan_team(memory, "sums", describe_rank));
  const TeamStream streams(team, "sums");
  graph.launch(streams);
  streams.synchronize();
  // End.
  expect(of_second, of_second.y, 2.0f, "a sum over devices");
}

void read_a_dump(Device& device) {
  const Machine on(device);
  const Plan plan = two_fills_and_saxpy(on);
  // Recipe: Read a dump
  std::puts(to_text(plan).c_str());
  for (const Edge& edge : plan.edges)
    for (const Reason& reason : edge.reasons)
      std::printf("%s comes after %s: %s\n", plan.nodes[edge.to].name.c_str(), plan.nodes[edge.from].name.c_str(),
                  describe(plan, reason).c_str());

  ExplicitGraph graph(plan);
  for (const std::string& difference : read_back(graph)) std::puts(difference.c_str());  // none
  // End.
  if (plan.edges.size() != 2 || !read_back(graph).empty()) throw Error({.doing = "read", .object = "a dump"});
}

void look_into_a_graph(Device& device) {
  const Machine on(device);
  const Stream& stream = on.stream;
  KernelCache kernels(device);
  ExplicitGraph elsewhere(two_fills_and_saxpy(on));
  const CUgraph captured = elsewhere.graph();
  // Recipe: Look into any graph
  // x and y of saxpy's struct. read_uses("uses.txt") reads such lines from a file.
  const auto uses = parse_uses("saxpy: argument 0 at 0 reads 4000, argument 0 at 16 updates 4000\n", "uses");
  const Plan plan = read_graph(device, captured, {.name = "captured", .uses = uses});
  std::puts(to_text(plan, Fold::layers).c_str());
  std::puts(order_report(plan).c_str());  // orders that no edge makes, edges that could be programmatic

  const TimedGraph timed = time_graph(device, captured, kernels, stream, {.name = "captured", .uses = uses});
  const std::string dump = to_json(timed.plan, &timed.timings);  // for nodewright graph --read, and --diff
  // End.
  if (plan.nodes.size() != 3 || plan.nodes[2].uses.size() != 2 || !missing_orders(plan).empty() ||
      to_text(plan_of({dump, "dump"})) != to_text(timed.plan))
    throw Error({.doing = "look into", .object = "a graph", .detail = to_text(plan)});
}

}  // namespace

int main(int argc, char** argv) try {
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "auto");
  Device& device = *opened.device;
  bring_a_kernel(device);
  bring_a_library(device);
  bring_a_stream(device);
  port_from_capture(device);
  keep_a_buffer(device);
  allocate_scratch(device);
  copy_a_box(device);
  copy_through_an_array(device);
  leave_a_result(device);
  wait_for_a_value(device);
  loop(device);
  set_a_condition(device);
  patch_a_scalar(device);
  change_a_kernel(device);
  grow_shared_memory(device);
  change_a_function(device);
  keep_an_object(device);
  update_a_graph(device);
  list_what_a_recapture_changes(device);
  confine_a_node(device);
  edit_a_plan(device);
  time_nodes(device);
  two_devices(*opened.driver);
  sum_over_devices(*opened.driver);
  read_a_dump(device);
  look_into_a_graph(device);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "cookbook: %s\n", error.what());
  return 1;
}
