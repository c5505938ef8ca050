#include "runtime/restore.h"

#include <algorithm>
#include <cstdlib>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/cgroup_view.h"
#include "runtime/criu_images.h"
#include "runtime/criu_log.h"
#include "runtime/dump.h"
#include "runtime/freezer.h"
#include "runtime/gpu.h"
#include "runtime/image_paths.h"
#include "runtime/image_rights.h"
#include "runtime/loopback_hold.h"
#include "runtime/mount_points.h"
#include "runtime/mounts.h"
#include "runtime/namespaces.h"
#include "runtime/network.h"
#include "runtime/network_lock.h"
#include "runtime/projected.h"
#include "runtime/tree.h"
#include "runtime/volumes.h"

namespace holdfast::runtime {
namespace {

// The kubelet gives up after 120 s and forgets what still runs.
constexpr Duration kBound = std::chrono::seconds(100);
constexpr Duration kCleanup = std::chrono::seconds(10);

// The addresses of the old pod on lo, for as long as the object lives.
class OldAddresses {
 public:
  OldAddresses(std::string netns, std::vector<std::string> addresses) : netns_(std::move(netns)), addresses_(std::move(addresses)) {}
  OldAddresses(const OldAddresses&) = delete;
  OldAddresses& operator=(const OldAddresses&) = delete;
  ~OldAddresses() {
    Status removed = Remove();
    (void)removed;  // the sandbox's namespace goes with its pod
  }

  Status Add() {
    for (const std::string& address : addresses_) {
      HF_RETURN_IF_ERROR(AddLoopbackAddress(netns_, address));
      added_.push_back(address);
    }
    return Status::Ok();
  }
  Status ResetConnectionsFromThem() {
    for (const std::string& address : added_) {
      Result<int> reset = ResetConnections(netns_, address);
      if (!reset.ok()) return reset.status();
    }
    return Status::Ok();
  }
  Status Remove() {
    Status first = Status::Ok();
    for (const std::string& address : added_) {
      Status removed = RemoveLoopbackAddress(netns_, address);
      if (!removed.ok() && first.ok()) first = removed;
    }
    added_.clear();
    return first;
  }

 private:
  const std::string netns_;
  const std::vector<std::string> addresses_;
  std::vector<std::string> added_;
};

class Restore {
 public:
  Restore(const Node& node, const Runc& runc, const CommandLine& line, const std::string& bundle, Spec& spec, const CreateAnswer& answer)
      : node_(node), runc_(runc), line_(line), bundle_(bundle), spec_(spec), answer_(answer), from_(answer.dir + "/" + answer.container) {}

