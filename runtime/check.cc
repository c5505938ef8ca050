#include "runtime/check.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <set>
#include <sstream>
#include <system_error>

#include "base/file.h"
#include "runtime/create.h"
#include "runtime/gpu.h"
#include "runtime/loopback_hold.h"
#include "runtime/network.h"
#include "runtime/processor.h"

namespace holdfast::runtime {
namespace {

using Verdict = NodeCheck::Verdict;

constexpr char kHere[] = "/proc/thread-self/ns/net";
constexpr uint64_t kFewFiles = 10000;

std::string ErrorText(int error) { return std::generic_category().message(error); }

NodeCheck Ok(const std::string& name, const std::string& seen) { return {name, Verdict::kOk, seen}; }

// A connection over lo, as long as it lives.
class Connection {
 public:
  Status Make() {
    ifreq lo{};
    strcpy(lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (ioctl(listener_, SIOCSIFFLAGS, &lo) == 0 && bind(listener_, any, size) == 0 && listen(listener_, 1) == 0 &&
        getsockname(listener_, any, &size) == 0 && connect(client_, any, size) == 0) {
      return Status::Ok();
    }
    return Status(Code::kInternal, "no TCP connection over lo could be made to try it: " + ErrorText(errno));
  }
  ~Connection() {
    close(client_);
    close(listener_);
  }

 private:
  int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), client_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

Status CanReset() {
  Connection connection;
  HF_RETURN_IF_ERROR(connection.Make());
  HF_ASSIGN_OR_RETURN(int reset, ResetConnections(kHere, "127.0.0.1"));
  return reset > 0 ? Status::Ok() : Status(Code::kUnsupported, "the kernel does not list TCP connections");
}

Status CanHold() {
  HF_ASSIGN_OR_RETURN(bool held, HoldLoopback(kHere));
  HF_RETURN_IF_ERROR(ReleaseLoopback(kHere));
  return held ? Status::Ok() : Status(Code::kUnsupported, "the kernel has no nftables");
}

NodeCheck Tried(const std::string& name, const Status& tried, const std::string& good, const std::string& fix) {
  return tried.ok() ? Ok(name, good) : NodeCheck{name, Verdict::kFail, tried.message(), fix};
}

std::string Gibibytes(uint64_t bytes) {
  std::array<char, 32> text;
  snprintf(text.data(), text.size(), "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text.data();
}

// The microarchitecture level of the x86-64 psABI, by the kernel's names of what it asks for.
std::string Level(const std::set<std::string>& flags) {
  static const std::vector<std::vector<std::string>> kLevels = {{"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"},
                                                                {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
                                                                {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}};
  size_t level = 1;
  for (const std::vector<std::string>& needs : kLevels) {
    if (!std::all_of(needs.begin(), needs.end(), [&](const std::string& flag) { return flags.contains(flag); })) break;
    ++level;
  }
  return "x86-64-v" + std::to_string(level);
}

}  // namespace

std::vector<NodeCheck> CheckNetwork() {
  const std::string sockets = "kernel-sockets", nftables = "kernel-nftables";
  if (unshare(CLONE_NEWNET) != 0) {
    const std::string seen = "no network namespace could be made to try it: " + ErrorText(errno);
    const std::string fix = "run the agent privileged; on the node, check that user.max_net_namespaces is not used up";
    return {{sockets, Verdict::kFail, seen, fix}, {nftables, Verdict::kFail, seen, fix}};
  }
  return {
      Tried(sockets, CanReset(), "TCP connections can be reset",
            "use a kernel with CONFIG_INET_DIAG_DESTROY, and let it load inet_diag and tcp_diag: without it restored programs hang on "
            "connections that lead nowhere"),
      Tried(nftables, CanHold(), "packets can be held back during a dump",
            "use a kernel with CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET, and let it load nf_tables: CRIU holds back packets with it")};
}

NodeCheck CheckClocks(const Node& node, const Runc& runc, const std::string& runc_path) {
  const std::string name = "clocks";
  if (!Exists("/proc/self/ns/time")) {
    return {name, Verdict::kWarn, "the kernel has no time namespaces: the monotonic clock of a restored process jumps",
            "use a kernel of version 5.6 or later with CONFIG_TIME_NS"};
  }
  if (HasTimeNamespaces(node, runc, runc_path)) return Ok(name, "a restored process goes on by the clock that it had");
  return {name, Verdict::kWarn, runc_path + " makes no time namespaces: the monotonic clock of a restored process jumps",
          "install runc 1.2 or later on the node"};
}

NodeCheck CheckFreezer(const std::string& cgroups) {
  const std::string name = "freezer";
  if (Exists(cgroups + "/freezer")) return Ok(name, "cgroup v1");
  const std::string fix = "boot the node with cgroup v2 and a kernel of version 5.2 or later, or with the freezer hierarchy of cgroup v1";
  if (!Exists(cgroups + "/cgroup.controllers")) return {name, Verdict::kFail, "no cgroup freezer is mounted below " + cgroups, fix};
  for (const std::string& group : ListDir(cgroups).value_or({})) {
    if (Exists(cgroups + "/" + group + "/cgroup.freeze")) return Ok(name, "cgroup v2");
  }
  return {name, Verdict::kFail, "the kernel's cgroup v2 has no freezer", fix};
}

NodeCheck CheckSpace(const std::string& folder, const std::string& meminfo) {
  const std::string name = "space";
  std::string there = folder;
  while (there.size() > 1 && !Exists(there)) there = there.substr(0, std::max<size_t>(there.rfind('/'), 1));
  struct statvfs disk;
  if (statvfs(there.c_str(), &disk) != 0) {
    return {name, Verdict::kFail, "the file system of " + folder + " cannot be read: " + ErrorText(errno),
            "mend or replace the file system of " + folder};
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const uint64_t memory = strtoull(LineOf(ReadFile(meminfo, 1 << 20).value_or(""), "MemTotal").c_str(), nullptr, 10) * 1024;
  const std::string seen = Gibibytes(free) + " of " + Gibibytes(uint64_t{disk.f_blocks} * disk.f_frsize) + " free in " + folder +
                           "; the node has " + Gibibytes(memory) + " of memory";
  const std::string fix =
      "free space there, or mount a larger file system at " + folder + ": a checkpoint that does not fit fails, and its pod runs on";
  if ((disk.f_flag & ST_RDONLY) != 0) return {name, Verdict::kFail, folder + " is read-only", "mount it writable"};
  if (disk.f_files > 0 && disk.f_favail < kFewFiles) {
    return {name, Verdict::kWarn, "only " + std::to_string(disk.f_favail) + " more files can be made in " + folder, fix};
  }
  // A dump is as large as the memory that its pod uses; a quarter of the node's is a large pod.
  return free < memory / 4 ? NodeCheck{name, Verdict::kWarn, seen, fix} : Ok(name, seen);
}

NodeCheck CheckProcessor(const std::string& cpuinfo) {
  const std::string name = "processor";
  const Processor processor = ReadProcessor(cpuinfo);
  const auto& [x86, flags, model] = processor;
  if (flags.empty()) {
    return {name, Verdict::kWarn, cpuinfo + " names no features",
            "compare the nodes' processors by hand: a restored program needs every feature that it began to use"};
  }
  NodeCheck check =
      Ok(name, (x86 ? Level(flags) : "arm64, " + std::to_string(flags.size()) + " features") + (model.empty() ? "" : ", " + model));
  if (x86) check.value = Level(flags);
  check.features = FeaturesOf(processor);
  return check;
}

int Check(const Node& node, const Runc& runc, const std::string& runc_path, const CommandLine& line) {
  const std::string state = line.Value({"state"}).value_or(kStateDir);
  Json out = Json::array();
  out.push_back(CheckFreezer().ToJson());
  out.push_back(CheckClocks(node, runc, runc_path).ToJson());
  out.push_back(CheckProcessor().ToJson());
  out.push_back(CheckSpace(state + "/landing").ToJson());
  if (std::optional<NodeCheck> gpu = Gpu(node).Check()) out.push_back(gpu->ToJson());
  for (const NodeCheck& check : CheckNetwork()) out.push_back(check.ToJson());
  std::cout << DumpJson(out) << "\n";
  return 0;
}

}  // namespace holdfast::runtime
