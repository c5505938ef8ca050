// The server's program is killed in the middle of a checkpoint and started again; the client does not notice. And a client that is stopped
// in the middle of one, while everything that nobody holds is collected.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/places.h"
#include "tests/unit/storage/server_fixture.h"

namespace holdfast::storage {
namespace {

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

class Program {
 public:
  Program(const TempDir& dir, int port) : dir_(dir), port_(port) { Start(); }
  ~Program() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Start() {
    const std::string program = places::Program("holdfast-store"), data = dir_ / "store", listen = "127.0.0.1:" + std::to_string(port_),
                      faults = dir_ / "faults";
    pid_ = fork();
    if (pid_ != 0) return;
    setenv("HOLDFAST_FAULT_DIR", faults.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): the child's only thread
    execl(program.c_str(), "holdfast-store", "--data", data.c_str(), "--listen", listen.c_str(), "--auth=none", "--log-level=warning",
          "--reserve-bytes=0", static_cast<char*>(nullptr));
    _exit(127);
  }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  void Signal(int signal) const { kill(pid_, signal); }

 private:
  const TempDir& dir_;
  const int port_;
  pid_t pid_ = 0;
};

class Restart : public ::testing::TestWithParam<const char*> {};

TEST_P(Restart, InTheMiddleOfACheckpointIsSurvived) {
  TempDir dir;
  WriteText(dir / "in/pages", RandomText(30 * kMaxSegmentBytes, 1));
  ASSERT_OK(MakeDirs(dir / "faults"));
  const int port = FreePort();
  Program program(dir, port);
  RemoteStore remote(
      {.http = {.url = "http://127.0.0.1:" + std::to_string(port), .ca_file = "", .token_file = ""}, .patience = std::chrono::seconds(40)});
  auto session = remote.OpenSession("uid-1", "default");
  ASSERT_OK(session);
  WriteText(dir / "faults/" + GetParam(), "kill");
  std::jthread supervisor([&] {
    const int status = program.Wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    program.Start();
  });
  Result<std::vector<FileEntry>> files = Ingest(dir / "in", **session, {});
  ASSERT_OK(files);
  ASSERT_OK((*session)->Commit(ManifestOf("uid-1", "default", *files)));
  supervisor.join();
  ASSERT_OK(Fetch(remote, "uid-1", dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");
}

INSTANTIATE_TEST_SUITE_P(At, Restart,
                         ::testing::Values("store.put", "store.before_sync", "store.before_manifest_rename", "store.after_manifest_rename"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '.' || c == '_'; }, 'X');
                           return name;
                         });

// A process of its own that stores `dir` as `uid`, and stops itself (SIGSTOP) in the middle of it. It ends with 0: committed, 1: refused.
pid_t StartSleeper(const RemoteStoreOptions& options, const std::string& uid, const std::string& dir, uint64_t stops_after) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  RemoteStore remote(options);
  std::atomic<bool> stopped = false;
  IngestOptions ingest;
  ingest.progress = [&](const Progress& progress) {
    if (progress.bytes >= stops_after && !stopped.exchange(true)) kill(getpid(), SIGSTOP);
  };
  Result<std::unique_ptr<Session>> session = remote.OpenSession(uid, "default");
  if (!session.ok()) _exit(2);
  Result<std::vector<FileEntry>> files = Ingest(dir, **session, ingest);
  _exit(files.ok() && (*session)->Commit(ManifestOf(uid, "default", *files)).ok() ? 0 : 1);
}

struct Child {
  ~Child() {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid = 0;
};

class Sleeper : public ::testing::TestWithParam<bool> {};  // whether its session ends while it sleeps

TEST_P(Sleeper, ThroughADeletionAFullCollectionAndARestartCommitsAllOrNothing) {
  const bool given_up = GetParam();
  TempDir dir;
  const std::string shared = RandomText(60 * kSegmentBytes, 1);
  WriteText(dir / "old/pages", shared);
  WriteText(dir / "new/pages", shared + RandomText(300 * kSegmentBytes, 2));
  ASSERT_OK(MakeDirs(dir / "faults"));
  const int port = FreePort();
  Program program(dir, port);
  const RemoteStoreOptions options{.http = {.url = "http://127.0.0.1:" + std::to_string(port), .ca_file = "", .token_file = ""},
                                   .patience = std::chrono::seconds(120)};
  RemoteStore remote(options);
  ASSERT_OK(Keep(remote, "uid-old", dir / "old"));
  Child sleeper{.pid = StartSleeper(options, "uid-new", dir / "new", 120 * kSegmentBytes)};
  int status = 0;
  ASSERT_EQ(waitpid(sleeper.pid, &status, WUNTRACED), sleeper.pid);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  // What it was told of belongs to nobody else any more.
  ASSERT_OK(remote.Delete("uid-old"));
  if (given_up) ASSERT_OK(remote.Abort("uid-new", "default"));
  program.Signal(SIGTERM);
  program.Wait();
  auto run = [&](const std::string& command) {
    return RunProcess({places::Program("holdfast-store"), "--data", dir / "store", command}, {}).value_or(ProcessResult{}).exit_code;
  };
  EXPECT_EQ(run("gc"), 0);
  EXPECT_EQ(PacksIn(dir / "store").empty(), given_up) << "an open session keeps what it was told of";
  program.Start();
  kill(sleeper.pid, SIGCONT);
  ASSERT_EQ(waitpid(std::exchange(sleeper.pid, 0), &status, 0) > 0, true);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), given_up ? 1 : 0);
  if (given_up) {
    EXPECT_EQ(CodeOf(remote.GetManifest("uid-new")), Code::kNotFound);
    EXPECT_EQ(remote.StateOf("uid-new").value_or(SessionState::kUnknown), SessionState::kAborted);
  } else {
    ASSERT_OK(Fetch(remote, "uid-new", dir / "out", {}));
    ExpectSameTree(dir / "new", dir / "out");
  }
  program.Signal(SIGTERM);
  program.Wait();
  EXPECT_EQ(run("fsck"), 0);
  EXPECT_EQ(run("gc"), 0);
  EXPECT_EQ(PacksIn(dir / "store").empty(), given_up);
}

