// holdfast-runc as containerd meets it, with a runc that writes down how it was called.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "base/process.h"
#include "runtime/protocol.h"
#include "tests/places.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

constexpr char kFakeRunc[] = R"(#!/bin/sh
echo "$*" >> "$FAKE/calls"
verb=; id=
for word; do
  case $word in
    --image-path) want=images; continue;;
    state|checkpoint|features|create|start|kill|delete|pause|resume|exec|restore) [ -n "$verb" ] || verb=$word;;
    *) [ "$want" = images ] && images=$word;;
  esac
  want=; id=$word
done
case $verb in
  features) echo '{"linux":{"namespaces":["pid","time"]}}';;
  state) [ -e "$FAKE/gone" ] && { echo "container does not exist" >&2; exit 1; }
    echo "{\"status\":\"$(cat "$FAKE/status")\",\"pid\":$PPID,\"bundle\":\"$FAKE/tasks/c1\"}";;
  checkpoint) [ -e "$FAKE/fail" ] && { echo "(0.1) Error (criu/x.c:1): it does not want to" > "$images/../dump.log"; exit 1; }
    [ ! -e "$FAKE/slow" ] || sleep 30
    cat "$FAKE/freezer/freezer.state" > "$FAKE/frozen_at_dump"
    echo i > "$images/inventory.img"; echo pages > "$images/pages-1.img";;
  kill) [ ! -e "$FAKE/kill_fails" ] || exit 1;;
esac
exit 0
)";

constexpr char kVolume[] = "pods/pod/volumes/kubernetes.io~empty-dir/data";

// Waits for programs to open a file.
class Openings {
 public:
  explicit Openings(const std::string& path) : fd_(inotify_init1(IN_CLOEXEC)) { inotify_add_watch(fd_, path.c_str(), IN_OPEN); }
  Openings(const Openings&) = delete;
  Openings& operator=(const Openings&) = delete;
  ~Openings() { close(fd_); }
  // False when it was not opened so often within half a minute.
  bool Await(int times) {
    constexpr int kLimitMs = 30'000;
    alignas(inotify_event) char buffer[4096];
    for (pollfd waits{fd_, POLLIN, 0}; times > 0;) {
      if (poll(&waits, 1, kLimitMs) <= 0) return false;
      const ssize_t size = read(fd_, buffer, sizeof buffer);
      for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(sizeof(inotify_event))) --times;  // of a file they have no names
    }
    return true;
  }

 private:
  const int fd_;
};

