#include "tests/integration/api_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "base/process.h"
#include "kube/base64.h"
#include "kube/client.h"

namespace holdfast::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Env(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

std::string BinaryDir() {
  if (std::string dir = Env("HOLDFAST_CLUSTER_BIN"); !dir.empty()) return dir;
  std::string cache = Env("XDG_CACHE_HOME");
  return (cache.empty() ? Env("HOME") + "/.cache" : cache) + "/holdfast-cluster/bin";
}

void End(pid_t* pid) {
  if (*pid == 0) return;
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
  *pid = 0;
}

Status RunOpenssl(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {"openssl"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  HF_ASSIGN_OR_RETURN(ProcessResult result, RunProcess(argv, {}));
  if (result.exit_code != 0) return {Code::kInternal, "openssl " + arguments[0] + ": " + result.err};
  return Status::Ok();
}

// A key and a certificate dir/name.{key,crt}, signed by dir/ca.
Status Issue(const std::string& dir, const std::string& name, const std::string& subject, const std::string& extensions) {
  const std::string base = dir + "/" + name;
  HF_RETURN_IF_ERROR(RunOpenssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", base + ".key", "-out",
                                 base + ".csr", "-subj", subject}));
  HF_RETURN_IF_ERROR(WriteFileAtomically(base + ".ext", extensions));
  return RunOpenssl({"x509", "-req", "-in", base + ".csr", "-CA", dir + "/ca.crt", "-CAkey", dir + "/ca.key", "-CAcreateserial", "-out",
                     base + ".crt", "-days", "2", "-extfile", base + ".ext"});
}

}  // namespace

int FreePort() {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  int port = 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 && getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port = ntohs(address.sin_port);
  }
  close(fd);
  return port;
}

Status ApiServer::MakeFiles() {
  std::string pattern = (Env("TMPDIR").empty() ? "/tmp" : Env("TMPDIR")) + "/holdfast-api-server-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) return {Code::kInternal, "cannot make " + pattern};
  dir_ = pattern;
  HF_RETURN_IF_ERROR(RunOpenssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                                 dir_ + "/ca.key", "-out", dir_ + "/ca.crt", "-days", "2", "-subj", "/CN=holdfast-test-ca"}));
  HF_RETURN_IF_ERROR(
      Issue(dir_, "server", "/CN=kube-apiserver", "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n"));
  HF_RETURN_IF_ERROR(RunOpenssl({"genrsa", "-out", dir_ + "/sa.key", "2048"}));
  unsigned char random[24];
  FILE* urandom = fopen("/dev/urandom", "re");
  if (urandom == nullptr || fread(random, 1, sizeof random, urandom) != sizeof random) return {Code::kInternal, "cannot read /dev/urandom"};
  fclose(urandom);
  token_ = kube::EncodeBase64({reinterpret_cast<char*>(random), sizeof random});
  HF_RETURN_IF_ERROR(WriteFileAtomically(dir_ + "/tokens.csv", token_ + ",admin,admin,\"system:masters\"\n"));
  return Status::Ok();
}

Result<pid_t> ApiServer::Spawn(const std::vector<std::string>& argv, const std::string& log) {
  std::string env = "/usr/bin/env", garbage = "GOGC=300";  // Go's collector: memory is at hand, processors are not
  std::vector<char*> args = {env.data(), garbage.data()};
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  int out = open((dir_ + "/" + log).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (out < 0) return Status(Code::kInternal, "cannot write " + dir_ + "/" + log);
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid == 0) {
    // Nothing may be left when the test program crashes.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(out, 1);
    dup2(out, 2);
    execv(args[0], args.data());
    _exit(127);
  }
  close(out);
  if (pid < 0) return Status(Code::kInternal, "cannot fork");
  return pid;
}

std::string ApiServer::LogTail(const std::string& name) const {
  Result<std::string> log = ReadFile(dir_ + "/" + name, 64 << 20);
  if (!log.ok()) return "";
  return log->substr(log->size() > 2000 ? log->size() - 2000 : 0);
}

Status ApiServer::StartEtcd() {
  const std::string peer = "http://127.0.0.1:" + std::to_string(FreePort());
  etcd_url_ = "http://127.0.0.1:" + std::to_string(FreePort());
  Result<pid_t> pid = Spawn({bin_ + "/etcd", "--name=default", "--data-dir=" + dir_ + "/etcd", "--listen-client-urls=" + etcd_url_,
                             "--advertise-client-urls=" + etcd_url_, "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
                             "--initial-cluster=default=" + peer, "--unsafe-no-fsync"},
                            "etcd.log");
  if (!pid.ok()) return pid.status();
  etcd_ = *pid;
  return Status::Ok();
}

Status ApiServer::StartApiServer() {
  if (api_server_ != 0) return {Code::kFailedPrecondition, "the API server runs already"};
  if (port_ == 0) port_ = FreePort();
  std::vector<std::string> argv = {
      bin_ + "/kube-apiserver", "--etcd-servers=" + etcd_url_, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
      "--secure-port=" + std::to_string(port_), "--tls-cert-file=" + dir_ + "/server.crt", "--tls-private-key-file=" + dir_ + "/server.key",
      "--client-ca-file=" + dir_ + "/ca.crt", "--token-auth-file=" + dir_ + "/tokens.csv",
      "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + dir_ + "/sa.key",
      "--service-account-signing-key-file=" + dir_ + "/sa.key", "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
      "--authorization-mode=RBAC",
      // Nothing here would create the service accounts that it asks for.
      "--disable-admission-plugins=ServiceAccount", "--allow-privileged=true"};
  argv.insert(argv.end(), options_.flags.begin(), options_.flags.end());
  HF_ASSIGN_OR_RETURN(api_server_, Spawn(argv, "apiserver.log"));
  return WaitUntilReady();
}

