// What every store does the same way, and the checks of ids that become file names.
#include "storage/store.h"

#include <algorithm>

#include "storage/limits.h"

namespace holdfast::storage {

Status Session::PutMany(std::span<const PutItem> items) {
  for (const PutItem& item : items) HF_RETURN_IF_ERROR(Put(item.id, item.codec, item.size, item.bytes));
  return Status::Ok();
}

Status Session::Hold(const std::string&) { return {Code::kUnsupported, "this store holds no checkpoint for a session"}; }

Result<std::vector<bool>> Session::Secure(std::span<const SegmentId>) {
  return Status(Code::kUnsupported, "this store does not say what is durable before a commit");
}

Status Store::GetSegments(const std::string& manifest, std::span<const SegmentRef> segments, const SegmentSink& sink) {
  for (size_t i = 0; i < segments.size(); ++i) {
    HF_ASSIGN_OR_RETURN(std::string content, GetSegment(manifest, segments[i]));
    HF_RETURN_IF_ERROR(sink(i, std::as_bytes(std::span(content))));
  }
  return Status::Ok();
}

Result<std::array<uint8_t, 32>> Store::HashKeyOf(const std::string&) {
  return Status(Code::kUnsupported, "this store keeps its hash keys to itself");
}

Status Store::Abort(const std::string& id, const std::string& ns) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, OpenSession(id, ns));
  return session->Abort();
}

Status CheckId(std::string_view id, std::string_view what) {
  auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  if (!id.empty() && id.size() <= 200 && id[0] != '.' && !id.ends_with(".tmp") && std::all_of(id.begin(), id.end(), good))
    return Status::Ok();
  return Status(Code::kInvalidArgument,
                "the " + std::string(what) + " has 1 to 200 of a-z A-Z 0-9 . _ - and neither starts with a dot nor ends in .tmp");
}

}  // namespace holdfast::storage
