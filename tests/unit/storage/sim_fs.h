// A file system in memory that knows what was synced and what was not, fails at the operation it is told to, and can be asked what a kill
// or a power cut would have left of it. Folders are durable at once; files, names and contents are not.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "storage/fs.h"

namespace holdfast::storage {

class SimFs final : public FileSystem {
 public:
  enum class Fault { kNone, kCrash, kNoSpace, kInputOutput, kFull };
  enum class Loss { kKill, kAllUnsynced, kSomeUnsynced };

  explicit SimFs(uint64_t capacity = uint64_t{1} << 30) : capacity_(capacity) {}

  // The `at`th operation from now on (1 is the next) fails as `fault` says; after kCrash all later ones do too. kFull: none fails by
  // itself, but from there on the volume has no more room than it has used by then.
  void FailAt(uint64_t at, Fault fault) {
    std::lock_guard lock(mutex_);
    fail_at_ = steps_ + at;
    fault_ = fault;
  }
  uint64_t steps() const {
    std::lock_guard lock(mutex_);
    return steps_;
  }
  bool crashed() const {
    std::lock_guard lock(mutex_);
    return crashed_;
  }
  // The volume gets larger, or smaller: what is there stays.
  void Resize(uint64_t capacity) {
    std::lock_guard lock(mutex_);
    capacity_ = capacity;
  }
  uint64_t used() const {
    std::lock_guard lock(mutex_);
    return Used();
  }
  // Called before each write with its path, without any lock.
  void OnWrite(std::function<void(const std::string& path)> hook) { on_write_ = std::move(hook); }

  // What is there after the crash. kKill: all of it, and what was not synced still is not: a power cut may follow. kSomeUnsynced: of what
  // was not synced each write and each name by chance, writes perhaps torn.
  std::unique_ptr<SimFs> AfterCrash(Loss loss, unsigned seed) {
    std::lock_guard lock(mutex_);
    if (loss == Loss::kKill) return Clone();
    std::mt19937 random(seed);
    auto left = std::make_unique<SimFs>(capacity_);
    left->folders_ = folders_;
    Names names = durable_names_;
    if (loss == Loss::kSomeUnsynced) {
      for (const NameChange& change : unsynced_names_) {
        if (random() % 2 == 0) Apply(change, names);
      }
    }
    for (const auto& [path, inode] : names) {
      auto copy = std::make_shared<Inode>();
      copy->now = inode->durable;
      if (loss == Loss::kSomeUnsynced) {
        for (const Change& change : inode->unsynced) {
          if (random() % 2 == 0) continue;
          Change torn = change;
          if (random() % 3 == 0) torn.bytes.resize(torn.bytes.size() / 2);
          torn.Apply(copy->now);
        }
      }
      copy->durable = copy->now;
      left->names_[path] = left->durable_names_[path] = copy;
    }
    return left;
  }
  std::unique_ptr<SimFs> Copy() { return AfterCrash(Loss::kKill, 0); }

  std::vector<std::string> Files() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> paths;
    for (const auto& [path, inode] : names_) paths.push_back(path);
    return paths;
  }
  std::string& Content(const std::string& path) { return names_.at(path)->now; }

