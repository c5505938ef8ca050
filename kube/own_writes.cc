#include "kube/own_writes.h"

#include <algorithm>

#include "base/per_thread.h"

namespace holdfast::kube {
namespace {

constexpr size_t kSweepAtLeast = 1024;

const PerThread<OwnWrites::Scope> t_scope;

}  // namespace

void NoteWrite(const Resource& resource, const Json& written) {
  if (OwnWrites::Scope* scope = t_scope.get()) scope->Note(resource, written);
}

void OwnWrites::Scope::Note(const Resource& resource, const Json& written) {
  const std::string collection = resource.Path("");
  if (!writes_.caches_.contains(collection)) return;
  const std::string version = GetString(written, {"metadata", "resourceVersion"});
  if (version.empty()) return;
  std::string& newest = versions_[collection];
  if (newest.empty() || IsOlderVersion(newest, version)) newest = version;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): moved, unless the collection is known
void OwnWrites::AddCache(const std::string& collection, WaitForVersion wait) { caches_.try_emplace(collection, std::move(wait)); }

bool OwnWrites::Await(const std::string& key, std::stop_token stop) {
  Written written;
  {
    std::lock_guard lock(mutex_);
    if (written_.empty()) return true;
    auto found = written_.find(key);
    if (found == written_.end()) return true;
    written = std::move(found->second);
    written_.erase(found);
  }
  bool all = true;
  for (const auto& [collection, version] : written.versions) {
    const Duration left = std::max(written.until - clock_.Mono(), Duration(0));
    all = caches_.at(collection)(version, left, stop) && all;
  }
  return all;
}

void OwnWrites::Keep(const std::string& key, std::map<std::string, std::string> versions) {
  const MonoTime now = clock_.Mono();
  std::lock_guard lock(mutex_);
  if (written_.size() >= sweep_at_) {
    std::erase_if(written_, [now](const auto& entry) { return entry.second.until <= now; });
    sweep_at_ = std::max(kSweepAtLeast, written_.size() * 2);
  }
  written_[key] = {std::move(versions), now + patience_};
}

size_t OwnWrites::size() const {
  std::lock_guard lock(mutex_);
  return written_.size();
}

OwnWrites::Scope::Scope(OwnWrites& writes, const std::string& key) : writes_(writes), key_(key) { t_scope.set(this); }

OwnWrites::Scope::~Scope() {
  t_scope.set(nullptr);
  if (!versions_.empty()) writes_.Keep(key_, std::move(versions_));
}

}  // namespace holdfast::kube
