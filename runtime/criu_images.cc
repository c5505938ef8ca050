#include "runtime/criu_images.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/file.h"
#include "base/protobuf.h"
#include "runtime/criu_entries.h"
#include "runtime/image_mounts.h"

namespace holdfast::runtime {
namespace {

constexpr uint32_t kInetSocket = 4;  // file_entry.isk (images/fdinfo.proto)
// inet_sk_entry (images/sk-inet.proto)
constexpr uint32_t kProto = 5, kState = 6, kSource = 11;
constexpr size_t kMaxFilesImage = 256 << 20;

using protobuf::Field;
using protobuf::ReadField;
using protobuf::ReadVarint;
using protobuf::WriteBytes;
using protobuf::WriteNumber;
using Words = std::vector<uint32_t>;  // an address as CRIU keeps it: 32-bit words in network byte order

bool ToWords(const std::string& text, Words* words) {
  const int family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  words->assign(family == AF_INET ? 1 : 4, 0);
  return inet_pton(family, text.c_str(), words->data()) == 1;
}

// The address to bind to in place of `bound`, or an empty one.
Words Replacement(const Words& bound, const std::map<Words, Words>& addresses) {
  if (auto found = addresses.find(bound); found != addresses.end()) return found->second;
  const bool mapped = bound.size() == 4 && bound[0] == 0 && bound[1] == 0 && bound[2] == htonl(0xffff);
  if (!mapped) return {};
  auto found = addresses.find(Words{bound[3]});
  return found == addresses.end() ? Words{} : Words{0, 0, htonl(0xffff), found->second[0]};
}

// One inet_sk_entry. False when it is malformed.
bool RewriteSocket(std::string_view socket, const std::map<Words, Words>& addresses, std::string* out) {
  uint64_t proto = 0, state = 0;
  Words source;
  Field field;
  for (std::string_view in = socket; !in.empty();) {
    if (!ReadField(&in, &field)) return false;
    if (field.number == kProto) proto = field.value;
    if (field.number == kState) state = field.value;
    if (field.number != kSource) continue;
    if (field.wire == 0) source.push_back(static_cast<uint32_t>(field.value));
    for (std::string_view packed = field.wire == 2 ? field.content : ""; !packed.empty();) {
      uint64_t word;
      if (!ReadVarint(&packed, &word)) return false;
      source.push_back(static_cast<uint32_t>(word));
    }
  }
  const bool connection = proto == IPPROTO_TCP && state != TCP_LISTEN && state != TCP_CLOSE;
  const Words target = connection ? Words{} : Replacement(source, addresses);
  if (target.empty()) {
    out->assign(socket);
    return true;
  }
  bool written = false;
  for (std::string_view in = socket; !in.empty();) {
    if (!ReadField(&in, &field)) return false;
    if (field.number != kSource) {
      out->append(field.whole);
    } else if (!written) {
      for (uint32_t word : target) {
        WriteNumber(out, kSource, word);
      }
      written = true;
    }
  }
  return true;
}

bool RewriteEntry(std::string_view entry, const std::map<Words, Words>& addresses, std::string* out) {
  Field field;
  for (std::string_view in = entry; !in.empty();) {
    if (!ReadField(&in, &field)) return false;
    if (field.number == kInetSocket && field.wire == 2) {
      std::string socket;
      if (!RewriteSocket(field.content, addresses, &socket)) return false;
      WriteBytes(out, kInetSocket, socket);
    } else {
      out->append(field.whole);
    }
  }
  return true;
}

bool IsIpcImage(const std::string& name) {
  return name.starts_with("ipcns-shm-") || name.starts_with("ipcns-msg-") || name.starts_with("ipcns-sem-");
}

}  // namespace

Result<std::string> RewriteFilesImage(std::string_view image, const std::map<std::string, std::string>& addresses) {
  std::map<Words, Words> words;
  for (const auto& [from, to] : addresses) {
    Words old_words, new_words;
    if (ToWords(from, &old_words) && ToWords(to, &new_words) && old_words.size() == new_words.size()) words[old_words] = new_words;
  }
  std::optional<std::string> rewritten =
      RewriteEntries(image, kFilesMagic, [&words](std::string_view entry, std::string* out) { return RewriteEntry(entry, words, out); });
  if (!rewritten) return Status(Code::kDataLoss, "files.img is damaged or of another CRIU");
  return *std::move(rewritten);
}

Status MakeImagesView(const std::string& images, const std::string& view, const ImagesView& options) {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(images));
  HF_RETURN_IF_ERROR(RemoveAll(view));
  HF_RETURN_IF_ERROR(MakeDirs(view));
  for (const std::string& name : names) {
    if (!options.with_ipc && IsIpcImage(name)) continue;
    const std::string from = images + "/" + name, to = view + "/" + name;
    if (name == "files.img" && !options.addresses.empty()) {
      HF_ASSIGN_OR_RETURN(std::string image, ReadFile(from, kMaxFilesImage));
      HF_ASSIGN_OR_RETURN(std::string rewritten, RewriteFilesImage(image, options.addresses));
      HF_RETURN_IF_ERROR(WriteFileAtomically(to, rewritten));
    } else if (name.starts_with("mountpoints-") && !options.narrower.empty()) {
      HF_ASSIGN_OR_RETURN(std::string image, ReadFile(from, kMaxFilesImage));
      HF_ASSIGN_OR_RETURN(std::string rewritten, NarrowMounts(image, options.narrower));
      HF_RETURN_IF_ERROR(WriteFileAtomically(to, rewritten));
    } else if (link(from.c_str(), to.c_str()) != 0) {
      return Status(Code::kInternal, "cannot link " + to);
    }
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