class Verbs : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(unshare(CLONE_NEWNS), 0) << "these tests need root";
    ASSERT_EQ(mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    for (const char* path : {"run/containers", "state/pods", "run/restored", "run/signalled", "install/bin", "install/criu", "freezer",
                             "root/c1", "tasks/c1/rootfs", "landing", "faults", kVolume}) {
      ASSERT_TRUE(MakeDirs(dir_ / path).ok());
    }
    Put("runc", kFakeRunc, 0755);
    Put("status", "running");
    Put("calls", "");
    Put("freezer/freezer.state", "THAWED\n");
    Put("freezer/cgroup.procs", "");
    Put(kVolume + std::string("/file"), "kept");
    Put("root/c1/state.json", DumpJson({{"cgroup_paths", {{"freezer", dir_ / "freezer"}}}}));
    WriteSpec({});
    ASSERT_EQ(mount("tmpfs", (dir_ / "tasks/c1/rootfs").c_str(), "tmpfs", 0, nullptr), 0);
  }
  void TearDown() override { umount2((dir_ / "tasks/c1/rootfs").c_str(), MNT_DETACH); }

  void Put(const std::string& name, const std::string& text, unsigned mode = 0644) {
    ASSERT_TRUE(WriteFileAtomically(dir_ / name, text, mode).ok()) << name;
  }
  std::string Get(const std::string& name) { return ReadFile(dir_ / name).value_or("(none)"); }
  bool Has(const std::string& name) { return Exists(dir_ / name); }

  void WriteSpec(const Json& annotations, const std::string& container = "main") {
    Json notes = {{"io.kubernetes.cri.container-type", "container"},
                  {"io.kubernetes.cri.sandbox-uid", "pod"},
                  {"io.kubernetes.cri.sandbox-namespace", "default"},
                  {"io.kubernetes.cri.sandbox-name", "web-0"},
                  {"io.kubernetes.cri.container-name", container}};
    if (annotations.is_object()) notes.update(annotations);
    Put("tasks/c1/config.json",
        DumpJson({{"annotations", notes}, {"root", {{"path", "rootfs"}}}, {"linux", {{"namespaces", {{{"type", "pid"}}}}}}}));
  }
  void WriteIntent(bool final, bool kubelet = false) {
    Put("run/containers/c1.json", DumpJson(Intent{"ck", "pod", "main", dir_ / "landing", final, kubelet}.ToJson()));
  }
  void WriteRequest(bool final, int64_t within_ms = 20000) {
    DumpRequest request;
    request.checkpoint_uid = "ck";
    request.pod_uid = "pod";
    request.runc_root = dir_ / "root";
    request.task_dir = dir_ / "tasks";
    request.final = final;
    request.deadline_unix_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::Real().Wall().time_since_epoch()).count() + within_ms;
    request.containers = {{"main", "c1"}};
    request.volumes = {{"data", dir_ / kVolume}};
    Put("landing/request.json", DumpJson(request.ToJson()));
  }
  // Another container of the pod, of which no request knows.
  void AddSidecar() {
    for (const char* path : {"root/c2", "freezer2"}) ASSERT_TRUE(MakeDirs(dir_ / path).ok());
    Put("freezer2/freezer.state", "THAWED\n");
    Put("freezer2/cgroup.procs", "");
    const Json labels = {"io.kubernetes.cri.sandbox-uid=pod", "io.kubernetes.cri.container-name=side"};
    Put("root/c2/state.json", DumpJson({{"cgroup_paths", {{"freezer", dir_ / "freezer2"}}}, {"config", {{"labels", labels}}}}));
  }
  void WriteResult(bool ok) {
    DumpResult result;
    result.ok = ok;
    Put("landing/result.json", DumpJson(result.ToJson()));
  }
  DumpResult ReadResult() { return *DumpResult::FromJson(*ParseJson(Get("landing/result.json"))); }

  int Call(std::vector<std::string> args) {
    std::vector<std::string> argv{
        places::Program("holdfast-runc"), "--root", dir_ / "root", "--log", dir_ / "log.json", "--log-format", "json"};
    argv.insert(argv.end(), args.begin(), args.end());
    ProcessOptions options;
    options.env = {"HOLDFAST_RUNC_REAL=" + (dir_ / "runc"),
                   "HOLDFAST_RUN_DIR=" + (dir_ / "run"),
                   "HOLDFAST_STATE_DIR=" + (dir_ / "state"),
                   "HOLDFAST_INSTALL_DIR=" + (dir_ / "install"),
                   "FAKE=" + dir_.path(),
                   "HOLDFAST_FAULT_DIR=" + (dir_ / "faults")};
    Result<ProcessResult> result = RunProcess(argv, options);
    EXPECT_TRUE(result.ok());
    error_ = result->err;
    return result->exit_code;
  }
  std::string LoggedError() {
    Result<Json> line = ParseJson(Get("log.json"));  // one line of JSON and nothing else
    return line.ok() && GetString(*line, {"level"}) == "error" ? GetString(*line, {"msg"}) : "(no error line)";
  }
  // The calls of the real runc, by their verbs and what follows.
  std::string Calls() {
    std::string calls = Get("calls"), out;
    for (size_t at = 0; at < calls.size();) {
      size_t end = calls.find('\n', at);
      std::string line = calls.substr(at, end - at);
      for (const char* verb :
           {"state", "checkpoint", "features", "create", "start", "kill", "delete", "pause", "resume", "exec", "restore"}) {
        size_t found = line.find(std::string(" ") + verb + " ");
        if (found != std::string::npos) out += line.substr(found + 1) + "\n";
      }
      at = end + 1;
    }
    return out;
  }

  TempDir dir_;
  std::string error_;
};

TEST_F(Verbs, WhatItDoesNotKnowGoesToRuncAsItWasGiven) {
  EXPECT_EQ(Call({"update", "--cpu-shares", "3", "c1"}), 0);
  EXPECT_EQ(Get("calls"), "--root " + (dir_ / "root") + " --log " + (dir_ / "log.json") + " --log-format json update --cpu-shares 3 c1\n");
}

TEST_F(Verbs, WithoutAnIntentEveryVerbReachesRunc) {
  Call({"pause", "c1"});
  Call({"resume", "c1"});
  Call({"kill", "c1", "15"});
  Call({"exec", "c1", "ls"});
  EXPECT_EQ(Calls(), "pause c1\nresume c1\nkill c1 15\nexec c1 ls\n");
}

