// Each way in which libcuda.so.1 can be unusable has words of its own. The drivers here are shared libraries of a few
// lines, built by the test with the host compiler (tests/support/fake_libcuda.cc).
#include <gtest/gtest.h>

#include "runtime/calls/cpu_driver_api.h"
#include "runtime/compilers/host_compiler.h"
#include "runtime/driver.h"
#include "runtime/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

class DriverLoading : public testing::Test {
 protected:
  // Builds a driver with these macros and returns what loading it throws, or an empty text.
  std::string loading_says(const std::string& macros) {
    const std::string source = (test::source_dir() / "tests/support/fake_libcuda.cc").string();
    const std::string library = (folder_.path() / ("fake" + std::to_string(built_++) + ".so")).string();
    const std::string command = host_compiler_path() + " -shared -fPIC -w " + macros + " -o " + library + " " + source;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    try {
      driver_ = Driver::load_cuda_from(library);
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().fault, Fault::run_time);
      return error.what();
    }
    return {};
  }

  ScratchFolder folder_;
  int built_ = 0;
  std::unique_ptr<Driver> driver_;
};

TEST_F(DriverLoading, OfADriverThatHasEveryEntrySucceeds) {
  EXPECT_EQ(loading_says("-DVERSION=13010 -DRESULT=0 '-DLACKS=\"\"'"), "");
  EXPECT_EQ(driver_->version(), 13010);
  EXPECT_FALSE(driver_->is_cpu());
  EXPECT_EQ(driver_->cuInit(0), CUDA_SUCCESS);
}

TEST_F(DriverLoading, WithoutALibraryNamesItAndTheCpuDevice) {
  try {
    Driver::load_cuda_from("libcuda-that-is-not-there.so.1");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("libcuda-that-is-not-there.so.1"), std::string::npos) << text;
    EXPECT_NE(text.find("no NVIDIA driver"), std::string::npos) << text;
    EXPECT_NE(text.find("open_device(\"cpu\")"), std::string::npos) << text;
    EXPECT_EQ(error.parts().fault, Fault::run_time);
  }
}

TEST_F(DriverLoading, RecognisesTheToolkitsStub) {
  const std::string text = loading_says("-DVERSION=0 -DRESULT=34 '-DLACKS=\"\"'");
  EXPECT_NE(text.find("stub"), std::string::npos) << text;
  EXPECT_NE(text.find("CUDA_ERROR_STUB_LIBRARY (34)"), std::string::npos) << text;
}

TEST_F(DriverLoading, OfADriverTooOldNamesBothVersions) {
  const std::string text = loading_says("-DVERSION=12080 -DRESULT=0 '-DLACKS=\"\"'");
  EXPECT_NE(text.find("driver is for CUDA 12.8, CUDA 13.0 is needed"), std::string::npos) << text;
  EXPECT_NE(text.find("update the NVIDIA driver"), std::string::npos) << text;
}

TEST_F(DriverLoading, NamesTheEntryThatIsMissing) {
  const std::string text = loading_says("-DVERSION=13000 -DRESULT=0 '-DLACKS=\"cuGraphAddNode\"'");
  EXPECT_NE(text.find("lacks the entry cuGraphAddNode"), std::string::npos) << text;
  EXPECT_NE(text.find("CUDA 13.0 is needed"), std::string::npos) << text;
}

TEST_F(DriverLoading, NamesTheLoaderWhenThatIsMissing) {
  const std::string text = loading_says("-DVERSION=11020 -DRESULT=0 -DNO_GET_PROC_ADDRESS '-DLACKS=\"\"'");
  EXPECT_NE(text.find("lacks cuGetProcAddress_v2; driver is for CUDA 11.2"), std::string::npos) << text;
}

TEST(CpuDriverLoading, NamesEveryPlaceItLookedAt) {
  const EnvironmentValue elsewhere("NODEWRIGHT_CPU_DRIVER", "/no/such/folder/driver.so");
  try {
    Driver::load_cpu({});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/folder/driver.so"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("NODEWRIGHT_CPU_DRIVER"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace nodewright
