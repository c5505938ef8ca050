// The binary parts of the store's protocol (PROTOCOL.md), for both sides. A frame is one segment: id (32 bytes), codec (1), three zero
// bytes, size (4), stored bytes (4), both little endian, then the stored bytes.
#pragma once

#include <functional>
#include <string>

#include "storage/limits.h"
#include "storage/store.h"

namespace holdfast::storage {

inline constexpr char kTermHeader[] = "Holdfast-Term";  // of leadership, with a DELETE of a manifest
inline constexpr char kCodecParameter[] = "codec";      // the highest that a reader of segments knows
inline constexpr size_t kFrameHeaderBytes = 44;
inline constexpr size_t kMaxDamagedTold = 10'000, kMaxWhyBytes = 300;  // of damaged checkpoints
inline constexpr size_t kMaxDamagedBytes = kMaxDamagedTold * 2048;     // a name, and a why of which each byte became six
// A body of frames: a batch of segments, none of which compression made longer.
inline constexpr size_t kMaxFramesBytes = kBatchBytes + kMaxSegmentBytes + kBatchSegments * kFrameHeaderBytes;

std::string EncodeFrameHeader(const PutItem& item);

// Takes a body as it arrives and hands out frame after frame; keeps at most one.
class FrameParser {
 public:
  using OnFrame = std::function<Status(const PutItem& item)>;  // its bytes live until it returns
  explicit FrameParser(OnFrame on_frame) : on_frame_(std::move(on_frame)) {}
  // kInvalidArgument for what cannot be a frame; else what on_frame said.
  Status Feed(std::string_view bytes);
  Status Finish() const;  // kInvalidArgument in the middle of a frame

 private:
  Status ReadHeader();

  OnFrame on_frame_;
  std::string pending_;
  size_t wanted_ = kFrameHeaderBytes;
  bool in_header_ = true;
  size_t frames_ = 0;
  PutItem item_;
};

std::string EncodeIds(std::span<const SegmentId> ids);
Result<std::vector<SegmentId>> DecodeIds(std::string_view body);

std::string_view SessionStateName(SessionState state);
SessionState ParseSessionState(std::string_view name);

// Errors as {"code","message"} and an HTTP status.
int HttpStatusOf(Code code);
Status DecodeError(int http_status, std::string_view body);

}  // namespace holdfast::storage