  Status Go() {
    deadline_ = Clock::Real().Mono() + kBound;
    HF_ASSIGN_OR_RETURN(PodLock lock, PodLock::Take(node_, spec_.identity().pod_uid, deadline_));
    // The dump that held the lock may have been the pod's last.
    if (node_.HasFinalCheckpoint(spec_.identity().pod_uid))
      return Status(Code::kFailedPrecondition, "the pod has a final checkpoint by now");
    HF_ASSIGN_OR_RETURN(DumpResult dumped, ReadDumpResult(answer_.dir));
    if (!dumped.ok) return Status(Code::kFailedPrecondition, "the checkpoint in " + answer_.dir + " is not complete: " + dumped.message);
    HF_RETURN_IF_ERROR(EndEarlierTry());
    HF_RETURN_IF_ERROR(NothingRan());
    const std::string images = from_ + "/images";
    HF_RETURN_IF_ERROR(CheckImageRights(images, spec_, spec_.RootPath(bundle_), &view_));
    HF_RETURN_IF_ERROR(PutFilesBack());
    HF_RETURN_IF_ERROR(CheckImagePaths(images, view_.mounts, view_.paths, spec_.RootPath(bundle_)));
    const std::optional<std::string> netns = spec_.NamespacePath("network");
    std::vector<std::string> current, old;
    if (netns) {
      HF_ASSIGN_OR_RETURN(current, GlobalAddresses(*netns));
      for (const std::string& address : dumped.pod_ips) {
        if (!IsAddress(address)) return Status(Code::kDataLoss, "the checkpoint names \"" + address + "\" as an address");
        if (std::find(current.begin(), current.end(), address) == current.end()) old.push_back(address);
      }
    }
    HF_RETURN_IF_ERROR(PrepareImages(old, current));
    HF_RETURN_IF_ERROR(PrepareSpec());
    HF_RETURN_IF_ERROR(PrepareGpu());
    OldAddresses addresses(netns.value_or(""), old);
    HF_RETURN_IF_ERROR(addresses.Add());
    if (netns) HF_RETURN_IF_ERROR(FreeConnections(*netns, addresses));
    const bool own_network = netns && !SameNamespace(*netns, "/proc/1/ns/net");
    if (own_network) HF_RETURN_IF_ERROR(HoldLoopback(*netns).status());
    HF_RETURN_IF_ERROR(WriteFileDurably(from_ + "/" + kTryingFile, line_.Id()));
    HF_FAULT_POINT("runtime.before_restore");
    Status status = RunRestore();
    if (status.ok()) MendView();
    HF_FAULT_POINT("runtime.after_restore");
    if (status.ok() && has_gpu_) status = GpuIsBack();
    if (status.ok()) status = Settle(addresses);
    if (own_network && (!answer_.more || !status.ok())) {
      Status released = ReleaseLoopback(*netns);
      if (!released.ok()) LogWarning("resets on lo are still dropped in this pod", {{"error", released.message()}});
    }
    if (!status.ok()) {
      ran_ = MayHaveRun(work_ + "/restore.log");
      DeleteHalfRestored();
      if (netns) HF_RETURN_IF_ERROR(RemoveNetworkLock(*netns).status().With(status.message()));
    }
    return status;
  }

  bool ran() const { return ran_; }

 private:
  // A try that was killed leaves a container that containerd does not know: nobody else would end what still runs in it.
  Status EndEarlierTry() {
    Result<std::string> id = ReadFile(from_ + "/" + kTryingFile, 256);
    if (!id.ok() || *id == line_.Id() || !IsSafeName(*id)) return Status::Ok();
    HF_RETURN_IF_ERROR(node_.ForgetRestored(*id));
    HF_RETURN_IF_ERROR(UnmountCriuRoot(runc_.Root(), *id));
    Result<ProcessResult> deleted = runc_.Run({"delete", "--force", *id}, kCleanup);
    if (!deleted.ok()) return deleted.status();
    if (deleted->exit_code == 0) return Status::Ok();
    return Status(Code::kUnavailable, "the container of an earlier try, " + *id + ", cannot be removed: " + deleted->err.substr(0, 500));
  }

  // A try that was killed may have let its process run for a moment: once more from the same images would do twice what it did.
  Status NothingRan() {
    Result<std::string> into = ReadFile(from_ + "/" + kRestoredFile, 256);
    ran_ = into.ok() || MayHaveRun(from_ + "/restore/restore.log");
    if (!ran_) return Status::Ok();
    return Status(Code::kFailedPrecondition, into.ok() ? "it was restored once already, into container " + *into
                                                       : "the restore was cut off when its process had already begun to run");
  }

  // A try that was killed leaves CRIU's network lock, and connections of its dead processes that take the place of ours.
  Status FreeConnections(const std::string& netns, OldAddresses& addresses) {
    HF_RETURN_IF_ERROR(RemoveNetworkLock(netns).status());
    return answer_.first ? addresses.ResetConnectionsFromThem() : Status::Ok();  // else they may be another container's
  }