INSTANTIATE_TEST_SUITE_P(Session, Sleeper, ::testing::Bool(), [](const auto& info) { return info.param ? "GivenUp" : "Open"; });

TEST(StoreProgram, EndsOnSigtermAndItsCommandsWork) {
  TempDir dir;
  WriteText(dir / "in/a", "hello");
  ASSERT_OK(MakeDirs(dir / "faults"));
  const int port = FreePort();
  Program program(dir, port);
  RemoteStore remote(
      {.http = {.url = "http://127.0.0.1:" + std::to_string(port), .ca_file = "", .token_file = ""}, .patience = std::chrono::seconds(40)});
  ASSERT_OK(Keep(remote, "uid-1", dir / "in"));
  auto run = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {places::Program("holdfast-store"), "--data", dir / "store"});
    return RunProcess(args, {}).value_or(ProcessResult{});
  };
  EXPECT_THAT(run({"stat"}).out, ::testing::HasSubstr("uid-1"));
  EXPECT_EQ(run({"fsck"}).exit_code, 0);
  EXPECT_EQ(run({"delete", "uid-1"}).exit_code, 2) << "a server has the volume";
  program.Signal(SIGTERM);
  const int status = program.Wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(run({"gc"}).exit_code, 0);
  EXPECT_EQ(run({"fsck", "--repair"}).exit_code, 0);
  unlink((dir / "store/packs/" + PacksIn(dir / "store").at(0)).c_str());
  ProcessResult fsck = run({"fsck"});
  EXPECT_EQ(fsck.exit_code, 1);
  EXPECT_THAT(fsck.out, ::testing::HasSubstr("HURT uid-1"));
  EXPECT_EQ(run({"delete", "uid-1"}).exit_code, 0);
  EXPECT_EQ(run({"fsck"}).exit_code, 0);
}

TEST(StoreProgram, RotatesItsKekAndShredsANamespace) {
  TempDir dir;
  WriteText(dir / "in/a", "hello");
  WriteText(dir / "old.kek", std::string(64, 'a') + "\n");
  WriteText(dir / "new.kek", RandomText(32, 1));
  auto keks = [&](std::vector<std::string> files) { return Take(LoadKeks(files)); };
  {
    auto store = Take(LocalStore::Open({.dir = dir / "store", .reserve_bytes = 0, .keks = keks({dir / "old.kek"})}));
    ASSERT_OK(Keep(*store, "uid-1", dir / "in"));
  }
  auto run = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {places::Program("holdfast-store"), "--data", dir / "store"});
    return RunProcess(args, {}).value_or(ProcessResult{});
  };
  const std::string old_kek = "--kek-file=" + dir / "old.kek", new_kek = "--kek-file=" + dir / "new.kek";
  EXPECT_FALSE(Exists(dir / "store/KEK"));
  ProcessResult without = run({"stat"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, ::testing::HasSubstr("--kek-file"));
  EXPECT_EQ(run({new_kek, "stat"}).exit_code, 2);
  // Hole 3: nobody serves with a key that is not the volume's, and the old one is still the one that reads it.
  const auto refused = LocalStore::Open({.dir = dir / "store", .reserve_bytes = 0, .keks = keks({dir / "new.kek"})});
  EXPECT_EQ(CodeOf(refused), Code::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("put the Secret that had it back"));
  EXPECT_EQ(run({new_kek, old_kek, "rewrap"}).exit_code, 0);
  EXPECT_THAT(run({new_kek, "stat"}).out, ::testing::HasSubstr("uid-1"));
  EXPECT_EQ(run({old_kek, "stat"}).exit_code, 2);
  EXPECT_EQ(run({new_kek, "shred", "default"}).exit_code, 2) << "it has a checkpoint";
  EXPECT_EQ(run({new_kek, "shred", "default", "--force"}).exit_code, 0);
  EXPECT_FALSE(Exists(dir / "store/keys/default"));
  EXPECT_TRUE(PacksIn(dir / "store").empty());
  EXPECT_EQ(run({new_kek, "fsck"}).exit_code, 0);
  auto store = Take(LocalStore::Open({.dir = dir / "store", .reserve_bytes = 0, .keks = keks({dir / "new.kek"})}));
  EXPECT_EQ(CodeOf(store->GetManifest("uid-1")), Code::kNotFound);
  EXPECT_OK(Keep(*store, "uid-2", dir / "in"));
}

}  // namespace
}  // namespace holdfast::storage
