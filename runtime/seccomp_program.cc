#include "runtime/seccomp_program.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace holdfast::runtime {

bool MayPass(std::string_view program, const SystemCall& call, uint64_t* budget) {
  using Accumulator = std::optional<uint32_t>;
  const size_t count = program.size() / sizeof(sock_filter);
  auto load = [&](uint32_t offset) -> Accumulator {
    if (offset == offsetof(seccomp_data, nr)) return call.any_number ? Accumulator() : call.number;
    if (offset == offsetof(seccomp_data, arch)) return call.arch;
    const uint32_t at = static_cast<uint32_t>(offsetof(seccomp_data, args)) + 8 * static_cast<uint32_t>(call.argument);
    if (call.argument >= 0 && (offset == at || offset == at + 4)) return static_cast<uint32_t>(call.value >> (offset == at ? 0 : 32));
    return std::nullopt;
  };
  std::set<std::pair<size_t, uint64_t>> seen;
  std::vector<std::pair<size_t, Accumulator>> ways = {{0, 0}};
  while (!ways.empty()) {
    auto [at, a] = ways.back();
    ways.pop_back();
    if (!seen.emplace(at, a ? uint64_t{*a} : ~uint64_t{0}).second) continue;
    for (bool ended = false; !ended;) {
      if (at >= count || *budget == 0) return true;  // the kernel takes no such one
      --*budget;
      sock_filter step;
      memcpy(&step, program.data() + at++ * sizeof step, sizeof step);
      switch (BPF_CLASS(step.code)) {
        case BPF_LD:
          a = BPF_MODE(step.code) == BPF_ABS ? load(step.k) : BPF_MODE(step.code) == BPF_IMM ? Accumulator(step.k) : Accumulator();
          break;
        case BPF_ALU:
          if (a && step.code == (BPF_ALU | BPF_AND | BPF_K)) {
            a = *a & step.k;
          } else {
            a.reset();
          }
          break;
        case BPF_MISC:
          if (BPF_MISCOP(step.code) == BPF_TXA) a.reset();
          break;
        case BPF_JMP: {
          if (BPF_OP(step.code) == BPF_JA) {
            at += step.k;
            break;
          }
          bool known = a.has_value() && BPF_SRC(step.code) == BPF_K, taken = false;
          const uint32_t value = a.value_or(0);
          if (BPF_OP(step.code) == BPF_JEQ) {
            taken = value == step.k;
          } else if (BPF_OP(step.code) == BPF_JGT) {
            taken = value > step.k;
          } else if (BPF_OP(step.code) == BPF_JGE) {
            taken = value >= step.k;
          } else if (BPF_OP(step.code) == BPF_JSET) {
            taken = (value & step.k) != 0;
          } else {
            known = false;
          }
          if (!known && step.jt != step.jf) ways.emplace_back(at + step.jf, a);
          at += !known || taken ? step.jt : step.jf;
          // What is not known may come to the same place by many ways.
          if (!known && !seen.emplace(at, a ? uint64_t{*a} : ~uint64_t{0}).second) ended = true;
          break;
        }
        case BPF_RET: {
          const Accumulator action = BPF_RVAL(step.code) == BPF_K ? Accumulator(step.k) : a;
          if (!action) return true;
          const uint32_t kind = *action & SECCOMP_RET_ACTION_FULL;
          if (kind == SECCOMP_RET_ALLOW || kind == SECCOMP_RET_LOG || kind == SECCOMP_RET_TRACE || kind == SECCOMP_RET_USER_NOTIF)
            return true;
          ended = true;
          break;
        }
        default:  // X and the scratch memory are never known
          break;
      }
    }
  }
  return false;
}

}  // namespace holdfast::runtime
