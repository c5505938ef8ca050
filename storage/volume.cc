#include "storage/volume.h"

#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "storage/bytes.h"
#include "storage/limits.h"

namespace holdfast::storage {
namespace {

// What says the version. 3 knows all that 2 does, and a volume is of 2 until it needs more: who goes back to an older release soon can.
constexpr std::string_view kFormatBegin[] = {"holdfast-store 2 ", "holdfast-store 3 "};
constexpr int kFirstVersion = 2;
constexpr const char* kFolders[] = {"keys", "packs", "index", "sessions", "manifests", "aborted", "trash"};
constexpr std::string_view kManifestMagic = "HFMANI02";
constexpr size_t kManifestHead = 40;  // and then the namespace

std::string FormatText(int version, const std::string& id) {
  const std::string line = std::string(kFormatBegin[version - kFirstVersion]) + id;
  return line + " " + Digest(line).substr(7, 16) + "\n";
}

std::string ManifestHeader(const StoredManifest& manifest, const Salt& salt) {
  std::string header(kManifestMagic);
  AppendInteger(static_cast<uint64_t>(manifest.ns.size()), header);
  AppendInteger(manifest.new_bytes, header);
  header += AsText(salt);
  return header + manifest.ns;
}

Secret ManifestKey(const NamespaceKeys& keys, const Salt& salt) { return Derive("holdfast-store 2 manifest", keys.data, salt); }

}  // namespace

Result<std::unique_ptr<Volume>> Volume::Open(const VolumeOptions& options, Mode mode) {
  std::unique_ptr<Volume> volume(new Volume(options, mode));
  HF_RETURN_IF_ERROR(volume->Prepare().With("the store in " + options.dir));
  return volume;
}

Status Volume::Prepare() {
  if (mode_ == Mode::kWrite) {
    HF_RETURN_IF_ERROR(fs_.MakeDir(dir_));
    Result<std::unique_ptr<FileLock>> lock = fs_.Lock(dir_ + "/LOCK");
    if (!lock.ok() && lock.status().code() == Code::kFailedPrecondition)
      return Status(Code::kFailedPrecondition, "another process has it open: one process writes a volume, stop that one first");
    if (!lock.ok()) return lock.status();
    lock_ = std::move(*lock);
  }
  HF_RETURN_IF_ERROR(CheckFormat());
  if (mode_ == Mode::kWrite) HF_RETURN_IF_ERROR(Clear());
  HF_RETURN_IF_ERROR(LoadOwnKek());
  return CheckKeks();
}

Status Volume::CheckFormat() {
  const std::string path = dir_ + "/FORMAT";
  Result<std::string> text = ReadWhole(fs_, path, 256);
  if (!text.ok() && text.status().code() == Code::kNotFound && mode_ == Mode::kWrite) {
    // Without FORMAT only an empty folder is ours to use: anything else is somebody's data.
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, fs_.List(dir_));
    for (const std::string& name : names) {
      if (name != "LOCK" && name != "FORMAT.tmp" && name != "lost+found") {
        return Status(Code::kFailedPrecondition, "there is no FORMAT file but \"" + name + "\": give an empty folder or a store's");
      }
    }
    HF_ASSIGN_OR_RETURN(Salt id, NewSalt());
    store_id_ = ToHex(id);
    return WriteDurably(fs_, path, FormatText(version_, store_id_));
  }
  if (!text.ok()) return text.status();
  const std::string line = text->substr(0, text->find('\n'));
  if (line == "holdfast-store 1") {
    return Status(Code::kUnsupported,
                  "it has the layout of version 1, one file a segment, which no release wrote: restore or drop its checkpoints with the "
                  "version that wrote it, then give an empty folder");
  }
  version_ = line.starts_with(kFormatBegin[1]) ? 3 : 2;
  const std::string_view begin = kFormatBegin[version_ - kFirstVersion];
  if (line.starts_with("holdfast-store ") && !line.starts_with(begin)) {
    return Status(Code::kUnsupported, "its format is \"" + line.substr(0, 40) +
                                          "\", this version knows \"holdfast-store 2\" and 3: use the version that wrote it");
  }
  if (line.size() >= begin.size() + 32) store_id_ = line.substr(begin.size(), 32);
  if (FormatText(version_, store_id_) != *text)
    return Status(Code::kDataLoss, "FORMAT is damaged: put it back as \"holdfast-store stat\" of an earlier day or a backup has it");
  return Status::Ok();
}

