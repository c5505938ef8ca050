// The transport against a real API server with a bad network between them.
#include <algorithm>
#include <cstring>
#include <list>
#include <random>

#include "base/file.h"
#include "kube/lease.h"
#include "tests/integration/fault_proxy.h"
#include "tests/integration/kube/fixture.h"
#include "tests/unit/kube/test_certificate.h"

namespace holdfast::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FaultProxy;

Duration Since(MonoTime start) { return Clock::Real().Mono() - start; }

class TransportTest : public KubeTest {
 protected:
  void SetUp() override {
    KubeTest::SetUp();
    ASSERT_NE(mkdtemp(dir_.data()), nullptr);
    ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("a", "1")).ok());
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(dir_).ok()); }
  static ClientConfig Upstream() { return testing::ApiServer::Shared().config(); }
  std::string Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(dir_ + "/" + name, text).ok());
    return dir_ + "/" + name;
  }
  // All ConfigMaps of the namespace, and what happens to them.
  HttpRequest Watch() const {
    HttpRequest request;
    request.path = kConfigMaps.Path(ns_) + "?watch=1&resourceVersion=0&timeoutSeconds=120";
    request.idle_timeout = seconds(60);
    return request;
  }
  void Touch(const std::string& value) {
    ASSERT_TRUE(client_.Patch(kConfigMaps, ns_, "a", PatchType::kMerge, {{"data", {{"key", value}}}}).ok());
  }
  // Text of which gzip makes little.
  static std::string Noise(size_t size) {
    std::mt19937_64 random(size);
    std::string text(size, 'x');
    for (char& c : text) c = static_cast<char>('0' + random() % 64);
    std::replace(text.begin(), text.end(), '\\', 'x');
    return text;
  }
  std::string dir_ = ::testing::TempDir() + "holdfast-transport-XXXXXX";
};

// A stream on a thread of its own.
class Reader {
 public:
  Reader(Transport& transport, HttpRequest request)
      : thread_([this, &transport, request = std::move(request)](const std::stop_token& stop) {
          auto take = [this](std::string_view chunk) {
            std::lock_guard lock(mutex_);
            got_ += chunk;
            return true;
          };
          Status status = transport.Stream(request, take, stop).status();
          std::lock_guard lock(mutex_);
          status_ = status;
          ended_ = true;
        }) {}
  bool Has(const std::string& text) {
    std::lock_guard lock(mutex_);
    return got_.find(text) != std::string::npos;
  }
  bool ended() {
    std::lock_guard lock(mutex_);
    return ended_;
  }
  Status status() {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  std::mutex mutex_;
  std::string got_;
  Status status_;
  bool ended_ = false;
  std::jthread thread_;
};

TEST_F(TransportTest, FiftyWatchesShareOneConnectionAndCallsAnother) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  std::shared_ptr<Transport> transport = MakeCurlTransport(proxy.config());
  Client client(transport);
  std::list<Reader> readers;
  for (int i = 0; i < 50; ++i) readers.emplace_back(*transport, Watch());
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 20; ++i) callers.emplace_back([&] { EXPECT_TRUE(client.Get(kConfigMaps, ns_, "a").ok()); });
  }
  for (Reader& reader : readers) ASSERT_TRUE(Eventually([&] { return reader.Has("ADDED"); }));
  Touch("touched");
  for (Reader& reader : readers) ASSERT_TRUE(Eventually([&] { return reader.Has("touched"); }));
  EXPECT_EQ(proxy.accepted(), 2);
}

TEST_F(TransportTest, WatchesBeyondNinetyTakeAnotherConnectionAndRoomThatIsLeftIsUsedAgain) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  std::shared_ptr<Transport> transport = MakeCurlTransport(proxy.config());
  std::list<Reader> readers;
  for (int i = 0; i < 200; ++i) readers.emplace_back(*transport, Watch());
  for (Reader& reader : readers) ASSERT_TRUE(Eventually([&] { return reader.Has("ADDED"); }));
  EXPECT_EQ(proxy.accepted(), 3) << "90 and 90 and 20";
  Touch("touched");
  for (Reader& reader : readers) ASSERT_TRUE(Eventually([&] { return reader.Has("touched"); }));
  for (int i = 0; i < 50; ++i) readers.pop_front();
  for (int i = 0; i < 50; ++i) readers.emplace_back(*transport, Watch());
  for (Reader& reader : readers) ASSERT_TRUE(Eventually([&] { return reader.Has("touched"); }));
  EXPECT_EQ(proxy.accepted(), 3);
  for (Reader& reader : readers) EXPECT_FALSE(reader.ended()) << reader.status().ToString();
}