  Result<std::unique_ptr<File>> Create(const std::string& path) override {
    std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(Step("create", path, true));
    auto inode = std::make_shared<Inode>();
    ChangeName({.removed = {}, .added = {{path, inode}}});
    return std::unique_ptr<File>(std::make_unique<SimFile>(*this, inode, path));
  }
  Result<std::unique_ptr<File>> Open(const std::string& path, For) override {
    std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(Step("open", path, false));
    auto found = names_.find(path);
    if (found == names_.end()) return Status(Code::kNotFound, "there is no " + path);
    return std::unique_ptr<File>(std::make_unique<SimFile>(*this, found->second, path));
  }
  Status Rename(const std::string& from, const std::string& to) override {
    std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(Step("rename", from, true));
    auto found = names_.find(from);
    if (found == names_.end()) return Status(Code::kNotFound, "there is no " + from);
    ChangeName({.removed = {from}, .added = {{to, found->second}}});
    return Status::Ok();
  }
  Status Remove(const std::string& path) override {
    std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(Step("remove", path, false));
    if (names_.contains(path)) ChangeName({.removed = {path}, .added = {}});
    return Status::Ok();
  }
  Status MakeDir(const std::string& path) override {
    std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(Step("make", path, true));
    folders_.insert(path);
    return Status::Ok();
  }
  Status SyncDir(const std::string& path) override {
    std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(Step("sync", path, false));
    std::erase_if(unsynced_names_, [&](const NameChange& change) {
      if (!change.Touches(path)) return false;
      Apply(change, durable_names_);
      return true;
    });
    return Status::Ok();
  }
  Result<std::vector<std::string>> List(const std::string& path) override {
    std::lock_guard lock(mutex_);
    HF_RETURN_IF_ERROR(Step("list", path, false));
    if (!folders_.contains(path)) return Status(Code::kNotFound, "there is no " + path);
    std::set<std::string> names;
    auto add = [&](const std::string& full) {
      if (full.starts_with(path + "/")) names.insert(full.substr(path.size() + 1, full.find('/', path.size() + 1) - path.size() - 1));
    };
    for (const std::string& folder : folders_) add(folder);
    for (const auto& [file, inode] : names_) add(file);
    return std::vector<std::string>(names.begin(), names.end());
  }
  Result<Space> FreeSpace(const std::string&) override {
    std::lock_guard lock(mutex_);
    return Space{.total = capacity_, .free = capacity_ - std::min(capacity_, Used())};
  }
  Result<std::unique_ptr<FileLock>> Lock(const std::string&) override { return std::make_unique<FileLock>(); }

