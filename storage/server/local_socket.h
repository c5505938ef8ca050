// Export and import beside a running server, which has the volume for itself: `holdfast-store export` and `import` find it by a Unix
// socket in the volume's folder, and who can open that can read the volume anyway (0600, and the peer's user is checked). One transfer at a
// time; a peer that hangs for a minute is cut off.
//
// A request is a line, `export NAME` or `import NAMESPACE` (`-`: the archive's own), for import followed by the archive. The answer is
// frames: length (4 bytes, little endian) and bytes; a length of 0, and then {"code","message","said"} to the end.
#pragma once

#include <thread>

#include "storage/archive.h"
#include "storage/file_tree.h"

namespace holdfast::storage {

class LocalSocket {
 public:
  explicit LocalSocket(LocalStore& store) : store_(store) {}
  ~LocalSocket();
  // Another one that was left at `path` goes. kInternal: this volume has no sockets, or the path is too long for one.
  Status Start(const std::string& path);
  void Stop();  // a transfer that runs is cut off

 private:
  void Run(std::stop_token stop);
  void Serve(int peer);

  LocalStore& store_;
  std::string path_;
  Descriptor listener_;
  std::mutex mutex_;
  int peer_ = -1;  // of the transfer that runs
  std::jthread thread_;
};

std::string SocketPath(const std::string& data);

// The other side. kUnavailable: nobody serves there. What was done, for people.
Result<std::string> ExportFromServer(const std::string& path, const std::string& name, const WriteBytes& write);
// `read`: as much as there is at once, at least one byte; 0 at the end.
using ReadSome = std::function<Result<size_t>(std::span<std::byte> bytes)>;
Result<std::string> ImportByServer(const std::string& path, const std::string& ns, const ReadSome& read);

std::string SayImported(const Imported& imported);

}  // namespace holdfast::storage
