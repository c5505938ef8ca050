// A seccomp filter, followed without being run. Hostile input.
#pragma once

#include <cstdint>
#include <string_view>

namespace holdfast::runtime {

// What a filter may be asked: a call of an ABI, with one argument known or none.
struct SystemCall {
  uint32_t arch = 0, number = 0;
  bool any_number = false;
  int argument = -1;
  uint64_t value = 0;  // of that argument
};

// Whether the program (instructions of classic BPF as the kernel has them) may let it pass for some arguments: what depends on what is not
// known is taken both ways. `budget`: steps that are left; a program that takes more may.
bool MayPass(std::string_view program, const SystemCall& call, uint64_t* budget);

}  // namespace holdfast::runtime