  Status PutFilesBack() {
    if (Exists(from_ + "/upper.tar")) HF_RETURN_IF_ERROR(ExtractUpper(from_ + "/upper.tar", spec_.RootPath(bundle_)));
    HF_RETURN_IF_ERROR(PutBackProjectedFiles(from_ + "/projected", spec_));
    return FillVolumes(node_, runc_.Root(), spec_, answer_);
  }

  Status PrepareImages(const std::vector<std::string>& old, const std::vector<std::string>& current) {
    ImagesView options;
    options.with_ipc = answer_.first;
    options.narrower = view_.mounts.narrower;
    for (const std::string& address : old) {
      const bool v6 = address.find(':') != std::string::npos;
      for (const std::string& own : current) {
        if ((own.find(':') != std::string::npos) == v6) {
          options.addresses[address] = own;
          break;
        }
      }
    }
    work_ = from_ + "/restore";
    HF_RETURN_IF_ERROR(UnmountAndRemove(work_));
    return MakeImagesView(from_ + "/images", work_ + "/images", options);
  }

  // Connections that the policy does not keep are closed by CRIU itself.
  Status PrepareSpec() {
    if (answer_.established == "CloseAll") {
      Result<std::string> base = ReadFile(node_.CriuConfig(), 65536);
      // Beside the container for as long as it lives: its next dump reads it too.
      HF_RETURN_IF_ERROR(WriteFileAtomically(bundle_ + "/criu.conf", base.value_or("") + "\ntcp-close\n"));
      spec_.SetAnnotation("org.criu.config", bundle_ + "/criu.conf");
    }
    return spec_.Save(bundle_);
  }

  // As in a dump, CRIU reads a second file of options that its environment names.
  Status PrepareGpu() {
    Result<std::string> text = ReadFile(from_ + "/" + kGpuFile, 65536);
    if (text.status().code() == Code::kNotFound) return Status::Ok();
    if (!text.ok()) return text.status();
    HF_ASSIGN_OR_RETURN(Json json, ParseJson(*text));
    HF_ASSIGN_OR_RETURN(GpuUse was, GpuUse::FromJson(json));
    const Gpu gpu(node_);
    HF_ASSIGN_OR_RETURN(const auto environment, gpu.RestoreEnvironment(was, spec_.json()));
    HF_RETURN_IF_ERROR(WriteFileAtomically(work_ + "/criu.conf", gpu.CriuOptions(deadline_ - Clock::Real().Mono())));
    setenv("CRIU_CONFIG_FILE", (work_ + "/criu.conf").c_str(), 1);                         // NOLINT(concurrency-mt-unsafe)
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    has_gpu_ = true;
    return Status::Ok();
  }

  Status GpuIsBack() {
    HF_ASSIGN_OR_RETURN(Freezer freezer, Freezer::Of(runc_.Root(), line_.Id()));
    return Gpu(node_).AllRunning(freezer.Pids());
  }

  Status RunRestore() {
    std::vector<std::string> args{"--log=" + work_ + "/runc.log", "--log-format=json", "restore", "--detach", "--file-locks"};
    if (answer_.established != "CloseAll") args.emplace_back("--tcp-established");
    args.insert(args.end(), {"--image-path", work_ + "/images", "--work-path", work_, "--bundle", bundle_});
    for (const char* flag : {"pid-file", "console-socket"}) {
      if (auto value = line_.Value({flag})) args.insert(args.end(), {std::string("--") + flag, *value});
    }
    if (line_.Value({"no-pivot"})) args.emplace_back("--no-pivot");
    args.push_back(line_.Id());
    Result<int> code = runc_.RunAttached(args, std::max<Duration>(deadline_ - Clock::Real().Mono(), std::chrono::seconds(1)));
    if (code.ok() && *code == 0) return Status::Ok();
    std::string why = TellingLines(work_ + "/restore.log");
    if (why.empty()) why = LastLogError(work_ + "/runc.log");
    if (!code.ok()) return Status(code.status().code(), code.status().message() + (why.empty() ? "" : ": " + why));
    return Status(Code::kInternal, "CRIU: " + (why.empty() ? "runc restore ended with " + std::to_string(*code) + " and no reason" : why));
  }

