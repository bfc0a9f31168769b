#include "serve/events/zmq_library.h"

#include <dlfcn.h>

#include "runtime/error.h"

#if __has_include(<zmq.h>)
#include <zmq.h>

static_assert(sizeof(nodewright::ZmqPollItem) == sizeof(zmq_pollitem_t));
static_assert(nodewright::zmq::kPub == ZMQ_PUB && nodewright::zmq::kSub == ZMQ_SUB &&
              nodewright::zmq::kDealer == ZMQ_DEALER && nodewright::zmq::kRouter == ZMQ_ROUTER);
static_assert(nodewright::zmq::kSubscribe == ZMQ_SUBSCRIBE && nodewright::zmq::kMore == ZMQ_RCVMORE &&
              nodewright::zmq::kLinger == ZMQ_LINGER && nodewright::zmq::kSendLimit == ZMQ_SNDHWM &&
              nodewright::zmq::kReceiveLimit == ZMQ_RCVHWM && nodewright::zmq::kLastEndpoint == ZMQ_LAST_ENDPOINT &&
              nodewright::zmq::kReceiveTimeout == ZMQ_RCVTIMEO);
static_assert(nodewright::zmq::kDontWait == ZMQ_DONTWAIT && nodewright::zmq::kSendMore == ZMQ_SNDMORE &&
              nodewright::zmq::kPollIn == ZMQ_POLLIN);
#endif

namespace nodewright {
namespace {

constexpr const char* kZmqFile = "libzmq.so.5";

[[noreturn]] void no_zmq(const std::string& detail) {
  throw Error({.doing = "load ZeroMQ, which publishes KV events",
               .object = kZmqFile,
               .detail = detail,
               .advice = "install libzmq5 (Debian's name), or serve without --kv-events-endpoint"});
}

}  // namespace

ZmqLibrary ZmqLibrary::load() {
  void* library = dlopen(kZmqFile, RTLD_NOW | RTLD_LOCAL);  // never closed: it has threads of its own
  if (library == nullptr) no_zmq(dlerror());
  ZmqLibrary zmq;
  const auto find = [library](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) no_zmq(std::string("it lacks ") + name);
  };
  find("zmq_ctx_new", zmq.ctx_new);
  find("zmq_ctx_term", zmq.ctx_term);
  find("zmq_socket", zmq.socket);
  find("zmq_close", zmq.close);
  find("zmq_setsockopt", zmq.setsockopt);
  find("zmq_getsockopt", zmq.getsockopt);
  find("zmq_bind", zmq.bind);
  find("zmq_connect", zmq.connect);
  find("zmq_send", zmq.send);
  find("zmq_recv", zmq.recv);
  find("zmq_poll", zmq.poll);
  find("zmq_errno", zmq.error_number);
  find("zmq_strerror", zmq.error_text);
  return zmq;
}

}  // namespace nodewright
