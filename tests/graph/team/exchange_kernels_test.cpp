// The kernels of exchanges as NVRTC builds them for Ampere and Hopper, without a GPU: they compile, wait on every path,
// spill nothing, and read and write packets by one access of system scope each.
#include <gtest/gtest.h>

#include "kernels_src/exchange/all_reduce.h"
#include "kernels_src/projection/project_exchange.h"
#include "kernels_src/projection/project_exchange_shape.h"
#include "runtime/kernels/cubin_reader.h"
#include "runtime/kernels/kernel_waits.h"
#include "runtime/kernels/nvrtc.h"

namespace nodewright {
namespace {

struct BuiltKernel {
  CubinKernel cubin;
  std::string log;
  KernelWaits waits;
};

BuiltKernel build(const Nvrtc& nvrtc, const KernelRequest& request, int cc_major) {
  const KernelProgram program = program_of(request, {}, "runtime/cpu_driver/");
  NvrtcSource source{std::string(program.source.path), program.prelude + std::string(program.source.text), {}};
  for (const EmbeddedSource& header : program.headers)
    source.headers.push_back({std::string(header.path), std::string(header.text)});
  std::vector<std::string> options = nvrtc_options(cc_major, 0);
  options.emplace_back("--ptxas-options=-v");
  const NvrtcResult made = nvrtc.compile(source, options);
  return {read_cubin(made.cubin, request.name).at(0), made.log, waits_of(program)};
}

void expect_sound(const BuiltKernel& built, uint64_t args_bytes, const std::string& what) {
  EXPECT_TRUE(built.waits.for_inputs) << what;
  EXPECT_NE(built.log.find(" 0 bytes spill stores"), std::string::npos) << what << ": " << built.log;
  ASSERT_EQ(built.cubin.parameters.size(), 1u) << what;
  EXPECT_EQ(built.cubin.parameters[0].bytes, args_bytes) << what << ": both compilers lay the struct out alike";
}

TEST(ExchangeKernels, AnAllReduceOfEveryTeamCompiles) {
  const auto nvrtc = Nvrtc::load();
  for (const int cc_major : {8, 9})
    for (const int ranks : {2, 3, 4, 8})
      expect_sound(build(*nvrtc, {.name = "all_reduce", .constants = {{"kRanks", ranks}}}, cc_major), sizeof(AllReduce),
                   std::to_string(ranks) + " ranks, " + std::to_string(cc_major) + ".0");
}

// Out and down of Llama 3.2 3B on two devices, at 1 to 8 rows; and on four.
TEST(ExchangeKernels, AProductOfATeamCompilesWithoutSpills) {
  const auto nvrtc = Nvrtc::load();
  for (const int64_t ranks : {2, 4})
    for (const int64_t cols : {3072 / ranks, 8192 / ranks})
      for (const int64_t rows : {1, 2, 4, 8}) {
        const MatvecShape shape = project_exchange_shape({rows, cols, cols, 3072, 1});
        KernelRequest request{.name = "project_exchange",
                              .constants = {{"kBias", 0}, {"kScale", 0}, {"kRanks", ranks}}};
        for (const ShapeConstant& constant : shape.constants().of)
          request.constants.push_back({constant.name, constant.value});
        expect_sound(
            build(*nvrtc, request, 9), sizeof(ProjectExchange),
            std::to_string(ranks) + " ranks, " + std::to_string(cols) + " columns, " + std::to_string(rows) + " rows");
      }
}

}  // namespace
}  // namespace nodewright
