// Files about containers and pods that cannot be read any more: Intents, and the words that pods are held (runtime/protocol.h).
// holdfast-runc takes a damaged Intent for none, and a damaged word for one, so a pod would stay frozen, or start nothing, for ever. What
// each meant is found by other means: the journal, the pod's other file, the runtime's own list of containers. It is written anew, or its
// container is thawed, as one is that no checkpoint claims (ThawOrphans); what it was is kept for people in Layout::Damaged().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/journal.h"
#include "agent/layout.h"
#include "agent/node.h"

namespace holdfast::agent {

inline constexpr size_t kDamagedKept = 16;  // files in each place, the newest

// What is known of a container whose Intent cannot be read, and that no entry of the journal lists.
struct Clues {
  enum { kNot, kByLive, kByOther, kUnreadable } held = kNot;  // its pod: by a checkpoint that the journal has, or had, or by another one
  bool damaged_entries = false;                               // entries of the journal cannot be read: it may be in one of them
  bool pod_runs_on = false;                                   // the API server says that it exists, and is not being ended
};
enum class Meaning {
  kFinal,    // it belongs to the checkpoint that holds its pod
  kNothing,  // nobody claims it: it may go on
  kUnknown,  // another copy of it may run: not yet
};
Meaning MeaningOf(const Clues& clues);

struct MendedFile {
  std::string kept;         // where the damaged one lies; empty: it could not be kept
  NodeContainer container;  // whose it was; the pod's uid alone where no more is known
  std::string outcome;      // for people
};
struct DamagedFiles {
  std::vector<MendedFile> mended;
  bool left = false;  // of some it is not known yet what they meant: look again
};
// `alone`: nothing of the journal is worked on meanwhile, so what its entries list is written anew, too. `pod_runs_on`: see Clues.
DamagedFiles MendFiles(const Layout& layout, Node& node, const Journal& journal, bool alone,
                       const std::function<bool(const std::string& pod_uid)>& pod_runs_on);

// Intents of `entry` that are there and cannot be read are written anew. By whoever works on the entry.
Status MendIntentsOf(const Layout& layout, const JournalEntry& entry, std::vector<MendedFile>* mended);

// Of the files in `folder` that end so, those beyond the newest kDamagedKept are removed.
void KeepNewest(const std::string& folder, const std::string& suffix);

}  // namespace holdfast::agent
