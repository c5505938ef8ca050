// Images of a checkpoint as a stolen node could write them, one at a time among ones of a small container. What is accepted stays within
// the container. The first byte says which; the rest is its content.
#include <cstdlib>
#include <memory>

#include "base/file.h"
#include "base/protobuf.h"
#include "runtime/image_paths.h"
#include "runtime/image_rights.h"

using namespace holdfast;           // NOLINT(google-build-using-namespace)
using namespace holdfast::runtime;  // NOLINT(google-build-using-namespace)

namespace {

constexpr const char* kNames[] = {
    "inventory.img",           "pstree.img", "ids-1.img",       "core-1.img",       "seccomp.img",      "cgroup.img",
    "mountpoints-14.img",      "files.img",  "remap-fpath.img", "ghost-file-1.img", "descriptors.json", "netns-10.img",
    "tmpfs-dev-389.tar.gz.img"};

std::string Word(uint32_t word) { return std::string(reinterpret_cast<const char*>(&word), sizeof word); }
std::string Number(uint32_t number, uint64_t value) {
  std::string out;
  protobuf::WriteNumber(&out, number, value);
  return out;
}
std::string Bytes(uint32_t number, const std::string& content) {
  std::string out;
  protobuf::WriteBytes(&out, number, content);
  return out;
}
std::string Entry(const std::string& message) { return Word(static_cast<uint32_t>(message.size())) + message; }

class Container {
 public:
  Container() {
    char name[] = "/dev/shm/holdfast-fuzz.XXXXXX";
    dir_ = mkdtemp(name);
    Must(MakeDirs(dir_ + "/root/data"));
    Must(MakeDirs(images()));
    std::string ids, node, creds;
    for (uint32_t i = 1; i <= 12; ++i) ids += Number(i, i + 20), node += Number(i, i);
    ids += Number(10, 10);
    for (uint32_t i = 1; i <= 8; ++i) creds += Number(i, 0);
    const std::string common = Word(0x54564319);
    Put("inventory.img", Word(0x58313116) + Entry(Number(1, 2) + Bytes(3, node)));
    Put("pstree.img", common + Word(0x50273030) + Entry(Number(1, 1) + Number(2, 0) + Number(5, 1)));
    Put("ids-1.img", common + Word(0x54432030) + Entry(ids));
    Put("core-1.img",
        common + Word(0x55053847) +
            Entry(Number(1, 1) + Bytes(3, Number(1, 1)) + Bytes(5, Bytes(10, creds + Number(18, 1)) + Number(11, 2) + Number(12, 0))));
    Put("seccomp.img", common + Word(0x64413049) + Entry(Bytes(1, Bytes(1, std::string("\x06\0\0\0\x01\0\x05\0", 8)))));
    const Json mount = {{"destination", "/data"}, {"type", "bind"}, {"source", dir_ + "/root/data"}};
    spec_ = {{"process", {{"user", {{"uid", 0}}}, {"noNewPrivileges", true}}},
             {"mounts", {mount, {{"destination", "/proc"}, {"type", "proc"}}, {{"destination", "/dev"}, {"type", "tmpfs"}}}},
             {"linux",
              {{"seccomp", {{"defaultAction", "SCMP_ACT_ERRNO"}}},
               {"maskedPaths", {"/proc/keys"}},
               {"namespaces", {{{"type", "pid"}}, {{"type", "mount"}}}}}}};
  }
  ~Container() { (void)RemoveAll(dir_).ok(); }

  std::string images() const { return dir_ + "/images"; }
  void Put(const std::string& name, const std::string& content) { Must(WriteFileAtomically(images() + "/" + name, content)); }
  void Must(const Status& status) {
    if (!status.ok()) __builtin_trap();
  }

  void Try(const std::string& name, const std::string& content) {
    const std::string path = images() + "/" + name;
    const std::string was = ReadFile(path).value_or("");
    Put(name, content);
    ImageView view;
    Status status = CheckImageRights(images(), Spec(spec_), dir_ + "/root", &view);
    for (const ImageMount& mount : view.mounts.mounts) {
      if (mount.path.empty() || mount.path[0] != '/' || (mount.path + "/").find("/../") != std::string::npos) __builtin_trap();
    }
    for (const std::string& file : view.paths.files) {
      if (file.empty() || file[0] != '/' || (file + "/").find("/../") != std::string::npos || file.find('\0') != std::string::npos)
        __builtin_trap();
    }
    if (status.ok()) status = CheckImagePaths(images(), view.mounts, view.paths, dir_ + "/root");
    if (!status.ok() && status.message().empty()) __builtin_trap();
    if (name.starts_with("mountpoints-")) (void)NarrowMounts(content, {{"/data", 2}}).ok();
    if (was.empty()) {
      Must(RemoveAll(path));
    } else {
      Put(name, was);
    }
  }

 private:
  std::string dir_;
  Json spec_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto container = std::make_unique<Container>();
  if (size == 0) return 0;
  container->Try(kNames[data[0] % std::size(kNames)], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
