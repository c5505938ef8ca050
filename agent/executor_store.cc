// The executor's middle: from a complete landing folder to a commit, and what may be done when the commit's outcome is not known.
#include <mutex>

#include "agent/boot.h"
#include "agent/executor.h"
#include "agent/platform.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"

namespace holdfast::agent {

using std::chrono::milliseconds;

namespace {

constexpr int kMaxAttempts = 3;
constexpr Duration kStoreRetry = std::chrono::milliseconds(500);
constexpr double kRoomyPart = 0.2;  // of the landing area's disk

bool MayPass(Code code) { return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kUnauthenticated; }

}  // namespace

// Its store, trying again until this checkpoint's deadline, and never shorter than it takes to try twice.
std::unique_ptr<storage::Store> Executor::Within(const JournalEntry& entry, std::stop_token stop) {
  const Duration left = std::max<Duration>(milliseconds(entry.deadline_unix_ms - NowMs()), std::chrono::seconds(5));
  return stores_.OfWithin(entry.store, clock_.Mono() + left, std::move(stop));
}

// What the store has of a Checkpoint that nobody can claim any more. Where agents may not delete, or the store is not known here any more,
// the controller does it with the object: without a claim nobody restores from what is left.
Status Executor::Forget(const JournalEntry& entry) {
  if (!stores_.Has(entry.store)) return Status::Ok();
  Status deleted = StoreOf(entry).Delete(entry.commit.id.empty() ? entry.uid : entry.commit.id);
  return deleted.code() == Code::kPermissionDenied ? Status::Ok() : deleted;
}

// The last checkpoint of the same owner in the same store that this node knows: most of its memory is still the same. None when the store
// refused a commit for what it lacks: then it is asked for everything.
std::string Executor::ParentOf(const JournalEntry& entry) {
  if (entry.attempts > 1) return "";
  const std::optional<api::Checkpoint> last = LastOf(entry);
  return last ? last->status.manifest_id.str() : "";
}

// The newest checkpoint of its workload in its store, as far as this node knows.
std::optional<api::Checkpoint> Executor::LastOf(const JournalEntry& entry) {
  Result<api::Checkpoint> mine = cluster_.CachedCheckpoint(entry.uid);
  if (!mine.ok()) return std::nullopt;
  const Json owner = api::ToJson(mine->status.owner);
  std::optional<api::Checkpoint> last;
  for (api::Checkpoint& cp : cluster_.CachedCheckpoints()) {
    if (cp.status.phase != api::Phase::kReady || cp.meta.ns != mine->meta.ns || api::ToJson(cp.status.owner) != owner) continue;
    if (cp.meta.uid == entry.uid || cp.status.manifest_id.empty() || cp.store() != entry.store) continue;
    if (!last || cp.status.completed_at >= last->status.completed_at) last = std::move(cp);
  }
  return last;
}

// A small landing folder stays whole, for a successor on this node, unless the disk has little room; one that is not whole any more is read
// on with its log.
std::string Executor::SentLogOf(const JournalEntry& entry) {
  std::string log = journal_.SentLog(entry.uid);
  if (Exists(log)) return log;
  const runtime::DumpResult result = ResultOf(entry);
  const bool small = static_cast<uint64_t>(result.memory_bytes + result.files_bytes) <= options_.keep_whole_bytes;
  const bool in_memory = entry.place == Place::kMemory && options_.memory != nullptr;
  const bool roomy = in_memory ? options_.memory->Roomy() : !options_.free_part || options_.free_part() >= kRoomyPart;
  return small && roomy ? "" : log;
}

storage::Manifest Executor::MakeManifest(const JournalEntry& entry, std::vector<storage::FileEntry> files) {
  storage::Manifest manifest;
  manifest.ns = entry.ns;
  manifest.checkpoint = entry.name;
  manifest.checkpoint_uid = entry.uid;
  manifest.created = FormatTime(clock_.Wall());
  Json containers = Json::array();
  for (const JournalContainer& c : entry.Kept())
    containers.push_back({{"name", c.name}, {"image", c.image}, {"imageDigest", c.image_digest}, {"restorable", !entry.stock}});
  manifest.info = {{"pod", entry.pod},
                   {"podUID", entry.pod_uid},
                   {"node", options_.node_name},
                   {"final", entry.final},
                   {"startedAt", entry.started_at},
                   {"containers", containers},
                   {"volumes", entry.volumes},
                   {"result", ResultOf(entry).ToJson()},
                   {"platform", PlatformOf(node_, layout_, entry)}};
  if (Result<api::Checkpoint> cp = cluster_.CachedCheckpoint(entry.uid); cp.ok()) {
    manifest.info["owner"] = api::ToJson(cp->status.owner);
    manifest.info["policy"] = cp->status.policy.str();
    if (Result<Json> security = ParseJson(cp->status.security.view()); security.ok()) manifest.info["security"] = std::move(*security);
  }
  manifest.files = std::move(files);
  return manifest;
}

// Nothing of a landing folder is synced (runtime/dump.h): one that was there when the node stopped is not what it was, if it is there.
std::string Executor::LostWithTheNode(const JournalEntry& entry) const {
  const bool restarted = NodeRestarted(entry.boot_id, options_.boot_id);
  if (!restarted && Exists(LandingOf(entry) + "/result.json")) return "";
  return std::string(restarted ? "the node was restarted" : "the landing folder was lost") +
         " before the checkpoint was stored; its dump lay in the node's " + PlaceName(entry.place);
}

Result<Executor::Pause> Executor::StoreIt(JournalEntry& entry, std::stop_token stop) {
  if (Cancelled(entry)) return Fail(entry, api::reason::kDumpFailed, "the Checkpoint was deleted before it was complete");
  if (const std::string lost = LostWithTheNode(entry); !lost.empty()) return Fail(entry, api::reason::kDumpFailed, lost);
  if (Expired(entry)) {
    Result<storage::SessionState> state = StoreOf(entry).StateOf(entry.uid);
    if (!state.ok() && MayPass(state.status().code())) {
      return Fail(entry, api::reason::kStoreUnavailable, "the store did not answer until the deadline: " + state.status().message());
    }
    return Fail(entry, api::reason::kDeadline, "the deadline passed before the checkpoint was stored");
  }
  const MonoTime began = clock_.Mono();
  auto failed = [&](const Status& why) -> Result<Pause> {
    if (why.code() == Code::kResourceExhausted) return Fail(entry, api::reason::kStoreFull, why.message());
    if (Expired(entry)) {
      return Fail(entry, MayPass(why.code()) ? api::reason::kStoreUnavailable : api::reason::kDeadline,
                  "the checkpoint was not stored by the deadline: " + why.message());
    }
    if (MayPass(why.code())) {
      LogWarning("the store does not answer; trying again", {{"uid", entry.uid}, {"error", why.message()}});
      return Pause(kStoreRetry);
    }
    const bool unsupported = why.code() == Code::kUnsupported;  // what was dumped: no other store and no later time helps
    return Fail(entry, unsupported ? api::reason::kUnsupported : api::reason::kStoreUnavailable, why.message());
  };
  std::unique_ptr<storage::Store> patient = Within(entry, stop);
  storage::Store& store = patient != nullptr ? *patient : StoreOf(entry);
  Result<std::unique_ptr<storage::Session>> session = store.OpenSession(entry.uid, entry.ns);
  if (!session.ok()) {
    // A commit that was asked for and never answered is found here when the journal could not be written in between.
    Result<storage::SessionState> state = StoreOf(entry).StateOf(entry.uid);
    if (state.ok() && *state == storage::SessionState::kCommitted && journal_.ReadManifest(entry.uid).ok()) {
      HF_RETURN_IF_ERROR(Enter(entry, Step::kCommitAsked));
      return Pause();
    }
    return failed(session.status());
  }

  PatchPhase(entry, api::Phase::kStoring, "sending the checkpoint to the store");
  std::mutex mutex;
  storage::Progress latest;
  std::stop_source give_up;
  storage::IngestOptions ingest;
  ingest.stop = give_up.get_token();
  ingest.parent = ParentOf(entry);
  ingest.store = &store;
  ingest.sent_log = SentLogOf(entry);
  ingest.progress = [&](const storage::Progress& progress) {
    std::lock_guard lock(mutex);
    latest = progress;
  };
  Result<std::vector<storage::FileEntry>> files = Status(Code::kInternal, "not read");
  {
    std::stop_callback on_stop(stop, [&] { give_up.request_stop(); });
    // Tells how far it is, and ends the reading when its time is over or nobody wants it any more.
    Thread watch([&](std::stop_token done) {
      while (clock_.Sleep(options_.progress_every, done)) {
        if (Expired(entry) || Cancelled(entry)) give_up.request_stop();
        Json progress;
        {
          std::lock_guard lock(mutex);
          progress = api::ProgressJson(static_cast<int64_t>(latest.bytes), static_cast<int64_t>(latest.total));
        }
        Status patched = cluster_.PatchStatus(entry.ns, entry.name, entry.uid, {{"status", {{"progress", progress}}}});
        if (!patched.ok()) LogWarning("cannot report progress", {{"uid", entry.uid}, {"error", patched.message()}});
      }
    });
    files = options_.ingest(LandingOf(entry), **session, ingest);
  }
  if (stop.stop_requested()) return Status(Code::kCancelled, "stopping while a checkpoint is stored");
  if (!files.ok()) return failed(files.status());
  if (Cancelled(entry)) return Fail(entry, api::reason::kDumpFailed, "the Checkpoint was deleted before it was complete");
  if (Expired(entry)) return Fail(entry, api::reason::kDeadline, "the deadline passed before the checkpoint was stored");

  const storage::Manifest manifest = MakeManifest(entry, std::move(*files));
  HF_RETURN_IF_ERROR(journal_.WriteManifest(entry.uid, manifest.Serialize()));
  entry.commit.store_ms = std::chrono::duration_cast<milliseconds>(clock_.Mono() - began).count();
  HF_FAULT_POINT("agent.before_commit");
  HF_RETURN_IF_ERROR(Enter(entry, Step::kCommitAsked));
  return Pause();
}

Result<Executor::Pause> Executor::AskForCommit(JournalEntry& entry, std::stop_token stop) {
  Result<std::string> text = journal_.ReadManifest(entry.uid);
  Result<storage::Manifest> manifest = text.ok() ? storage::Manifest::Parse(*text) : Result<storage::Manifest>(text.status());
  if (!manifest.ok()) return CommitRefused(entry, manifest.status().With("the manifest in the journal"));
  std::unique_ptr<storage::Store> patient = Within(entry, stop);
  storage::Store& store = patient != nullptr ? *patient : StoreOf(entry);
  Result<std::unique_ptr<storage::Session>> session = store.OpenSession(entry.uid, entry.ns);
  if (stop.stop_requested()) return Status(Code::kCancelled, "stopping before the commit");
  if (!session.ok()) return CommitRefused(entry, session.status());
  HF_FAULT_POINT("agent.commit_asked");
  const MonoTime began = clock_.Mono();
  Result<storage::CommitResult> committed = (*session)->Commit(*manifest);
  if (stop.stop_requested() && !committed.ok()) return Status(Code::kCancelled, "stopping during the commit");
  if (!committed.ok()) return CommitRefused(entry, committed.status());
  HF_FAULT_POINT("agent.after_commit");
  entry.commit.id = committed->id;
  entry.commit.digest = committed->digest;
  entry.commit.new_bytes = committed->new_bytes;
  entry.commit.store_ms += std::chrono::duration_cast<milliseconds>(clock_.Mono() - began).count();
  HF_RETURN_IF_ERROR(Enter(entry, Step::kCommitted));
  metrics_.Stored(static_cast<double>(entry.commit.store_ms) / 1e3, static_cast<double>(manifest->TotalBytes()),
                  static_cast<double>(committed->new_bytes));
  return Pause();
}

// The store has not said that it committed. It may have. Only its own word, or the claim, lets the pod go on.
Result<Executor::Pause> Executor::CommitRefused(JournalEntry& entry, const Status& why) {
  const std::string reason = why.code() == Code::kResourceExhausted ? api::reason::kStoreFull : api::reason::kStoreUnavailable;
  const std::string message = "the store did not commit: " + why.message();
  Result<storage::SessionState> state = StoreOf(entry).StateOf(entry.uid);
  if (state.ok() && *state == storage::SessionState::kAborted) return Fail(entry, reason, message);
  if (IsAllThereIs(entry) && why.code() != Code::kInvalidArgument) return Pause(kStoreRetry);
  if (MayPass(why.code()) && !Expired(entry)) return Pause(kStoreRetry);
  if (why.code() == Code::kInvalidArgument && state.ok() && *state == storage::SessionState::kOpen && entry.attempts < kMaxAttempts) {
    // The store lacks a segment that it had: it is still open, so nothing was committed, and what is missing can be sent.
    entry.attempts += 1;
    HF_RETURN_IF_ERROR(Enter(entry, Step::kStoring));
    return Pause();
  }
  if (state.ok() && *state != storage::SessionState::kCommitted) {
    if (StoreOf(entry).Abort(entry.uid, entry.ns).ok()) return Fail(entry, reason, message);
    state = StoreOf(entry).StateOf(entry.uid);
    if (state.ok() && *state == storage::SessionState::kAborted) return Fail(entry, reason, message);
  }
  if (state.ok() && *state == storage::SessionState::kCommitted && MayPass(why.code())) return Pause(kStoreRetry);
  if (!entry.final) return Fail(entry, reason, message);  // its pod runs: there is nothing to let go
  return TryReclaim(entry, reason, message);
}

Result<Executor::Pause> Executor::TryReclaim(JournalEntry& entry, const std::string& reason, const std::string& why) {
  api::Claim claim{entry.pod, entry.pod_uid, FormatTime(clock_.Wall())};
  Result<bool> won = cluster_.Claim(entry.ns, entry.name, entry.uid, claim);
  if (won.ok() && *won) {
    entry.reclaimed = true;
    return Fail(entry, reason, why);
  }
  if (won.status().code() == Code::kNotFound || won.status().code() == Code::kConflict) {
    // No such Checkpoint any more: nobody can claim it. The manifest, if there is one, must go before the pod goes on.
    if (Forget(entry).ok()) return Fail(entry, reason, why);
  }
  const std::string told = "the pod stays frozen: " + why + "; and it could not be claimed back" +
                           (won.ok() ? " because somebody else restores from it" : ": " + won.status().message());
  LogError("a pod stays frozen", {{"checkpoint", entry.ns + "/" + entry.name}, {"uid", entry.uid}, {"why", told}});
  cluster_.PodEvent(true, entry.ns, entry.pod, entry.pod_uid, "KeptFrozen", told);
  PatchPhase(entry, api::Phase::kStoring, told);
  return Pause(std::chrono::seconds(2));
}

}  // namespace holdfast::agent
