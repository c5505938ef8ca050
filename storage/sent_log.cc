#include "storage/sent_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "storage/hash.h"
#include "storage/limits.h"

namespace holdfast::storage {
namespace {

constexpr std::string_view kHead("HFSENT01\0\0\0\0\0\0\0\0", 16);
constexpr size_t kEntryBytes = 80, kPathHashBytes = 16, kSumAt = 68;

std::string SumOf(std::string_view text, size_t bytes) {
  StreamHash hash;
  hash.Add(AsBytes(text));
  const std::array<uint8_t, 32> sum = hash.Sum();
  return std::string(AsText(sum).substr(0, bytes));
}

std::string Encode(const std::string& path, uint64_t offset, const LeafRef& leaf) {
  std::string entry = SumOf(path, kPathHashBytes);
  AppendInteger(offset, entry);
  AppendInteger(leaf.bytes, entry);
  AppendInteger(leaf.size, entry);
  entry += AsText(leaf.id.bytes);
  return entry + SumOf(entry, kEntryBytes - kSumAt);
}

Status Failed(const std::string& what, const std::string& path) {
  const Code code = errno == ENOSPC || errno == EDQUOT ? Code::kResourceExhausted : Code::kInternal;
  return {code, "cannot " + what + " " + path + ": " + std::generic_category().message(errno)};
}

}  // namespace

SentLog::~SentLog() = default;

Result<std::unique_ptr<SentLog>> SentLog::Open(const std::string& path, const Descriptor& folder, Session& session,
                                               uint64_t punch_every_bytes) {
  std::unique_ptr<SentLog> log(new SentLog(path, folder, session, punch_every_bytes));
  HF_RETURN_IF_ERROR(log->Load());
  std::vector<SegmentId> leaves;
  for (const auto& [key, leaf] : log->known_) leaves.push_back(leaf.id);
  for (size_t at = 0; at < leaves.size(); at += kBatchSegments) {
    const auto some = std::span(leaves).subspan(at, std::min(kBatchSegments, leaves.size() - at));
    HF_ASSIGN_OR_RETURN(std::vector<bool> missing, session.Secure(some));
    for (size_t i = 0; i < missing.size(); ++i) {
      if (missing[i])
        return Status(Code::kDataLoss, "the store has lost the list of segments " + some[i].Hex() +
                                           ", which it had said was durable; it is not here any more");
    }
  }
  return log;
}

Status SentLog::Load() {
  fd_ = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat info;
  if (fd_.get() < 0 || fstat(fd_.get(), &info) != 0) return Failed("open", path_);
  const auto size = static_cast<uint64_t>(info.st_size);
  std::string head(std::min<uint64_t>(size, kHead.size()), '\0');
  HF_RETURN_IF_ERROR(ReadAt(fd_.get(), std::as_writable_bytes(std::span(head)), 0, path_));
  end_ = kHead.size();
  if (size < kHead.size()) {
    HF_RETURN_IF_ERROR(WriteAt(fd_.get(), AsBytes(kHead), 0, path_));
    if (fdatasync(fd_.get()) != 0) return Failed("sync", path_);
    return SyncDir(path_.substr(0, path_.rfind('/')));
  }
  // Read as if there were none, holes would be stored as zeros.
  if (head != kHead) return Status(Code::kDataLoss, path_ + " does not begin as a list of what was sent");
  std::string entry(kEntryBytes, '\0');
  for (; end_ + kEntryBytes <= size && known_.size() < kMaxReferences; end_ += kEntryBytes) {
    HF_RETURN_IF_ERROR(ReadAt(fd_.get(), std::as_writable_bytes(std::span(entry)), end_, path_));
    if (entry.substr(kSumAt) != SumOf(std::string_view(entry).substr(0, kSumAt), kEntryBytes - kSumAt)) break;
    LeafRef leaf{.id = {}, .size = GetInteger<uint32_t>(&entry[32]), .bytes = GetInteger<uint64_t>(&entry[24])};
    memcpy(leaf.id.bytes.data(), &entry[36], leaf.id.bytes.size());
    known_[{entry.substr(0, kPathHashBytes), GetInteger<uint64_t>(&entry[16])}] = leaf;
  }
  return ftruncate(fd_.get(), static_cast<off_t>(end_)) == 0 ? Status::Ok() : Failed("cut the end off", path_);
}

std::optional<LeafRef> SentLog::Find(const std::string& path, uint64_t offset) const {
  if (known_.empty()) return std::nullopt;
  auto found = known_.find({SumOf(path, kPathHashBytes), offset});
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void SentLog::Sent(const std::string& path, uint64_t offset, const LeafRef& leaf, std::vector<SegmentId> ids) {
  ids.push_back(leaf.id);
  {
    std::lock_guard lock(mutex_);
    if (over_) return;
    waiting_.push_back({.path = path, .offset = offset, .leaf = leaf, .ids = std::move(ids)});
    waiting_bytes_ += leaf.bytes;
    if (waiting_bytes_ < every_) return;
  }
  Flush();
}

void SentLog::Flush() {
  std::lock_guard round(round_mutex_);
  std::vector<Part> parts;
  {
    std::lock_guard lock(mutex_);
    parts = std::exchange(waiting_, {});
    waiting_bytes_ = 0;
    if (over_ || parts.empty()) return;
  }
  Status status = Secure(std::move(parts));
  if (status.ok()) return;
  LogWarning("what is read of the landing folder stays there until the checkpoint is stored", {{"why", status.ToString()}});
  std::lock_guard lock(mutex_);
  over_ = true;
}

Status SentLog::Secure(std::vector<Part> parts) {
  std::vector<SegmentId> ids;
  for (const Part& part : parts) ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  std::vector<bool> missing;
  for (size_t at = 0; at < ids.size(); at += kBatchSegments) {
    HF_ASSIGN_OR_RETURN(std::vector<bool> some, session_.Secure(std::span(ids).subspan(at, std::min(kBatchSegments, ids.size() - at))));
    missing.insert(missing.end(), some.begin(), some.end());
  }
  if (missing.size() != ids.size()) return Status(Code::kInternal, "the store answered for another number of segments");
  // What the store lacks all the same is for the commit to say; it can be read once more.
  size_t at = 0;
  std::erase_if(parts, [&](const Part& part) {
    const size_t begin = std::exchange(at, at + part.ids.size());
    return std::find(missing.begin() + static_cast<ptrdiff_t>(begin), missing.begin() + static_cast<ptrdiff_t>(at), true) !=
           missing.begin() + static_cast<ptrdiff_t>(at);
  });
  HF_RETURN_IF_ERROR(Write(parts));
  HF_FAULT_POINT("ingest.sent_logged");
  for (const Part& part : parts) HF_RETURN_IF_ERROR(Punch(part));
  HF_FAULT_POINT("ingest.punched");
  return Status::Ok();
}

Status SentLog::Write(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) text += Encode(part.path, part.offset, part.leaf);
  HF_RETURN_IF_ERROR(WriteAt(fd_.get(), AsBytes(text), end_, path_));
  if (fdatasync(fd_.get()) != 0) return Failed("sync", path_);
  end_ += text.size();
  return Status::Ok();
}

Status SentLog::Punch(const Part& part) {
  HF_ASSIGN_OR_RETURN(Descriptor file, OpenBelow(folder_, part.path, O_RDWR));
  struct stat info;
  if (fstat(file.get(), &info) != 0 || info.st_nlink != 1) return Status::Ok();  // somebody else has it too
  if (fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(part.offset),
                static_cast<off_t>(part.leaf.bytes)) != 0)
    return Failed("punch a hole into", part.path);
  return Status::Ok();
}

}  // namespace holdfast::storage