// With --goaway-chance the API server answers some requests, and at the same time tells the client to open no more streams on this
// connection, so that clients spread over the servers behind a load balancer.
TEST_F(TransportTest, MovesToANewConnectionWhenTheServerSaysGoAwayAndKnowsWhatBecameOfEachCall) {
  auto server = testing::ApiServer::Start({.flags = {"--goaway-chance=0.02"}});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  FaultProxy proxy((*server)->config(), FaultProxy::Mode::kRelay);
  std::shared_ptr<Transport> transport = MakeCurlTransport(proxy.config());
  Client client(transport);
  ASSERT_TRUE(client.Create(kConfigMaps, "default", ConfigMap("a", "1")).ok());
  HttpRequest watch_one = Watch();
  watch_one.path = kConfigMaps.Path("default") + "?watch=1&resourceVersion=0&timeoutSeconds=120&fieldSelector=metadata.name%3Da";
  // Watches until one of them was told to go: those that were there before it go on, and the later ones are elsewhere.
  std::list<Reader> readers;
  while (proxy.accepted() < 3 && readers.size() < 600) {
    readers.emplace_back(*transport, watch_one);
    ASSERT_TRUE(Eventually([&] { return readers.back().Has("ADDED"); })) << readers.back().status().ToString();
    if (readers.size() > 80) readers.pop_front();  // so that it is not the room on a connection that is wanting
  }
  EXPECT_EQ(proxy.accepted(), 3) << "a connection of calls, one of watches, and one after the server said to go";
  const int before = proxy.accepted();
  // Calls, from four threads. A read that was sent while the server said so is sent again; libcurl does not tell whether a write was, so
  // that one may fail, and says that nothing is known of it.
  std::atomic<int> unknown{0};
  {
    std::vector<std::jthread> callers;
    for (int thread = 0; thread < 4; ++thread) {
      callers.emplace_back([&, thread] {
        for (int i = 0; i < 100; ++i) {
          const std::string name = "c" + std::to_string(1000 * thread + i);
          Status written = client.Create(kConfigMaps, "default", ConfigMap(name, "x")).status();
          if (!written.ok()) {
            ++unknown;
            EXPECT_EQ(written.code(), Code::kUnavailable);
            EXPECT_NE(written.message().find("whether the server acted is not known"), std::string::npos) << written.ToString();
            written = client.Create(kConfigMaps, "default", ConfigMap(name, "x")).status();
            EXPECT_TRUE(written.ok() || written.code() == Code::kAlreadyExists || written.code() == Code::kUnavailable)
                << written.ToString();
            continue;
          }
          Status read = client.Get(kConfigMaps, "default", name).status();
          EXPECT_TRUE(read.ok()) << read.ToString();
        }
      });
    }
  }
  EXPECT_GT(proxy.accepted(), before) << "of 800 calls none was told to go";
  EXPECT_LT(unknown, 40) << "of 400 writes; those that were there before the server said it are answered";
  ASSERT_TRUE(  // it may be told to go as any other write
      Eventually([&] {
        return client.Patch(kConfigMaps, "default", "a", PatchType::kMerge, {{"data", {{"key", "touched"}}}}).ok();
      }));
  for (Reader& reader : readers) {
    EXPECT_TRUE(Eventually([&] { return reader.Has("touched"); })) << reader.status().ToString();
    EXPECT_FALSE(reader.ended());
  }
}

TEST_F(TransportTest, FindsADeadConnectionUnderACallAndTakesAnotherForTheNext) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  Client client(MakeCurlTransport(proxy.config()));
  Result<Json> read = client.Get(kConfigMaps, ns_, "a");
  ASSERT_TRUE(read.ok());
  proxy.FreezeOpen();
  MonoTime start = Clock::Real().Mono();
  const CallOptions ten_seconds{.timeout = seconds(10)};  // as a lease has
  Status write = client.Update(kConfigMaps, ns_, "a", *read, ten_seconds).status();
  EXPECT_EQ(write.code(), Code::kUnavailable) << write.ToString();
  EXPECT_NE(write.message().find("connection is dead"), std::string::npos) << write.message();
  EXPECT_LT(Since(start), seconds(7));
  start = Clock::Real().Mono();
  EXPECT_TRUE(client.Update(kConfigMaps, ns_, "a", *read).ok());
  EXPECT_LT(Since(start), seconds(4)) << "it waited for the dead one";
  // A read is sent again by itself.
  proxy.FreezeOpen();
  start = Clock::Real().Mono();
  EXPECT_TRUE(client.Get(kConfigMaps, ns_, "a", ten_seconds).ok());
  EXPECT_LT(Since(start), seconds(8));
}