  // At once: it runs. A process that sees a wrong limit is better than none.
  void MendView() {
    Status mended = MendCgroupView(runc_.Root(), line_.Id(), spec_);
    if (!mended.ok()) LogWarning("a restored container does not see its own cgroups", {{"error", mended.message()}});
  }

  Status Settle(OldAddresses& addresses) {
    HF_RETURN_IF_ERROR(addresses.ResetConnectionsFromThem());
    HF_RETURN_IF_ERROR(addresses.Remove());
    HF_RETURN_IF_ERROR(node_.MarkRestored(line_.Id()));
    // For an agent that is not told: should the container end, it must not be restored from the same images once more.
    return WriteFileDurably(from_ + "/" + kRestoredFile, line_.Id());
  }

  void DeleteHalfRestored() {
    Status unmounted = UnmountCriuRoot(runc_.Root(), line_.Id());
    if (unmounted.ok()) unmounted = UnmountBeneath(work_);
    if (!unmounted.ok()) LogWarning("a half-restored container stays mounted", {{"error", unmounted.message()}});
    Result<ProcessResult> deleted = runc_.Run({"delete", "--force", line_.Id()}, kCleanup);
    (void)deleted;  // `delete --force` of an unknown container is no error; a real one shows in the create that follows
    Status forgotten = node_.ForgetRestored(line_.Id());
    if (!forgotten.ok()) LogWarning("a container that was not restored stays marked", {{"error", forgotten.message()}});
  }

  const Node& node_;
  const Runc& runc_;
  const CommandLine& line_;
  const std::string& bundle_;
  Spec& spec_;
  const CreateAnswer& answer_;
  const std::string from_;
  std::string work_;
  ImageView view_;
  bool ran_ = false, has_gpu_ = false;
  MonoTime deadline_;
};

}  // namespace

Status RestoreContainer(const Node& node, const Runc& runc, const CommandLine& line, const std::string& bundle, Spec& spec,
                        const CreateAnswer& answer, bool* ran) {
  // CRIU brings back the old pod's hostname in the namespace that all of the pod shares.
  const std::optional<std::string> uts = spec.NamespacePath("uts");
  std::string hostname;
  if (uts) {
    HF_ASSIGN_OR_RETURN(hostname, HostnameIn(*uts));
  }
  Restore restore(node, runc, line, bundle, spec, answer);
  Status status = restore.Go();
  *ran = restore.ran();
  if (uts) {
    Result<std::string> now = HostnameIn(*uts);
    if (now.ok() && *now != hostname) {
      Status set = SetHostnameIn(*uts, hostname);
      if (!set.ok() && status.ok()) status = set;
    }
  }
  return status;
}

Status UndoFiles(const Node& node, const Runc& runc, const std::string& bundle, const Spec& spec, const CreateAnswer& answer) {
  HF_RETURN_IF_ERROR(ResetOverlay(spec.RootPath(bundle)));
  HF_ASSIGN_OR_RETURN(PodLock lock, PodLock::Take(node, spec.identity().pod_uid, Clock::Real().Mono() + kCleanup));
  return ResetVolumes(node, runc.Root(), spec, answer);
}

Status FillFirst(const Node& node, const Runc& runc, const Spec& spec, const CreateAnswer& answer) {
  if (answer.dir.empty()) return Status::Ok();
  HF_ASSIGN_OR_RETURN(PodLock lock, PodLock::Take(node, spec.identity().pod_uid, Clock::Real().Mono() + kCleanup));
  HF_RETURN_IF_ERROR(FillVolumes(node, runc.Root(), spec, answer));
  return MarkVolumesInUse(answer.dir);
}

}  // namespace holdfast::runtime
