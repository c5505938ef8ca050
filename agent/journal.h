// What the agent has begun and not yet ended, one durable file a Checkpoint. A step is written down before it is taken, so a restarted
// agent knows the most that can have happened and resumes or undoes it. Thread-safe for different uids.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "agent/layout.h"
#include "api/stores.h"
#include "base/json.h"
#include "base/status.h"

namespace holdfast::agent {

enum class Step {
  kIntent,       // files for holdfast-runc may exist; nothing is frozen by us yet
  kDumping,      // a dump may be running
  kDumped,       // result.json is there and says ok
  kStoring,      // a session may be open
  kCommitAsked,  // the store may have committed: from here no thaw without the store's or the claim's word
  kCommitted,    // the store has committed; `commit` is filled
  kThawed,       // undone, or not needed frozen any more: only reports and clean-up are left
  kFinished,
};
std::string_view StepName(Step step);

struct JournalContainer {
  std::string name, id, image, image_digest;
};

struct JournalEntry {
  std::string uid, ns, name;  // of the Checkpoint
  std::string pod, pod_uid;
  Step step = Step::kIntent;
  bool final = false;
  bool on_stop = false;         // dumped in place of the signal that ends it
  bool in_cut = false;          // waits, frozen, for the rest of its group
  bool stock = false;           // not under our RuntimeClass: the kubelet's archive is read
  Place place = Place::kDisk;   // where it lands, from Dumping on
  uint64_t reserved_bytes = 0;  // where it lands, until its dump is over
  std::string boot_id;          // of the node when it began; empty: not known
  int attempts = 1;
  std::string store = api::kDefaultStore;  // that has its session, once it is Dumping; entries of before there were several name none
  std::string started_at;
  int64_t deadline_unix_ms = 0;  // the Checkpoint's, by the API server's clock
  int64_t dump_by_unix_ms = 0;   // by the node's own clock, as holdfast-runc goes by it; sooner than the deadline for a pod that is being
                                 // stopped: its grace period
  std::vector<JournalContainer> containers;
  std::vector<JournalContainer> waiting, carried;  // without ids: never run, and those whose state goes on with the pod (carry_over.h)
  std::vector<std::string> volumes;                // names of emptyDirs
  // Set: this checkpoint has failed, and what is left is to undo it and to say so.
  std::string failure_reason, failure_message;
  struct {
    std::string id, digest;
    uint64_t new_bytes = 0;
    int64_t store_ms = 0;
  } commit;
  bool reported = false;   // Ready or Failed stands in the Checkpoint's status
  bool claimed = false;    // by another pod, as far as was seen
  bool reclaimed = false;  // the old pod won the claim: it goes on, thawed
  bool ended = false;      // its processes were ended before it was stored: what was dumped is all there is, and has no deadline
  bool unheard = false;    // the kubelet was asked for an archive, and what it made was not taken away

  bool direct() const { return final || in_cut; }  // dumped by holdfast-runc alone, not through the kubelet
  std::vector<JournalContainer> Kept() const;      // whose state it has
  bool failed() const { return !failure_reason.empty(); }
  Json ToJson() const;
  static Result<JournalEntry> FromJson(const Json& json);  // every name checked: the file names it leads to are safe
};

class Journal {
 public:
  // Writes a file durably; by default to the disk.
  using WriteFile = std::function<Status(const std::string& path, const std::string& text)>;
  explicit Journal(std::string folder, WriteFile write = nullptr);
  // Once: sets room aside, beside its folder, for the steps that a full disk does not take. An error: there is none, or less.
  Status SetRoomAside();
  Status Write(const JournalEntry& entry);                  // durable when it returns
  bool writable() const { return writable_; }               // as far as the last Write tells
  Result<JournalEntry> Read(const std::string& uid) const;  // kNotFound, kDataLoss
  // Entries that cannot be read are reported in `damaged` by file name, and left where they are.
  Result<std::vector<JournalEntry>> List(std::vector<std::string>* damaged = nullptr) const;
  Status Remove(const std::string& uid);  // with its manifest and its SentLog
  // The manifest as it is given to Commit: a repeated Commit must ask for the very same.
  Status WriteManifest(const std::string& uid, const std::string& text);
  Result<std::string> ReadManifest(const std::string& uid) const;
  // Where storage::Ingest writes down what it has punched out of the landing folder: while there is one, that folder is not whole.
  std::string SentLog(const std::string& uid) const { return folder_ + "/" + uid + ".sent"; }
  Status RemoveSentLog(const std::string& uid);
  // Keeps what cannot be read for people, as <uid>.damaged; the entry itself stays until it is written anew, or removed.
  Status KeepDamaged(const std::string& uid);

 private:
  std::string Room() const { return folder_ + "-room"; }
  Status WriteIntoRoom(const std::string& path, const std::string& text);

  const std::string folder_;
  const WriteFile write_;
  std::atomic<bool> writable_ = true;
  std::mutex mutex_;         // of the room
  bool room_asked_ = false;  // there should be one
  size_t room_missing_ = 0;  // files of it
};

}  // namespace holdfast::agent