Status ApiServer::WaitUntilReady() {
  kube::Client client(kube::MakeCurlTransport(config()));
  const MonoTime deadline = Clock::Real().Mono() + seconds(90);
  kube::HttpRequest request;
  request.path = "/readyz";
  kube::CallOptions options;
  options.timeout = seconds(2);
  for (;;) {
    Status status = client.Raw(request, options).status();
    if (status.ok()) return status;
    for (auto [pid, name] : {std::pair{&etcd_, "etcd"}, std::pair{&api_server_, "apiserver"}}) {
      if (waitpid(*pid, nullptr, WNOHANG) != *pid) continue;
      *pid = 0;
      return {Code::kUnavailable, std::string(name) + " ended: " + LogTail(std::string(name) + ".log")};
    }
    if (Clock::Real().Mono() > deadline) return status.With("the API server is not ready after 90 s: " + LogTail("apiserver.log"));
    Clock::Real().Sleep(milliseconds(100), {});
  }
}

Result<std::unique_ptr<ApiServer>> ApiServer::Start(Options options) {
  Status failed;
  for (int tries = 0; tries < 3; ++tries) {  // somebody may take a port between our look and their use
    std::unique_ptr<ApiServer> server(new ApiServer(options));
    server->bin_ = BinaryDir();
    for (const char* name : {"etcd", "kube-apiserver"}) {
      if (access((server->bin_ + "/" + name).c_str(), X_OK) != 0) {
        return Status(Code::kNotFound, server->bin_ + "/" + name + " is missing: build the cluster's binaries or set HOLDFAST_CLUSTER_BIN");
      }
    }
    HF_RETURN_IF_ERROR(server->MakeFiles());
    HF_RETURN_IF_ERROR(server->StartEtcd());
    failed = server->StartApiServer();
    if (!failed.ok()) continue;
    const std::string kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters:\n- name: test\n  cluster: {server: \"" +
                                   server->config().server +
                                   "\", certificate-authority: ca.crt}\nusers:\n- name: admin\n  user: {token: \"" + server->token_ +
                                   "\"}\ncontexts:\n- name: test\n  context: {cluster: test, user: admin}\n";
    HF_RETURN_IF_ERROR(WriteFileAtomically(server->kubeconfig(), kubeconfig));
    return server;
  }
  return failed;
}

ApiServer& ApiServer::Shared() {
  static std::unique_ptr<ApiServer> shared = [] {
    Result<std::unique_ptr<ApiServer>> server = Start({});
    if (!server.ok()) {
      fprintf(stderr, "no API server for the tests: %s\n", server.status().ToString().c_str());
      exit(1);
    }
    return std::move(*server);
  }();
  return *shared;
}

ApiServer::~ApiServer() {
  End(&api_server_);
  End(&etcd_);
  if (!dir_.empty()) (void)RemoveAll(dir_);
}

kube::ClientConfig ApiServer::config() const {
  kube::ClientConfig config;
  config.server = "https://127.0.0.1:" + std::to_string(port_);
  config.ca_file = dir_ + "/ca.crt";
  config.token = token_;
  return config;
}

Result<kube::ClientConfig> ApiServer::ConfigOf(const std::string& name, const std::string& groups) {
  std::string subject;
  for (size_t at = 0; at < groups.size();) {
    size_t end = std::min(groups.find(',', at), groups.size());
    subject += "/O=" + groups.substr(at, end - at);
    at = end + 1;
  }
  HF_RETURN_IF_ERROR(Issue(dir_, "client", subject + "/CN=" + name, "extendedKeyUsage=clientAuth\n"));
  kube::ClientConfig own = config();
  own.token.clear();
  HF_ASSIGN_OR_RETURN(own.client_certificate_pem, ReadFile(dir_ + "/client.crt"));
  HF_ASSIGN_OR_RETURN(own.client_key_pem, ReadFile(dir_ + "/client.key"));
  return own;
}

Status ApiServer::Compact() {
  kube::ClientConfig etcd;
  etcd.server = etcd_url_;
  std::unique_ptr<kube::Transport> transport = kube::MakeCurlTransport(etcd);
  auto post = [&](const std::string& path, const Json& body) -> Result<Json> {
    kube::HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = DumpJson(body);
    HF_ASSIGN_OR_RETURN(kube::HttpResponse response, transport->Send(request, {}));
    if (response.status != 200) return Status(Code::kUnavailable, "etcd: " + response.body);
    return ParseJson(response.body);
  };
  HF_ASSIGN_OR_RETURN(Json range, post("/v3/kv/range", {{"key", kube::EncodeBase64("x")}}));
  return post("/v3/kv/compaction", {{"revision", GetString(range, {"header", "revision"})}, {"physical", true}}).status();
}

Status ApiServer::KillApiServer() {
  if (api_server_ == 0) return {Code::kFailedPrecondition, "the API server does not run"};
  End(&api_server_);
  return Status::Ok();
}

Status ApiServer::PauseApiServer() {
  return kill(api_server_, SIGSTOP) == 0 ? Status::Ok() : Status(Code::kInternal, "cannot stop the API server");
}

Status ApiServer::ResumeApiServer() {
  return kill(api_server_, SIGCONT) == 0 ? Status::Ok() : Status(Code::kInternal, "cannot continue the API server");
}

}  // namespace holdfast::testing
