// The store's folder on a volume (FORMAT.md), and nothing that is kept in memory but keys:
//   FORMAT               version and the store's id; another version is refused
//   TERM                 highest term of leadership that deleted anything (base/fence.h)
//   LOCK                 held by the one process that writes
//   KEK                  only when no KEK was given: one made here, which protects nothing from who has the volume
//   keys/<ns>            the namespace's keys, wrapped
//   packs/<ns>/<id>      segments, encrypted
//   index/<id>.ix        where in the pack each of them is
//   sessions/<id>        {"node", "ns"} of a session that was opened and neither committed nor aborted
//   manifests/<id>       sealed: its rename is the commit
//   aborted/<id>         empty: this id never commits
//   scrub                where the scrub is, and what it found
//   trash/<id>           packs without live data, to be removed
//   reserve              space that a collection gives itself when the volume is full
#pragma once

#include <map>
#include <mutex>

#include "storage/fs.h"
#include "storage/keys.h"
#include "storage/pack_format.h"

namespace holdfast::storage {

struct StoredManifest {
  std::string ns;
  std::string text;  // Manifest::Serialize
  std::string digest;
  uint64_t new_bytes = 0;
};

struct VolumeOptions {
  std::string dir;
  std::vector<Kek> keks;     // the first wraps; none: the volume's own, which is made when there is none
  FileSystem* fs = nullptr;  // null: the real one
};

// Thread-safe: every call is one file operation or a few.
class Volume {
 public:
  enum class Mode { kWrite, kInspect };  // kInspect: changes nothing, takes no lock
  // kUnsupported: another version's. kFailedPrecondition: somebody else's folder, another process has it, or none of the given KEKs is its.
  static Result<std::unique_ptr<Volume>> Open(const VolumeOptions& options, Mode mode);
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  Result<NamespaceKeys> Keys(const std::string& ns);  // kWrite: made, durably, when they are not there
  Result<NamespaceKeys> ExistingKeys(const std::string& ns);
  // Wraps all keys by the first KEK; how many were not. Then the volume's own KEK goes, when others were given.
  Result<size_t> Rewrap();
  Status RemoveKeys(const std::string& ns);
  // Durable when it returns: from here on only who knows this version opens the volume. kWrite only.
  Status NeedVersion(int version);
  // Writes FORMAT and the keys that this process knows anew where the disk does not give them back any more; how many. kWrite only.
  Result<size_t> Mend();

  Status WriteManifest(const std::string& id, const StoredManifest& manifest);  // its digest is not used
  Result<StoredManifest> ReadManifest(const std::string& id);                   // kDataLoss when it is damaged
  Result<std::string> NamespaceOf(const std::string& manifest);                 // as its header says, without any key: not authenticated
  Status RemoveManifest(const std::string& id);

  // Marks are files in sessions/ and aborted/: durable when the call returns.
  Status WriteMark(const char* folder, const std::string& id, std::string_view text);
  Status RemoveMark(const char* folder, const std::string& id);
  Result<std::string> ReadMark(const char* folder, const std::string& id) const;
  Result<std::vector<std::string>> List(const char* folder) const;

  std::string PackFolder(const std::string& ns) const { return dir_ + "/packs/" + ns; }
  std::string PackPath(const std::string& ns, const PackId& id) const { return PackFolder(ns) + "/" + id.Hex(); }
  std::string IndexPath(const PackId& id) const { return dir_ + "/index/" + id.Hex() + ".ix"; }
  std::string TrashPath(const PackId& id) const { return dir_ + "/trash/" + id.Hex(); }

  // The reserve file: OK when it has its size. Given up, it makes room until it is taken again.
  Status TakeReserve(uint64_t bytes);
  Status GiveUpReserve();

  Result<Space> FreeSpace() const { return fs_.FreeSpace(dir_); }
  FileSystem& fs() const { return fs_; }
  const std::string& dir() const { return dir_; }
  const std::string& store_id() const { return store_id_; }  // 32 hexadecimal digits

 private:
  Volume(const VolumeOptions& options, Mode mode)
      : dir_(options.dir), mode_(mode), fs_(options.fs != nullptr ? *options.fs : FileSystem::Real()), keks_(options.keks) {}
  Status Prepare();
  Status CheckFormat();
  Status Clear();
  Status LoadOwnKek();
  Status CheckKeks();
  std::string KeysPath(const std::string& ns) const { return dir_ + "/keys/" + ns; }

  const std::string dir_;
  const Mode mode_;
  FileSystem& fs_;
  std::vector<Kek> keks_;
  bool own_kek_ = false;
  std::string store_id_;
  int version_ = 2;  // of the format
  std::unique_ptr<FileLock> lock_;
  std::mutex mutex_;
  std::map<std::string, NamespaceKeys> keys_;
};

}  // namespace holdfast::storage
