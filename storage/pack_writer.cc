#include "storage/pack_writer.h"

#include <cstring>

#include "storage/bytes.h"

namespace holdfast::storage {
namespace {

uint64_t Aligned(uint64_t bytes) { return (bytes + kPackAlignment - 1) / kPackAlignment * kPackAlignment; }

}  // namespace

struct PackWriter::Buffer {
  // Not zeroed: only what is filled is written.
  Buffer(uint64_t at, size_t bytes) : offset(at), room(bytes), data(new std::byte[bytes]) {}
  const uint64_t offset;
  const size_t room;
  const std::unique_ptr<std::byte[]> data;
  size_t used = 0;
  int filling = 0;  // threads that encrypt into it
  bool closed = false;
};

PackWriter::PackWriter(std::unique_ptr<File> file, PackId id, std::string ns, const PackKeys& keys, PackLimits limits, BufferCount& buffers,
                       bool tight)
    : file_(std::move(file)), id_(id), ns_(std::move(ns)), keys_(keys), limits_(limits), buffers_(buffers), tight_(tight) {}

PackWriter::~PackWriter() {
  if (!filling_) return;
  buffers_.Add(-1);
  buffers_.AddBytes(-static_cast<int64_t>(filling_->used));
}

Result<std::optional<PackRecord>> PackWriter::Append(const SegmentId& id, Codec codec, uint32_t size, std::span<const std::byte> bytes) {
  PackRecord record{.id = id, .offset = 0, .stored = static_cast<uint32_t>(bytes.size()), .size = size, .codec = codec};
  const size_t need = RecordBytes(record.stored);
  std::unique_lock lock(mutex_);
  HF_RETURN_IF_ERROR(status_);
  // Each lets go of the lock: somebody else may have begun another meanwhile.
  while (filling_ && filling_->used + need > filling_->room) HF_RETURN_IF_ERROR(CloseBuffer(lock));
  if (full_) return std::optional<PackRecord>();
  const uint64_t at = filling_ ? filling_->offset + filling_->used : next_ == 0 ? kPackHeaderBytes : next_;
  if (at + need > limits_.pack_bytes && at > kPackHeaderBytes) full_ = true;
  if (records_.size() >= kMaxPackRecords - 64) full_ = true;  // other threads are on their way with some
  if (full_) return std::optional<PackRecord>();
  if (!filling_) {
    const size_t head = next_ == 0 ? kPackHeaderBytes : 0;
    filling_ = std::make_shared<Buffer>(next_, Aligned(std::max(limits_.buffer_bytes, head + need)));
    buffers_.Add(1);
    if (head > 0) memcpy(filling_->data.get(), EncodePackHeader(id_, ns_).data(), head);
    filling_->used = head;
    buffers_.AddBytes(static_cast<int64_t>(head));
  }
  const std::shared_ptr<Buffer> buffer = filling_;
  std::byte* place = buffer->data.get() + buffer->used;
  record.offset = static_cast<uint32_t>(buffer->offset + buffer->used);
  buffer->used += need;
  buffers_.AddBytes(static_cast<int64_t>(need));
  ++buffer->filling;
  if (buffers_.Many()) HF_RETURN_IF_ERROR(CloseBuffer(lock));
  lock.unlock();
  EncodeRecordHeader(record, place);
  Status sealed = Seal(keys_.records, record.offset, AsBytes(RecordAad(id_, record)), bytes,
                       std::span(place + kRecordHeaderBytes, bytes.size() + kTagBytes));
  lock.lock();
  if (!sealed.ok() && status_.ok()) status_ = sealed;
  records_.push_back(record);
  --buffer->filling;
  if (buffer->closed && buffer->filling == 0) HF_RETURN_IF_ERROR(Write(buffer, lock));
  HF_RETURN_IF_ERROR(status_);
  return std::optional<PackRecord>(record);
}

Status PackWriter::CloseBuffer(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Buffer> buffer = std::move(filling_);
  filling_ = nullptr;
  buffers_.Add(-1);
  buffer->closed = true;
  ++unwritten_;
  next_ = Aligned(buffer->offset + buffer->used);
  return buffer->filling == 0 ? Write(buffer, lock) : Status::Ok();
}

// The lock is let go meanwhile.
Status PackWriter::Write(std::shared_ptr<Buffer> buffer, std::unique_lock<std::mutex>& lock) {
  Status written = status_;
  if (written.ok()) {
    lock.unlock();
    const size_t whole = Aligned(buffer->used);
    memset(buffer->data.get() + buffer->used, 0, whole - buffer->used);
    written = file_->WriteAt(buffer->offset, std::span(buffer->data.get(), whole));
    lock.lock();
  }
  if (!written.ok() && status_.ok()) status_ = written;
  buffers_.AddBytes(-static_cast<int64_t>(buffer->used));
  --unwritten_;
  written_.notify_all();
  return status_;
}

Status PackWriter::Flush() {
  std::unique_lock lock(mutex_);
  if (filling_) HF_RETURN_IF_ERROR(CloseBuffer(lock));
  written_.wait(lock, [this] { return unwritten_ == 0; });
  return status_;
}

Status PackWriter::Finish() {
  std::unique_lock lock(mutex_);
  full_ = true;
  if (filling_) {
    Status closed = CloseBuffer(lock);
    if (!closed.ok() && status_.ok()) status_ = closed;
  }
  written_.wait(lock, [this] { return unwritten_ == 0; });
  HF_RETURN_IF_ERROR(status_);
  footer_ = EncodeFooter({.records = records_, .footer_offset = next_, .tight = tight_}, id_, ns_, keys_.index);
  file_bytes_ = next_ + footer_.size();
  status_ = file_->WriteAt(next_, AsBytes(footer_));
  if (status_.ok()) status_ = file_->Sync();
  return status_;
}

std::string PackWriter::IndexFile() const { return EncodePackHeader(id_, ns_) + footer_; }

std::vector<PackRecord> PackWriter::Records() {
  std::lock_guard lock(mutex_);
  return records_;
}

void PackWriter::Forget() {
  std::lock_guard lock(mutex_);
  file_.reset();
  records_ = {};
  footer_ = {};
}

}  // namespace holdfast::storage
