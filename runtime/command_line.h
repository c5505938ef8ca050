// The command line as containerd gives it to an OCI runtime: [global flags] verb [flags] arguments. Both `--flag value` and
// `--flag=value` with one or two dashes are read, as Go's flag package does. Nothing is ever lost: `argv` is what was given.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace holdfast::runtime {

struct Flag {
  std::string name;  // without dashes
  std::optional<std::string> value;
};

struct CommandLine {
  std::vector<std::string> argv;  // without the program's name
  std::vector<Flag> globals;
  std::string verb;  // empty: no verb, for example `--version`
  std::vector<Flag> flags;
  std::vector<std::string> arguments;

  static CommandLine Parse(std::vector<std::string> argv);
  // The last value given for the flag or any of its other names.
  std::optional<std::string> Value(std::initializer_list<std::string_view> names) const;
  std::optional<std::string> Global(std::string_view name) const;
  std::string Id() const { return arguments.empty() ? "" : arguments[0]; }
};

}  // namespace holdfast::runtime
