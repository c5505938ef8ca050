#include "base/status.h"

namespace holdfast {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "Ok";
    case Code::kCancelled:
      return "Cancelled";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kDeadlineExceeded:
      return "DeadlineExceeded";
    case Code::kNotFound:
      return "NotFound";
    case Code::kAlreadyExists:
      return "AlreadyExists";
    case Code::kConflict:
      return "Conflict";
    case Code::kGone:
      return "Gone";
    case Code::kPermissionDenied:
      return "PermissionDenied";
    case Code::kUnauthenticated:
      return "Unauthenticated";
    case Code::kResourceExhausted:
      return "ResourceExhausted";
    case Code::kFailedPrecondition:
      return "FailedPrecondition";
    case Code::kUnavailable:
      return "Unavailable";
    case Code::kUnsupported:
      return "Unsupported";
    case Code::kDataLoss:
      return "DataLoss";
    case Code::kInternal:
      return "Internal";
  }
  return "Unknown";
}

std::string Status::ToString() const {
  if (ok()) return "Ok";
  return std::string(CodeName(code_)) + ": " + message_;
}

Status Status::With(std::string_view context) const {
  if (ok()) return *this;
  Status with(code_, std::string(context) + ": " + message_);
  with.terminal_ = terminal_;
  return with;
}

Status Status::Terminal() const {
  Status marked = *this;
  marked.terminal_ = !ok();
  return marked;
}

}  // namespace holdfast
