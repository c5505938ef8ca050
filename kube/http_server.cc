#include "kube/http_server.h"

#include <netdb.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <system_error>

#include "kube/http_server_loop.h"

namespace holdfast::kube {
namespace {

constexpr size_t kOtherDescriptors = 512;  // of the process

// httplib's parsing and routing, without its sockets and threads.
class Handler final : public httplib::Server {
 public:
  // An answer in parts ends when this is no socket any more.
  Handler() { svr_sock_ = 0; }
  bool Serve(httplib::Stream& stream, bool last) {
    bool closed = false;
    return process_request(stream, last, closed, nullptr) && !closed && !last;
  }
};

Status NoPort(const std::string& address, int port) {
  return {Code::kUnavailable, "cannot listen on " + address + ":" + std::to_string(port) + ": " + std::generic_category().message(errno)};
}

Result<int> Listen(const std::string& address, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    return Status(Code::kUnavailable, "cannot listen on " + address + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return NoPort(address, port);
  OwnPort(fd);
  if (bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return NoPort(address, port);
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<sockaddr_in6&>(address).sin6_port);
}

// As many connections as the process may have descriptors for, which many containers begin with 1024 of.
size_t RoomFor(size_t connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return connections;
  const rlim_t wanted = connections + kOtherDescriptors;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  return limit.rlim_cur >= wanted ? connections : std::min<size_t>(connections, limit.rlim_cur / 2);
}

}  // namespace

struct HttpServer::Impl {
  HttpServerOptions options;
  TlsServerState* const tls;
  Clock& clock;
  Handler handler{};
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{nullptr, SSL_CTX_free};
  std::unique_ptr<HttpServerLoop> loop{};
  std::atomic<bool> running{false};
  int port = 0;
};

HttpServer::HttpServer(HttpServerOptions options, TlsServerState* tls, Clock& clock)
    : impl_(new Impl{.options = options, .tls = tls, .clock = clock}) {}

HttpServer::~HttpServer() { Stop(); }

httplib::Server& HttpServer::routes() { return impl_->handler; }

Status HttpServer::Start(const std::string& address, int port) {
  Impl& impl = *impl_;
  if (impl.loop) return {Code::kFailedPrecondition, "this server runs already"};
  if (impl.tls != nullptr) {
    impl.context.reset(SSL_CTX_new(TLS_server_method()));
    if (!impl.context || !impl.tls->Install(impl.context.get())) return {Code::kInternal, "cannot set up TLS"};
  }
  HF_ASSIGN_OR_RETURN(const int listener, Listen(address, port));
  // What it tells clients.
  impl.handler.set_keep_alive_timeout(std::chrono::duration_cast<std::chrono::seconds>(impl.options.idle).count());
  impl.handler.set_keep_alive_max_count(size_t{1} << 30);
  HttpServerOptions options = impl.options;
  options.max_connections = RoomFor(options.max_connections);
  auto serve = [&impl](ServerConnection& connection) { connection.keep = impl.handler.Serve(connection, impl.loop->stopping()); };
  impl.loop = std::make_unique<HttpServerLoop>(options, impl.context.get(), serve, impl.clock);
  impl.port = PortOf(listener);
  Status started = impl.loop->Start(listener);
  if (!started.ok()) impl.loop.reset();
  impl.running = started.ok();
  return started;
}

int HttpServer::port() const { return impl_->port; }
bool HttpServer::running() const { return impl_->running; }

void HttpServer::StopListening() {
  impl_->running = false;
  if (impl_->loop) impl_->loop->StopListening();
}

void HttpServer::Stop(Duration patience) {
  if (!impl_->loop) return;
  impl_->running = false;
  impl_->loop->Stop(patience);
  impl_->loop.reset();
  impl_->port = 0;
}

}  // namespace holdfast::kube
