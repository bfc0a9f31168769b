// User objects: what the program ties to graphs, destroyed by a thread of the driver when nothing refers to it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cpu_driver/cuda_names.h"

namespace nodewright::cpu {

// Alive as long as callers, graphs, executable graphs or runs under way refer to it. Then its function is called by a
// thread of its own, without the driver's lock: as CUDA does it (CUDA C++ Programming Guide, "CUDA User Objects").
struct UserObject {
  UserObject(void* data, CUhostFn destroy) : data(data), destroy(destroy) {}
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;
  ~UserObject();

  void* data;
  CUhostFn destroy;
};

// The references of one owner to one object.
struct UserReferences {
  CUuserObject handle = nullptr;
  std::shared_ptr<UserObject> object;
  uint64_t count = 0;
};

// What the handle of an object stands for, and the references of callers.
struct UserObjectEntry {
  std::weak_ptr<UserObject> object;
  std::shared_ptr<UserObject> of_callers;  // null: count is 0
  uint64_t count = 0;
};

// This thread calls the function of a user object, which may not call the driver.
extern thread_local bool destroys_user_object;

}  // namespace nodewright::cpu
