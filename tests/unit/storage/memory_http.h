// The store's routes as they are served, without sockets: a request is its bytes, and so is the answer. For floods and for fuzzing.
#pragma once

#include <cstring>

#include "storage/limits.h"
#include "storage/server/routes.h"

namespace holdfast::storage {

class MemoryStream final : public httplib::Stream {
 public:
  MemoryStream(std::string_view request, std::string peer) : request_(request), peer_(std::move(peer)) {}
  bool is_readable() const override { return !request_.empty(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* out, size_t size) override {
    const size_t n = std::min(size, request_.size());
    memcpy(out, request_.data(), n);
    request_.remove_prefix(n);
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* bytes, size_t size) override {
    answer.append(bytes, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip = peer_;
    port = 1;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip = "127.0.0.1";
    port = 1;
  }
  socket_t socket() const override { return -1; }
  std::string answer;

 private:
  std::string_view request_;
  const std::string peer_;
};

class MemoryServer final : public httplib::Server {
 public:
  explicit MemoryServer(Routes& routes) {
    routes.AddTo(*this);
    set_payload_max_length(kMaxManifestBytes);
    svr_sock_ = 0;  // never used: but without one it takes itself for a server that is going away, and cuts long answers short
  }
  // What comes after the request's end is not read.
  std::string Ask(std::string_view request, const std::string& peer = "127.0.0.1") {
    MemoryStream stream(request, peer);
    bool closed = false;
    process_request(stream, /*close_connection=*/true, closed, nullptr);
    return std::move(stream.answer);
  }
};

// 0 when it is no answer.
inline int StatusOf(const std::string& answer) { return answer.starts_with("HTTP/1.1 ") ? atoi(answer.c_str() + 9) : 0; }

}  // namespace holdfast::storage