TEST_F(TransportTest, APatientWriteOutlastsAStallThatAnImpatientOneGivesUp) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  Client client(MakeCurlTransport(proxy.config()));
  Result<Json> read = client.Get(kConfigMaps, ns_, "a");
  ASSERT_TRUE(read.ok());
  proxy.Freeze();
  Status patient;
  std::thread writer([&] { patient = client.Create(kConfigMaps, ns_, ConfigMap("patient", "1")).status(); });  // 30 s, once
  const Status impatient = client.Update(kConfigMaps, ns_, "a", *read, {.timeout = seconds(4)}).status();
  EXPECT_EQ(impatient.code(), Code::kUnavailable) << impatient.ToString();
  proxy.Heal();
  writer.join();
  EXPECT_TRUE(patient.ok()) << patient.ToString();
}

TEST_F(TransportTest, KeepsALeaseWhenItsConnectionDies) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  std::shared_ptr<Transport> transport = MakeCurlTransport(proxy.config());
  Client client(transport);
  Reader watch(*transport, Watch());
  std::atomic<int> stopped{0};
  LeaseOptions options{.ns = ns_, .name = "lease", .identity = "a"};  // 15 s, 10 s, 2 s
  LeaderElector elector(
      client, options, [](int64_t) {}, [&] { ++stopped; });
  ASSERT_TRUE(elector.Start().ok());
  ASSERT_TRUE(Eventually([&] { return elector.leading(); }));
  proxy.FreezeOpen();
  for (MonoTime start = Clock::Real().Mono(); Since(start) < seconds(12); Clock::Real().Sleep(milliseconds(50), {})) {
    ASSERT_TRUE(elector.leading());
  }
  EXPECT_EQ(stopped, 0);
}

TEST_F(TransportTest, FindsADeadConnectionUnderAQuietStreamAndLeavesALiveOneAlone) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  TransportOptions options;
  options.silence = milliseconds(300);
  options.answer = seconds(3);  // the server is busy with other tests
  std::unique_ptr<Transport> transport = MakeCurlTransport(proxy.config(), options);
  Reader reader(*transport, Watch());
  ASSERT_TRUE(Eventually([&] { return reader.Has("ADDED"); }));
  Clock::Real().Sleep(seconds(4), {});  // some probes long
  EXPECT_FALSE(reader.ended()) << reader.status().ToString();
  EXPECT_EQ(proxy.accepted(), 1) << "probes share the connection";
  proxy.FreezeOpen();
  ASSERT_TRUE(Eventually([&] { return reader.ended(); }));
  EXPECT_EQ(reader.status().code(), Code::kUnavailable) << reader.status().ToString();
}

