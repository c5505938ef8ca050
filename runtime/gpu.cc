#include "runtime/gpu.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "base/file.h"
#include "base/process.h"

namespace holdfast::runtime {
namespace {

constexpr int kLeastDriver = 570;  // cuda-checkpoint with lock time-outs and process trees
constexpr Duration kQuick = std::chrono::seconds(10);
constexpr size_t kMaxDescriptors = 200000, kMaxGpus = 64;
constexpr std::string_view kDevice = "/dev/nvidia";

Status Unsupported(const std::string& why) { return Status(Code::kUnsupported, why); }

std::optional<int> Number(std::string_view text) {
  int number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

int Major(const std::string& version) { return Number(std::string_view(version).substr(0, version.find('.'))).value_or(0); }

std::string Trimmed(const std::string& text) {
  const size_t from = text.find_first_not_of(" \t\n"), to = text.find_last_not_of(" \t\n");
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

// "Model: \t\t NVIDIA H100" of /proc/driver/nvidia/gpus/*/information.
std::string Field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key + ":")) return Trimmed(line.substr(key.size() + 1));
  }
  return "";
}

struct Held {
  bool any = false;
  std::set<int> numbers;
};

Held HeldBy(const std::vector<int>& pids, const std::string& proc) {
  Held held;
  size_t descriptors = 0;
  for (int pid : pids) {
    const std::string dir = proc + "/" + std::to_string(pid) + "/fd";
    for (const std::string& fd : ListDir(dir).value_or({})) {
      if (++descriptors > kMaxDescriptors) return held;
      char target[256];
      const ssize_t n = readlink((dir + "/" + fd).c_str(), target, sizeof target);
      if (n <= 0 || !std::string_view(target, static_cast<size_t>(n)).starts_with(kDevice)) continue;
      held.any = true;
      if (auto number = Number(std::string_view(target, static_cast<size_t>(n)).substr(kDevice.size()))) held.numbers.insert(*number);
    }
  }
  return held;
}

uint64_t Kibibytes(const std::string& meminfo, const std::string& key) { return strtoull(Field(meminfo, key).c_str(), nullptr, 10); }

