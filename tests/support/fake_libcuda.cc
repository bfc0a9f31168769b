// A driver of a few lines for tests of how libcuda.so.1 is loaded, built by them with the host compiler. What it says
// is given by macros; setting("NAME") and word("NAME") read it from the environment instead.
#include <cstdlib>
#include <cstring>

#ifndef INIT
#define INIT 0  // of cuInit
#endif
#ifndef DEVICES
#define DEVICES 0
#endif

static const char* word(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}
static int setting(const char* name) { return std::atoi(word(name)); }

extern "C" int cuDriverGetVersion(int* version) {
  *version = VERSION;
  return RESULT;
}
static int init(unsigned) { return INIT; }
static int count_devices(int* count) {
  *count = DEVICES;
  return 0;
}
static int answer() { return 0; }

#ifndef NO_GET_PROC_ADDRESS
extern "C" int cuGetProcAddress_v2(const char* name, void** address, int version, unsigned long, int* status) {
  *address = nullptr;
  *status = std::strcmp(name, LACKS) == 0;
  if (*status != 0) return 500;
  if (version > 13000) return 1;
  const auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
  *address = is("cuDriverGetVersion") ? reinterpret_cast<void*>(&cuDriverGetVersion)
             : is("cuInit")           ? reinterpret_cast<void*>(&init)
             : is("cuDeviceGetCount") ? reinterpret_cast<void*>(&count_devices)
                                      : reinterpret_cast<void*>(&answer);
  return 0;
}
#endif
