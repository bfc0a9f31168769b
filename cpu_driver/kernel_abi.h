// The interface between a kernel image and the driver: the first half of emulation.h, without the dialect.
#pragma once

#define NODEWRIGHT_CPU_DRIVER
#include "cpu_driver/emulation.h"
#undef NODEWRIGHT_CPU_DRIVER