// What the memory cgroup of the process leaves, in bytes; nothing: no limit.
std::optional<uint64_t> LeftInCgroup(int pid, const std::string& proc) {
  std::istringstream lines(ReadFile(proc + "/" + std::to_string(pid) + "/cgroup", 65536).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool v2 = controllers.empty() && Exists("/sys/fs/cgroup/cgroup.controllers");
    if (!v2 && controllers != "memory") continue;
    const std::string dir = (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory") + path;
    const std::string limit = Trimmed(ReadFile(dir + (v2 ? "/memory.max" : "/memory.limit_in_bytes"), 64).value_or("max"));
    const std::string usage = ReadFile(dir + (v2 ? "/memory.current" : "/memory.usage_in_bytes"), 64).value_or("0");
    const uint64_t most = strtoull(limit.c_str(), nullptr, 10), used = strtoull(usage.c_str(), nullptr, 10);
    if (limit == "max" || most > (uint64_t{1} << 60)) return std::nullopt;
    return most > used ? most - used : 0;
  }
  return std::nullopt;
}

std::string Mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Json GpuUse::ToJson() const { return {{"product", product}, {"driver", driver}, {"count", uuids.size()}, {"uuids", uuids}}; }

Result<GpuUse> GpuUse::FromJson(const Json& json) {
  GpuUse use{GetString(json, {"product"}), GetString(json, {"driver"}), {}};
  for (const Json& uuid : GetArray(json, {"uuids"})) {
    const std::string text = uuid.is_string() ? uuid.get<std::string>() : "";
    // It becomes an argument of a program.
    const bool plain = text.starts_with("GPU-") && text.size() < 64 &&
                       std::all_of(text.begin(), text.end(), [](unsigned char c) { return isalnum(c) != 0 || c == '-'; });
    if (!plain || use.uuids.size() == kMaxGpus) return Status(Code::kDataLoss, "the checkpoint's list of GPUs is not understood");
    use.uuids.push_back(text);
  }
  if (use.uuids.empty()) return Status(Code::kDataLoss, "the checkpoint's list of GPUs is not understood");
  return use;
}

Result<Gpu::Driver> Gpu::ReadDriver() const {
  const std::string dir = proc_ + "/driver/nvidia";
  Driver driver;
  std::istringstream words(ReadFile(dir + "/version", 65536).value_or(""));
  for (std::string word; driver.version.empty() && words >> word;) {
    const bool dotted = word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos;
    if (dotted && Major(word) > 0) driver.version = word;
  }
  if (driver.version.empty()) return Status(Code::kNotFound, "no NVIDIA driver is loaded on this node");
  for (const std::string& bus : ListDir(dir + "/gpus").value_or({})) {
    const std::string text = ReadFile(dir + "/gpus/" + bus + "/information", 65536).value_or("");
    const std::optional<int> number = Number(Field(text, "Device Minor"));
    if (number) driver.devices.push_back({*number, Field(text, "GPU UUID"), Field(text, "Model")});
  }
  std::sort(driver.devices.begin(), driver.devices.end(), [](const Device& a, const Device& b) { return a.number < b.number; });
  return driver;
}

Result<std::string> Gpu::Ask(const std::vector<std::string>& args, Duration timeout) const {
  std::vector<std::string> argv{node_.CriuDir() + "/cuda-checkpoint"};
  argv.insert(argv.end(), args.begin(), args.end());
  ProcessOptions options;
  options.timeout = timeout;
  HF_ASSIGN_OR_RETURN(ProcessResult result, RunProcess(argv, options));
  if (result.timed_out) return Status(Code::kDeadlineExceeded, "cuda-checkpoint " + args[0] + " did not end in time");
  if (result.exit_code == 0) return Trimmed(result.out);
  return Status(Code::kInternal, "cuda-checkpoint: " + Trimmed(result.err.empty() ? result.out : result.err).substr(0, 500));
}

Result<std::string> Gpu::Help() const {
  Result<std::string> help = Ask({"-h"}, kQuick);
  if (help.ok() && help->find("--action") != std::string::npos) return help;
  return Unsupported("cuda-checkpoint does not work on this node (" + (help.ok() ? "it has no --action" : help.status().message()) +
                     "): install the one of driver 570 or later in its /usr/local/bin or /usr/bin");
}

std::optional<std::string> Gpu::StateOf(int pid, Duration timeout) const {
  Result<std::string> thread = Ask({"--get-restore-tid", "--pid", std::to_string(pid)}, timeout);
  if (!thread.ok() || !Number(*thread)) return std::nullopt;
  return Ask({"--get-state", "--pid", std::to_string(pid)}, timeout).value_or("unknown");
}

Result<std::optional<GpuUse>> Gpu::Examine(const std::vector<int>& pids) const {
  const Held held = HeldBy(pids, proc_);
  if (!held.any) return std::optional<GpuUse>();
  Result<Driver> driver = ReadDriver();
  if (!driver.ok()) return Unsupported("a process holds an NVIDIA device, and " + driver.status().message());
  if (Major(driver->version) < kLeastDriver) {
    return Unsupported("the NVIDIA driver is of version " + driver->version + "; checkpoints need " + std::to_string(kLeastDriver) +
                       " or later");
  }
  if (!Exists(node_.CriuDir() + "/plugins/cuda_plugin.so")) return Unsupported("this installation carries no CRIU plugin for NVIDIA GPUs");
  HF_RETURN_IF_ERROR(Help().status());
  GpuUse use{"", driver->version, {}};
  for (const Device& device : driver->devices) {
    if (!held.numbers.contains(device.number)) continue;
    if (!use.product.empty() && use.product != device.product) return Unsupported("its GPUs are of different kinds");
    use.product = device.product;
    use.uuids.push_back(device.uuid);
  }
  if (use.uuids.size() != held.numbers.size() || use.uuids.empty())
    return Unsupported("the NVIDIA driver does not name the GPUs that it holds");
  HF_RETURN_IF_ERROR(FitsIntoHost(pids));
  return std::optional(std::move(use));
}

Status Gpu::FitsIntoHost(const std::vector<int>& pids) const {
  Result<ProcessResult> asked =
      RunProcess({"nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"}, {.timeout = kQuick});
  if (!asked.ok() || asked->timed_out || asked->exit_code != 0) {
    return Unsupported("nvidia-smi does not say how much device memory is in use" + (asked.ok() ? "" : ": " + asked.status().message()));
  }
  uint64_t bytes = 0;
  int user = 0;
  std::istringstream lines(asked->out);
  for (std::string line; std::getline(lines, line);) {
    const size_t comma = line.find(',');
    const std::optional<int> pid = comma == std::string::npos ? std::nullopt : Number(Trimmed(line.substr(0, comma)));
    const std::optional<int> mebibytes = pid ? Number(Trimmed(line.substr(comma + 1))) : std::nullopt;
    if (!pid || std::find(pids.begin(), pids.end(), *pid) == pids.end()) continue;
    if (!mebibytes) return Unsupported("nvidia-smi does not know how much device memory process " + std::to_string(*pid) + " uses");
    bytes += uint64_t{static_cast<unsigned>(*mebibytes)} << 20;
    user = *pid;
  }
  if (user == 0) return Status::Ok();  // it holds the device, and has no memory there
  const uint64_t free = Kibibytes(ReadFile(proc_ + "/meminfo", 65536).value_or(""), "MemAvailable") << 10;
  if (bytes > free) {
    return Unsupported("its " + Mebibytes(bytes) + " of device memory do not fit into the node's memory, of which " + Mebibytes(free) +
                       " are available");
  }
  const std::optional<uint64_t> left = LeftInCgroup(user, proc_);
  if (!left || bytes <= *left) return Status::Ok();
  return Unsupported("its " + Mebibytes(bytes) +
                     " of device memory are taken into the container's memory for a dump, and its limit leaves " + Mebibytes(*left) +
                     ": raise resources.limits.memory");
}

std::string Gpu::CriuOptions(Duration left) const {
  // The rest of the time is for the dump: a lock that is not granted ends by itself, before anything has to be killed.
  const auto seconds = std::max<int64_t>(std::chrono::duration_cast<std::chrono::seconds>(left).count() / 2, 1);
  return "libdir " + node_.CriuDir() + "/plugins\ntimeout " + std::to_string(seconds) + "\n";
}

Result<std::vector<std::pair<std::string, std::string>>> Gpu::RestoreEnvironment(const GpuUse& was, const Json& spec) const {
  Result<Driver> driver = ReadDriver();
  if (!driver.ok()) return Unsupported("the checkpoint is of a process on a GPU, and " + driver.status().message());
  if (driver->version != was.driver) {
    return Unsupported("the checkpoint needs the NVIDIA driver " + was.driver + ", and this node has " + driver->version);
  }
  HF_ASSIGN_OR_RETURN(std::string help, Help());
  std::set<int> numbers;
  std::string nodes;
  for (const Json& device : GetArray(spec, {"linux", "devices"})) {
    const std::string path = GetString(device, {"path"});
    if (!path.starts_with(kDevice) || path.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", 5) != std::string::npos) continue;
    nodes += path.substr(5) + ":" + std::to_string(GetInt(device, {"major"})) + ":" + std::to_string(GetInt(device, {"minor"})) + " ";
    if (auto number = Number(std::string_view(path).substr(kDevice.size()))) numbers.insert(*number);
  }
  std::vector<std::string> now;
  for (const Device& device : driver->devices) {
    if (!numbers.contains(device.number)) continue;
    if (device.product != was.product)
      return Unsupported("the checkpoint needs \"" + was.product + "\", and the new container has \"" + device.product + "\"");
    now.push_back(device.uuid);
  }
  if (now.size() != was.uuids.size()) {
    return Unsupported("the checkpoint needs " + std::to_string(was.uuids.size()) + " GPUs, and the new container was given " +
                       std::to_string(now.size()));
  }
  std::vector<std::pair<std::string, std::string>> environment{{"HOLDFAST_CUDA_DEVICES", nodes}};
  if (now == was.uuids) return environment;
  if (help.find("--device-map") == std::string::npos) {
    return Unsupported("the NVIDIA driver " + driver->version + " does not move a process to another GPU: driver 580 or later does");
  }
  std::string map;
  for (size_t i = 0; i < now.size(); ++i) map += (map.empty() ? "" : ",") + was.uuids[i] + "=" + now[i];
  environment.emplace_back("HOLDFAST_CUDA_DEVICE_MAP", map);
  return environment;
}

Status Gpu::Release(const std::vector<int>& pids, MonoTime deadline) const {
  if (!ReadDriver().ok()) return Status::Ok();
  Status first;
  auto left = [&] { return std::max<Duration>(deadline - Clock::Real().Mono(), std::chrono::milliseconds(1)); };
  for (int pid : pids) {
    const std::optional<std::string> state = StateOf(pid, std::min<Duration>(left(), kQuick));
    if (!state) continue;
    if (*state == "running") {
      // A lock that was asked for may be granted yet, although who asked was killed. Refused where there is none.
      Result<std::string> withdrawn = Ask({"--action", "unlock", "--pid", std::to_string(pid)}, std::min<Duration>(left(), kQuick));
      (void)withdrawn;
      continue;
    }
    std::vector<const char*> steps{"unlock"};
    if (*state == "checkpointed") steps.insert(steps.begin(), "restore");
    for (const char* step : steps) {
      Status done = Ask({"--action", step, "--pid", std::to_string(pid)}, left()).status();
      if (done.ok()) continue;
      if (first.ok()) first = done.With("process " + std::to_string(pid) + " stays without its GPU (" + *state + ")");
      break;
    }
  }
  return first;
}

Status Gpu::AllRunning(const std::vector<int>& pids) const {
  int found = 0;
  for (int pid : pids) {
    const std::optional<std::string> state = StateOf(pid, kQuick);
    if (!state) continue;
    ++found;
    if (*state != "running")
      return Status(Code::kInternal, "cuda-checkpoint did not give process " + std::to_string(pid) + " its GPU back: it is " + *state);
  }
  return found > 0 ? Status::Ok() : Status(Code::kInternal, "no restored process knows of its GPU");
}

std::optional<NodeCheck> Gpu::Check() const {
  Result<Driver> driver = ReadDriver();
  if (!driver.ok()) return std::nullopt;
  const std::string seen = std::to_string(driver->devices.size()) + " NVIDIA GPUs, driver " + driver->version;
  if (Major(driver->version) < kLeastDriver) {
    return NodeCheck{"gpu", NodeCheck::Verdict::kWarn, seen + ": too old, pods with GPUs are not checkpointed",
                     "install driver 570 or later"};
  }
  Result<std::string> help = Help();
  if (!help.ok())
    return NodeCheck{"gpu", NodeCheck::Verdict::kWarn, seen + ": " + help.status().message(), "install cuda-checkpoint on the node"};
  const bool moves = help->find("--device-map") != std::string::npos;
  return NodeCheck{"gpu", NodeCheck::Verdict::kOk, seen + (moves ? "" : ", which restores only onto the same GPUs")};
}

}  // namespace holdfast::runtime
