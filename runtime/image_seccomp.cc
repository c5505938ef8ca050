#include "runtime/image_seccomp.h"

#include <linux/audit.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "runtime/criu_entries.h"
#include "runtime/image_check.h"
#include "runtime/seccomp_program.h"

namespace holdfast::runtime {
namespace {

constexpr char kName[] = "seccomp.img";
constexpr uint64_t kBudget = 50'000'000;  // steps in all: less than a second
constexpr uint32_t kFirstNew = 424, kLastNew = 511;
constexpr size_t kMaxFilters = 65536;

struct Known {
  std::string_view name;
  uint32_t number;
};
#if defined(__x86_64__)
constexpr Known kNative[] = {
#include "syscalls_64.inc"
};
constexpr Known k32[] = {
#include "syscalls_32.inc"
};
constexpr Known kX32[] = {
#include "syscalls_x32.inc"
};
constexpr uint32_t kX32Bit = 0x40000000;
#endif

struct Condition {
  int index = 0;
  std::string op;
  uint64_t value = 0, second = 0;

  bool Holds(uint64_t argument) const {
    if (op == "SCMP_CMP_NE") return argument != value;
    if (op == "SCMP_CMP_LT") return argument < value;
    if (op == "SCMP_CMP_LE") return argument <= value;
    if (op == "SCMP_CMP_EQ") return argument == value;
    if (op == "SCMP_CMP_GE") return argument >= value;
    if (op == "SCMP_CMP_GT") return argument > value;
    return op != "SCMP_CMP_MASKED_EQ" || (argument & value) == second;
  }
};

bool Passes(const std::string& action) {
  return action == "SCMP_ACT_ALLOW" || action == "SCMP_ACT_LOG" || action == "SCMP_ACT_TRACE" || action == "SCMP_ACT_NOTIFY";
}

class Profile {
 public:
  explicit Profile(const Json& spec) : by_default_(Passes(GetString(spec, {"linux", "seccomp", "defaultAction"}))) {
    for (const Json& entry : GetArray(spec, {"linux", "seccomp", "syscalls"})) {
      const bool passes = Passes(GetString(entry, {"action"}));
      std::vector<Condition> conditions;
      for (const Json& argument : GetArray(entry, {"args"})) {
        conditions.push_back({static_cast<int>(GetInt(argument, {"index"})), GetString(argument, {"op"}), Unsigned(argument, "value"),
                              Unsigned(argument, "valueTwo")});
      }
      for (const Json& name : GetArray(entry, {"names"})) {
        if (name.is_string()) rules_[name.get<std::string>()].push_back({passes, conditions});
      }
    }
    for (const Json& arch : GetArray(spec, {"linux", "seccomp", "architectures"})) {
      if (arch.is_string()) architectures_.insert(arch.get<std::string>());
    }
  }

  // Whatever its arguments are.
  bool Refuses(std::string_view name) const {
    const auto found = rules_.find(std::string(name));
    if (found == rules_.end()) return !by_default_;
    bool refused = !by_default_;
    for (const Rule& rule : found->second) {
      if (rule.passes) return false;
      refused = refused || rule.conditions.empty();
    }
    return refused;
  }

  // Where one argument decides: values of it that are refused.
  std::vector<std::pair<int, uint64_t>> RefusedArguments(std::string_view name) const {
    const auto found = rules_.find(std::string(name));
    if (by_default_ || found == rules_.end()) return {};
    int index = -1;
    std::vector<uint64_t> candidates = {0, ~uint64_t{0}, 0xffffffff};
    for (int bit = 0; bit < 64; ++bit) candidates.push_back(uint64_t{1} << bit);
    for (const Rule& rule : found->second) {
      if (!rule.passes) continue;
      if (rule.conditions.size() != 1 || (index >= 0 && rule.conditions[0].index != index)) return {};
      index = rule.conditions[0].index;
      for (uint64_t value : {rule.conditions[0].value, rule.conditions[0].second}) {
        candidates.insert(candidates.end(), {value, value + 1, value - 1});
      }
    }
    std::vector<std::pair<int, uint64_t>> refused;
    for (uint64_t value : candidates) {
      const bool passes = std::any_of(found->second.begin(), found->second.end(),
                                      [value](const Rule& rule) { return rule.passes && rule.conditions[0].Holds(value); });
      if (index >= 0 && index < 6 && !passes) refused.emplace_back(index, value);
    }
    return refused;
  }

  bool Has(const std::string& architecture) const { return architectures_.count(architecture) != 0; }

 private:
  struct Rule {
    bool passes;
    std::vector<Condition> conditions;
  };

