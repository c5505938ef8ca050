#include "storage/server/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <system_error>

#include "base/log.h"
#include "storage/bytes.h"

namespace holdfast::storage {
namespace {

constexpr size_t kMaxLine = 1024, kMaxSaid = 64 << 10, kFrameBytes = 256 << 10;
constexpr timeval kPatience = {.tv_sec = 60, .tv_usec = 0};
constexpr timeval kAnswerPatience = {.tv_sec = 600, .tv_usec = 0};  // a commit syncs, and another transfer may come first

Status Errno(const std::string& what) {
  return {errno == EAGAIN || errno == EWOULDBLOCK ? Code::kDeadlineExceeded : Code::kInternal,
          what + ": " + std::generic_category().message(errno)};
}

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Status(Code::kInternal, "the path " + path + " is too long for a socket (" + std::to_string(sizeof address.sun_path - 1) + ")");
  memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Status SendAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno("cannot send to the other side");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Status::Ok();
}

// 0 at the end.
Result<size_t> Receive(int fd, std::span<std::byte> bytes) {
  while (true) {
    const ssize_t n = recv(fd, bytes.data(), bytes.size(), 0);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) return Errno("the other side");
  }
}

Status ReceiveAll(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    HF_ASSIGN_OR_RETURN(const size_t n, Receive(fd, bytes));
    if (n == 0) return {Code::kDataLoss, "it was cut off"};
    bytes = bytes.subspan(n);
  }
  return Status::Ok();
}

Result<std::string> ReceiveLine(int fd) {
  std::string line;
  for (std::byte byte; line.size() < kMaxLine;) {
    HF_RETURN_IF_ERROR(ReceiveAll(fd, std::span(&byte, 1)));
    if (static_cast<char>(byte) == '\n') return line;
    line.push_back(static_cast<char>(byte));
  }
  return Status(Code::kInvalidArgument, "the request has no end");
}

Status SendFrame(int fd, std::span<const std::byte> bytes) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kFrameBytes))) {
    const auto part = bytes.first(std::min(bytes.size(), kFrameBytes));
    std::string head;
    AppendInteger(static_cast<uint32_t>(part.size()), head);
    HF_RETURN_IF_ERROR(SendAll(fd, AsBytes(head)));
    HF_RETURN_IF_ERROR(SendAll(fd, part));
  }
  return Status::Ok();
}

Status SendEnd(int fd, const Result<std::string>& outcome) {
  const Json json = {
      {"code", static_cast<int>(outcome.status().code())}, {"message", outcome.status().message()}, {"said", outcome.value_or("")}};
  return SendAll(fd, AsBytes(std::string(4, '\0') + DumpJson(json)));
}

Result<std::string> ReceiveEnd(int fd) {
  std::string text(kMaxSaid, '\0');
  size_t size = 0;
  while (size < text.size()) {
    HF_ASSIGN_OR_RETURN(const size_t n, Receive(fd, std::as_writable_bytes(std::span(text)).subspan(size)));
    if (n == 0) break;
    size += n;
  }
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(text.substr(0, size)));
  const int64_t code = GetInt(json, {"code"}, static_cast<int64_t>(Code::kInternal));
  if (code == static_cast<int64_t>(Code::kOk)) return GetString(json, {"said"});
  const bool known = code > 0 && code <= static_cast<int64_t>(Code::kInternal);
  return Status(known ? static_cast<Code>(code) : Code::kInternal, GetString(json, {"message"}));
}

Result<Descriptor> Connect(const std::string& path) {
  HF_ASSIGN_OR_RETURN(sockaddr_un address, AddressOf(path));
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return Errno("cannot make a socket");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Status(Code::kUnavailable, "no server answers at " + path);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerPatience, sizeof kAnswerPatience);
  return fd;
}

}  // namespace

std::string SocketPath(const std::string& data) { return data + "/socket"; }

std::string SayImported(const Imported& imported) {
  char text[64];
  snprintf(text, sizeof text, "%.1f MiB, of which %.1f MiB are new", static_cast<double>(imported.bytes) / (1 << 20),
           static_cast<double>(imported.new_bytes) / (1 << 20));
  return imported.ns + "/" + imported.checkpoint + " is here as " + imported.id + ": " + text +
         "; \"holdfast-store checkpoints\" prints its Checkpoint";
}

LocalSocket::~LocalSocket() { Stop(); }

