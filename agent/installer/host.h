// The node as the installer sees it: files by the node's own paths, programs, and its containerd. RealHost reaches them through a process
// in the node's namespaces; tests have a fake.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "base/status.h"

namespace holdfast::agent {

struct ContainerdProcess {
  int pid = 0;
  WallTime started;
  std::string path;         // its $PATH
  std::string config_file;  // of --config; empty: the default
};

struct FileInfo {
  bool exists = false, link = false;
  std::string target;  // of a link
  WallTime changed;    // of the content, or of the link itself
};

class Host {
 public:
  virtual ~Host() = default;
  virtual Result<std::string> Read(const std::string& path) = 0;
  virtual Status Write(const std::string& path, const std::string& data, unsigned mode) = 0;  // durably; folders are made
  virtual Status Link(const std::string& path, const std::string& target) = 0;                // symbolic; kAlreadyExists
  virtual Status Remove(const std::string& path) = 0;  // a file, a link, or a folder with all that is in it; OK when there is none
  virtual FileInfo Look(const std::string& path) = 0;  // does not follow a link at the end
  virtual Result<ProcessResult> Run(const std::vector<std::string>& argv, Duration timeout) = 0;
  virtual Result<ContainerdProcess> Containerd() = 0;  // kNotFound
  virtual Status Terminate(int pid) = 0;
  virtual bool ContainerdAnswers() = 0;
  // Copies the programs that this image carries to /opt/holdfast, each file replaced atomically. True when something changed.
  virtual Result<bool> CopyPrograms() = 0;
};

}  // namespace holdfast::agent