 private:
  struct Change {
    uint64_t offset = 0;
    std::string bytes;
    bool cut = false;  // to `offset` bytes
    void Apply(std::string& content) const {
      if (cut) {
        content.resize(offset);
        return;
      }
      if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size());
      content.replace(offset, bytes.size(), bytes);
    }
  };
  struct Inode {
    std::string now, durable;
    std::vector<Change> unsynced;
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  struct NameChange {
    std::vector<std::string> removed;
    std::vector<std::pair<std::string, std::shared_ptr<Inode>>> added;
    bool Touches(const std::string& folder) const {
      auto in = [&](const std::string& path) { return path.substr(0, path.rfind('/')) == folder; };
      for (const auto& path : removed) {
        if (in(path)) return true;
      }
      for (const auto& [path, inode] : added) {
        if (in(path)) return true;
      }
      return false;
    }
  };

  class SimFile final : public File {
   public:
    SimFile(SimFs& fs, std::shared_ptr<Inode> inode, std::string path) : fs_(fs), inode_(std::move(inode)), path_(std::move(path)) {}
    Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
      if (fs_.on_write_) fs_.on_write_(path_);
      std::lock_guard lock(fs_.mutex_);
      HF_RETURN_IF_ERROR(fs_.Step("write", path_, true));
      if (fs_.Used() + bytes.size() > fs_.capacity_ && offset + bytes.size() > inode_->now.size())
        return Status(Code::kResourceExhausted, "cannot write " + path_ + ": the volume is full");
      Do({.offset = offset, .bytes = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
      return Status::Ok();
    }
    Status ReadAt(uint64_t offset, std::span<std::byte> bytes) const override {
      std::lock_guard lock(fs_.mutex_);
      HF_RETURN_IF_ERROR(fs_.Step("read", path_, false));
      if (offset + bytes.size() > inode_->now.size()) return Status(Code::kDataLoss, path_ + " is cut short");
      memcpy(bytes.data(), inode_->now.data() + offset, bytes.size());
      return Status::Ok();
    }
    Status Truncate(uint64_t bytes) override {
      std::lock_guard lock(fs_.mutex_);
      HF_RETURN_IF_ERROR(fs_.Step("cut", path_, true));
      Do({.offset = bytes, .bytes = "", .cut = true});
      return Status::Ok();
    }
    Status Allocate(uint64_t bytes) override {
      std::lock_guard lock(fs_.mutex_);
      HF_RETURN_IF_ERROR(fs_.Step("allocate", path_, true));
      if (fs_.Used() + bytes > fs_.capacity_) return Status(Code::kResourceExhausted, "the volume is full");
      Do({.offset = bytes, .bytes = "", .cut = true});
      return Status::Ok();
    }
    Status Sync() override {
      std::lock_guard lock(fs_.mutex_);
      HF_RETURN_IF_ERROR(fs_.Step("sync", path_, true));
      inode_->durable = inode_->now;
      inode_->unsynced.clear();
      return Status::Ok();
    }
    Result<uint64_t> Size() const override {
      std::lock_guard lock(fs_.mutex_);
      return inode_->now.size();
    }

   private:
    void Do(Change change) {
      change.Apply(inode_->now);
      inode_->unsynced.push_back(std::move(change));
    }
    SimFs& fs_;
    const std::shared_ptr<Inode> inode_;
    const std::string path_;
  };

  static void Apply(const NameChange& change, Names& names) {
    for (const std::string& path : change.removed) names.erase(path);
    for (const auto& [path, inode] : change.added) names[path] = inode;
  }
  void ChangeName(NameChange change) {
    Apply(change, names_);
    unsynced_names_.push_back(std::move(change));
  }
  // Locked.
  std::unique_ptr<SimFs> Clone() {
    auto clone = std::make_unique<SimFs>(capacity_);
    std::map<const Inode*, std::shared_ptr<Inode>> copies;
    auto copy_of = [&](std::shared_ptr<Inode>& inode) {
      std::shared_ptr<Inode>& copy = copies[inode.get()];
      if (!copy) copy = std::make_shared<Inode>(*inode);
      inode = copy;
    };
    clone->folders_ = folders_;
    clone->names_ = names_;
    clone->durable_names_ = durable_names_;
    clone->unsynced_names_ = unsynced_names_;
    for (auto& [path, inode] : clone->names_) copy_of(inode);
    for (auto& [path, inode] : clone->durable_names_) copy_of(inode);
    for (NameChange& change : clone->unsynced_names_) {
      for (auto& [path, inode] : change.added) copy_of(inode);
    }
    return clone;
  }
  uint64_t Used() const {
    uint64_t used = 0;
    for (const auto& [path, inode] : names_) used += inode->now.size();
    return used;
  }
  // Locked. `takes_space`: what a full volume refuses.
  Status Step(const char* what, const std::string& path, bool takes_space) {
    ++steps_;
    if (steps_ == fail_at_ && fault_ == Fault::kCrash) crashed_ = true;
    if (steps_ == fail_at_ && fault_ == Fault::kFull) capacity_ = Used();
    if (crashed_) return Status(Code::kInternal, "the machine is off");
    if (steps_ == fail_at_ && fault_ == Fault::kInputOutput)
      return Status(Code::kInternal, std::string("cannot ") + what + " " + path + ": input/output error");
    if (steps_ == fail_at_ && fault_ == Fault::kNoSpace && takes_space)
      return Status(Code::kResourceExhausted, std::string("cannot ") + what + " " + path + ": no space left on device");
    return Status::Ok();
  }

  uint64_t capacity_;
  mutable std::mutex mutex_;
  std::function<void(const std::string&)> on_write_;
  uint64_t steps_ = 0, fail_at_ = 0;
  Fault fault_ = Fault::kNone;
  bool crashed_ = false;
  std::set<std::string> folders_;
  Names names_, durable_names_;
  std::vector<NameChange> unsynced_names_;
};

}  // namespace holdfast::storage
