// The program's own commands, beside its server and without: a checkpoint goes out, and into another store.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "storage/server/local_socket.h"
#include "tests/places.h"
#include "tests/unit/storage/server_fixture.h"

namespace holdfast::storage {
namespace {

using ::testing::HasSubstr;

ProcessResult Command(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {places::Program("holdfast-store"), "--log-level=error"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Result<ProcessResult> ran = RunProcess(all, {});
  EXPECT_TRUE(ran.ok()) << ran.status().ToString();
  return ran.ok() ? *ran : ProcessResult();
}

TEST(Transfer, GoesThroughTheServerWhereOneRuns) {
  TempDir dir;
  WriteText(dir / "in/main/images/pages-1.img", RandomText(9 << 20, 1));
  auto from = OpenStore(dir / "from"), to = OpenStore(dir / "to");
  ASSERT_OK(Keep(*from, "uid-1", dir / "in"));
  LocalSocket out(*from), in(*to);
  ASSERT_OK(out.Start(SocketPath(dir / "from")));
  ASSERT_OK(in.Start(SocketPath(dir / "to")));
  struct stat info = {};
  ASSERT_EQ(stat(SocketPath(dir / "to").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);

  const ProcessResult exported =
      Command({"--data", dir / "from", "export", "--checkpoint", "default/drain-uid-1", "--output", dir / "archive"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("not encrypted"));
  ASSERT_EQ(stat((dir / "archive").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U) << "a process's memory is nobody else's";
  const ProcessResult imported = Command({"--data", dir / "to", "import", "--input", dir / "archive", "--namespace", "other"});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("other/drain-uid-1 is here as import-"));
  const std::vector<std::string> ids = to->CommittedIn("other");
  ASSERT_EQ(ids.size(), 1U);
  ASSERT_OK(Fetch(*to, ids[0], dir / "out", {}));
  ExpectSameTree(dir / "in", dir / "out");

  const ProcessResult twice = Command({"--data", dir / "to", "import", "--input", dir / "archive", "--namespace", "other"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("already"));
  const ProcessResult none = Command({"--data", dir / "from", "export", "--checkpoint", "default/none", "--output", dir / "nothing"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_FALSE(Exists(dir / "nothing") || Exists(dir / "nothing.tmp"));
  std::string cut = ReadText(dir / "archive");
  cut.resize(cut.size() / 2);
  WriteText(dir / "cut", cut);
  const ProcessResult half = Command({"--data", dir / "to", "import", "--input", dir / "cut", "--namespace", "third"});
  EXPECT_EQ(half.exit_code, 2);
  EXPECT_THAT(half.err, HasSubstr("cut off"));
  EXPECT_TRUE(to->CommittedIn("third").empty());
}

TEST(Transfer, WorksOnAVolumeThatNobodyServesAndPrintsItsCheckpoints) {
  TempDir dir;
  WriteText(dir / "in/a", "content");
  {
    auto from = OpenStore(dir / "from");
    auto session = Take(from->OpenSession("uid-1", "default"));
    Manifest manifest = ManifestOf("uid-1", "default", Take(Ingest(dir / "in", *session, {})));
    manifest.info["podUID"] = "pod-uid-1";
    manifest.info["final"] = true;
    ASSERT_OK(session->Commit(manifest));
  }
  const ProcessResult exported = Command({"--data", dir / "from", "export", "--checkpoint", "uid-1"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  WriteText(dir / "archive", exported.out);
  const ProcessResult imported = Command({"--data", dir / "to", "import", "--input", dir / "archive"});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  const ProcessResult printed = Command({"--data", dir / "to", "checkpoints"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  Result<Json> list = ParseJson(printed.out);
  ASSERT_OK(list);
  ASSERT_EQ(GetArray(*list, {"items"}).size(), 1U) << printed.out;
  const Json& object = GetArray(*list, {"items"})[0];
  EXPECT_EQ(GetString(object, {"kind"}), "Checkpoint");
  EXPECT_EQ(GetString(object, {"metadata", "name"}), "drain-uid-1");
  EXPECT_EQ(GetString(object, {"spec", "podRef", "uid"}), "pod-uid-1");
  EXPECT_EQ(GetString(object, {"spec", "trigger"}), "Manual");
  EXPECT_FALSE(GetBool(object, {"spec", "final"}, true)) << "whatever it was: nobody knows whether somebody went on from it";
  EXPECT_TRUE(GetBool(object, {"spec", "pinned"})) << "retention takes none of them before somebody looked";
  const std::string id = GetString(object, {"metadata", "annotations", "holdfast.dev/manifest"});
  EXPECT_TRUE(id.starts_with("import-")) << id;
  EXPECT_EQ(GetArray(*ParseJson(Command({"--data", dir / "to", "checkpoints", "--namespace", "other"}).out), {"items"}).size(), 0U);
}

TEST(Transfer, APeerThatSendsNonsenseOrGoesAwayHurtsNobody) {
  TempDir dir;
  auto store = OpenStore(dir / "store");
  LocalSocket socket_of(*store);
  ASSERT_OK(socket_of.Start(SocketPath(dir / "store")));
  auto say = [&](const std::string& text) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = SocketPath(dir / "store");
    memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    shutdown(fd, SHUT_WR);
    std::string answer(4096, '\0');
    const ssize_t n = recv(fd, answer.data(), answer.size(), 0);
    close(fd);
    return answer.substr(0, n > 0 ? static_cast<size_t>(n) : 0);
  };
  EXPECT_THAT(say("fetch me a coffee\n"), HasSubstr("neither export nor import"));
  EXPECT_THAT(say(std::string(1024, 'x')), HasSubstr("no end"));
  EXPECT_THAT(say("export ../../etc/passwd\n"), HasSubstr("namespace"));
  EXPECT_THAT(say("import -\n"), HasSubstr("cut off"));
  EXPECT_THAT(say("import ../x\nHFARCH01"), HasSubstr("cut off"));
  {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    close(fd);
  }
  EXPECT_THAT(say("export none\n"), HasSubstr("no checkpoint"));
  EXPECT_EQ(store->Usage()->open_sessions, 0U);
}

}  // namespace
}  // namespace holdfast::storage