// Folders are there, and nothing that was being written when the last life ended. What that one had renamed or removed, and was killed
// before it could sync, is seen from here on, and somebody may be told of it: so a power cut must not take it back any more.
Status Volume::Clear() {
  HF_RETURN_IF_ERROR(fs_.SyncDir(dir_));
  for (const char* folder : kFolders) HF_RETURN_IF_ERROR(fs_.MakeDir(dir_ + "/" + folder));
  for (const char* folder : {"/keys", "/packs", "/index", "/sessions", "/manifests", "/aborted", ""}) {
    HF_ASSIGN_OR_RETURN(std::vector<std::string> names, fs_.List(dir_ + folder));
    for (const std::string& name : names) {
      if (name.ends_with(".tmp")) HF_RETURN_IF_ERROR(fs_.Remove(dir_ + folder + "/" + name));
    }
    HF_RETURN_IF_ERROR(fs_.SyncDir(dir_ + folder));
  }
  return Status::Ok();
}

Status Volume::LoadOwnKek() {
  const std::string path = dir_ + "/KEK";
  Result<std::string> text = ReadWhole(fs_, path, 4096);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  if (!text.ok() && !keks_.empty()) return Status::Ok();
  if (!text.ok() && mode_ == Mode::kWrite) {
    Secret key;
    HF_RETURN_IF_ERROR(FillRandom(key));
    text = ToHex(key) + "\n";
    HF_RETURN_IF_ERROR(WriteDurably(fs_, path, *text));
  }
  if (!text.ok()) return Status(Code::kFailedPrecondition, "its KEK was not given: --kek-file");
  HF_ASSIGN_OR_RETURN(Kek own, ParseKek(*text));
  own_kek_ = true;
  if (keks_.empty() && mode_ == Mode::kWrite)
    LogWarning("no --kek-file: the key that encrypts the store lies beside its data, who reads the volume reads the checkpoints",
               {{"file", path}});
  keks_.push_back(own);
  return Status::Ok();
}

// A wrong or forgotten KEK is a mistake to be told at once; damage to one file of many is not a reason to serve nobody.
Status Volume::CheckKeks() {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> namespaces, List("keys"));
  for (const std::string& ns : namespaces) {
    Result<std::string> text = ReadWhole(fs_, KeysPath(ns), 4096);
    if (!text.ok()) continue;
    Result<UnwrappedKeys> unwrapped = UnwrapKeys(*text, ns, keks_);
    if (!unwrapped.ok() && unwrapped.status().code() == Code::kFailedPrecondition) return unwrapped.status();
    if (!unwrapped.ok()) LogError("a namespace cannot be read", {{"namespace", ns}, {"error", unwrapped.status().ToString()}});
  }
  return Status::Ok();
}

Result<NamespaceKeys> Volume::ExistingKeys(const std::string& ns) {
  HF_RETURN_IF_ERROR(CheckId(ns, "namespace"));
  std::lock_guard lock(mutex_);
  auto known = keys_.find(ns);
  if (known != keys_.end()) return known->second;
  HF_ASSIGN_OR_RETURN(std::string text, ReadWhole(fs_, KeysPath(ns), 4096));
  HF_ASSIGN_OR_RETURN(UnwrappedKeys unwrapped, UnwrapKeys(text, ns, keks_));
  keys_[ns] = unwrapped.keys;
  return unwrapped.keys;
}

Result<NamespaceKeys> Volume::Keys(const std::string& ns) {
  Result<NamespaceKeys> known = ExistingKeys(ns);
  if (known.ok() || known.status().code() != Code::kNotFound || mode_ == Mode::kInspect) return known;
  std::lock_guard lock(mutex_);
  if (keys_.contains(ns)) return keys_[ns];
  HF_ASSIGN_OR_RETURN(NamespaceKeys made, NewNamespaceKeys());
  HF_ASSIGN_OR_RETURN(std::string text, WrapKeys(made, ns, keks_.front()));
  HF_RETURN_IF_ERROR(WriteDurably(fs_, KeysPath(ns), text));
  keys_[ns] = made;
  return made;
}

Result<size_t> Volume::Rewrap() {
  HF_ASSIGN_OR_RETURN(std::vector<std::string> namespaces, List("keys"));
  size_t changed = 0, damaged = 0;
  std::lock_guard lock(mutex_);
  for (const std::string& ns : namespaces) {
    HF_ASSIGN_OR_RETURN(std::string text, ReadWhole(fs_, KeysPath(ns), 4096));
    Result<UnwrappedKeys> unwrapped = UnwrapKeys(text, ns, keks_);
    if (!unwrapped.ok()) {
      LogError("the keys of a namespace cannot be wrapped anew", {{"namespace", ns}, {"error", unwrapped.status().ToString()}});
      ++damaged;
      continue;
    }
    if (unwrapped->kek == keks_.front().id) continue;
    HF_ASSIGN_OR_RETURN(std::string wrapped, WrapKeys(unwrapped->keys, ns, keks_.front()));
    HF_RETURN_IF_ERROR(WriteDurably(fs_, KeysPath(ns), wrapped));
    ++changed;
  }
  if (own_kek_ && keks_.size() > 1 && damaged == 0) {
    HF_RETURN_IF_ERROR(fs_.Remove(dir_ + "/KEK"));
    HF_RETURN_IF_ERROR(fs_.SyncDir(dir_));
    own_kek_ = false;
  }
  return changed;
}

