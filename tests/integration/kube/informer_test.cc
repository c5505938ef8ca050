#include "kube/informer.h"

#include "tests/integration/kube/fixture.h"

namespace holdfast::kube {
namespace {

// A ConfigMap as far as these tests look at it.
struct Item {
  static const Resource kResource;
  static Item FromJson(const Json& object) { return {ObjectMeta::FromJson(object), GetString(object, {"data", "key"})}; }
  ObjectMeta meta;
  std::string value;
};
const Resource Item::kResource = {"", "v1", "configmaps", "ConfigMap", true};

class InformerTest : public KubeTest {
 protected:
  void StartInformer() {
    informer_ = std::make_unique<Informer<Item>>(client_, ListOptions{.ns = ns_});
    informer_->AddHandler([this](const Informer<Item>::Ptr& old, const Informer<Item>::Ptr& now) {
      std::lock_guard lock(mutex_);
      std::string line = now ? now->meta.name + "=" + now->value : old->meta.name + " gone";
      heard_.push_back((old ? now ? "update " : "delete " : "create ") + line);
    });
    informer_->Start();
    ASSERT_TRUE(informer_->WaitForSync(std::chrono::seconds(20), {}));
  }
  std::vector<std::string> Heard() {
    std::lock_guard lock(mutex_);
    return heard_;
  }
  std::string Value(const std::string& name) {
    auto item = informer_->Get(ns_, name);
    return item ? item->value : "";
  }
  void Write(const std::string& name, const std::string& value) {
    Result<Json> written = client_.Patch(kConfigMaps, ns_, name, PatchType::kMerge, {{"data", {{"key", value}}}});
    ASSERT_TRUE(written.ok()) << written.status().ToString();
  }

  std::mutex mutex_;
  std::vector<std::string> heard_;
  std::unique_ptr<Informer<Item>> informer_;
};

TEST_F(InformerTest, SeesWhatIsThereAndEveryChange) {
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("before", "0")).ok());
  StartInformer();
  EXPECT_EQ(Heard(), std::vector<std::string>{"create before=0"});
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("a", "1")).ok());
  Write("a", "2");
  ASSERT_TRUE(client_.Delete(kConfigMaps, ns_, "a").ok());
  ASSERT_TRUE(Eventually([&] { return Heard().size() == 4; }));
  EXPECT_EQ(Heard(), (std::vector<std::string>{"create before=0", "create a=1", "update a=2", "delete a gone"}));
  EXPECT_EQ(informer_->size(), 1u);
}

TEST_F(InformerTest, ReadsItsOwnWrites) {
  StartInformer();
  Result<Json> made = client_.Create(kConfigMaps, ns_, ConfigMap("a", "1"));
  ASSERT_TRUE(made.ok());
  informer_->Observe(*made);
  EXPECT_EQ(Value("a"), "1");
  ASSERT_TRUE(client_.Delete(kConfigMaps, ns_, "a").ok());
  ASSERT_TRUE(Eventually([&] { return !Heard().empty() && informer_->size() == 0; }));
  informer_->Observe(*made);
  EXPECT_EQ(informer_->size(), 0u) << "an object that the watch deleted came back";
}

TEST_F(InformerTest, GoesOnAfterTheApiServerWasKilledAndEtcdCompacted) {
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("a", "1")).ok());
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("b", "1")).ok());
  StartInformer();
  testing::ApiServer& server = testing::ApiServer::Shared();
  informer_->Stop();  // what follows happens while nobody watches
  ASSERT_TRUE(server.KillApiServer().ok());
  ASSERT_TRUE(server.StartApiServer().ok());
  informer_->Start();
  Write("a", "2");
  ASSERT_TRUE(client_.Delete(kConfigMaps, ns_, "b").ok());
  ASSERT_TRUE(Eventually([&] { return Value("a") == "2" && informer_->size() == 1; }));

  // With a live watch: the connection breaks, and the version to go on from is compacted away meanwhile.
  ASSERT_TRUE(server.KillApiServer().ok());
  ASSERT_TRUE(server.StartApiServer().ok());
  Write("a", "3");
  ASSERT_TRUE(server.Compact().ok());
  Write("a", "4");
  EXPECT_TRUE(Eventually([&] { return Value("a") == "4"; }));
}

TEST_F(InformerTest, RelistsWhenTheWatchedVersionIsCompacted) {
  std::vector<std::string> listed, changed;
  std::string first_version;
  std::mutex mutex;
  int lists = 0;
  Reflector::Sink sink{.list_item = [](const Json&) {},
                       .list_restart = [] {},
                       .list_done =
                           [&](const std::string& version, bool) {
                             std::lock_guard lock(mutex);
                             ++lists;
                             if (first_version.empty()) first_version = version;
                           },
                       .upsert = [](const Json&) {},
                       .remove = [](const Json&) {}};
  // A transport that asks for the first list's version again once the server has forgotten it.
  struct Rewind : Transport {
    std::unique_ptr<Transport> real = MakeCurlTransport(testing::ApiServer::Shared().config());
    std::atomic<bool> rewind{false};
    std::atomic<int> gone{0};
    Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) override { return real->Send(request, stop); }
    Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                std::stop_token stop) override {
      HttpRequest changed = request;
      if (rewind.exchange(false)) {
        size_t at = changed.path.find("resourceVersion=") + strlen("resourceVersion=");
        changed.path.replace(at, changed.path.find('&', at) - at, "1");
      }
      auto look = [&](std::string_view chunk) {
        if (chunk.find("\"type\":\"ERROR\"") != std::string_view::npos && chunk.find("410") != std::string_view::npos) ++gone;
        return on_chunk(chunk);
      };
      return real->Stream(changed, look, stop);
    }
  };
  auto transport = std::make_shared<Rewind>();
  transport->rewind = true;
  ASSERT_TRUE(testing::ApiServer::Shared().Compact().ok());
  Client client(transport);
  Reflector reflector(client, kConfigMaps, {.ns = ns_}, sink);
  reflector.Start();
  EXPECT_TRUE(Eventually([&] {
    std::lock_guard lock(mutex);
    return lists == 2;
  }));
  reflector.Stop();
  EXPECT_EQ(transport->gone, 1);
}

}  // namespace
}  // namespace holdfast::kube
