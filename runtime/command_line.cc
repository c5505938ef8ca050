#include "runtime/command_line.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace holdfast::runtime {
namespace {

using Names = std::set<std::string_view>;

// The flags that take a value; every other flag is a switch. From runc 1.1 to 1.4.
const Names& ValueFlags(std::string_view verb) {
  static const Names kGlobal = {"root", "log", "log-format", "criu", "rootless"};
  static const Names kNone;
  static const std::map<std::string_view, Names> kVerbs = {
      {"create", {"bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"}},
      {"run", {"bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"}},
      {"restore",
       {"bundle", "b", "console-socket", "image-path", "work-path", "manage-cgroups-mode", "pid-file", "empty-ns", "lsm-profile",
        "lsm-mount-context"}},
      {"checkpoint", {"image-path", "work-path", "parent-path", "status-fd", "page-server", "manage-cgroups-mode", "empty-ns"}},
      {"exec",
       {"console-socket", "pidfd-socket", "cwd", "env", "e", "user", "u", "additional-gids", "g", "process", "p", "pid-file",
        "process-label", "apparmor", "cap", "c", "preserve-fds", "cgroup"}},
      {"thaw", {"root"}},
      {"check", {"state"}},
      {"measure", {"root", "tasks"}},
  };
  if (verb.empty()) return kGlobal;
  auto found = kVerbs.find(verb);
  return found == kVerbs.end() ? kNone : found->second;
}

// Reads the flag at argv[at] and leaves `at` behind it.
Flag TakeFlag(const std::vector<std::string>& argv, size_t& at, const Names& with_value) {
  std::string_view text = argv[at++];
  text.remove_prefix(text.starts_with("--") ? 2 : 1);
  size_t equals = text.find('=');
  Flag flag{std::string(text.substr(0, equals)), std::nullopt};
  if (equals != std::string_view::npos) {
    flag.value = std::string(text.substr(equals + 1));
  } else if (with_value.contains(flag.name) && at < argv.size()) {
    flag.value = argv[at++];
  }
  return flag;
}

bool IsFlag(const std::string& text) { return text.size() > 1 && text[0] == '-' && text != "--"; }

}  // namespace

CommandLine CommandLine::Parse(std::vector<std::string> argv) {
  CommandLine line;
  line.argv = std::move(argv);
  size_t at = 0;
  while (at < line.argv.size() && IsFlag(line.argv[at])) line.globals.push_back(TakeFlag(line.argv, at, ValueFlags("")));
  if (at < line.argv.size() && line.argv[at] == "--") ++at;
  if (at == line.argv.size()) return line;
  line.verb = line.argv[at++];
  bool flags_end = false;
  while (at < line.argv.size()) {
    // What follows the container of `exec` belongs to the command that it runs.
    if (!flags_end && line.argv[at] == "--") {
      flags_end = true;
      ++at;
    } else if (!flags_end && IsFlag(line.argv[at]) && (line.verb != "exec" || line.arguments.empty())) {
      line.flags.push_back(TakeFlag(line.argv, at, ValueFlags(line.verb)));
    } else {
      line.arguments.push_back(line.argv[at++]);
    }
  }
  return line;
}

std::optional<std::string> CommandLine::Value(std::initializer_list<std::string_view> names) const {
  for (auto flag = flags.rbegin(); flag != flags.rend(); ++flag) {
    if (std::find(names.begin(), names.end(), flag->name) != names.end()) return flag->value.value_or("");
  }
  return std::nullopt;
}

std::optional<std::string> CommandLine::Global(std::string_view name) const {
  for (auto flag = globals.rbegin(); flag != globals.rend(); ++flag) {
    if (flag->name == name) return flag->value.value_or("");
  }
  return std::nullopt;
}

}  // namespace holdfast::runtime