Status Volume::NeedVersion(int version) {
  std::lock_guard lock(mutex_);
  if (version_ >= version) return Status::Ok();
  HF_RETURN_IF_ERROR(WriteDurably(fs_, dir_ + "/FORMAT", FormatText(version, store_id_)));
  LogInfo("the volume has a newer format from here on: older releases refuse it", {{"dir", dir_}, {"version", version}});
  version_ = version;
  return Status::Ok();
}

Result<size_t> Volume::Mend() {
  size_t mended = 0;
  std::lock_guard lock(mutex_);
  Result<std::string> format = ReadWhole(fs_, dir_ + "/FORMAT", 256);
  if (!format.ok() || *format != FormatText(version_, store_id_)) {
    HF_RETURN_IF_ERROR(WriteDurably(fs_, dir_ + "/FORMAT", FormatText(version_, store_id_)));
    LogError("FORMAT was damaged, and is written anew", {{"dir", dir_}});
    ++mended;
  }
  for (const auto& [ns, keys] : keys_) {
    Result<std::string> text = ReadWhole(fs_, KeysPath(ns), 4096);
    Result<UnwrappedKeys> unwrapped = text.ok() ? UnwrapKeys(*text, ns, keks_) : Result<UnwrappedKeys>(text.status());
    if (unwrapped.ok() && unwrapped->keys.hash == keys.hash && unwrapped->keys.data == keys.data) continue;
    HF_ASSIGN_OR_RETURN(std::string wrapped, WrapKeys(keys, ns, keks_.front()));
    HF_RETURN_IF_ERROR(WriteDurably(fs_, KeysPath(ns), wrapped));
    LogError("the keys of a namespace were damaged, and are written anew", {{"namespace", ns}, {"error", unwrapped.status().ToString()}});
    ++mended;
  }
  return mended;
}

Status Volume::RemoveKeys(const std::string& ns) {
  const std::string path = KeysPath(ns);
  std::lock_guard lock(mutex_);
  keys_.erase(ns);
  // What the disk makes of it is the disk's: it costs nothing to try, no room either.
  Result<std::unique_ptr<File>> file = fs_.Open(path, FileSystem::For::kWriting);
  if (file.ok()) {
    Result<uint64_t> size = (*file)->Size();
    const std::string zeros(std::min<uint64_t>(size.value_or(0), 4096), '\0');
    Status written = (*file)->WriteAt(0, AsBytes(zeros));
    if (written.ok()) written = (*file)->Sync();
    if (!written.ok()) LogWarning("wrapped keys are removed, but not overwritten", {{"file", path}, {"error", written.ToString()}});
  }
  HF_RETURN_IF_ERROR(fs_.Remove(path));
  return fs_.SyncDir(dir_ + "/keys");
}

Status Volume::WriteManifest(const std::string& id, const StoredManifest& manifest) {
  HF_ASSIGN_OR_RETURN(NamespaceKeys keys, ExistingKeys(manifest.ns));
  HF_ASSIGN_OR_RETURN(Salt salt, NewSalt());
  std::string text = ManifestHeader(manifest, salt);
  const std::string aad = text + id;
  const size_t head = text.size();
  text.resize(head + manifest.text.size() + kTagBytes);
  HF_RETURN_IF_ERROR(
      Seal(ManifestKey(keys, salt), 0, AsBytes(aad), AsBytes(manifest.text), std::as_writable_bytes(std::span(text)).subspan(head)));
  const std::string path = dir_ + "/manifests/" + id, tmp = path + ".tmp";
  Status status;
  {
    HF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, fs_.Create(tmp));
    status = file->WriteAt(0, AsBytes(text));
    if (status.ok()) status = file->Sync();
  }
  if (status.ok()) {
    HF_FAULT_POINT("store.before_manifest_rename");
    status = fs_.Rename(tmp, path);
  }
  if (!status.ok()) {
    [[maybe_unused]] Status removed = fs_.Remove(tmp);  // a start removes what stays
    return status;
  }
  HF_FAULT_POINT("store.after_manifest_rename");
  return fs_.SyncDir(dir_ + "/manifests");
}

