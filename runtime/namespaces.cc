#include "runtime/namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace holdfast::runtime {

Result<InNamespace> InNamespace::Enter(const std::string& path, int type) {
  const char* own = type == CLONE_NEWNET ? "/proc/thread-self/ns/net" : "/proc/thread-self/ns/uts";
  int back = open(own, O_RDONLY | O_CLOEXEC);
  int there = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int rc = back >= 0 && there >= 0 ? setns(there, type) : -1;
  const int error = errno;
  if (there >= 0) close(there);
  if (rc == 0) return InNamespace(back, type);
  if (back >= 0) close(back);
  return Status(error == ENOENT ? Code::kNotFound : Code::kInternal,
                "cannot enter namespace " + path + ": " + std::generic_category().message(error));
}

InNamespace::~InNamespace() {
  if (back_ < 0) return;
  if (setns(back_, type_) != 0) abort();
  close(back_);
}

Result<std::string> HostnameIn(const std::string& uts_path) {
  HF_ASSIGN_OR_RETURN(InNamespace inside, InNamespace::Enter(uts_path, CLONE_NEWUTS));
  char name[65] = {};
  if (gethostname(name, sizeof name - 1) != 0) return Status(Code::kInternal, "cannot read the hostname in " + uts_path);
  return std::string(name);
}

Status SetHostnameIn(const std::string& uts_path, const std::string& hostname) {
  HF_ASSIGN_OR_RETURN(InNamespace inside, InNamespace::Enter(uts_path, CLONE_NEWUTS));
  if (sethostname(hostname.data(), hostname.size()) == 0) return Status::Ok();
  return Status(Code::kInternal, "cannot set the hostname in " + uts_path + ": " + std::generic_category().message(errno));
}

bool SameNamespace(const std::string& a, const std::string& b) {
  struct stat first, second;
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace holdfast::runtime
