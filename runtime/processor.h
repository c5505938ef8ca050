// The processor, as the kernel names what it has.
#pragma once

#include <set>
#include <string>

namespace holdfast::runtime {

struct Processor {
  bool x86 = false;
  std::set<std::string> flags;  // empty: not known
  std::string model;
};

Processor ReadProcessor(const std::string& cpuinfo = "/proc/cpuinfo");

// What programs may have begun to use of it, in the format of api/platform.h: of x86 what needs no help of the kernel, of arm64 all.
std::string FeaturesOf(const Processor& processor);

// The value of the first line "key : value" of a text, as /proc has them.
std::string LineOf(const std::string& text, const std::string& key);

}  // namespace holdfast::runtime
