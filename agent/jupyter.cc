#include "agent/jupyter.h"

#include <dirent.h>
#include <fcntl.h>
#include <httplib.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/time_format.h"
#include "kube/utf8.h"

namespace holdfast::agent {
namespace {

constexpr size_t kMaxEnvironment = 256 << 10, kMaxFile = 64 << 10, kMaxAnswer = 1 << 20, kMaxText = 1024;
constexpr int kMaxFolders = 8, kMaxEntries = 256, kMaxServers = 4;
constexpr auto kConnect = std::chrono::milliseconds(1000), kRead = std::chrono::milliseconds(2000),
               kWhole = std::chrono::milliseconds(4000);

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Its links lead nowhere but into `root`, and a FIFO of it holds nobody up.
Fd OpenIn(int root, const std::string& path, int flags) {
  struct open_how how {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC | O_NONBLOCK);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return Fd(static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
}

std::string ReadSmall(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > static_cast<off_t>(kMaxFile)) return "";
  std::string text(kMaxFile, '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

bool Printable(const std::string& text) {
  return text.size() <= kMaxText && std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

// The servers whose files lie in `folder`, the newest first.
std::vector<JupyterServer> ServersIn(int root, const std::string& folder) {
  Fd dir = OpenIn(root, folder, O_RDONLY | O_DIRECTORY);
  if (!dir.ok()) return {};
  DIR* entries = fdopendir(dup(dir.get()));
  if (entries == nullptr) return {};
  std::multimap<time_t, JupyterServer, std::greater<>> found;
  int seen = 0;
  while (const dirent* entry = readdir(entries)) {  // NOLINT(concurrency-mt-unsafe): no other thread has this stream
    if (++seen > kMaxEntries) break;
    const std::string name = entry->d_name;
    if (!name.ends_with(".json") || !(name.starts_with("jpserver-") || name.starts_with("nbserver-"))) continue;
    Fd file = OpenIn(root, folder + "/" + name, O_RDONLY);
    struct stat info {};
    if (!file.ok() || fstat(file.get(), &info) != 0) continue;
    const auto json = ParseJson(ReadSmall(file.get()));
    if (!json.ok()) continue;
    if (const auto server = JupyterServerFrom(*json)) found.emplace(info.st_mtime, *server);
  }
  closedir(entries);
  std::vector<JupyterServer> servers;
  for (const auto& [at, server] : found) servers.push_back(server);
  return servers;
}

// {} where the server has no such page.
Result<Json> Get(httplib::Client& client, const JupyterServer& server, const std::string& page) {
  httplib::Headers headers;
  if (!server.token.empty()) headers.emplace("Authorization", "token " + server.token);
  std::string body;
  // To ask is no use of it: without no_track_activity the server would take it for one.
  const auto answer = client.Get(server.base_url + "api/" + page + "?no_track_activity=1", headers, [&body](const char* data, size_t size) {
    if (body.size() + size > kMaxAnswer) return false;
    body.append(data, size);
    return true;
  });
  const std::string where = "the Jupyter server at port " + std::to_string(server.port);
  if (!answer) return Status(Code::kUnavailable, where + " does not answer: " + httplib::to_string(answer.error()));
  if (answer->status == 404) return Json();
  if (answer->status == 401 || answer->status == 403) {
    return Status(Code::kPermissionDenied, where + " refuses the token of its own runtime file (" + std::to_string(answer->status) +
                                               "): it needs token authentication");
  }
  if (answer->status != 200) return Status(Code::kUnavailable, where + " answers " + std::to_string(answer->status));
  auto json = ParseJson(body);
  if (!json.ok()) return json.status().With(where);
  return json;
}

Result<JupyterUse> Ask(httplib::Client& client, const JupyterServer& server) {
  HF_ASSIGN_OR_RETURN(const Json kernels, Get(client, server, "kernels"));
  HF_ASSIGN_OR_RETURN(const Json terminals, Get(client, server, "terminals"));
  return JupyterUseFrom(kernels, terminals);
}

// Within that network namespace, which is a thread's: the one that asks ends with it.
Result<JupyterUse> AskIn(int network, const JupyterServer& server, const std::string& host) {
  httplib::Client client(host, server.port);
  client.set_connection_timeout(kConnect);
  client.set_read_timeout(kRead);
  client.set_write_timeout(kRead);
  client.set_follow_location(false);
  Result<JupyterUse> use = Status(Code::kUnavailable, "cannot enter the pod's network");
  std::promise<void> done;
  std::future<void> ended = done.get_future();
  std::thread asking([&] {
    if (setns(network, CLONE_NEWNET) == 0) use = Ask(client, server);
    done.set_value();
  });
  // One that answers byte by byte stays within each time-out.
  for (auto wait = kWhole; ended.wait_for(wait) != std::future_status::ready; wait = std::chrono::milliseconds(100)) client.stop();
  asking.join();
  return use;
}

}  // namespace

std::optional<JupyterServer> JupyterServerFrom(const Json& file) {
  JupyterServer server;
  const int64_t port = GetInt(file, {"port"});
  server.base_url = GetString(file, {"base_url"}, "/");
  server.token = GetString(file, {"token"});
  if (port < 1 || port > 65535 || GetBool(file, {"secure"}) || !GetString(file, {"sock"}).empty()) return std::nullopt;
  if (!Printable(server.base_url) || !Printable(server.token) || !server.base_url.starts_with('/')) return std::nullopt;
  if (!server.base_url.ends_with('/')) server.base_url += '/';
  server.port = static_cast<int>(port);
  return server;
}

std::string JupyterRuntimeFolder(std::string_view environment) {
  std::map<std::string_view, std::string_view> env;
  while (!environment.empty()) {
    const size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    if (const size_t equals = entry.find('='); equals != std::string_view::npos)
      env.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  // As jupyter_core.paths has it.
  for (const auto& [name, below] : std::initializer_list<std::pair<const char*, const char*>>{{"JUPYTER_RUNTIME_DIR", ""},
                                                                                              {"JUPYTER_DATA_DIR", "/runtime"},
                                                                                              {"XDG_DATA_HOME", "/jupyter/runtime"},
                                                                                              {"HOME", "/.local/share/jupyter/runtime"}}) {
    const auto at = env.find(name);
    if (at != env.end() && at->second.starts_with('/') && at->second.size() < kMaxText) return std::string(at->second) + below;
  }
  return "";
}

Result<JupyterUse> JupyterUseFrom(const Json& kernels, const Json& terminals) {
  if (!kernels.is_array() || !(terminals.is_array() || terminals.is_null()))
    return Status(Code::kInvalidArgument, "what answers is no Jupyter server");
  JupyterUse use;
  for (const Json* list : {&kernels, &terminals}) {
    if (list->is_null()) continue;
    for (const Json& one : *list) {
      const auto at = ParseTime(GetString(one, {"last_activity"}));
      if (!at) return Status(Code::kInvalidArgument, "the Jupyter server does not say when something was used last");
      use.last_activity = std::max(use.last_activity.value_or(*at), *at);
    }
  }
  for (const Json& kernel : kernels) {
    const std::string state = GetString(kernel, {"execution_state"});
    if (state != "idle" && state != "dead" && use.busy.empty())
      use.busy = "kernel " + kube::Clip(GetString(kernel, {"name"}, "?"), 64) + " is " +
                 (state.empty() ? "in no known state" : kube::Clip(state, 32));
  }
  return use;
}

Result<JupyterUse> AskJupyter(const std::vector<int>& pids, const std::string& pod_ip) {
  std::set<std::tuple<dev_t, ino_t, std::string>> looked;
  struct stat node {};
  if (stat("/proc/self/ns/net", &node) != 0) return Status(Code::kUnavailable, "cannot tell the node's network from a pod's");
  Status why(Code::kNotFound,
             "no Jupyter server that can be asked runs in it: none has its file (jpserver-*.json) in the runtime folder of a process");
  int asked = 0;
  for (const int pid : pids) {
    const std::string process = "/proc/" + std::to_string(pid);
    const auto environment = ReadFile(process + "/environ", kMaxEnvironment);
    if (!environment.ok()) continue;  // it has ended
    const std::string folder = JupyterRuntimeFolder(*environment);
    Fd root(open((process + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    Fd network(open((process + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {
    }, its{};
    if (folder.empty() || !root.ok() || !network.ok() || fstat(root.get(), &info) != 0 || fstat(network.get(), &its) != 0) continue;
    if (its.st_ino == node.st_ino) continue;  // the pid is another process's by now
    if (looked.size() >= kMaxFolders || !looked.emplace(info.st_dev, info.st_ino, folder).second) continue;
    for (const JupyterServer& server : ServersIn(root.get(), folder)) {
      for (const std::string& host : {std::string("127.0.0.1"), pod_ip}) {
        if (host.empty() || ++asked > kMaxServers) break;
        Result<JupyterUse> use = AskIn(network.get(), server, host);
        if (use.ok()) return use;
        why = use.status();
      }
    }
  }
  return why;
}

}  // namespace holdfast::agent