TEST_F(Verbs, PauseAndResumeOfAnIntentAreSwallowed) {
  WriteIntent(true);
  EXPECT_EQ(Call({"pause", "c1"}), 0);
  EXPECT_EQ(Call({"resume", "c1"}), 0);
  EXPECT_EQ(Calls(), "");
}

TEST_F(Verbs, ADamagedIntentDoesNotBlockTheContainer) {
  Put("run/containers/c1.json", "{\"final\": tr");
  Call({"kill", "c1", "15"});
  EXPECT_EQ(Calls(), "kill c1 15\n");
}

TEST_F(Verbs, ExecIsRefusedWhileAFinalCheckpointIsMade) {
  WriteIntent(true);
  EXPECT_EQ(Call({"exec", "--process", "/p", "c1"}), 1);
  EXPECT_NE(LoggedError().find("is being checkpointed"), std::string::npos) << LoggedError();
  EXPECT_NE(error_.find("is being checkpointed"), std::string::npos);
  EXPECT_EQ(Calls(), "");
}

TEST_F(Verbs, KillOfADumpedContainerIsKillAndThaw) {
  WriteIntent(true);
  WriteRequest(true);
  WriteResult(true);
  Put("freezer/freezer.state", "FROZEN\n");
  EXPECT_EQ(Call({"kill", "--all", "c1", "15"}), 0);
  EXPECT_EQ(Calls(), "kill --all c1 KILL\n");
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("THAWED"));
}

TEST_F(Verbs, KillWaitsForADumpThatRuns) {
  WriteIntent(true);
  WriteRequest(true);
  Openings intent(dir_ / "run/containers/c1.json");
  std::jthread dump([&] {
    EXPECT_TRUE(intent.Await(3)) << "it looks for the dump's end again and again";
    Put("order", Get("calls"));  // nothing was killed before the dump was complete
    WriteResult(true);
  });
  EXPECT_EQ(Call({"kill", "c1", "15"}), 0);
  EXPECT_EQ(Get("order"), "");
  EXPECT_EQ(Calls(), "kill c1 KILL\n");
}

TEST_F(Verbs, KillAfterAFailedDumpIsTheSignalThatWasSent) {
  WriteIntent(true);
  WriteRequest(true);
  WriteResult(false);
  Put("freezer/freezer.state", "FROZEN\n");
  EXPECT_EQ(Call({"kill", "c1", "15"}), 0);
  EXPECT_EQ(Calls(), "kill c1 15\n");
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("THAWED"));
}

TEST_F(Verbs, ASignalIsMarkedAndWhatComesInItsPlaceIsNot) {
  EXPECT_EQ(Call({"kill", "c1", "15"}), 0);
  EXPECT_TRUE(Has("run/signalled/c1"));
  ASSERT_TRUE(RemoveAll(dir_ / "run/signalled").ok());
  WriteIntent(true);
  WriteRequest(true);
  WriteResult(true);
  EXPECT_EQ(Call({"kill", "c1", "15"}), 0);
  EXPECT_FALSE(Has("run/signalled/c1"));
}

TEST_F(Verbs, KillOfADumpThatIsTakenBackIsTheSignalThatWasSent) {
  WriteIntent(true);
  WriteRequest(true, 60000);
  Put("freezer/freezer.state", "FROZEN\n");
  Openings intent(dir_ / "run/containers/c1.json");
  std::jthread agent([&] {
    EXPECT_TRUE(intent.Await(3)) << "it waits for the dump";
    EXPECT_TRUE(RemoveAll(dir_ / "run/containers/c1.json").ok());
  });
  const MonoTime begin = Clock::Real().Mono();
  EXPECT_EQ(Call({"kill", "c1", "15"}), 0);
  EXPECT_LT(Clock::Real().Mono() - begin, std::chrono::seconds(50)) << "it waited for the dump's deadline";
  EXPECT_EQ(Calls(), "kill c1 15\n");
  EXPECT_TRUE(Has("run/signalled/c1"));
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("THAWED"));
}

TEST_F(Verbs, ADeletedContainerLeavesNoMarks) {
  WriteIntent(true);
  Put("run/restored/c1", "");
  Put("run/signalled/c1", "");
  EXPECT_EQ(Call({"delete", "c1"}), 0);
  EXPECT_FALSE(Has("run/restored/c1"));
  EXPECT_FALSE(Has("run/signalled/c1"));
  EXPECT_FALSE(Has("run/containers/c1.json"));
  EXPECT_EQ(Calls(), "delete c1\n");
}

