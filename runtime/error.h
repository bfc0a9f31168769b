// The one exception of the library. Expected outcomes (no free page, queue full) are values, not errors.
#pragma once

#include <stdexcept>
#include <string>

namespace nodewright {

// Whether the person who typed the command can mend it by typing another (usage: exit 2) or not (run_time: exit 1).
enum class Fault { run_time, usage };

// One line: what was being done, to which named object, with which numbers, what the driver said, what to try.
//   throw Error({.doing = "read safetensors header", .object = path, .detail = "header says 812 bytes, file has 40",
//                .advice = "copy the file again"});
// reads: cannot read safetensors header '/m/model.safetensors': header says 812 bytes, file has 40; try: copy the file
// again
class Error : public std::runtime_error {
 public:
  // What the line is made of; empty parts are left out.
  struct Parts {
    std::string doing;              // verb phrase, completes "cannot ..."
    std::string object;             // name of the file, buffer, node, kernel or option
    std::string detail;             // the numbers
    std::string driver;             // the driver's own words, if a driver call failed
    std::string advice;             // what to try
    Fault fault = Fault::run_time;  // whose it is
  };

  explicit Error(Parts parts);                            // joins them
  const Parts& parts() const noexcept { return parts_; }  // as they were given

 private:
  Parts parts_;
};

}  // namespace nodewright
