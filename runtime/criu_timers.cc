#include "runtime/criu_timers.h"

#include <sys/timerfd.h>

#include <functional>

#include "base/file.h"
#include "base/protobuf.h"
#include "runtime/criu_entries.h"

namespace holdfast::runtime {
namespace {

using protobuf::Field;
using protobuf::ReadField;
using protobuf::WriteBytes;
using protobuf::WriteNumber;

constexpr size_t kMaxImage = 256 << 20;
constexpr uint64_t kNever = 30ULL * 365 * 24 * 3600;      // seconds
constexpr uint32_t kTimerfd = 12;                         // file_entry.tfd (images/fdinfo.proto)
constexpr uint32_t kTask = 3, kTimers = 7, kItimers = 3;  // core_entry.tc, task_core_entry.timers, task_timers_entry.real to prof
constexpr uint32_t kSettimeFlags = 6;                     // timerfd_entry (images/timerfd.proto)
constexpr uint32_t kFdSec = 7, kFdNsec = 8, kFdISec = 9, kFdINsec = 10;
constexpr uint32_t kISec = 1, kIUsec = 2, kSec = 3, kUsec = 4;  // itimer_entry (images/timer.proto)

// Whether the number `first` or `second` is there and not 0. False: damaged.
bool AnySet(std::string_view message, uint32_t first, uint32_t second, bool* any) {
  *any = false;
  for (Field field; !message.empty();) {
    if (!ReadField(&message, &field)) return false;
    if ((field.number == first || field.number == second) && field.value != 0) *any = true;
  }
  return true;
}

// Appends `message` to `out` with the number `field` replaced.
bool Replace(std::string_view message, uint32_t number, const std::function<uint64_t(uint64_t)>& replacement, std::string* out) {
  for (Field field; !message.empty();) {
    if (!ReadField(&message, &field)) return false;
    if (field.number == number && field.wire == 0) {
      WriteNumber(out, number, replacement(field.value));
    } else {
      out->append(field.whole);
    }
  }
  return true;
}

// Appends `message` to `out` with its sub-messages `first` to `last` rewritten.
bool Inside(std::string_view message, uint32_t first, uint32_t last, bool (*rewrite)(std::string_view, std::string*), std::string* out) {
  for (Field field; !message.empty();) {
    if (!ReadField(&message, &field)) return false;
    if (field.wire == 2 && field.number >= first && field.number <= last) {
      std::string inner;
      if (!rewrite(field.content, &inner)) return false;
      WriteBytes(out, field.number, inner);
    } else {
      out->append(field.whole);
    }
  }
  return true;
}

bool MendTimerfd(std::string_view timer, std::string* out) {
  bool left, periodic;
  if (!AnySet(timer, kFdSec, kFdNsec, &left) || !AnySet(timer, kFdISec, kFdINsec, &periodic)) return false;
  if (!left && periodic)
    return Replace(
        timer, kFdNsec, [](uint64_t) { return 1; }, out);
  if (!left)
    return Replace(
        timer, kSettimeFlags, [](uint64_t flags) { return flags & ~uint64_t{TFD_TIMER_ABSTIME}; }, out);
  out->append(timer);
  return true;
}

bool MendItimer(std::string_view timer, std::string* out) {
  bool left, periodic;
  if (!AnySet(timer, kSec, kUsec, &left) || !AnySet(timer, kISec, kIUsec, &periodic)) return false;
  if (left && !periodic)
    return Replace(
        timer, kISec, [](uint64_t) { return kNever; }, out);
  out->append(timer);
  return true;
}

bool MendTimersOfTask(std::string_view timers, std::string* out) { return Inside(timers, 1, kItimers, MendItimer, out); }
bool MendTask(std::string_view task, std::string* out) { return Inside(task, kTimers, kTimers, MendTimersOfTask, out); }
bool MendCore(std::string_view core, std::string* out) { return Inside(core, kTask, kTask, MendTask, out); }
bool MendFile(std::string_view file, std::string* out) { return Inside(file, kTimerfd, kTimerfd, MendTimerfd, out); }

Status Mend(const std::string& path, uint32_t magic, bool (*rewrite)(std::string_view, std::string*)) {
  HF_ASSIGN_OR_RETURN(const std::string image, ReadFile(path, kMaxImage));
  const std::optional<std::string> mended = RewriteEntries(image, magic, rewrite);
  if (!mended) return Status(Code::kDataLoss, path + " is damaged or of another CRIU");
  return *mended == image ? Status::Ok() : WriteFileAtomically(path, *mended);
}

}  // namespace

Status MendTimers(const std::string& images) {
  HF_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(images));
  for (const std::string& name : names) {
    const std::string path = images + "/" + name;
    if (name == "files.img") HF_RETURN_IF_ERROR(Mend(path, kFilesMagic, MendFile));
    if (name.starts_with("core-")) HF_RETURN_IF_ERROR(Mend(path, kCoreMagic, MendCore));
  }
  return Status::Ok();
}

}  // namespace holdfast::runtime