TEST_F(Verbs, StartOfARestoredContainerIsDoneAlready) {
  Put("run/restored/c1", "");
  EXPECT_EQ(Call({"start", "c1"}), 0);
  EXPECT_EQ(Calls(), "state c1\n");
  Put("status", "stopped");
  Call({"start", "c1"});
  EXPECT_EQ(Calls(), "state c1\nstate c1\nstart c1\n");
}

TEST_F(Verbs, ThawIsIdempotent) {
  Put("freezer/freezer.state", "FROZEN\n");
  EXPECT_EQ(Call({"thaw", "c1"}), 0);
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("THAWED"));
  EXPECT_EQ(Call({"thaw", "--root", dir_ / "root", "c1"}), 0);
  EXPECT_EQ(Call({"thaw", "gone"}), 0);
}

TEST_F(Verbs, CreateAddsATimeNamespaceAndCriusOptions) {
  Put("install/criu/runc.conf", "");
  EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 0);
  Json spec = *ParseJson(Get("tasks/c1/config.json"));
  EXPECT_EQ(spec["linux"]["namespaces"].back()["type"], "time");
  EXPECT_EQ(spec["annotations"]["org.criu.config"], dir_ / "install/criu/runc.conf");
  EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 0);
  EXPECT_EQ(Calls(), "create --bundle " + (dir_ / "tasks/c1") + " c1\ncreate --bundle " + (dir_ / "tasks/c1") + " c1\n");
  EXPECT_EQ(Get("calls").find("features"), Get("calls").rfind("features")) << "asked once, then remembered";
}

TEST_F(Verbs, SandboxesAreLeftAlone) {
  WriteSpec({{"io.kubernetes.cri.container-type", "sandbox"}});
  const std::string before = Get("tasks/c1/config.json");
  EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 0);
  EXPECT_EQ(Get("tasks/c1/config.json"), before);
}

TEST_F(Verbs, NothingIsCreatedInAPodWithAFinalCheckpoint) {
  Put("state/pods/pod.json", "{}");
  EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 1);
  EXPECT_NE(LoggedError().find("default/web-0 has a final checkpoint"), std::string::npos) << LoggedError();
  EXPECT_EQ(Calls(), "");
}

TEST_F(Verbs, WithoutAnAgentARestoredPodWaitsAndOthersStart) {
  WriteSpec({{"holdfast.dev/restore", "ck"}});
  EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 1);
  EXPECT_NE(LoggedError().find("will be tried again"), std::string::npos) << LoggedError();
  WriteSpec({});
  EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 0);
}

TEST_F(Verbs, TheWaitingContainerSeesItsPodsFolderReadOnly) {
  WriteSpec({{"holdfast.dev/restore", "ck"}}, kWaitContainer);
  EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 0);
  Json mount = (*ParseJson(Get("tasks/c1/config.json")))["mounts"].back();
  EXPECT_EQ(mount["source"], dir_ / "run/wait/pod");
  EXPECT_EQ(mount["destination"], "/.holdfast");
  struct stat info;
  ASSERT_EQ(stat((dir_ / "run/wait/pod").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
}

// Answers one question after the other with what it was given.
class FakeAgent {
 public:
  // `first`: what it does before it answers.
  FakeAgent(const std::string& path, std::string answer, std::function<void()> first = {})
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd_, 4), 0);
    thread_ = std::jthread([this, answer = std::move(answer), first = std::move(first)] {
      while (true) {
        int connection = accept(fd_, nullptr, nullptr);
        if (connection < 0) return;
        char buffer[4096];
        ssize_t n = recv(connection, buffer, sizeof buffer, 0);
        if (n > 0) question_.assign(buffer, static_cast<size_t>(n));
        if (first) first();
        asked_ = true;
        send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
        close(connection);
      }
    });
  }
  ~FakeAgent() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  const std::string& question() const { return question_; }
  bool asked() const { return asked_; }

 private:
  const int fd_;
  std::atomic<bool> asked_ = false;
  std::string question_;
  std::jthread thread_;
};

TEST_F(Verbs, KillOfAContainerAsksTheAgentWhetherItIsDumpedInstead) {
  {
    FakeAgent agent(dir_ / "run/agent.sock", "{\"action\":\"signal\",\"reason\":\"the pod is not being deleted\"}\n");
    EXPECT_EQ(Call({"kill", "c1", "15"}), 0);
    EXPECT_NE(agent.question().find("\"op\":\"stop\""), std::string::npos) << agent.question();
    EXPECT_NE(agent.question().find("\"pod_uid\":\"pod\""), std::string::npos) << agent.question();
  }
  EXPECT_EQ(Calls(), "state c1\nkill c1 15\n");
  EXPECT_TRUE(Has("run/signalled/c1"));
  Put("calls", "");
  EXPECT_EQ(Call({"kill", "c1", "KILL"}), 0);
  EXPECT_EQ(Calls(), "kill c1 KILL\n") << "that one is not held back";
}

