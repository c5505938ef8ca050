// Hole 9: a stolen node writes filters that let more pass than the new container's profile does.
#include "runtime/image_seccomp.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstddef>

#include "base/file.h"
#include "runtime/seccomp_program.h"
#include "tests/unit/runtime/image_maker.h"
#include "tests/unit/runtime/temp_dir.h"

namespace holdfast::runtime {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kAllow = SECCOMP_RET_ALLOW, kDeny = SECCOMP_RET_ERRNO | 1;
constexpr uint32_t kMount = 165, kMmap = 9, kClone = 56, kNewUser = 0x10000000;

std::string Program(const std::vector<sock_filter>& steps) {
  return std::string(reinterpret_cast<const char*>(steps.data()), steps.size() * sizeof(sock_filter));
}
sock_filter Load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter Return(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
sock_filter IfEqual(uint32_t value, uint8_t yes, uint8_t no) { return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no); }

constexpr size_t kNumber = offsetof(seccomp_data, nr), kArch = offsetof(seccomp_data, arch), kArgument = offsetof(seccomp_data, args);

bool May(const std::vector<sock_filter>& steps, SystemCall call) {
  uint64_t budget = 1'000'000;
  return MayPass(Program(steps), call, &budget);
}

TEST(ImageSeccomp, AProgramIsFollowedWithWhatIsKnown) {
  const SystemCall mount{AUDIT_ARCH_X86_64, kMount}, mmap{AUDIT_ARCH_X86_64, kMmap};
  const std::vector<sock_filter> denies_mount = {Load(kNumber), IfEqual(kMount, 0, 1), Return(kDeny), Return(kAllow)};
  EXPECT_FALSE(May(denies_mount, mount));
  EXPECT_TRUE(May(denies_mount, mmap));
  SystemCall any = mount;
  any.any_number = true;
  EXPECT_TRUE(May(denies_mount, any));
  // What is asked of an argument is taken both ways, wherever it stands.
  const std::vector<sock_filter> magic = {Load(kArgument + 40), IfEqual(0x600d, 0, 1), Return(kAllow), Return(kDeny)};
  EXPECT_TRUE(May(magic, mount));
  SystemCall with = mount;
  with.argument = 5, with.value = 0x600e;
  EXPECT_FALSE(May(magic, with));
  with.value = 0x600d;
  EXPECT_TRUE(May(magic, with));
  const std::vector<sock_filter> masked = {Load(kArgument), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kNewUser), IfEqual(0, 0, 1), Return(kAllow),
                                           Return(kDeny)};
  with.argument = 0, with.value = kNewUser | 17;
  EXPECT_FALSE(May(masked, with));
  with.value = 17;
  EXPECT_TRUE(May(masked, with));
  // What is not followed may pass.
  EXPECT_TRUE(May({Load(kNumber), BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_MISC | BPF_TXA, 0), IfEqual(kMmap, 0, 1), Return(kAllow),
                   Return(kDeny)},
                  mount));
  EXPECT_TRUE(May({Load(kNumber)}, mount));
  EXPECT_TRUE(May({}, mount));
  EXPECT_TRUE(May({BPF_STMT(BPF_RET | BPF_A, 0)}, mount) == false);  // A is 0 at first: the task is killed
  EXPECT_TRUE(May({BPF_STMT(BPF_JMP | BPF_JA, 100)}, mount));
  for (uint32_t action : {SECCOMP_RET_LOG, SECCOMP_RET_TRACE, SECCOMP_RET_USER_NOTIF}) EXPECT_TRUE(May({Return(action)}, mount));
  for (uint32_t action : {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP}) EXPECT_FALSE(May({Return(action)}, mount));
}

TEST(ImageSeccomp, AProgramThatNeverEndsToBeAskedIsGivenUp) {
  std::vector<sock_filter> steps;
  for (int i = 0; i < 4000; ++i) steps.push_back(i % 2 == 0 ? Load(kArgument) : IfEqual(static_cast<uint32_t>(i), 0, 1));
  steps.push_back(Return(kDeny));
  steps.push_back(Return(kDeny));
  uint64_t budget = 1'000'000;
  EXPECT_FALSE(MayPass(Program(steps), {AUDIT_ARCH_X86_64, kMount}, &budget));
  EXPECT_GT(budget, 0U);
  budget = 100;
  EXPECT_TRUE(MayPass(Program(steps), {AUDIT_ARCH_X86_64, kMount}, &budget));
}

