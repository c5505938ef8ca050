#include "storage/wire.h"

#include <algorithm>
#include <cstring>

#include "storage/bytes.h"
#include "storage/codec.h"

namespace holdfast::storage {
namespace {

constexpr std::pair<SessionState, std::string_view> kStates[] = {{SessionState::kUnknown, "unknown"},
                                                                 {SessionState::kOpen, "open"},
                                                                 {SessionState::kCommitted, "committed"},
                                                                 {SessionState::kAborted, "aborted"}};

constexpr std::pair<Code, int> kHttp[] = {
    {Code::kInvalidArgument, 400}, {Code::kUnauthenticated, 401}, {Code::kPermissionDenied, 403},   {Code::kNotFound, 404},
    {Code::kAlreadyExists, 409},   {Code::kConflict, 409},        {Code::kFailedPrecondition, 412}, {Code::kGone, 410},
    {Code::kDataLoss, 422},        {Code::kUnsupported, 501},     {Code::kResourceExhausted, 507},  {Code::kUnavailable, 503},
    {Code::kDeadlineExceeded, 504}};

}  // namespace

std::string EncodeFrameHeader(const PutItem& item) {
  std::string header(reinterpret_cast<const char*>(item.id.bytes.data()), item.id.bytes.size());
  header.push_back(static_cast<char>(item.codec));
  header.append(3, '\0');
  AppendInteger(item.size, header);
  AppendInteger(static_cast<uint32_t>(item.bytes.size()), header);
  return header;
}

Status FrameParser::ReadHeader() {
  if (++frames_ > kBatchSegments)
    return Status(Code::kInvalidArgument, "more than " + std::to_string(kBatchSegments) + " segments in one body");
  memcpy(item_.id.bytes.data(), pending_.data(), item_.id.bytes.size());
  const uint32_t stored = GetInteger<uint32_t>(pending_.data() + 40);
  item_.size = GetInteger<uint32_t>(pending_.data() + 36);
  HF_RETURN_IF_ERROR(CheckEncoding(static_cast<uint8_t>(pending_[32]), item_.size, stored));
  item_.codec = static_cast<Codec>(pending_[32]);
  wanted_ = stored;
  return Status::Ok();
}

Status FrameParser::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const bool whole = !in_header_ && pending_.empty() && bytes.size() >= wanted_;
    if (whole) {  // without a copy
      item_.bytes = std::as_bytes(std::span(bytes.data(), wanted_));
      bytes.remove_prefix(wanted_);
    } else {
      const size_t take = std::min(bytes.size(), wanted_ - pending_.size());
      if (pending_.empty()) pending_.reserve(wanted_);
      pending_.append(bytes.substr(0, take));
      bytes.remove_prefix(take);
      if (pending_.size() < wanted_) return Status::Ok();
      item_.bytes = std::as_bytes(std::span(pending_));
    }
    if (in_header_) {
      HF_RETURN_IF_ERROR(ReadHeader());
    } else {
      HF_RETURN_IF_ERROR(on_frame_(item_));
      wanted_ = kFrameHeaderBytes;
    }
    pending_.clear();
    in_header_ = !in_header_;
  }
  return Status::Ok();
}

Status FrameParser::Finish() const {
  if (in_header_ && pending_.empty()) return Status::Ok();
  return Status(Code::kInvalidArgument, "the body ends in the middle of a segment");
}

std::string EncodeIds(std::span<const SegmentId> ids) {
  std::string body;
  body.reserve(ids.size() * 32);
  for (const SegmentId& id : ids) body.append(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
  return body;
}

Result<std::vector<SegmentId>> DecodeIds(std::string_view body) {
  if (body.size() % 32 != 0 || body.size() > kBatchSegments * 32) {
    return Status(Code::kInvalidArgument, "the body has up to " + std::to_string(kBatchSegments) + " segment ids of 32 bytes");
  }
  std::vector<SegmentId> ids(body.size() / 32);
  for (size_t i = 0; i < ids.size(); ++i) memcpy(ids[i].bytes.data(), body.data() + 32 * i, 32);
  return ids;
}

std::string_view SessionStateName(SessionState state) {
  for (const auto& [value, name] : kStates) {
    if (value == state) return name;
  }
  return "unknown";
}

SessionState ParseSessionState(std::string_view name) {
  for (const auto& [value, text] : kStates) {
    if (text == name) return value;
  }
  return SessionState::kUnknown;
}

int HttpStatusOf(Code code) {
  for (const auto& [value, status] : kHttp) {
    if (value == code) return status;
  }
  return 500;
}

Status DecodeError(int http_status, std::string_view body) {
  Result<Json> json = ParseJson(body.substr(0, 64 << 10));
  const std::string name = json.ok() ? GetString(*json, {"code"}) : "";
  const std::string message = json.ok() ? GetString(*json, {"message"}) : "";
  for (const auto& [code, status] : kHttp) {
    if (CodeName(code) == name) return Status(code, message);
  }
  if (name == CodeName(Code::kInternal)) return Status(Code::kInternal, message);
  // Not our server's words: a proxy's, or a server's that is going away.
  for (const auto& [code, status] : kHttp) {
    if (status == http_status) return Status(code, "HTTP " + std::to_string(http_status));
  }
  return Status(http_status >= 500 || http_status == 429 ? Code::kUnavailable : Code::kInternal, "HTTP " + std::to_string(http_status));
}

}  // namespace holdfast::storage
