// What the seccomp filters of a checkpoint let pass, compared with the profile that the new container's spec has. Hostile input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "runtime/image_tasks.h"

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

// Each filter that a task has last, with all that come before it (seccomp.img). kFailedPrecondition: they let a call pass that the profile
// refuses, or threads that share them would not get them. Not compared: calls that came with Linux 5.1 and later, but for those that mount
// or clone (profiles of other releases of the runtime differ in them), and rules with more than one argument.
Status CheckImageSeccomp(const std::string& images, const Json& spec, const TaskFilters& filters);

}  // namespace holdfast::runtime
