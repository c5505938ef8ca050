// An informer of a small kind on a fake transport in virtual time, and what its handler heard: "old@version>new@version".
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/informer.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {

struct Item {
  static inline const Resource kResource = {"test", "v1", "items", "Item", true};
  static Item FromJson(const Json& object) { return {ObjectMeta::FromJson(object), GetString(object, {"value"})}; }
  ObjectMeta meta;
  std::string value;
};

inline Json Object(const std::string& name, int version, const std::string& value = "", const std::string& uid = "") {
  return {{"metadata",
           {{"name", name}, {"namespace", "ns"}, {"uid", uid.empty() ? "uid-" + name : uid}, {"resourceVersion", std::to_string(version)}}},
          {"value", value}};
}
inline Json ListOf(int version, const std::vector<Json>& items) {
  return {{"metadata", {{"resourceVersion", std::to_string(version)}}}, {"items", items}};
}
inline Json GoneStatus() { return {{"kind", "Status"}, {"code", 410}, {"reason", "Expired"}, {"message", "too old resource version"}}; }

class InformerTest : public ::testing::Test {
 protected:
  void Serve(int version, const std::vector<Json>& items) {
    transport_->SetAnswer([=](const HttpRequest&) { return JsonAnswer(200, ListOf(version, items)); });
  }
  void Start() {
    informer_.AddHandler([this](const Informer<Item>::Ptr& old, const Informer<Item>::Ptr& now) {
      std::lock_guard lock(mutex_);
      auto show = [](const Informer<Item>::Ptr& item) { return item ? item->meta.name + "@" + item->meta.resource_version : "-"; };
      heard_.push_back(show(old) + ">" + show(now));
    });
    informer_.Start();
    ASSERT_TRUE(Eventually([&] { return informer_.synced(); }));
  }
  std::vector<std::string> Heard(size_t at_least) {
    EXPECT_TRUE(Eventually([&] {
      std::lock_guard lock(mutex_);
      return heard_.size() >= at_least;
    }));
    std::lock_guard lock(mutex_);
    return heard_;
  }
  std::shared_ptr<FakeTransport::Watch> WatchNumber(size_t index) {
    EXPECT_TRUE(
        AdvanceUntil(clock_, std::chrono::milliseconds(200), std::chrono::seconds(120), [&] { return transport_->watches() > index; }));
    return transport_->WaitForWatch(index);
  }
  size_t Lists() { return transport_->sent().size(); }

  FakeClock clock_;
  std::shared_ptr<FakeTransport> transport_ = std::make_shared<FakeTransport>();
  Client client_{transport_, clock_};
  std::mutex mutex_;
  std::vector<std::string> heard_;
  Informer<Item> informer_{client_, {.ns = "ns", .label_selector = "a=b"}};
};

}  // namespace holdfast::kube