Status LocalSocket::Start(const std::string& path) {
  HF_ASSIGN_OR_RETURN(sockaddr_un address, AddressOf(path));
  unlink(path.c_str());
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return Errno("cannot make a socket");
  const mode_t before = umask(0177);
  const int bound = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  umask(before);
  if (bound != 0 || listen(fd.get(), 4) != 0) return Errno("cannot listen on " + path);
  path_ = path;
  listener_ = std::move(fd);
  thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
  return Status::Ok();
}

void LocalSocket::Stop() {
  if (listener_.get() < 0) return;
  thread_.request_stop();
  {
    std::lock_guard lock(mutex_);
    if (peer_ >= 0) shutdown(peer_, SHUT_RDWR);
  }
  thread_.join();
  listener_ = Descriptor();
  unlink(path_.c_str());
}

void LocalSocket::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    pollfd ready = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 200) <= 0) continue;
    Descriptor peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() < 0) continue;
    ucred who = {};
    socklen_t size = sizeof who;
    const bool known = getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
    if (!known || (who.uid != geteuid() && who.uid != 0)) {
      LogWarning("a stranger on the volume's socket was refused", {{"uid", who.uid}});
      continue;
    }
    setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
    {
      std::lock_guard lock(mutex_);
      if (stop.stop_requested()) return;
      peer_ = peer.get();
    }
    Serve(peer.get());
    std::lock_guard lock(mutex_);
    peer_ = -1;
  }
}

void LocalSocket::Serve(int peer) {
  Result<std::string> line = ReceiveLine(peer);
  const size_t space = line.value_or("").find(' ');
  const std::string what = line.value_or("").substr(0, space), about = space == std::string::npos ? "" : line->substr(space + 1);
  Result<std::string> outcome = line.ok() ? Status(Code::kInvalidArgument, "the request is neither export nor import") : line.status();
  if (what == "export") {
    Result<std::string> id = FindCheckpoint(store_, about);
    Status written = id.status();
    if (id.ok()) written = Export(store_, *id, [&](std::span<const std::byte> bytes) { return SendFrame(peer, bytes); });
    outcome = written.ok() ? Result<std::string>(*id) : Result<std::string>(written);
  } else if (what == "import") {
    Result<Imported> imported =
        Import(store_, about == "-" ? "" : about, [&](std::span<std::byte> bytes) { return ReceiveAll(peer, bytes); });
    outcome = imported.ok() ? Result<std::string>(SayImported(*imported)) : Result<std::string>(imported.status());
  }
  LogInfo("a transfer of a checkpoint", {{"request", line.value_or("").substr(0, 600)}, {"result", outcome.status().ToString()}});
  [[maybe_unused]] Status told = SendEnd(peer, outcome);
}

Result<std::string> ExportFromServer(const std::string& path, const std::string& name, const WriteBytes& write) {
  HF_ASSIGN_OR_RETURN(Descriptor fd, Connect(path));
  HF_RETURN_IF_ERROR(SendAll(fd.get(), AsBytes("export " + name + "\n")));
  std::vector<std::byte> buffer(kFrameBytes);
  while (true) {
    std::array<char, 4> head;
    HF_RETURN_IF_ERROR(ReceiveAll(fd.get(), std::as_writable_bytes(std::span(head))));
    const auto size = GetInteger<uint32_t>(head.data());
    if (size == 0) return ReceiveEnd(fd.get());
    if (size > buffer.size()) return Status(Code::kInternal, "the server sends frames that it should not");
    HF_RETURN_IF_ERROR(ReceiveAll(fd.get(), std::span(buffer).first(size)));
    HF_RETURN_IF_ERROR(write(std::span(buffer).first(size)));
  }
}

Result<std::string> ImportByServer(const std::string& path, const std::string& ns, const ReadSome& read) {
  HF_ASSIGN_OR_RETURN(Descriptor fd, Connect(path));
  HF_RETURN_IF_ERROR(SendAll(fd.get(), AsBytes("import " + (ns.empty() ? "-" : ns) + "\n")));
  std::vector<std::byte> buffer(kFrameBytes);
  while (true) {
    HF_ASSIGN_OR_RETURN(const size_t n, read(buffer));
    if (n == 0) break;
    // Refused in the middle: the answer says why.
    if (!SendAll(fd.get(), std::span(buffer).first(n)).ok()) break;
  }
  shutdown(fd.get(), SHUT_WR);
  std::array<char, 4> head;
  HF_RETURN_IF_ERROR(ReceiveAll(fd.get(), std::as_writable_bytes(std::span(head))));
  return ReceiveEnd(fd.get());
}

}  // namespace holdfast::storage
