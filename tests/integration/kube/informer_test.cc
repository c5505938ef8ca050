#include "kube/informer.h"

#include "kube/list_stream.h"
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

// The real transport, looked at and disturbed.
class Spy : public Transport {
 public:
  std::atomic<bool> rewind{false};  // the next plain watch starts at version 1, which was compacted away
  std::atomic<int> gone{0};         // 410 events
  std::atomic<int64_t> bytes{0};

  Result<HttpResponse> Send(const HttpRequest& request, std::stop_token stop) override { return real_->Send(request, stop); }
  Result<HttpResponse> Stream(const HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                              std::stop_token stop) override {
    HttpRequest changed = request;
    std::stop_source cut;
    {
      std::lock_guard lock(mutex_);
      paths_.push_back(request.path);
      cut_ = cut;
    }
    std::stop_callback passed_on(stop, [&] { cut.request_stop(); });
    const bool plain_watch =
        request.path.find("watch=1") != std::string::npos && request.path.find("sendInitialEvents") == std::string::npos;
    if (plain_watch && rewind.exchange(false)) {
      size_t at = changed.path.find("resourceVersion=") + strlen("resourceVersion=");
      changed.path.replace(at, changed.path.find('&', at) - at, "1");
    }
    auto look = [&](std::string_view chunk) {
      bytes += static_cast<int64_t>(chunk.size());
      if (chunk.find("\"type\":\"ERROR\"") != std::string_view::npos && chunk.find("410") != std::string_view::npos) ++gone;
      return on_chunk(chunk);
    };
    Result<HttpResponse> result = real_->Stream(changed, look, cut.get_token());
    if (cut.stop_requested() && !stop.stop_requested()) return Status(Code::kUnavailable, "cut by the test");
    return result;
  }
  void Cut() {
    std::lock_guard lock(mutex_);
    cut_.request_stop();
  }
  std::vector<std::string> paths() {
    std::lock_guard lock(mutex_);
    return paths_;
  }

 private:
  const std::unique_ptr<Transport> real_ = MakeCurlTransport(testing::ApiServer::Shared().config());
  std::mutex mutex_;
  std::vector<std::string> paths_;
  std::stop_source cut_;
};

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

TEST_F(InformerTest, ListsAsAStreamWithoutAnyListRequest) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("a" + std::to_string(i), "1")).ok());
  // The server's own cache refuses streams while it starts, and it starts anew when etcd was compacted or the server killed, as earlier
  // tests do: what falls back to a list then is right to. One informer that is given a stream is what this is about.
  auto transport = std::make_shared<Spy>();
  auto client = std::make_unique<Client>(transport);
  std::unique_ptr<Informer<Item>> informer;
  ASSERT_TRUE(Eventually([&] {
    informer.reset();
    transport = std::make_shared<Spy>();
    client = std::make_unique<Client>(transport);
    informer = std::make_unique<Informer<Item>>(*client, ListOptions{.ns = ns_});
    informer->Start();
    return informer->WaitForSync(std::chrono::seconds(20), {}) && informer->stats().reflector.watch_lists == 1;
  }));
  EXPECT_EQ(informer->size(), 5u);
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("later", "1")).ok());
  EXPECT_TRUE(Eventually([&] { return informer->size() == 6; }));
  EXPECT_EQ(informer->stats().reflector.lists, 1u);
  for (const std::string& path : transport->paths()) EXPECT_NE(path.find("watch=1"), std::string::npos) << path;
  EXPECT_LE(transport->paths().size(), 2u) << "the same stream goes on, unless the server ends it: its own cache may start anew";
}

TEST_F(InformerTest, ListsInPagesWhenItMust) {
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("a" + std::to_string(i), "1")).ok());
  auto transport = std::make_shared<Spy>();
  Client client(transport);
  Informer<Item> informer(client, {.ns = ns_}, {.watch_list = false, .page_size = 3});
  informer.Start();
  ASSERT_TRUE(informer.WaitForSync(std::chrono::seconds(20), {}));
  EXPECT_EQ(informer.size(), 7u);
  EXPECT_GE(transport->paths().size(), 3u);
}

