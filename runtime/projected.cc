#include "runtime/projected.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <utility>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

constexpr size_t kMaxFile = 2 << 20;  // the API server's limit of one object is below it
constexpr size_t kMaxFiles = 256;

struct Volume {
  std::string destination, source;
  dev_t device = 0;
  ino_t inode = 0;
};

bool IsProjected(const std::string& source) {
  for (const char* kind : {"configmap", "secret", "projected", "downward-api"}) {
    if (source.find(std::string("/volumes/kubernetes.io~") + kind + "/") != std::string::npos) return true;
  }
  return false;
}

std::vector<Volume> ProjectedVolumes(const Spec& spec) {
  std::vector<Volume> volumes;
  for (const Spec::Mount& mount : spec.Mounts()) {
    struct stat info;
    if (IsProjected(mount.source) && stat(mount.source.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      volumes.push_back({mount.destination, mount.source, info.st_dev, info.st_ino});
    }
  }
  return volumes;
}

struct OpenFile {
  std::string root;    // the volume's mount point as the process sees it
  std::string dated;   // ..2026_01_02_03_04_05.123
  std::string inside;  // the file below it
};

std::optional<OpenFile> ParseOpenFile(const std::string& target) {
  size_t dots = target.find("/..2");
  if (dots == std::string::npos) return std::nullopt;
  size_t slash = target.find('/', dots + 1);
  if (slash == std::string::npos || slash + 1 == target.size()) return std::nullopt;
  OpenFile file{target.substr(0, dots), target.substr(dots + 1, slash - dots - 1), target.substr(slash + 1)};
  if (!IsSafeName(file.dated) || file.inside.find("..") != std::string::npos || target.ends_with(" (deleted)")) return std::nullopt;
  return file;
}

Status CopyFile(const std::string& from, const std::string& to, const struct stat& info) {
  HF_ASSIGN_OR_RETURN(std::string content, ReadFile(from, kMaxFile));
  HF_RETURN_IF_ERROR(MakeDirs(to.substr(0, to.rfind('/')), 0755));
  HF_RETURN_IF_ERROR(WriteFileAtomically(to, content, info.st_mode & 07777));
  // The mode given at creation is cut by the umask.
  if (chmod(to.c_str(), info.st_mode & 07777) != 0 || chown(to.c_str(), info.st_uid, info.st_gid) != 0) {
    return Status(Code::kInternal, "cannot set owner and mode of " + to);
  }
  return Status::Ok();
}

// Copies every file below `from` to the same place below `to`.
Status CopyBelow(const std::string& from, const std::string& to, int depth) {
  if (depth > 16) return Status(Code::kDataLoss, from + " is nested too deeply");
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(from));
  for (const std::string& name : names) {
    struct stat info;
    if (lstat((from + "/" + name).c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) HF_RETURN_IF_ERROR(CopyBelow(from + "/" + name, to + "/" + name, depth + 1));
    if (S_ISREG(info.st_mode)) HF_RETURN_IF_ERROR(CopyFile(from + "/" + name, to + "/" + name, info));
  }
  return Status::Ok();
}

}  // namespace

Status KeepOpenProjectedFiles(const std::vector<int>& pids, const Spec& spec, const std::string& folder) {
  const std::vector<Volume> volumes = ProjectedVolumes(spec);
  if (volumes.empty()) return Status::Ok();
  Json index = Json::object();
  size_t count = 0;
  for (int pid : pids) {
    const std::string proc = "/proc/" + std::to_string(pid);
    Result<std::vector<std::string>> names = ListDir(proc + "/fd");
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      const std::string fd = proc + "/fd/" + name;
      char target[4096];
      ssize_t n = readlink(fd.c_str(), target, sizeof target);
      std::optional<OpenFile> file = n > 0 ? ParseOpenFile(std::string(target, static_cast<size_t>(n))) : std::nullopt;
      struct stat root, info;
      if (!file || stat((proc + "/root" + file->root).c_str(), &root) != 0 || stat(fd.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
        continue;
      for (size_t i = 0; i < volumes.size(); ++i) {
        if (volumes[i].device != root.st_dev || volumes[i].inode != root.st_ino) continue;
        if (++count > kMaxFiles) return Status(Code::kUnsupported, "more than 256 open files of configMap, secret and token volumes");
        HF_RETURN_IF_ERROR(MakeDirs(folder));
        HF_RETURN_IF_ERROR(CopyFile(fd, folder + "/" + std::to_string(i) + "/" + file->dated + "/" + file->inside, info));
        index[std::to_string(i)] = volumes[i].destination;
      }
    }
  }
  return index.empty() ? Status::Ok() : WriteFileAtomically(folder + "/index.json", DumpJson(index));
}

Status PutBackProjectedFiles(const std::string& folder, const Spec& spec) {
  Result<std::string> text = ReadFile(folder + "/index.json", 1 << 20);
  if (text.status().code() == Code::kNotFound) return Status::Ok();
  if (!text.ok()) return text.status();
  HF_ASSIGN_OR_RETURN(Json index, ParseJson(*text));
  if (!index.is_object()) return Status(Code::kDataLoss, folder + "/index.json is not an object");
  const std::vector<Volume> volumes = ProjectedVolumes(spec);
  for (const auto& [number, destination] : index.items()) {
    if (!IsSafeName(number) || !destination.is_string()) return Status(Code::kDataLoss, folder + "/index.json is damaged");
    for (const Volume& volume : volumes) {
      if (volume.destination != destination.get<std::string>()) continue;
      HF_ASSIGN_OR_RETURN(std::vector<std::string> dated, ListDir(folder + "/" + number));
      for (const std::string& name : dated) {
        // Only dated folders: nothing else of the volume may be written over.
        if (!name.starts_with("..2") || Exists(volume.source + "/" + name)) continue;
        HF_RETURN_IF_ERROR(CopyBelow(folder + "/" + number + "/" + name, volume.source + "/" + name, 0));
        if (chmod((volume.source + "/" + name).c_str(), 0755) != 0)
          return Status(Code::kInternal, "cannot open " + volume.source + "/" + name);
      }
    }
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