Result<StoredManifest> Volume::ReadManifest(const std::string& id) {
  HF_RETURN_IF_ERROR(CheckId(id, "checkpoint uid"));
  const std::string path = dir_ + "/manifests/" + id;
  Result<std::string> text = ReadWhole(fs_, path, kMaxManifestBytes + 4096);
  if (!text.ok() && text.status().code() == Code::kNotFound) return Status(Code::kNotFound, "the store has no checkpoint " + id);
  if (!text.ok()) return text.status().With("the checkpoint " + id);
  const Status damaged(Code::kDataLoss, "the manifest of the checkpoint " + id + " is damaged (" + path + ")");
  if (text->size() < kManifestHead || !text->starts_with(kManifestMagic)) return damaged;
  StoredManifest manifest;
  const uint64_t ns_bytes = GetInteger<uint64_t>(text->data() + 8);
  manifest.new_bytes = GetInteger<uint64_t>(text->data() + 16);
  Salt salt;
  memcpy(salt.data(), text->data() + 24, salt.size());
  if (ns_bytes > 200 || text->size() < kManifestHead + ns_bytes + kTagBytes) return damaged;
  manifest.ns = text->substr(kManifestHead, ns_bytes);
  if (!CheckId(manifest.ns, "namespace").ok()) return damaged;
  Result<NamespaceKeys> keys = ExistingKeys(manifest.ns);
  if (!keys.ok() && keys.status().code() == Code::kNotFound)
    return Status(Code::kDataLoss, "the checkpoint " + id + " cannot be read: the keys of the namespace " + manifest.ns + " are not there");
  if (!keys.ok()) return keys.status().With("the checkpoint " + id);
  const size_t head = kManifestHead + ns_bytes;
  manifest.text.resize(text->size() - head - kTagBytes);
  if (!Unseal(ManifestKey(*keys, salt), 0, AsBytes(text->substr(0, head) + id), AsBytes(*text).subspan(head),
              std::as_writable_bytes(std::span(manifest.text)))
           .ok())
    return damaged;
  manifest.digest = Digest(manifest.text);
  return manifest;
}

Result<std::string> Volume::NamespaceOf(const std::string& manifest) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, fs_.Open(dir_ + "/manifests/" + manifest, FileSystem::For::kReading));
  std::string head(kManifestHead, '\0');
  HF_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(head))));
  const uint64_t ns_bytes = GetInteger<uint64_t>(head.data() + 8);
  if (!head.starts_with(kManifestMagic) || ns_bytes > 200) return Status(Code::kDataLoss, "the manifest of " + manifest + " is damaged");
  std::string ns(ns_bytes, '\0');
  HF_RETURN_IF_ERROR(file->ReadAt(kManifestHead, std::as_writable_bytes(std::span(ns))));
  return ns;
}

Status Volume::RemoveManifest(const std::string& id) {
  HF_RETURN_IF_ERROR(fs_.Remove(dir_ + "/manifests/" + id));
  return fs_.SyncDir(dir_ + "/manifests");
}

Status Volume::WriteMark(const char* folder, const std::string& id, std::string_view text) {
  return WriteDurably(fs_, dir_ + "/" + folder + "/" + id, text);
}

Status Volume::RemoveMark(const char* folder, const std::string& id) { return fs_.Remove(dir_ + "/" + folder + "/" + id); }

Result<std::string> Volume::ReadMark(const char* folder, const std::string& id) const {
  return ReadWhole(fs_, dir_ + "/" + folder + "/" + id, 4096);
}

Result<std::vector<std::string>> Volume::List(const char* folder) const {
  Result<std::vector<std::string>> names = fs_.List(dir_ + "/" + folder);
  if (!names.ok() && names.status().code() == Code::kNotFound) return std::vector<std::string>();
  if (!names.ok()) return names.status();
  std::erase_if(*names, [](const std::string& name) { return name.ends_with(".tmp") || !CheckId(name, "name").ok(); });
  return names;
}

Status Volume::TakeReserve(uint64_t bytes) {
  const std::string path = dir_ + "/reserve";
  Result<std::unique_ptr<File>> file = fs_.Open(path, FileSystem::For::kWriting);
  if (!file.ok() && file.status().code() == Code::kNotFound) file = fs_.Create(path);
  if (!file.ok()) return file.status();
  HF_ASSIGN_OR_RETURN(uint64_t size, (*file)->Size());
  return size == bytes ? Status::Ok() : size > bytes ? (*file)->Truncate(bytes) : (*file)->Allocate(bytes);
}

Status Volume::GiveUpReserve() { return fs_.Remove(dir_ + "/reserve"); }

}  // namespace holdfast::storage
