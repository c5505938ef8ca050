#pragma once

#include "agent/host_node.h"
#include "agent/installer/host.h"

namespace holdfast::agent {

class RealHost final : public Host {
 public:
  // `source`: the folder in our image that becomes /opt/holdfast; empty: where images have it.
  RealHost(HostNode& node, std::string source);
  Result<std::string> Read(const std::string& path) override;
  Status Write(const std::string& path, const std::string& data, unsigned mode) override;
  Status Link(const std::string& path, const std::string& target) override;
  Status Remove(const std::string& path) override;
  FileInfo Look(const std::string& path) override;
  Result<ProcessResult> Run(const std::vector<std::string>& argv, Duration timeout) override;
  Result<ContainerdProcess> Containerd() override;
  Status Terminate(int pid) override;
  bool ContainerdAnswers() override;
  Result<bool> CopyPrograms() override;

 private:
  HostNode& node_;
  const std::string source_;
};

// Copies the tree `from` over `to`: files by rename, so that whoever runs the old one keeps it; nothing is removed. True: something
// differed.
Result<bool> CopyTree(const std::string& from, const std::string& to);

}  // namespace holdfast::agent
