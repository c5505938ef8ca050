// A real etcd and kube-apiserver on loopback for one test program: ports, data and certificates of its own, no other Kubernetes part
// (nothing is scheduled, no garbage is collected, no namespace is ever emptied: give each test a namespace of its own). The binaries come
// from $HOLDFAST_CLUSTER_BIN, else ${XDG_CACHE_HOME:-~/.cache}/holdfast-cluster/bin.
//
//   auto client = kube::Client(kube::MakeCurlTransport(ApiServer::Shared().config()));
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kube/config.h"

namespace holdfast::testing {

// A port of loopback that was free just now (0: none). Whoever uses it copes with losing the race.
int FreePort();

class ApiServer {
 public:
  struct Options {
    std::vector<std::string> flags;  // more flags for kube-apiserver
  };
  // Returns when /readyz says ok; takes about 5 s.
  static Result<std::unique_ptr<ApiServer>> Start(Options options);
  // One for the whole program, started by the first call and stopped at exit. Ends the program with a message when it does not start.
  static ApiServer& Shared();
  ~ApiServer();  // ends both processes and removes their files

  // cluster-admin, by a token.
  kube::ClientConfig config() const;
  // User `name` in `groups` (comma-separated) without any rights of its own, by a client certificate.
  Result<kube::ClientConfig> ConfigOf(const std::string& name, const std::string& groups = "");
  std::string kubeconfig() const { return dir_ + "/kubeconfig"; }  // of config(), as a file

  Status Compact();         // etcd forgets all but the newest revision
  Status KillApiServer();   // SIGKILL
  Status StartApiServer();  // again, on the same port and data
  Status PauseApiServer();  // SIGSTOP: connections stay open and silent
  Status ResumeApiServer();

 private:
  explicit ApiServer(Options options) : options_(std::move(options)) {}
  Status MakeFiles();
  Status StartEtcd();
  Status WaitUntilReady();
  Result<pid_t> Spawn(const std::vector<std::string>& argv, const std::string& log);
  std::string LogTail(const std::string& name) const;

  const Options options_;
  std::string dir_, bin_, token_, etcd_url_;
  int port_ = 0;
  pid_t etcd_ = 0, api_server_ = 0;
};

}  // namespace holdfast::testing
