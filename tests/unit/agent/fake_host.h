// A node with containerd, in memory.
#pragma once

#include <set>

#include "agent/installer/containerd_config.h"
#include "agent/installer/host.h"
#include "fakes.h"

namespace holdfast::agent {

inline constexpr char kDump[] = R"(version = 3
[plugins]
  [plugins.'io.containerd.cri.v1.runtime']
    [plugins.'io.containerd.cri.v1.runtime'.containerd]
      default_runtime_name = 'runc'
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
          runtime_type = 'io.containerd.runc.v2'
          [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
            SystemdCgroup = true
)";

class FakeHost final : public Host {
 public:
  explicit FakeHost(FakeClock& clock) : clock_(&clock) { files["/usr/sbin/runc"] = ""; }
  std::map<std::string, std::string> files, links;
  std::map<std::string, WallTime> changed;
  bool answers = true, running = true, comes_back = true, systemd = false, programs = true;
  std::string config_file;
  int pid = 100, terminations = 0, systemctls = 0;
  WallTime started;
  bool ignores_drop_in = false;
  std::set<std::string> mounted;
  std::vector<std::string> removed;  // in this order
  std::string fails_to_remove;
  Duration takes{0};                                    // any program
  std::map<std::string, Result<ProcessResult>> broken;  // by program and first argument
  std::string checks =
      R"([{"name":"processor","verdict":"ok","seen":"x86-64-v3","value":"x86-64-v3","features":"avx avx2"},{"name":"space","verdict":"ok","seen":"1 GiB"}])";

  Result<std::string> Read(const std::string& path) override {
    if (!files.contains(path)) return Status(Code::kNotFound, path);
    return files[path];
  }
  Status Write(const std::string& path, const std::string& data, unsigned) override {
    files[path] = data;
    changed[path] = clock_->Wall();
    return Status::Ok();
  }
  Status Link(const std::string& path, const std::string& target) override {
    if (links.contains(path) || files.contains(path)) return Status(Code::kAlreadyExists, path);
    links[path] = target;
    changed[path] = clock_->Wall();
    return Status::Ok();
  }
  Status Remove(const std::string& path) override {
    if (fails_to_remove == path) return Status(Code::kInternal, "cannot remove " + path);
    removed.push_back(path);
    std::erase_if(files, [&](const auto& file) { return file.first == path || file.first.starts_with(path + "/"); });
    links.erase(path);
    return Status::Ok();
  }
  FileInfo Look(const std::string& path) override {
    FileInfo info;
    info.exists = files.contains(path) || links.contains(path) || (path == "/run/systemd/system" && systemd);
    for (const auto& [file, text] : files) info.exists = info.exists || file.starts_with(path + "/");
    if (links.contains(path)) {
      info.link = true;
      info.target = links[path];
    }
    info.changed = changed[path];
    return info;
  }
  Result<ProcessResult> Run(const std::vector<std::string>& argv, Duration timeout) override {
    clock_->Advance(std::min(takes, timeout));
    if (takes > timeout) return Status(Code::kDeadlineExceeded, argv[0] + " did not end in time");
    if (const auto at = broken.find(argv[0] + " " + argv[1]); at != broken.end()) return at->second;
    ProcessResult result;
    result.exit_code = 0;
    if (argv[0] == "mountpoint") {
      result.exit_code = mounted.contains(argv.back()) ? 0 : 1;
    } else if (argv[0] == "umount") {
      mounted.erase(argv.back());
    } else if (argv[0] == "systemctl") {
      ++systemctls;
      Fresh();
    } else if (argv.back() == "dump") {
      const bool imported = files.contains(kContainerdConfig) && files[kContainerdConfig].find("imports") != std::string::npos;
      result.out = kDump;
      if (imported && files.contains(kDropIn) && !ignores_drop_in) result.out += files[kDropIn].substr(files[kDropIn].find("[plugins"));
    } else if (argv[0] == "containerd") {
      result.out = "containerd x 2.1.9";
    } else if (!programs) {
      result.exit_code = 127;
      result.err = "no such file";
    } else if (argv[1] == "check" && argv.size() > 2) {
      result.out = checks;
    } else {
      result.out = argv[0] + " 1.0\n";
    }
    return result;
  }
  Result<ContainerdProcess> Containerd() override {
    if (!running) return Status(Code::kNotFound, "no containerd runs on this node");
    ContainerdProcess process;
    process.pid = pid;
    process.started = started;
    process.path = "/usr/local/bin:/usr/bin";
    process.config_file = config_file;
    return process;
  }
  Status Terminate(int) override {
    ++terminations;
    if (comes_back) Fresh();
    return Status::Ok();
  }
  bool ContainerdAnswers() override { return answers; }
  Result<bool> CopyPrograms() override { return false; }

 private:
  void Fresh() {
    clock_->Advance(std::chrono::seconds(1));
    ++pid;
    started = clock_->Wall();
  }
  FakeClock* clock_;
};

}  // namespace holdfast::agent