// Its last act, after the question has come and before any answer. The next agent must not take the mark for a signal.
TEST_F(Verbs, AnAgentThatDiesWithItsIntentsWrittenIsFollowedByOneThatFindsNoMark) {
  {
    FakeAgent agent(dir_ / "run/agent.sock", "", [this] {
      WriteIntent(true);
      WriteRequest(true);
    });
    std::jthread next([&](std::stop_token stop) {
      while (!stop.stop_requested() && (!agent.asked() || Has("run/signalled/c1")))
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      Put("marked", Has("run/signalled/c1") ? "yes" : "no");
      WriteResult(true);
    });
    EXPECT_EQ(Call({"kill", "c1", "15"}), 0);
  }
  EXPECT_EQ(Get("marked"), "no");
  EXPECT_EQ(Calls(), "state c1\nkill c1 KILL\n");
}

TEST_F(Verbs, TheAgentsWordDecides) {
  WriteSpec({{"holdfast.dev/restore", "ck"}});
  {
    FakeAgent agent(dir_ / "run/agent.sock", "{\"action\":\"refuse\",\"reason\":\"the claim is another pod's\"}\n");
    EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 1);
    EXPECT_EQ(LoggedError(), "holdfast: the claim is another pod's");
    Json question = *ParseJson(agent.question());
    EXPECT_EQ(question["op"], "create");
    EXPECT_EQ(question["pod_uid"], "pod");
    EXPECT_EQ(question["container_id"], "c1");
  }
  for (const char* garbage : {"", "{\"action\":", "{\"action\":\"explode\"}\n", "[]\n"}) {
    unlink((dir_ / "run/agent.sock").c_str());
    FakeAgent agent(dir_ / "run/agent.sock", garbage);
    EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 1) << garbage;
  }
  EXPECT_EQ(Calls(), "");
  unlink((dir_ / "run/agent.sock").c_str());
  FakeAgent agent(dir_ / "run/agent.sock", "{\"action\":\"skip\"}\n");
  EXPECT_EQ(Call({"create", "--bundle", dir_ / "tasks/c1", "c1"}), 0);
  Json spec = *ParseJson(Get("tasks/c1/config.json"));
  EXPECT_EQ(spec["process"]["args"], (Json{"/.holdfast-skip", "--exit"}));
  EXPECT_EQ(spec["mounts"].back()["source"], dir_ / "install/bin/holdfast-wait");
}

TEST_F(Verbs, AFinalDumpLeavesTheContainerFrozen) {
  WriteRequest(true);
  EXPECT_EQ(Call({"dump", dir_ / "landing"}), 0) << error_;
  DumpResult result = ReadResult();
  EXPECT_TRUE(result.ok) << result.message;
  EXPECT_TRUE(Get("frozen_at_dump").starts_with("FROZEN"));
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("FROZEN"));
  EXPECT_TRUE(Has("landing/main/config.json"));
  EXPECT_TRUE(Has("landing/volumes/data.tar"));
  EXPECT_GT(result.memory_bytes, 0);
  // Once more: the answer is there already.
  EXPECT_EQ(Call({"dump", dir_ / "landing"}), 0);
  EXPECT_EQ(Get("calls").find("checkpoint"), Get("calls").rfind("checkpoint"));
}

// Hole 1: whoever else is in the pod stands still while its files are read; and is thawed by whoever comes next, should the dump be killed.
TEST_F(Verbs, OtherContainersOfThePodStandStillWhileItsFilesAreRead) {
  AddSidecar();
  WriteRequest(true);
  Put("faults/runtime.beside_held", "kill");
  EXPECT_NE(Call({"dump", dir_ / "landing"}), 0);
  EXPECT_FALSE(Has("landing/volumes/data.tar"));
  EXPECT_TRUE(Get("freezer2/freezer.state").starts_with("FROZEN"));
  EXPECT_EQ(Call({"thaw", "--root", dir_ / "root", "c1"}), 0) << error_;
  EXPECT_TRUE(Get("freezer2/freezer.state").starts_with("THAWED"));
  EXPECT_FALSE(Has("run/beside/c2"));
  EXPECT_EQ(Call({"dump", dir_ / "landing"}), 0) << error_;
  EXPECT_TRUE(Has("landing/volumes/data.tar"));
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("FROZEN"));
  EXPECT_TRUE(Get("freezer2/freezer.state").starts_with("THAWED")) << "nobody else would thaw it";
  EXPECT_FALSE(Has("run/beside/c2"));
}

