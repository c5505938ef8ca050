#include "agent/installer/containerd_config.h"

#include <fnmatch.h>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <sstream>
#include <vector>

namespace holdfast::agent {
namespace {

constexpr char kCri2[] = "io.containerd.grpc.v1.cri";
constexpr char kCri3[] = "io.containerd.cri.v1.runtime";
constexpr char kWritten[] = "# Written by holdfast-agent";

Status NotUnderstood(const std::string& why) {
  return Status(Code::kFailedPrecondition, std::string("containerd's ") + kContainerdConfig + " is left alone: " + why +
                                               "; add the runtime \"holdfast\" by hand (README, \"Nodes with other runtimes\")");
}

// `containerd` under the CRI plugin's table, whichever version wrote it.
const toml::table* CriContainerd(const toml::table& root) {
  for (const char* plugin : {kCri3, kCri2}) {
    if (const toml::table* table = root["plugins"][plugin]["containerd"].as_table()) return table;
  }
  return nullptr;
}

// Ours must put containers into cgroups the way that the node's default runtime does.
bool SystemdCgroup(const std::string& dump) {
  toml::parse_result parsed = toml::parse(dump);
  if (!parsed) return false;
  const toml::table* containerd = CriContainerd(parsed.table());
  if (containerd == nullptr) return false;
  const std::string name = (*containerd)["default_runtime_name"].value_or(std::string("runc"));
  return (*containerd)["runtimes"][name]["options"]["SystemdCgroup"].value_or(false);
}

std::string DropIn(int64_t version, bool systemd_cgroup) {
  const std::string runtime = std::string("plugins.'") + (version == 2 ? kCri2 : kCri3) + "'.containerd.runtimes.holdfast";
  std::ostringstream text;
  text << kWritten << ". Removed by hand only after no pod with runtimeClassName holdfast is left on this node.\n"
       << "version = " << version << "\n\n"
       << "[" << runtime << "]\n"
       << "  runtime_type = \"io.containerd.runc.v2\"\n"
       << "  pod_annotations = [\"holdfast.dev/*\", \"org.criu.config\"]\n"
       << "  [" << runtime << ".options]\n"
       << "    BinaryName = \"" << kRuntimeBinary << "\"\n"
       << "    SystemdCgroup = " << (systemd_cgroup ? "true" : "false") << "\n";
  return text.str();
}

bool TakesDropIn(const toml::array& imports) {
  for (const toml::node& node : imports) {
    std::string pattern = node.value_or(std::string());
    if (pattern.empty()) continue;
    if (pattern[0] != '/') pattern = "/etc/containerd/" + (pattern.starts_with("./") ? pattern.substr(2) : pattern);
    if (fnmatch(pattern.c_str(), kDropIn, FNM_PATHNAME) == 0) return true;
  }
  return false;
}

// Byte offset of the character at a 1-based line and column (in code points).
size_t OffsetOf(const std::string& text, const toml::source_position& at) {
  size_t offset = 0;
  for (toml::source_index line = 1; line < at.line && offset != std::string::npos; ++line) {
    offset = text.find('\n', offset);
    if (offset != std::string::npos) ++offset;
  }
  if (offset == std::string::npos) return offset;
  for (toml::source_index column = 1; column < at.column && offset < text.size(); ++column) {
    do ++offset;
    while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
  }
  return offset;
}

// The one change to config.toml. Everything else in it stays byte for byte.
Result<std::string> AddImport(const std::string& text, const toml::table& root) {
  const std::string entry = std::string("\"") + kDropInPattern + "\"";
  if (const toml::array* imports = root["imports"].as_array()) {
    const size_t at = OffsetOf(text, imports->source().begin);
    if (at >= text.size() || text[at] != '[') return NotUnderstood("its list of imports was not found");
    return text.substr(0, at + 1) + entry + (imports->empty() ? "" : ", ") + text.substr(at + 1);
  }
  if (root.contains("imports")) return NotUnderstood("imports is no list");
  const toml::node* version = root.get("version");
  const size_t at = OffsetOf(text, version->source().begin);
  const size_t line_end = text.find('\n', at);
  const std::string line = std::string("imports = [") + entry + "]\n";
  if (line_end == std::string::npos) return text + "\n" + line;
  return text.substr(0, line_end + 1) + line + text.substr(line_end + 1);
}

}  // namespace

Result<ContainerdPlan> PlanContainerdConfig(const std::optional<std::string>& config, const std::string& dump, int major) {
  ContainerdPlan plan;
  const bool systemd = SystemdCgroup(dump);
  if (!config) {
    const int version = major >= 2 ? 3 : 2;
    plan.drop_in = DropIn(version, systemd);
    plan.config =
        "# Written by holdfast-agent, because there was no configuration: containerd's defaults, and what is imported.\nversion = " +
        std::to_string(version) + "\nimports = [\"" + kDropInPattern + "\"]\n";
    return plan;
  }
  toml::parse_result parsed = toml::parse(*config);
  if (!parsed)
    return NotUnderstood("line " + std::to_string(parsed.error().source().begin.line) + ": " + std::string(parsed.error().description()));
  const toml::table& root = parsed.table();
  if (!root.contains("version")) return NotUnderstood("it has no version, so it is of version 1, which cannot import runtimes");
  const int64_t version = root["version"].value_or(int64_t{0});
  if (version < 2 || version > 4) return NotUnderstood("it is of version " + std::to_string(version));
  if (version > 2 && major == 1) return NotUnderstood("its version " + std::to_string(version) + " is not one of containerd 1");
  plan.drop_in = DropIn(version, systemd);
  if (const toml::array* imports = root["imports"].as_array(); imports != nullptr && TakesDropIn(*imports)) return plan;
  HF_ASSIGN_OR_RETURN(std::string edited, AddImport(*config, root));
  // Trust nothing: what is written must parse, and take the drop-in in.
  toml::parse_result check = toml::parse(edited);
  const toml::array* imports = check ? check.table()["imports"].as_array() : nullptr;
  if (imports == nullptr || !TakesDropIn(*imports)) return NotUnderstood("an import could not be added to it");
  plan.config = edited;
  return plan;
}

bool IsOurDropIn(const std::string& text) { return text.starts_with(kWritten); }

Result<std::optional<std::string>> WithoutImport(const std::string& config, const std::optional<std::string>& backup) {
  const std::string entry = std::string("\"") + kDropInPattern + "\"", whole = "imports = [" + entry + "]\n";
  size_t at = config.find(entry);
  if (at == std::string::npos) return Status(Code::kNotFound, "it imports nothing of ours");
  const size_t end_of_first = config.find('\n');
  if (config.starts_with(kWritten) && end_of_first != std::string::npos && config.find(whole) + whole.size() == config.size())
    return std::optional<std::string>();
  if (backup) {
    toml::parse_result before = toml::parse(*backup);
    const Result<std::string> added = before ? AddImport(*backup, before.table()) : Result<std::string>(Status(Code::kInternal, ""));
    if (added.ok() && *added == config) return std::optional(*backup);
  }
  std::string text = config;
  if (const size_t line = text.find(whole); line != std::string::npos && (line == 0 || text[line - 1] == '\n')) {
    text.erase(line, whole.size());
  } else {
    size_t length = entry.size();
    while (at + length < text.size() && text[at + length] == ' ') ++length;
    if (at + length < text.size() && text[at + length] == ',') ++length;
    if (at + length < text.size() && text[at + length] == ' ') ++length;
    text.erase(at, length);
  }
  toml::parse_result check = toml::parse(text);
  const toml::array* imports = check ? check.table()["imports"].as_array() : nullptr;
  const bool gone = text.find(kDropInPattern) == std::string::npos;
  if (!check || !gone || (check.table().contains("imports") && imports == nullptr)) {
    return Status(Code::kFailedPrecondition,
                  std::string("the import ") + entry + " cannot be taken out of " + kContainerdConfig + ": take it out by hand");
  }
  return std::optional(std::move(text));
}

bool HasRuntime(const std::string& dump) {
  toml::parse_result parsed = toml::parse(dump);
  if (!parsed) return false;
  const toml::table* containerd = CriContainerd(parsed.table());
  if (containerd == nullptr) return false;
  return (*containerd)["runtimes"]["holdfast"]["options"]["BinaryName"].value_or(std::string()) == kRuntimeBinary;
}

int ContainerdMajor(const std::string& version_output) {
  std::istringstream words(version_output);
  std::string word;
  while (words >> word) {
    if (word.starts_with('v')) word.erase(0, 1);
    size_t dot = word.find('.');
    if (dot != std::string::npos && dot > 0 && dot < 4 && word.find_first_not_of("0123456789") == dot)
      return std::stoi(word.substr(0, dot));
  }
  return 0;
}

}  // namespace holdfast::agent
