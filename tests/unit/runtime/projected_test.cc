#include "runtime/projected.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

// A token volume as the kubelet writes it, on the old node and on the new one.
class Projected : public testing::Test {
 protected:
  void SetUp() override {
    Make(old_, "..2026_01_01_00_00_00.1", "old token");
    Make(new_, "..2026_02_02_00_00_00.2", "new token");
  }
  void Make(const std::string& volume, const std::string& dated, const std::string& token) {
    ASSERT_TRUE(MakeDirs(volume + "/" + dated).ok());
    for (const char* name : {"token", "ca.crt"}) ASSERT_TRUE(WriteFileAtomically(volume + "/" + dated + "/" + name, token, 0640).ok());
    ASSERT_EQ(symlink(dated.c_str(), (volume + "/..data").c_str()), 0);
  }
  static Spec Mounting(const std::string& source) {
    Json json = Json::object();
    json["mounts"] = Json::array({Json{{"destination", "/var/run/secrets/token"}, {"source", source}}});
    return Spec(std::move(json));
  }
  TempDir dir_;
  const std::string old_ = dir_ / "old/volumes/kubernetes.io~projected/token", new_ = dir_ / "new/volumes/kubernetes.io~projected/token";
};

TEST_F(Projected, AnOpenFileIsFoundAgainUnderItsOldNameBesideTheNewContent) {
  int fd = open((old_ + "/..data/token").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  Status kept = KeepOpenProjectedFiles({getpid()}, Mounting(old_), dir_ / "projected");
  close(fd);
  ASSERT_TRUE(kept.ok()) << kept.message();
  Status back = PutBackProjectedFiles(dir_ / "projected", Mounting(new_));
  ASSERT_TRUE(back.ok()) << back.message();
  EXPECT_EQ(*ReadFile(new_ + "/..2026_01_01_00_00_00.1/token"), "old token");
  struct stat info;
  ASSERT_EQ(stat((new_ + "/..2026_01_01_00_00_00.1/token").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  EXPECT_FALSE(Exists(new_ + "/..2026_01_01_00_00_00.1/ca.crt")) << "what was not open is not kept";
  EXPECT_EQ(*ReadFile(new_ + "/..data/token"), "new token");
  EXPECT_TRUE(PutBackProjectedFiles(dir_ / "projected", Mounting(new_)).ok()) << "a second try";
}

TEST_F(Projected, WithNothingOpenNothingIsKept) {
  ASSERT_TRUE(KeepOpenProjectedFiles({getpid()}, Mounting(old_), dir_ / "projected").ok());
  EXPECT_FALSE(Exists(dir_ / "projected"));
  EXPECT_TRUE(PutBackProjectedFiles(dir_ / "projected", Mounting(new_)).ok());
}

TEST_F(Projected, FilesOfOtherVolumesAreNotTouched) {
  ASSERT_TRUE(MakeDirs(dir_ / "empty/..2026_01/x").ok());
  ASSERT_TRUE(WriteFileAtomically(dir_ / "empty/..2026_01/x/y", "mine").ok());
  int fd = open((dir_ / "empty/..2026_01/x/y").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(KeepOpenProjectedFiles({getpid()}, Mounting(old_), dir_ / "projected").ok());
  close(fd);
  EXPECT_FALSE(Exists(dir_ / "projected"));
}

TEST_F(Projected, AHostileIndexWritesOnlyDatedFolders) {
  ASSERT_TRUE(MakeDirs(dir_ / "projected/0/..data").ok());
  ASSERT_TRUE(MakeDirs(dir_ / "projected/0/evil").ok());
  ASSERT_TRUE(WriteFileAtomically(dir_ / "projected/0/..data/token", "evil").ok());
  ASSERT_TRUE(WriteFileAtomically(dir_ / "projected/0/evil/token", "evil").ok());
  ASSERT_TRUE(WriteFileAtomically(dir_ / "projected/index.json", R"({"0":"/var/run/secrets/token"})").ok());
  EXPECT_TRUE(PutBackProjectedFiles(dir_ / "projected", Mounting(new_)).ok());
  EXPECT_EQ(*ReadFile(new_ + "/..data/token"), "new token");
  EXPECT_FALSE(Exists(new_ + "/evil"));
  ASSERT_TRUE(WriteFileAtomically(dir_ / "projected/index.json", R"({"../../x":"/var/run/secrets/token"})").ok());
  EXPECT_FALSE(PutBackProjectedFiles(dir_ / "projected", Mounting(new_)).ok());
}

}  // namespace
}  // namespace holdfast::runtime
