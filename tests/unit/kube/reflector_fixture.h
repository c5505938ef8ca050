// A Reflector on a fake transport in virtual time, with what it told its sink. Pauses are exact: random() is 0 unless a test says
// otherwise.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/metrics.h"
#include "kube/reflector.h"
#include "tests/unit/kube/simulation.h"

namespace holdfast::kube {

using Names = std::map<std::string, std::string>;  // name → version

inline Json TestObject(const std::string& name, int version) {
  return {{"kind", "Item"}, {"metadata", {{"name", name}, {"uid", "uid-" + name}, {"resourceVersion", std::to_string(version)}}}};
}
inline Json TestList(int version, const std::vector<Json>& items = {}, const std::string& next = "") {
  Json list = {{"kind", "ItemList"}, {"metadata", {{"resourceVersion", std::to_string(version)}}}, {"items", items}};
  if (!next.empty()) list["metadata"]["continue"] = next;
  return list;
}
inline Json TestBookmark(int version, const char* end_of_initial_events = nullptr) {
  Json object = {{"kind", "Item"}, {"metadata", {{"resourceVersion", std::to_string(version)}, {"creationTimestamp", nullptr}}}};
  if (end_of_initial_events != nullptr) object["metadata"]["annotations"]["k8s.io/initial-events-end"] = end_of_initial_events;
  return object;
}
inline Json TestStatus(int code, const std::string& reason, Json causes = Json::array()) {
  return {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", "no"}, {"details", {{"causes", causes}}}};
}

class ReflectorTest : public ::testing::Test {
 protected:
  void Serve(const Json& list) {
    transport_->SetAnswer([=](const HttpRequest&) { return JsonAnswer(200, list); });
  }
  void Start(ReflectorOptions options = {}) {
    if (!options.random) options.random = [this] { return random_.load(); };
    Reflector::Sink sink;
    sink.list_item = [this](const Json& object) { Note("item", object, &staged_, true); };
    sink.list_remove = [this](const Json& object) { Note("unlist", object, &staged_, false); };
    sink.list_restart = [this] {
      std::lock_guard lock(mutex_);
      staged_.clear();
    };
    sink.list_done = [this](const std::string& version, bool rolled_back) {
      std::lock_guard lock(mutex_);
      objects_ = std::exchange(staged_, {});
      log_.push_back((rolled_back ? "rolled back to " : "list ") + version);
    };
    sink.upsert = [this](const Json& object) { Note("put", object, &objects_, true); };
    sink.remove = [this](const Json& object) { Note("remove", object, &objects_, false); };
    sink.bookmark = [this](const std::string& version) {
      std::lock_guard lock(mutex_);
      log_.push_back("bookmark " + version);
    };
    reflector_ = std::make_unique<Reflector>(client_, kItems, ListOptions{}, std::move(sink), std::move(options));
    reflector_->Start();
  }
  void TearDown() override { reflector_.reset(); }

  Names objects() {
    std::lock_guard lock(mutex_);
    return objects_;
  }
  std::vector<std::string> log() {
    std::lock_guard lock(mutex_);
    return log_;
  }
  bool Holds(const Names& objects) {
    return Eventually([&] { return this->objects() == objects; });
  }
  bool Logged(size_t count) {
    return Eventually([&] { return log().size() >= count; });
  }
  // The watch number `index`; lets time pass until it is opened.
  std::shared_ptr<FakeTransport::Watch> WatchNumber(size_t index) {
    EXPECT_TRUE(
        AdvanceUntil(clock_, std::chrono::milliseconds(200), std::chrono::minutes(3), [&] { return transport_->watches() > index; }))
        << "watch " << index << " is not opened";
    return transport_->WaitForWatch(index);
  }
  // Whether the reflector waits now, for exactly `pause`, and then makes its next request.
  ::testing::AssertionResult Pauses(Duration pause) {
    const size_t before = transport_->paths().size();
    if (!Eventually([&] { return clock_.waiters() > 0; })) return ::testing::AssertionFailure() << "it does not wait";
    clock_.Advance(pause - std::chrono::nanoseconds(1));
    Clock::Real().Sleep(std::chrono::milliseconds(5), {});
    if (transport_->paths().size() != before) return ::testing::AssertionFailure() << "it waits less";
    clock_.Advance(std::chrono::nanoseconds(1));
    if (!Eventually([&] { return transport_->paths().size() > before; })) return ::testing::AssertionFailure() << "it waits longer";
    return ::testing::AssertionSuccess();
  }
  static std::string VersionIn(const std::string& path) {
    const size_t at = path.find("resourceVersion=");
    if (at == std::string::npos) return "";
    const size_t begin = at + strlen("resourceVersion=");
    return path.substr(begin, path.find('&', begin) - begin);
  }
  static bool IsWatch(const std::string& path) { return path.find("watch=1") != std::string::npos; }
  // The resourceVersion of each LIST so far, "" for none.
  std::vector<std::string> ListVersions() {
    std::vector<std::string> versions;
    for (const HttpRequest& request : transport_->sent()) versions.push_back(VersionIn(request.path));
    return versions;
  }
  size_t Lists() { return transport_->sent().size(); }

  static inline const Resource kItems{"test", "v1", "items", "Item", true};
  FakeClock clock_;
  std::shared_ptr<FakeTransport> transport_ = std::make_shared<FakeTransport>();
  prometheus::Registry registry_;
  RuntimeMetrics metrics_{registry_};
  Client client_{transport_, clock_, &metrics_};
  std::atomic<double> random_{0};
  std::unique_ptr<Reflector> reflector_;

 private:
  void Note(const std::string& what, const Json& object, Names* in, bool put) {
    const std::string name = GetString(object, {"metadata", "name"}), version = GetString(object, {"metadata", "resourceVersion"});
    std::lock_guard lock(mutex_);
    log_.push_back(what + " " + name + "@" + version);
    if (put) {
      (*in)[name] = version;
    } else {
      in->erase(name);
    }
  }

  std::mutex mutex_;
  Names objects_, staged_;
  std::vector<std::string> log_;
};

}  // namespace holdfast::kube