// Hole 1: a request that points elsewhere is refused before anything freezes.
TEST_F(Verbs, OnlyEmptyDirsOfThePodAreRead) {
  WriteRequest(true);
  Json request = *ParseJson(Get("landing/request.json"));
  request["volumes"][0]["path"] = dir_ / "install";
  Put("landing/request.json", DumpJson(request));
  EXPECT_EQ(Call({"dump", dir_ / "landing"}), 1);
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("THAWED"));
  EXPECT_EQ(Get("calls").find("checkpoint"), std::string::npos);
}

TEST_F(Verbs, ADumpThatIsNotFinalThaws) {
  WriteRequest(false);
  EXPECT_EQ(Call({"dump", dir_ / "landing"}), 0) << error_;
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("THAWED"));
}

TEST_F(Verbs, AFailedDumpThawsAndSaysWhatCriuSaid) {
  Put("fail", "");
  WriteRequest(true);
  EXPECT_EQ(Call({"dump", dir_ / "landing"}), 1);
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("THAWED"));
  DumpResult result = ReadResult();
  EXPECT_EQ(result.reason, "DumpFailed");
  EXPECT_EQ(result.message, "container main: CRIU: Error (criu/x.c:1): it does not want to");
  EXPECT_FALSE(Has("landing/main/images"));
  EXPECT_TRUE(Has("landing/main/dump.log"));
}

TEST_F(Verbs, ADumpPastItsDeadlineIsKilledAndThawed) {
  Put("slow", "");
  WriteRequest(true, 800);
  EXPECT_EQ(Call({"dump", dir_ / "landing"}), 1);
  EXPECT_EQ(ReadResult().reason, "Deadline");
  EXPECT_TRUE(Get("freezer/freezer.state").starts_with("THAWED"));
}

TEST_F(Verbs, ADumpOfAGoneContainerSaysSo) {
  Put("gone", "");
  WriteRequest(true);
  EXPECT_EQ(Call({"dump", dir_ / "landing"}), 1);
  EXPECT_EQ(ReadResult().reason, "PodGone");
}

TEST_F(Verbs, TheKubeletsCheckpointRunsTheWholeDumpOnce) {
  WriteIntent(false, true);
  WriteRequest(false);
  const std::vector<std::string> call{"checkpoint", "--image-path", dir_ / "ctrd", "--work-path", dir_ / "work", "--leave-running", "c1"};
  EXPECT_EQ(Call(call), 0) << error_;
  EXPECT_TRUE(ReadResult().ok);
  EXPECT_TRUE(Has("landing/main/images/pages-1.img"));
  EXPECT_EQ(*ListDir(dir_ / "ctrd"), std::vector<std::string>{"holdfast.json"});
  EXPECT_EQ(Call(call), 0);
  EXPECT_EQ(Get("calls").find("checkpoint"), Get("calls").rfind("checkpoint"));
}

TEST_F(Verbs, AFailedKubeletCheckpointIsAnErrorWithTheReason) {
  Put("fail", "");
  WriteIntent(false, true);
  WriteRequest(false);
  EXPECT_EQ(Call({"checkpoint", "--image-path", dir_ / "ctrd", "c1"}), 1);
  EXPECT_NE(LoggedError().find("it does not want to"), std::string::npos) << LoggedError();
}

TEST_F(Verbs, AStockCheckpointGetsTheOptionsMostProgramsNeed) {
  EXPECT_EQ(Call({"checkpoint", "--image-path", dir_ / "landing", "--leave-running", "c1"}), 0);
  EXPECT_EQ(Calls(), "checkpoint --tcp-established --file-locks --image-path " + (dir_ / "landing") + " --leave-running c1\n");
}

TEST_F(Verbs, WithoutARuncItSaysWhereItLooked) {
  ProcessOptions options;
  options.env = {"HOLDFAST_RUNC_REAL=/nonexistent/runc"};
  Result<ProcessResult> result = RunProcess({places::Program("holdfast-runc"), "state", "c1"}, options);
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_NE(result->err.find("/nonexistent/runc"), std::string::npos);
}

}  // namespace
}  // namespace holdfast::runtime