  static uint64_t Unsigned(const Json& json, const char* key) {
    const Json* value = Find(json, {key});
    return value != nullptr && value->is_number_integer() ? value->get<uint64_t>() : 0;
  }

  const bool by_default_;
  std::map<std::string, std::vector<Rule>> rules_;
  std::set<std::string> architectures_;
};

bool IsCompared(const Known& call) {
  for (std::string_view name : {"open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "clone3"}) {
    if (call.name == name) return true;
  }
  return call.number < kFirstNew || call.number > kLastNew;
}

struct Question {
  std::string name;
  SystemCall call;
};

std::vector<Question> QuestionsOf(const Profile& profile) {
  std::vector<Question> questions;
#if defined(__x86_64__)
  for (const Known& known : kNative) {
    if (!IsCompared(known)) continue;
    const SystemCall call{AUDIT_ARCH_X86_64, known.number};
    if (profile.Refuses(known.name)) questions.push_back({std::string(known.name), call});
    if (known.name != "clone") continue;  // for other arguments profiles of releases of the runtime differ
    for (const auto& [index, value] : profile.RefusedArguments(known.name)) {
      SystemCall with = call;
      with.argument = index, with.value = value;
      questions.push_back({std::string(known.name) + " with argument " + std::to_string(index) + " of " + std::to_string(value), with});
    }
  }
  const bool x32 = profile.Has("SCMP_ARCH_X32");
  for (const Known& known : kX32) {
    if (!x32 || (IsCompared(known) && profile.Refuses(known.name)))
      questions.push_back({std::string(known.name) + " (x32)", {AUDIT_ARCH_X86_64, known.number | kX32Bit}});
  }
  if (!profile.Has("SCMP_ARCH_X86")) {
    SystemCall any{AUDIT_ARCH_I386};
    any.any_number = true;
    questions.push_back({"of 32-bit programs", any});
    return questions;
  }
  for (const Known& known : k32) {
    // libseccomp makes rules for these two of those for what they stand for.
    if (known.name == "socketcall" || known.name == "ipc" || !IsCompared(known) || !profile.Refuses(known.name)) continue;
    questions.push_back({std::string(known.name) + " (32-bit)", {AUDIT_ARCH_I386, known.number}});
  }
#endif
  return questions;
}

struct Filter {
  std::string_view program;
  std::optional<uint32_t> before;
  bool for_all = false;  // threads of the process
};

bool ReadFilters(std::string_view image, std::vector<Filter>* filters) {
  int entries = 0;
  return ForEachEntry(image, kSeccompMagic, [&](std::string_view entry) {
    return ++entries == 1 && ForEachField(entry, [&](const protobuf::Field& field) {
      Message message;
      if (field.number != 1 || field.wire != 2 || filters->size() >= kMaxFilters || !message.Read(field.content)) return false;
      filters->push_back({message.Bytes(1), message.Has(2) ? std::optional(message.Word(2)) : std::nullopt,
                          (message.Word(3) & SECCOMP_FILTER_FLAG_TSYNC) != 0});
      return true;
    });
  });
}

}  // namespace

Status CheckImageSeccomp(const std::string& images, const Json& spec, const TaskFilters& filters) {
  if (filters.last.empty() || Find(spec, {"linux", "seccomp"}) == nullptr) return Status::Ok();
  HF_ASSIGN_OR_RETURN(const std::string image, ReadImage(images, kName));
  std::vector<Filter> all;
  if (!ReadFilters(image, &all)) return DamagedImage(images, kName);
  const std::vector<Question> questions = QuestionsOf(Profile(spec));
  std::set<std::vector<std::string_view>> judged;
  uint64_t budget = kBudget;
  for (uint32_t last : filters.last) {
    std::vector<std::string_view> chain;
    for (std::optional<uint32_t> at = last; at; at = all[*at].before) {
      if (*at >= all.size() || chain.size() >= all.size()) return DamagedImage(images, kName);
      if (filters.shared.count(last) != 0 && !all[*at].for_all) return WiderImage(kName, "a thread runs without a seccomp filter");
      chain.push_back(all[*at].program);
    }
    if (!judged.insert(chain).second) continue;  // all tasks have the same, as a rule
    for (const Question& question : questions) {
      const bool passes =
          std::all_of(chain.begin(), chain.end(), [&](std::string_view program) { return MayPass(program, question.call, &budget); });
      if (budget == 0) return WiderImage(kName, "the filters are longer than what is looked at");
      if (passes) return WiderImage(kName, "a filter lets system call " + question.name + " pass, which its profile refuses");
    }
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