TEST_F(TransportTest, AStuckReaderIsInNobodysWay) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("big-" + std::to_string(i), Noise(900'000))).ok());
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  std::shared_ptr<Transport> transport = MakeCurlTransport(proxy.config());
  Client client(transport);
  HttpRequest only_a = Watch();
  only_a.path += "&fieldSelector=metadata.name%3Da";
  Reader watch(*transport, only_a);
  ASSERT_TRUE(Eventually([&] { return watch.Has("ADDED"); }));
  std::atomic<bool> go{false}, stuck{false};
  std::string got;
  std::jthread slow([&] {
    auto take = [&](std::string_view chunk) {
      stuck = true;
      while (!go) Clock::Real().Sleep(milliseconds(1), {});
      got += chunk;
      return true;
    };
    HttpRequest list;
    list.path = kConfigMaps.Path(ns_);
    Result<HttpResponse> result = transport->Stream(list, take, {});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
  });
  ASSERT_TRUE(Eventually([&] { return stuck.load(); }));
  Clock::Real().Sleep(seconds(1), {});  // what is on its way arrives
  for (int i = 0; i < 5; ++i) {
    Touch("round-" + std::to_string(i));
    EXPECT_TRUE(Eventually([&] { return watch.Has("round-" + std::to_string(i)); }));
    EXPECT_TRUE(client.Get(kConfigMaps, ns_, "a").ok());
  }
  EXPECT_EQ(proxy.accepted(), 2);
  go = true;
  slow.join();
  Result<Json> list = ParseJson(got);
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  EXPECT_EQ(GetArray(*list, {"items"}).size(), 11u);
}

TEST_F(TransportTest, ReadsAgainWhatWasCutInTheMiddle) {
  ASSERT_TRUE(client_.Create(kConfigMaps, ns_, ConfigMap("big", Noise(300'000))).ok());
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  Client client(MakeCurlTransport(proxy.config()));
  proxy.CutAfter(20'000);
  std::jthread healer([&] {
    EXPECT_TRUE(Eventually([&] { return proxy.accepted() >= 3; }));
    proxy.Heal();
  });
  Result<Json> read = client.Get(kConfigMaps, ns_, "big");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(GetString(*read, {"data", "key"}).size(), 300'000u);
}

TEST_F(TransportTest, SendsAWriteOnceThoughItsAnswerIsCut) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kHttp);
  Client client(MakeCurlTransport(proxy.config()));
  ASSERT_TRUE(client.Get(kConfigMaps, ns_, "a").ok());
  proxy.CutAfter(10);
  EXPECT_EQ(client.Create(kConfigMaps, ns_, ConfigMap("b", "1")).status().code(), Code::kUnavailable);
  std::vector<std::string> requests = proxy.requests();
  EXPECT_EQ(std::count_if(requests.begin(), requests.end(), [](const std::string& line) { return line.starts_with("POST"); }), 1);
  EXPECT_TRUE(Eventually([&] { return client_.Get(kConfigMaps, ns_, "b").ok(); })) << "the server has acted, which the caller cannot know";
}

TEST_F(TransportTest, GivesUpAnAnswerThatCrawls) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  Client client(MakeCurlTransport(proxy.config()));
  ASSERT_TRUE(client.Get(kConfigMaps, ns_, "a").ok());
  proxy.Throttle(1);
  const MonoTime start = Clock::Real().Mono();
  Status late = client.Get(kConfigMaps, ns_, "a", {.timeout = milliseconds(1500)}).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.ToString();
  EXPECT_LT(Since(start), seconds(10)) << "at a byte a time it would take much longer";
  proxy.Heal();
  EXPECT_TRUE(client.Get(kConfigMaps, ns_, "a").ok());
}

TEST_F(TransportTest, WaitsAsTheServerAsksAndTriesAgain) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kHttp);
  Client client(MakeCurlTransport(proxy.config()));
  for (int code : {429, 500, 503}) {
    proxy.AddAnswer({.match = "PATCH", .times = 1, .status = code, .headers = {{"Retry-After", "1"}}});
    const MonoTime start = Clock::Real().Mono();
    EXPECT_TRUE(client.Patch(kConfigMaps, ns_, "a", PatchType::kMerge, {{"data", {{"key", std::to_string(code)}}}}).ok());
    EXPECT_GE(Since(start), seconds(1));
  }
  proxy.AddAnswer({.match = "PATCH", .times = 1, .status = 500});
  EXPECT_EQ(client.Patch(kConfigMaps, ns_, "a", PatchType::kMerge, Json::object()).status().code(), Code::kUnavailable);
}

TEST_F(TransportTest, TakesANewTokenWithoutARestart) {
  ClientConfig config = Upstream();
  config.token_file = Write("token", "expired");
  const std::string good = std::exchange(config.token, "");
  Client client(MakeCurlTransport(config));
  EXPECT_EQ(client.Get(kConfigMaps, ns_, "a").status().code(), Code::kUnauthenticated);
  Write("token", good);
  EXPECT_TRUE(client.Get(kConfigMaps, ns_, "a").ok()) << "the refusal makes the file be read, long before its time";
}

TEST_F(TransportTest, TakesANewCaWithoutARestart) {
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kHttp);
  ClientConfig config = proxy.config();
  config.ca_file = Write("ca.crt", std::exchange(config.ca_pem, ""));
  TransportOptions options;
  options.recheck_files = milliseconds(100);
  Client client(MakeCurlTransport(config, options));
  ASSERT_TRUE(client.Get(kConfigMaps, ns_, "a").ok());
  const auto next = TestCertificate::Make("next", 2);
  proxy.SetCertificate(next.certificate_pem, next.key_pem);
  EXPECT_TRUE(client.Get(kConfigMaps, ns_, "a").ok()) << "on the connection that there is";
  EXPECT_EQ(proxy.accepted(), 1);
  proxy.CutAll();
  Status distrusted;
  ASSERT_TRUE(Eventually([&] {
    distrusted = client.Update(kConfigMaps, ns_, "a", ConfigMap("a", "2")).status();
    return !distrusted.ok() && proxy.accepted() > 1;
  }));
  EXPECT_NE(distrusted.message().find("not signed by the CA that we were given"), std::string::npos) << distrusted.message();
  Write("ca.crt", next.certificate_pem);
  EXPECT_TRUE(Eventually([&] { return client.Get(kConfigMaps, ns_, "a").ok(); }));
}

TEST_F(TransportTest, TakesANewClientCertificateWithoutARestartAndClosesWhatTheOldOneOpened) {
  auto write = [&](const std::string& name) {
    Result<ClientConfig> user = testing::ApiServer::Shared().ConfigOf(name, "system:masters");
    ASSERT_TRUE(user.ok()) << user.status().ToString();
    Write("tls.crt", user->client_certificate_pem);
    Write("tls.key", user->client_key_pem);
  };
  write("before");
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kRelay);
  ClientConfig config = proxy.config();
  config.token.clear();
  config.client_certificate_file = dir_ + "/tls.crt";
  config.client_key_file = dir_ + "/tls.key";
  TransportOptions options;
  options.recheck_files = milliseconds(100);
  std::shared_ptr<Transport> transport = MakeCurlTransport(config, options);
  Client client(transport);
  auto name = [&] {
    const Resource reviews{"authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", false};
    Result<Json> review = client.Create(reviews, "", {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "SelfSubjectReview"}});
    return review.ok() ? GetString(*review, {"status", "userInfo", "username"}) : review.status().ToString();
  };
  EXPECT_EQ(name(), "before");
  Reader reader(*transport, Watch());
  ASSERT_TRUE(Eventually([&] { return reader.Has("ADDED"); }));
  write("after");
  // By the files alone: nobody calls meanwhile.
  ASSERT_TRUE(Eventually([&] { return reader.ended(); }));
  EXPECT_EQ(reader.status().code(), Code::kUnavailable);
  EXPECT_NE(reader.status().message().find("our client certificate changed"), std::string::npos) << reader.status().ToString();
  EXPECT_EQ(name(), "after");
  EXPECT_TRUE(Eventually([&] { return proxy.open() == 1; })) << proxy.open();
}

