#include "base/fence.h"

#include <charconv>

#include "base/file.h"

namespace holdfast {

Result<std::unique_ptr<Fence>> Fence::Open(std::string path) {
  int64_t highest = 0;
  Result<std::string> text = ReadFile(path, 64);
  if (text.ok()) {
    const char* end = text->data() + text->size();
    auto [stopped, error] = std::from_chars(text->data(), end, highest);
    if (error != std::errc() || stopped != end || highest < 0) {
      return Status(Code::kDataLoss, path + " does not hold a term of leadership; remove it if no two controllers can run");
    }
  } else if (text.status().code() != Code::kNotFound) {
    return text.status();
  }
  return std::unique_ptr<Fence>(new Fence(std::move(path), highest));
}

Status Fence::Admit(int64_t term) {
  std::lock_guard lock(mutex_);
  if (term == 0 || term == highest_) return Status::Ok();
  if (term < highest_) {
    return {Code::kFailedPrecondition,
            "term " + std::to_string(term) + " of leadership is over: a leader of term " + std::to_string(highest_) + " has acted since"};
  }
  HF_RETURN_IF_ERROR(WriteFileDurably(path_, std::to_string(term)));
  highest_ = term;
  return Status::Ok();
}

}  // namespace holdfast