TEST_F(InformerTest, RelistsWhenTheWatchedVersionIsCompacted) {
  ASSERT_TRUE(testing::ApiServer::Shared().Compact().ok());
  for (bool stream : {true, false}) {
    auto transport = std::make_shared<Spy>();
    transport->rewind = true;
    Client client(transport);
    Informer<Item> informer(client, {.ns = ns_}, {.watch_list = stream});
    informer.Start();
    ASSERT_TRUE(informer.WaitForSync(std::chrono::seconds(20), {}));
    if (stream) transport->Cut();  // the stream goes on for minutes by itself
    EXPECT_TRUE(Eventually([&] { return informer.stats().reflector.lists == 2; })) << (stream ? "stream" : "pages");
    EXPECT_EQ(transport->gone, 1);
  }
}

TEST_F(InformerTest, WaitsForItsOwnWrites) {
  StartInformer();
  for (int i = 0; i < 20; ++i) {
    Result<Json> written =
        client_.Patch(kConfigMaps, ns_, "a", PatchType::kApply, ConfigMap("a", std::to_string(i)), {.field_manager = "test"});
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    ASSERT_TRUE(informer_->WaitFor(GetString(*written, {"metadata", "resourceVersion"}), std::chrono::seconds(20), {}));
    EXPECT_EQ(Value("a"), std::to_string(i));
  }
  EXPECT_FALSE(informer_->WaitFor("999999999", std::chrono::milliseconds(50), {}));
}

TEST_F(InformerTest, ReadsMetadataAlone) {
  Json map = ConfigMap("a", std::string(100000, 'x'));
  map["metadata"]["labels"] = {{"app", "web"}};
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, map).ok());
  for (uint64_t stream : {1, 0}) {
    auto transport = std::make_shared<Spy>();
    Client client(transport);
    std::unique_ptr<Informer<Metadata>> informer;
    ASSERT_TRUE(Eventually([&] {  // see ListsAsAStreamWithoutAnyListRequest
      informer =
          std::make_unique<Informer<Metadata>>(client, kConfigMaps, ListOptions{.ns = ns_}, ReflectorOptions{.watch_list = stream == 1});
      transport->bytes = 0;
      informer->Start();
      return informer->WaitForSync(std::chrono::seconds(20), {}) && informer->stats().reflector.watch_lists == stream;
    }));
    Informer<Metadata>& maps = *informer;
    ASSERT_NE(maps.Get(ns_, "a"), nullptr);
    EXPECT_EQ(maps.Get(ns_, "a")->meta.labels.at("app"), "web");
    ASSERT_TRUE(client_.Patch(kConfigMaps, ns_, "a", PatchType::kMerge, {{"metadata", {{"labels", {{"app", "new"}}}}}}).ok());
    EXPECT_TRUE(Eventually([&] { return maps.Get(ns_, "a")->meta.labels.at("app") == "new"; }));
    EXPECT_LT(transport->bytes, 20000) << "the data came too";
    ASSERT_TRUE(client_.Patch(kConfigMaps, ns_, "a", PatchType::kMerge, {{"metadata", {{"labels", {{"app", "web"}}}}}}).ok());
  }
}

// What the reflector takes for granted of the server.
TEST_F(InformerTest, TheServerSaysThatAVersionIsTooLarge) {
  ListCalls calls{.on_item = [](const Json&) {}, .on_restart = [] {}};
  ListEnd end = StreamList(client_, {.resource = kConfigMaps, .scope = {.ns = ns_}, .version = "99999999999", .page_size = 0}, calls, {});
  EXPECT_TRUE(end.refusal.version_too_large) << end.status.ToString();
}

}  // namespace
}  // namespace holdfast::kube