class ImageSeccompTest : public testing::Test {
 protected:
  ImageSeccompTest() {
    spec = {{"linux",
             {{"seccomp",
               {{"defaultAction", "SCMP_ACT_ERRNO"},
                {"architectures", {"SCMP_ARCH_X86_64"}},
                {"syscalls",
                 {{{"names", {"mmap", "read", "write"}}, {"action", "SCMP_ACT_ALLOW"}},
                  {{"names", {"clone"}},
                   {"action", "SCMP_ACT_ALLOW"},
                   {"args", {{{"index", 0}, {"value", 2114060288}, {"valueTwo", 0}, {"op", "SCMP_CMP_MASKED_EQ"}}}}}}}}}}}};
  }
  // As libseccomp makes it of that profile, with `more` calls that pass.
  static std::string Good(const std::vector<uint32_t>& more = {}, uint32_t mask = 2114060288) {
    std::vector<sock_filter> steps = {Load(kArch),
                                      IfEqual(AUDIT_ARCH_X86_64, 1, 0),
                                      Return(SECCOMP_RET_KILL_PROCESS),
                                      Load(kNumber),
                                      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
                                      Return(SECCOMP_RET_KILL_PROCESS)};
    for (uint32_t number : {0U, 1U, kMmap}) steps.insert(steps.end(), {IfEqual(number, 0, 1), Return(kAllow)});
    for (uint32_t number : more) steps.insert(steps.end(), {IfEqual(number, 0, 1), Return(kAllow)});
    steps.insert(steps.end(), {IfEqual(kClone, 0, 4), Load(kArgument), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask), IfEqual(0, 0, 1),
                               Return(kAllow), Return(kDeny)});
    return Program(steps);
  }
  Status Check(const std::vector<std::string>& chain, uint64_t flags = 0) {
    std::string all;
    for (size_t i = 0; i < chain.size(); ++i) all += Bytes(1, Bytes(1, chain[i]) + (i > 0 ? Number(2, i - 1) : "") + Number(3, flags));
    EXPECT_TRUE(WriteFileAtomically(dir / "seccomp.img", Image(0x64413049, Entry(all))).ok());
    return CheckImageSeccomp(dir.path(), spec, {{static_cast<uint32_t>(chain.size() - 1)}, shared});
  }
  void Refused(const std::vector<std::string>& chain, const std::string& why) {
    const Status status = Check(chain);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  }
  Json spec;
  std::set<uint32_t> shared;
  TempDir dir;
};

TEST_F(ImageSeccompTest, TheProfilesOwnFilterPasses) {
  EXPECT_TRUE(Check({Good()}).ok()) << Check({Good()}).message();
  EXPECT_TRUE(Check({Program({Return(kAllow)}), Good()}).ok());  // the program may have more of them
  EXPECT_TRUE(Check({Good(), Program({Return(kAllow)})}).ok());
  EXPECT_TRUE(Check({Good({425})}).ok());  // io_uring_setup: other releases of the default profile let it pass
  // containerd 2.1 refuses sockets of one family, 2.4 of more: a pod moves from the one to the other.
  spec["linux"]["seccomp"]["syscalls"].push_back(
      {{"names", {"socket"}}, {"action", "SCMP_ACT_ALLOW"}, {"args", {{{"index", 0}, {"value", 38}, {"op", "SCMP_CMP_LT"}}}}});
  EXPECT_TRUE(Check({Good({41})}).ok()) << Check({Good({41})}).message();
  spec["linux"].erase("seccomp");
  EXPECT_TRUE(Check({Program({Return(kAllow)})}).ok());
}

TEST_F(ImageSeccompTest, NoneLetsMorePass) {
  Refused({Program({Return(kAllow)})}, "pass");
  Refused({Good({kMount})}, "system call mount pass");
  Refused({Good({429})}, "system call move_mount pass");
  Refused({Good({435})}, "system call clone3 pass");
  Refused({Good({}, 2114060288 & ~kNewUser)}, "system call clone with argument 0 of 268435456");
  // For 32-bit programs alone, which the profile does not have.
  Refused({Program({Load(kArch), IfEqual(AUDIT_ARCH_X86_64, 0, 1), Return(kDeny), Load(kNumber), IfEqual(5, 0, 1), Return(kAllow),
                    Return(kDeny)})},
          "32-bit");
  Refused({Program({Load(kNumber), IfEqual(kMount | 0x40000000, 0, 1), Return(kAllow), Return(kDeny)})}, "mount (x32)");
  // By an argument that nobody would think of.
  Refused({Program({Load(kArgument + 28), IfEqual(0x12345678, 0, 1), Return(kAllow), Return(kDeny)})}, "pass");
  spec["linux"]["seccomp"]["architectures"].push_back("SCMP_ARCH_X86");
  Refused({Program({Load(kArch), IfEqual(AUDIT_ARCH_I386, 0, 3), Load(kNumber), IfEqual(21, 0, 1), Return(kAllow), Return(kDeny)})},
          "mount (32-bit)");
  spec["linux"]["seccomp"] = {{"defaultAction", "SCMP_ACT_ALLOW"}, {"syscalls", {{{"names", {"mount"}}, {"action", "SCMP_ACT_ERRNO"}}}}};
  Refused({Program({Return(kAllow)})}, "system call mount pass");
}

TEST_F(ImageSeccompTest, AChainEndsAndIsWhole) {
  EXPECT_TRUE(WriteFileAtomically(dir / "seccomp.img", Image(0x64413049, Entry(Bytes(1, Bytes(1, Good()) + Number(2, 0))))).ok());
  EXPECT_EQ(CheckImageSeccomp(dir.path(), spec, {{0}, {}}).code(), Code::kDataLoss);
  ASSERT_TRUE(Check({Good()}).ok());
  EXPECT_EQ(CheckImageSeccomp(dir.path(), spec, {{1}, {}}).code(), Code::kDataLoss);
  shared = {0};
  EXPECT_EQ(Check({Good()}).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Check({Good()}, SECCOMP_FILTER_FLAG_TSYNC).ok());
}
#endif

}  // namespace
}  // namespace holdfast::runtime
