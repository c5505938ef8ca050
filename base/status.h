// Errors as values. A Status has a code for the program, and one line for the person who reads it: what failed, where, why, and what to
// do. A Result<T> is a T or the Status that says why there is none. Exceptions stay inside library edges.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace holdfast {

enum class Code {
  kOk,
  kCancelled,         // the caller asked to stop
  kInvalidArgument,   // the input is wrong and will stay wrong
  kDeadlineExceeded,  // out of time; the effect is unknown
  kNotFound,
  kAlreadyExists,
  kConflict,  // optimistic lock lost: read again
  kGone,      // HTTP 410: the resource version is too old
  kPermissionDenied,
  kUnauthenticated,
  kResourceExhausted,   // full, over quota, or HTTP 429
  kFailedPrecondition,  // the world is not in the state that this needs
  kUnavailable,         // the peer is not there or failed; trying again may help
  kUnsupported,         // can never work here, the message says why
  kDataLoss,            // stored bytes are not what they were
  kInternal,
};

std::string_view CodeName(Code code);  // "NotFound"

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;  // "NotFound: pod default/web-0 does not exist"
  // The same code with `context` and ": " before the message.
  Status With(std::string_view context) const;
  // The same, marked: trying again cannot help, so whoever retries errors gives this one up. With keeps the mark.
  Status Terminal() const;
  bool terminal() const { return terminal_; }

 private:
  Code code_ = Code::kOk;
  bool terminal_ = false;
  std::string message_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor); must not be OK

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T value_or(T other) const { return value_ ? *value_ : std::move(other); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace holdfast

#define HF_CONCAT_(a, b) a##b
#define HF_CONCAT(a, b) HF_CONCAT_(a, b)
#define HF_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::holdfast::Status hf_status_ = (expr);  \
    if (!hf_status_.ok()) return hf_status_; \
  } while (0)
#define HF_ASSIGN_OR_RETURN(lhs, expr) HF_ASSIGN_OR_RETURN_(HF_CONCAT(hf_result_, __LINE__), lhs, expr)
// `lhs` may be a declaration, which no parentheses go around.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define HF_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                         \
  if (!result.ok()) return result.status();     \
  lhs = std::move(*result)
// NOLINTEND(bugprone-macro-parentheses)
