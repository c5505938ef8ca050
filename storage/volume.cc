#include "storage/volume.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/fault_point.h"
#include "base/file.h"
#include "storage/codec.h"
#include "storage/limits.h"

namespace holdfast::storage {
namespace {

constexpr char kFormatText[] = "holdfast-store 1\n";
constexpr size_t kHeaderBytes = 16;
constexpr char kMagic[4] = {'H', 'F', 'S', '1'};

Status Errno(std::string_view what, const std::string& path) {
  const int error = errno;
  Code code = error == ENOENT ? Code::kNotFound : error == ENOSPC || error == EDQUOT ? Code::kResourceExhausted : Code::kInternal;
  return Status(code, "cannot " + std::string(what) + " " + path + ": " + std::generic_category().message(error));
}

void PutLittleEndian(uint32_t value, char* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<char>(value >> (8 * i));
}

uint32_t GetLittleEndian(const char* in) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  return value;
}

Status WriteAll(int fd, std::string_view header, std::span<const std::byte> bytes, const std::string& path) {
  for (std::span<const std::byte> part : {AsBytes(header), bytes}) {
    while (!part.empty()) {
      ssize_t n = write(fd, part.data(), part.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Errno("write", path);
      part = part.subspan(static_cast<size_t>(n));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Volume>> Volume::Open(const std::string& dir, Mode mode) {
  std::unique_ptr<Volume> volume(new Volume(dir, mode));
  HF_RETURN_IF_ERROR(volume->Prepare().With("the store in " + dir));
  return volume;
}

Volume::~Volume() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

Status Volume::Prepare() {
  const std::string format_path = dir_ + "/FORMAT";
  if (mode_ == Mode::kWrite) {
    HF_RETURN_IF_ERROR(MakeDirs(dir_));
    lock_fd_ = open((dir_ + "/LOCK").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock_fd_ < 0) return Errno("open", dir_ + "/LOCK");
    if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
      return Status(Code::kFailedPrecondition, "another process has it open: one process writes a volume, stop that one first");
    }
  }
  Result<std::string> format = ReadFile(format_path, 256);
  if (!format.ok() && format.status().code() == Code::kNotFound && mode_ == Mode::kWrite) {
    // Without FORMAT only an empty folder is ours to use: anything else is somebody's data.
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(dir_));
    for (const std::string& name : names) {
      if (name != "LOCK" && name != "FORMAT.tmp" && name != "lost+found") {
        return Status(Code::kFailedPrecondition, "there is no FORMAT file but \"" + name + "\": give an empty folder or a store's");
      }
    }
    HF_RETURN_IF_ERROR(WriteFileDurably(format_path, kFormatText));
  } else if (!format.ok()) {
    return format.status();
  } else if (*format != kFormatText) {
    return Status(Code::kUnsupported, "its format is \"" + format->substr(0, format->find('\n')) +
                                          "\", this version knows \"holdfast-store 1\": use the version that wrote it");
  }
  if (mode_ == Mode::kInspect) return Status::Ok();
  HF_RETURN_IF_ERROR(RemoveAll(dir_ + "/tmp"));
  for (const char* folder : {"tmp", "keys", "objects", "sessions", "manifests", "aborted"})
    HF_RETURN_IF_ERROR(MakeDirs(dir_ + "/" + folder));
  for (const char* folder : {"keys", "sessions", "manifests", "aborted"}) {
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(dir_ + "/" + folder));
    for (const std::string& name : names) {
      if (name.ends_with(".tmp")) unlink((dir_ + "/" + folder + "/" + name).c_str());
    }
  }
  return SyncDir(dir_);
}

Result<HashKey> Volume::Key(const std::string& ns) {
  HF_RETURN_IF_ERROR(CheckId(ns, "namespace"));
  const std::string path = dir_ + "/keys/" + ns;
  Result<std::string> text = ReadFile(path, 64);
  HashKey key;
  if (text.ok()) {
    if (text->size() != key.size())
      return Status(Code::kDataLoss,
                    path + " does not have 32 bytes: restore it from a backup, nothing of the namespace can be verified without it");
    memcpy(key.data(), text->data(), key.size());
    return key;
  }
  if (text.status().code() != Code::kNotFound || mode_ == Mode::kInspect) return text.status();
  HF_ASSIGN_OR_RETURN(key, NewHashKey());
  HF_RETURN_IF_ERROR(WriteFileDurably(path, std::string_view(reinterpret_cast<const char*>(key.data()), key.size())));
  return key;
}

std::string Volume::ObjectPath(const std::string& ns, const SegmentId& id) const {
  std::string hex = id.Hex();
  return dir_ + "/objects/" + ns + "/" + hex.substr(0, 2) + "/" + hex;
}

Result<std::string> Volume::StageObject(Codec codec, uint32_t size, std::span<const std::byte> bytes) {
  std::string path = dir_ + "/tmp/" + std::to_string(next_temporary_.fetch_add(1));
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Errno("create", path);
  char header[kHeaderBytes] = {};
  memcpy(header, kMagic, sizeof kMagic);
  header[4] = static_cast<char>(codec);
  PutLittleEndian(size, header + 8);
  PutLittleEndian(static_cast<uint32_t>(bytes.size()), header + 12);
  Status status = WriteAll(fd, std::string_view(header, sizeof header), bytes, path);
  if (close(fd) != 0 && status.ok()) status = Errno("close", path);
  if (!status.ok()) {
    unlink(path.c_str());
    return status;
  }
  HF_FAULT_POINT("store.put");
  return path;
}

Status Volume::PlaceObject(const std::string& staged, const std::string& ns, const SegmentId& id) {
  const std::string path = ObjectPath(ns, id);
  if (rename(staged.c_str(), path.c_str()) == 0) return Status::Ok();
  if (errno == ENOENT) {
    HF_RETURN_IF_ERROR(MakeDirs(path.substr(0, path.rfind('/'))));
    if (rename(staged.c_str(), path.c_str()) == 0) return Status::Ok();
  }
  return Errno("rename to", path);
}

void Volume::Unstage(const std::string& staged) { unlink(staged.c_str()); }

Result<StoredSegment> Volume::ReadObject(const std::string& ns, const SegmentId& id) const {
  const std::string path = ObjectPath(ns, id);
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return Errno("open", path);
  StoredSegment segment;
  char header[kHeaderBytes];
  ssize_t got = pread(fd, header, sizeof header, 0);
  bool whole = got == static_cast<ssize_t>(sizeof header) && memcmp(header, kMagic, sizeof kMagic) == 0;
  if (whole) {
    const uint32_t stored = GetLittleEndian(header + 12);
    segment.size = GetLittleEndian(header + 8);
    segment.codec = static_cast<Codec>(header[4]);
    whole = CheckEncoding(static_cast<uint8_t>(header[4]), segment.size, stored).ok();
    if (whole) {
      segment.bytes.resize(stored);
      whole = pread(fd, segment.bytes.data(), stored, kHeaderBytes) == static_cast<ssize_t>(stored);
    }
  }
  close(fd);
  if (!whole) return Status(Code::kDataLoss, path + " is torn or not a segment");
  return segment;
}

Result<std::string> Volume::ReadVerified(const std::string& ns, const SegmentId& id, const HashKey& key) const {
  HF_ASSIGN_OR_RETURN(StoredSegment stored, ReadObject(ns, id));
  HF_ASSIGN_OR_RETURN(std::string content, Decode(stored.codec, stored.size, AsBytes(stored.bytes)));
  if (HashSegment(key, AsBytes(content)) != id)
    return Status(Code::kDataLoss, ObjectPath(ns, id) + " does not have the content of its name");
  return content;
}

Status Volume::RemoveObject(const std::string& ns, const SegmentId& id) {
  const std::string path = ObjectPath(ns, id);
  return unlink(path.c_str()) == 0 || errno == ENOENT ? Status::Ok() : Errno("remove", path);
}

Status Volume::VisitObjects(const std::string& ns, const ObjectVisitor& visit) const {
  const std::string root = dir_ + "/objects/" + ns;
  HF_ASSIGN_OR_RETURN(std::vector<std::string> shards, ListDir(root));
  for (const std::string& shard : shards) {
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(root + "/" + shard));
    for (const std::string& name : names) {
      Result<SegmentId> id = SegmentId::FromHex(name);
      struct stat info;
      const std::string path = root + "/" + shard + "/" + name;
      if (!id.ok() || name.substr(0, 2) != shard || lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      visit(*id, static_cast<uint64_t>(info.st_size));
    }
  }
  return Status::Ok();
}

Result<std::vector<std::string>> Volume::Namespaces() const { return List("objects"); }

Status Volume::Sync() {
  // Errors of writeback are reported to the descriptors that were open when they happened: that is what keeps LOCK's for the whole life.
  if (syncfs(lock_fd_) != 0) return Errno("sync the volume of", dir_);
  return Status::Ok();
}

Status Volume::WriteManifest(const std::string& id, const StoredManifest& manifest) {
  std::string text = DumpJson({{"digest", manifest.digest}, {"new_bytes", manifest.new_bytes}}) + "\n";
  text += manifest.text;
  const std::string path = dir_ + "/manifests/" + id, tmp = path + ".tmp";
  int fd = open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Errno("create", tmp);
  Status status = WriteAll(fd, text, {}, tmp);
  if (status.ok() && fsync(fd) != 0) status = Errno("fsync", tmp);
  close(fd);
  if (!status.ok()) {
    unlink(tmp.c_str());
    return status;
  }
  HF_FAULT_POINT("store.before_manifest_rename");
  if (rename(tmp.c_str(), path.c_str()) != 0) return Errno("rename to", path);
  HF_FAULT_POINT("store.after_manifest_rename");
  return SyncDir(dir_ + "/manifests");
}

Result<StoredManifest> Volume::ReadManifest(const std::string& id) const {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  const std::string path = dir_ + "/manifests/" + id;
  Result<std::string> text = ReadFile(path, kMaxManifestBytes + 4096);
  if (!text.ok() && text.status().code() == Code::kNotFound) return Status(Code::kNotFound, "the store has no checkpoint " + id);
  if (!text.ok()) return text.status();
  const size_t line = text->find('\n');
  Result<Json> head = ParseJson(std::string_view(*text).substr(0, std::min(line, size_t{4096})));
  StoredManifest manifest;
  if (head.ok() && line != std::string::npos) {
    manifest.digest = GetString(*head, {"digest"});
    manifest.new_bytes = static_cast<uint64_t>(GetInt(*head, {"new_bytes"}));
    manifest.text = text->substr(line + 1);
  }
  if (manifest.digest.empty() || Digest(manifest.text) != manifest.digest)
    return Status(Code::kDataLoss, path + " does not match its digest");
  return manifest;
}

Status Volume::RemoveManifest(const std::string& id) {
  if (unlink((dir_ + "/manifests/" + id).c_str()) != 0 && errno != ENOENT) return Errno("remove", dir_ + "/manifests/" + id);
  return SyncDir(dir_ + "/manifests");
}

Status Volume::WriteMark(const char* folder, const std::string& id, std::string_view text) {
  return WriteFileDurably(dir_ + "/" + folder + "/" + id, text);
}

Status Volume::RemoveMark(const char* folder, const std::string& id) {
  const std::string path = dir_ + "/" + folder + "/" + id;
  return unlink(path.c_str()) == 0 || errno == ENOENT ? Status::Ok() : Errno("remove", path);
}

Result<std::string> Volume::ReadMark(const char* folder, const std::string& id) const {
  return ReadFile(dir_ + "/" + folder + "/" + id, 4096);
}

Result<std::vector<std::string>> Volume::List(const char* folder) const {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDir(dir_ + "/" + folder));
  std::erase_if(names, [](const std::string& name) { return name.ends_with(".tmp") || !CheckId(name, "name").ok(); });
  return names;
}

Result<Space> Volume::FreeSpace() const {
  struct statvfs info;
  if (statvfs(dir_.c_str(), &info) != 0) return Errno("look at the free space of", dir_);
  return Space{.total = info.f_blocks * info.f_frsize, .free = info.f_bavail * info.f_frsize};
}

}  // namespace holdfast::storage
