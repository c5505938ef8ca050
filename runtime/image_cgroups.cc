#include "runtime/image_cgroups.h"

#include <sstream>

#include "base/file.h"
#include "runtime/criu_entries.h"
#include "runtime/image_check.h"

namespace holdfast::runtime {
namespace {

using protobuf::Field;

constexpr char kName[] = "cgroup.img";
constexpr int kMaxDepth = 64;
// images/cgroup.proto
constexpr uint32_t kSets = 1, kControllers = 2, kMembers = 2, kMemberName = 1, kMemberPath = 2, kMemberPrefix = 3;
constexpr uint32_t kNames = 1, kDirs = 2, kDirName = 1, kChildren = 2, kProperties = 3, kDirOwner = 4, kPropertyName = 1, kOwner = 3;

struct Member {
  std::string name, path;
  uint64_t prefix = 0;
};

// `what` stays empty when it is as it should be. False: damaged.
class Checker {
 public:
  explicit Checker(const std::set<std::string>& hierarchies) : hierarchies_(hierarchies) {}
  const std::string& what() const { return what_; }

  bool Read(std::string_view entry) {
    Message cgroups;
    if (!cgroups.Read(entry, Repeated(kSets) | Repeated(kControllers))) return false;
    for (const Field& field : cgroups.fields()) {
      if (field.number == kSets && !ReadSet(field.content)) return false;
    }
    for (const Field& field : cgroups.fields()) {
      if (field.number == kControllers && !ReadController(field.content)) return false;
    }
    for (const Member& member : members_) {
      if (own_.count(member.name + member.path) == 0) Say("cgroup " + member.path + " is joined, which is not the container's own");
    }
    return true;
  }

 private:
  void Say(const std::string& what) {
    if (what_.empty()) what_ = Shown(what);
  }

  bool ReadSet(std::string_view bytes) {
    Message set;
    if (!set.Read(bytes, Repeated(kMembers))) return false;
    for (const Field& field : set.fields()) {
      if (field.number != kMembers) continue;
      Message message;
      Member member;
      if (!message.Read(field.content) || !message.Text(kMemberName, &member.name) || !message.Text(kMemberPath, &member.path))
        return false;
      member.prefix = message.Word(kMemberPrefix);
      if (!IsPlainPath(member.path)) Say("cgroup " + member.path + " is joined");
      members_.push_back(std::move(member));
    }
    return true;
  }

  bool ReadController(std::string_view bytes) {
    Message controller;
    if (!controller.Read(bytes, Repeated(kNames) | Repeated(kDirs))) return false;
    std::set<std::string> names;
    for (const Field& field : controller.fields()) {
      if (field.number == kNames) names.emplace(field.content);
    }
    for (const std::string& name : names) {
      if (hierarchies_.count(name) == 0)
        Say("the cgroups of " + (name.empty() ? "cgroup v2" : name) + " are named, which this node has not");
    }
    if (names.empty()) Say("cgroups of no controller are named");
    for (const Field& field : controller.fields()) {
      std::string top;
      if (field.number != kDirs) continue;
      if (!ReadDir(field.content, 0, &top)) return false;
      CheckMembers(names, top);
    }
    return true;
  }

  // CRIU puts runc's own cgroup in the place of `top` where a member's text begins with it, and only then.
  void CheckMembers(const std::set<std::string>& names, const std::string& top) {
    bool joined = false;
    for (const Member& member : members_) {
      if (names.count(member.name) == 0 || !member.path.starts_with("/" + top)) continue;
      joined = true;
      own_.insert(member.name + member.path);
      const bool own = top.empty() ? member.path == "/" : IsWithin(member.path, "/" + top);
      const bool prefix =
          member.prefix == 0 || (member.prefix <= top.size() + 1 && IsWithin("/" + top, member.path.substr(0, member.prefix)));
      if (!own || !prefix) Say("cgroup " + member.path + " is joined, which is not the container's own");
    }
    if (!joined) Say("cgroup /" + top + " is named, in which nothing of the container was");
  }

  bool ReadDir(std::string_view bytes, int depth, std::string* top) {
    Message dir;
    std::string name;
    if (depth > kMaxDepth || !dir.Read(bytes, Repeated(kChildren) | Repeated(kProperties)) || !dir.Text(kDirName, &name)) return false;
    if (top != nullptr) *top = name;
    if (depth == 0 ? !name.empty() && !IsPlainPath("/" + name) : !IsSafeName(name)) Say("cgroup " + name + " is named");
    if (!ReadOwner(dir, kDirOwner, name)) return false;
    for (const Field& field : dir.fields()) {
      if (field.number == kChildren) {
        if (name.empty()) Say("more cgroups are named than the container's own");
        if (!ReadDir(field.content, depth + 1, nullptr)) return false;
      } else if (field.number == kProperties) {
        Message property;
        std::string file;
        if (!property.Read(field.content) || !property.Text(kPropertyName, &file)) return false;
        if (!IsSafeName(file)) Say("the file " + file + " of a cgroup is written");
        // CRIU dumps no owner of this one, but what happened to be in its memory.
        if (file != "freezer.state" && !ReadOwner(property, kOwner, file)) return false;
      }
    }
    return true;
  }

  bool ReadOwner(const Message& of, uint32_t number, const std::string& name) {
    if (!of.Has(number)) return true;
    Message owner;
    if (!owner.Read(of.Bytes(number))) return false;
    if (owner.Word(2) != 0 || owner.Word(3) != 0 || (owner.Word(1) & 022) != 0) Say("cgroup file " + name + " is given to another user");
    return true;
  }

  const std::set<std::string>& hierarchies_;
  std::vector<Member> members_;
  std::set<std::string> own_;  // members that are beneath a cgroup which is replaced
  std::string what_;
};

}  // namespace

Status CheckImageCgroups(const std::string& images, const std::set<std::string>& hierarchies) {
  Result<std::string> image = ReadImage(images, kName);
  if (image.status().code() == Code::kNotFound) return Status::Ok();
  if (!image.ok()) return image.status();
  Checker checker(hierarchies);
  int entries = 0;
  if (!ForEachEntry(*image, kCgroupMagic, [&](std::string_view entry) { return ++entries == 1 && checker.Read(entry); }))
    return DamagedImage(images, kName);
  return checker.what().empty() ? Status::Ok() : WiderImage(kName, checker.what());
}

Result<std::set<std::string>> CgroupHierarchies() {
  HF_ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/self/cgroup"));
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t from = line.find(':') + 1, to = line.find(':', from);
    if (to == std::string::npos) continue;
    std::istringstream list(line.substr(from, to - from));
    if (from == to) names.insert("");
    for (std::string name; std::getline(list, name, ',');) names.insert(name);
  }
  return names;
}

}  // namespace holdfast::runtime
