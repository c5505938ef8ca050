// Where things lie on the node (runtime/protocol.h), with roots that tests replace. Ids from outside must pass IsSafeName first.
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/protocol.h"

namespace holdfast::agent {

// Where a dump lands. Decided before the freeze, and written down in the journal.
enum class Place { kDisk, kMemory };
constexpr const char* PlaceName(Place place) { return place == Place::kMemory ? "memory" : "disk"; }

struct Layout {
  std::string run = runtime::kRunDir;
  std::string state = runtime::kStateDir;
  std::string kubelet = "/var/lib/kubelet";

  std::string Socket() const { return run + "/agent.sock"; }
  std::string Containers() const { return run + "/containers"; }
  std::string IntentFile(const std::string& container_id) const { return Containers() + "/" + container_id + ".json"; }
  // An intent being undone: holdfast-runc no longer sees it, so `resume` works again, and a crash still leaves a trace of the container.
  std::string ThawingFile(const std::string& container_id) const { return Containers() + "/" + container_id + ".thawing"; }
  // holdfast-runc's word that it passed on the container's signal.
  std::string SignalledFile(const std::string& container_id) const { return run + "/signalled/" + container_id; }
  // On disk, so that the pod is not started anew after the node was (runtime/protocol.h).
  std::string Pods() const { return state + "/pods"; }
  std::string PodFile(const std::string& pod_uid) const { return Pods() + "/" + pod_uid + ".json"; }
  std::string WaitFolder(const std::string& pod_uid) const { return run + "/wait/" + pod_uid; }
  // Locked by a running `holdfast-runc dump`, with its process id inside: tells a restarted agent that the dump goes on.
  std::string PodLock(const std::string& pod_uid) const { return run + "/locks/" + pod_uid; }  // holdfast-runc's own
  std::string DumpLock(const std::string& checkpoint_uid) const { return run + "/dumps/" + checkpoint_uid + ".lock"; }
  std::string DumpLog(const std::string& checkpoint_uid) const { return DumpLock(checkpoint_uid) + ".log"; }
  std::string Memory() const { return run + "/memory"; }  // landing_memory.h
  std::string Landing(const std::string& checkpoint_uid, Place place) const {
    return (place == Place::kMemory ? Memory() : state) + "/landing/" + checkpoint_uid;
  }
  std::string TermFile() const { return state + "/term"; }  // base/fence.h
  std::string JournalFolder() const { return state + "/journal"; }
  std::string Damaged() const { return state + "/damaged"; }  // for people: damaged_files.h
  // A link to RestoreMemory when what was dumped into memory on this node is restored from there.
  std::string RestoreFolder(const std::string& pod_uid) const { return state + "/restore/" + pod_uid; }
  std::string RestoreMemory(const std::string& pod_uid) const { return Memory() + "/restore/" + pod_uid; }
  std::string RestoreFile(const std::string& pod_uid) const { return state + "/restore/" + pod_uid + ".json"; }
  std::string KubeletPod(const std::string& pod_uid) const { return kubelet + "/pods/" + pod_uid; }  // there while the pod is
  std::string EmptyDir(const std::string& pod_uid, const std::string& volume) const {
    return KubeletPod(pod_uid) + "/volumes/kubernetes.io~empty-dir/" + volume;
  }
  // Makes every folder, 0700, but wait/, which pods see through their mount.
  Status Make() const;
  Status RemoveLanding(const std::string& checkpoint_uid) const;  // wherever it is
  Status RemoveRestore(const std::string& pod_uid) const;         // the folder, wherever it is
};

}  // namespace holdfast::agent
