// Gives the space of files back while an Ingest reads them: what the store has secured is written down, durably, and then punched out of
// its file. Whoever begins again takes from the log what cannot be read any more. Thread-safe.
//
// The file: `HFSENT01` and eight zeros, then 80 bytes a leaf: the first half of the BLAKE3 of the file's path (16), its offset (8), bytes
// of the file (8), size of the leaf (4), its id (32), and the first 12 bytes of the BLAKE3 of what comes before. Integers are little
// endian. What does not check, and all behind it, was being written when the agent died: nothing of it was punched.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "storage/file_tree.h"
#include "storage/store.h"

namespace holdfast::storage {

class SentLog {
 public:
  // Reads the log at `path`, or makes it. `folder` and `session` outlive it. kDataLoss when the store lacks what the log says it had.
  static Result<std::unique_ptr<SentLog>> Open(const std::string& path, const Descriptor& folder, Session& session,
                                               uint64_t punch_every_bytes);
  ~SentLog();

  // The leaf that was punched, or is about to be, at `offset` of `path`; nothing: it has to be read.
  std::optional<LeafRef> Find(const std::string& path, uint64_t offset) const;
  // The store was given this leaf and its segments, `ids`. Now and then secures and punches what came so far. What goes wrong there is
  // logged, and ends the punching: space is all that is lost.
  void Sent(const std::string& path, uint64_t offset, const LeafRef& leaf, std::vector<SegmentId> ids);
  void Flush();  // secures and punches what is left

 private:
  struct Part {
    std::string path;
    uint64_t offset = 0;
    LeafRef leaf;
    std::vector<SegmentId> ids;  // with the leaf's own
  };
  using Key = std::pair<std::string, uint64_t>;  // hash of a path, and an offset in the file

  SentLog(std::string path, const Descriptor& folder, Session& session, uint64_t every)
      : path_(std::move(path)), folder_(folder), session_(session), every_(every) {}
  Status Load();
  Status Secure(std::vector<Part> parts);
  Status Write(const std::vector<Part>& parts);
  Status Punch(const Part& part);

  const std::string path_;
  const Descriptor& folder_;
  Session& session_;
  const uint64_t every_;
  std::map<Key, LeafRef> known_;  // as Open found it
  Descriptor fd_;
  std::mutex round_mutex_;  // one round at a time; taken before mutex_
  uint64_t end_ = 0;        // of the log
  std::mutex mutex_;
  std::vector<Part> waiting_;
  uint64_t waiting_bytes_ = 0;
  bool over_ = false;
};

}  // namespace holdfast::storage
