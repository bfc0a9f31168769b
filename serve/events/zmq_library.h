// ZeroMQ's library, opened when somebody asks for it: a program that is carried to machines without it starts there as
// well. What is used of its C interface has been the same since release 4.0.
#pragma once

#include <cstddef>
#include <string>

namespace nodewright {

// zmq_pollitem_t.
struct ZmqPollItem {
  void* socket = nullptr;  // or null, and
  int descriptor = -1;
  short events = 0, came = 0;
};

// Numbers of zmq.h.
namespace zmq {
inline constexpr int kPub = 1, kSub = 2, kDealer = 5, kRouter = 6;                                   // sockets
inline constexpr int kSubscribe = 6, kMore = 13, kLinger = 17, kSendLimit = 23, kLastEndpoint = 32;  // options
inline constexpr int kReceiveLimit = 24, kReceiveTimeout = 27;
inline constexpr int kDontWait = 1, kSendMore = 2;  // flags
inline constexpr short kPollIn = 1;
}  // namespace zmq

// Functions of libzmq.so.5, by their names without zmq_. Thread rules are ZeroMQ's: a context is any thread's, a socket
// one thread's at a time.
struct ZmqLibrary {
  void* (*ctx_new)() = nullptr;
  int (*ctx_term)(void* context) = nullptr;
  void* (*socket)(void* context, int type) = nullptr;
  int (*close)(void* socket) = nullptr;
  int (*setsockopt)(void* socket, int option, const void* value, size_t bytes) = nullptr;
  int (*getsockopt)(void* socket, int option, void* value, size_t* bytes) = nullptr;
  int (*bind)(void* socket, const char* endpoint) = nullptr;
  int (*connect)(void* socket, const char* endpoint) = nullptr;
  int (*send)(void* socket, const void* bytes, size_t count, int flags) = nullptr;
  int (*recv)(void* socket, void* bytes, size_t room, int flags) = nullptr;
  int (*poll)(ZmqPollItem* items, int count, long timeout_ms) = nullptr;
  int (*error_number)() = nullptr;
  const char* (*error_text)(int number) = nullptr;

  // Throws Error where the system has none, with what it says and what to install.
  static ZmqLibrary load();

  // The error of this thread's last failed call.
  std::string failure() const { return error_text(error_number()); }
};

}  // namespace nodewright