TEST_F(TransportTest, SaysInOneLineWhyItIsRefused) {
  auto says = [&](const Status& status, Code code, const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code(), code) << status.ToString();
    for (const std::string& part : parts) EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  };
  auto get = [&](const ClientConfig& config) {
    return Client(MakeCurlTransport(config)).Get(kConfigMaps, ns_, "a", {.timeout = milliseconds(300)}).status();
  };
  FaultProxy proxy(Upstream(), FaultProxy::Mode::kHttp);
  const auto expired = TestCertificate::Make("expired", 3, -60);
  proxy.SetCertificate(expired.certificate_pem, expired.key_pem);
  says(get(proxy.config()), Code::kUnavailable, {proxy.config().server, "the server's certificate has expired: renew it there"});

  ClientConfig ours = Upstream();
  ours.token.clear();
  ours.client_certificate_file = Write("tls.crt", expired.certificate_pem);
  ours.client_key_file = Write("tls.key", expired.key_pem);
  says(get(ours), Code::kUnauthenticated, {"our client certificate " + ours.client_certificate_file + " expired at", "renew it"});

  Result<ClientConfig> nobody = testing::ApiServer::Shared().ConfigOf("nobody");
  ASSERT_TRUE(nobody.ok());
  says(get(*nobody), Code::kPermissionDenied, {"\"nobody\" cannot get resource \"configmaps\"", "Role or ClusterRole"});

  const Resource widgets{"example.com", "v1", "widgets", "Widget", true};
  says(client_.List(widgets, {.ns = ns_}).status(), Code::kFailedPrecondition,
       {"does not serve widgets.example.com", "kubectl get crd widgets.example.com"});
  const Resource gadgets{"", "v1", "gadgets", "Gadget", true};
  says(client_.List(gadgets, {.ns = ns_}).status(), Code::kFailedPrecondition, {"/gadgets", "does not serve this kind"});
  says(client_.Get(kConfigMaps, ns_, "none").status(), Code::kNotFound, {"\"none\" not found"});

  ClientConfig other_name = Upstream();
  other_name.server.replace(other_name.server.find("127.0.0.1"), strlen("127.0.0.1"), "127.0.0.2");
  says(get(other_name), Code::kUnavailable, {"127.0.0.2", "is the server running"});
}

}  // namespace
}  // namespace holdfast::kube
