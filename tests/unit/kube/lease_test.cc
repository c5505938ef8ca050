#include "kube/lease.h"

#include <gtest/gtest.h>

#include <random>

#include "kube/metrics.h"
#include "kube/objects.h"
#include "tests/unit/kube/simulation.h"

namespace holdfast::kube {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The lease of an API server: optimistic locking on one object.
class LeaseServer {
 public:
  Result<HttpResponse> Answer(const HttpRequest& request) {
    std::lock_guard lock(mutex_);
    if (request.method == "GET") return lease_.is_null() ? Failure(404, "NotFound") : JsonAnswer(200, lease_);
    Json body = *ParseJson(request.body);
    if (request.method == "POST") {
      if (!lease_.is_null()) return Failure(409, "AlreadyExists");
    } else if (lease_.is_null()) {
      return Failure(404, "NotFound");
    } else if (GetString(body, {"metadata", "resourceVersion"}) != GetString(lease_, {"metadata", "resourceVersion"})) {
      return Failure(409, "Conflict");
    }
    lease_ = body;
    lease_["metadata"]["resourceVersion"] = std::to_string(++version_);
    return JsonAnswer(200, lease_);
  }
  std::string Holder() {
    std::lock_guard lock(mutex_);
    return GetString(lease_, {"spec", "holderIdentity"});
  }
  int64_t Transitions() {
    std::lock_guard lock(mutex_);
    return GetInt(lease_, {"spec", "leaseTransitions"}, -1);
  }
  void Set(const Json& spec) {
    std::lock_guard lock(mutex_);
    lease_ = {{"metadata", {{"name", "l"}, {"resourceVersion", std::to_string(++version_)}}}, {"spec", spec}};
  }
  void Delete() {
    std::lock_guard lock(mutex_);
    lease_ = nullptr;
  }

  std::atomic<int> running{0};  // electors, each of them one thread

 private:
  std::mutex mutex_;
  Json lease_;
  int version_ = 0;
};

// One elector with its own connection to the server, which a test can cut.
struct Elector {
  Elector(LeaseServer& server, Clock& clock, const std::string& identity, bool release = true, RuntimeMetrics* metrics = nullptr,
          uint64_t seed = 0)
      : server(server),
        transport(std::make_shared<FakeTransport>([this, &server](const HttpRequest& request) -> Result<HttpResponse> {
          if (cut) return Status(Code::kUnavailable, "no route to host");
          if (before) {
            if (auto instead = before(request)) return *instead;
          }
          return server.Answer(request);
        })),
        client(transport, clock),
        elector(
            client, {.ns = "ns", .name = "l", .identity = identity, .release_on_stop = release, .seed = seed, .metrics = metrics},
            [this](int64_t transitions) { fence = transitions; },
            [this] {
              ++stops;
              if (on_stop) on_stop();
            }) {}
  void Start() {
    Status started = elector.Start();
    ASSERT_TRUE(started.ok()) << started.ToString();
    ++server.running;
  }
  void Stop() {
    elector.Stop();
    --server.running;
  }
  // What it asked for, as "GET PUT PUT ".
  std::string Methods() const {
    std::string methods;
    for (const HttpRequest& request : transport->sent()) methods += request.method + " ";
    return methods;
  }
  // Leading, and its on_start has run.
  bool Leads() const { return elector.leading() && fence >= 0; }
  LeaseServer& server;
  std::atomic<bool> cut{false};
  std::function<std::optional<Result<HttpResponse>>(const HttpRequest&)> before;  // set before Start
  std::function<void()> on_stop;
  std::atomic<int64_t> fence{-1};
  std::atomic<int> stops{0};
  std::shared_ptr<FakeTransport> transport;
  Client client;
  LeaderElector elector;
};

class Lease : public ::testing::Test {
 protected:
  bool Until(Duration limit, const std::function<bool()>& ready) { return Simulate(clock_, server_.running, limit, ready); }
  // Lets virtual time pass while nothing is expected to happen.
  void Pass(Duration duration) {
    (void)Until(duration, [] { return false; });
  }
  FakeClock clock_;
  LeaseServer server_;
};

TEST_F(Lease, IsCreatedByTheFirstAndKeptByRenewals) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  EXPECT_EQ(a.fence, 0);
  b.Start();
  Pass(seconds(40));
  EXPECT_TRUE(a.elector.leading());
  EXPECT_FALSE(b.elector.leading());
  EXPECT_EQ(a.stops, 0);
  EXPECT_EQ(server_.Holder(), "a");
}

TEST_F(Lease, IsTakenOverOnlyAfterTheHolderStoppedLeading) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  b.Start();
  Pass(seconds(3));
  MonoTime cut = clock_.Mono();
  a.cut = true;
  ASSERT_TRUE(Until(seconds(12), [&] { return a.stops == 1; }));
  EXPECT_LE(clock_.Mono() - cut, seconds(10));
  EXPECT_FALSE(a.elector.leading());
  EXPECT_FALSE(b.elector.leading());
  ASSERT_TRUE(Until(seconds(30), [&] { return b.Leads(); }));
  // 15 s after b saw the last renewal, and its next try after that.
  EXPECT_GE(clock_.Mono() - cut, seconds(12));
  EXPECT_LE(clock_.Mono() - cut, seconds(20));
  EXPECT_GT(b.fence, a.fence);
  EXPECT_EQ(server_.Transitions(), 1);
}

TEST_F(Lease, LeadingEndsByTheClockEvenWhenNothingAnswers) {
  Elector a(server_, clock_, "a");
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  // As after a pause of the machine: no thread has run, only time has passed.
  clock_.Advance(seconds(11));
  const bool leading = a.elector.leading();
  EXPECT_TRUE(!leading || a.stops == 1) << "it may have stopped, and lead anew";
  EXPECT_TRUE(Until(seconds(5), [&] { return a.stops == 1; }));
}

TEST_F(Lease, IsReleasedAfterOnStop) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  b.Start();
  Pass(seconds(3));
  a.Stop();
  EXPECT_EQ(a.stops, 1);
  ASSERT_TRUE(Until(seconds(6), [&] { return b.Leads(); })) << "a released lease need not expire";
  EXPECT_GT(b.fence, a.fence);
}

TEST_F(Lease, IsNotReleasedWhenToldSo) {
  Elector a(server_, clock_, "a", /*release=*/false);
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  a.Stop();
  EXPECT_EQ(server_.Holder(), "a");
}

TEST_F(Lease, IsJudgedByLocalTimeOnly) {
  // Written by a holder whose clock is years behind: still valid for as long as it changes.
  server_.Set(
      {{"holderIdentity", "other"}, {"leaseDurationSeconds", 15}, {"renewTime", "1999-01-01T00:00:00.000000Z"}, {"leaseTransitions", 7}});
  Elector a(server_, clock_, "a");
  a.Start();
  Pass(seconds(12));
  EXPECT_FALSE(a.elector.leading());
  server_.Set(
      {{"holderIdentity", "other"}, {"leaseDurationSeconds", 15}, {"renewTime", "1999-01-01T00:00:10.000000Z"}, {"leaseTransitions", 7}});
  Pass(seconds(12));
  EXPECT_FALSE(a.elector.leading()) << "it was renewed";
  ASSERT_TRUE(Until(seconds(12), [&] { return a.Leads(); }));
  EXPECT_EQ(a.fence, 8);
}

TEST_F(Lease, CountsATransitionWhenAProcessFindsItsFormerSelf) {
  server_.Set({{"holderIdentity", "a"}, {"leaseDurationSeconds", 15}, {"leaseTransitions", 3}});
  Elector a(server_, clock_, "a");
  a.Start();
  ASSERT_TRUE(Until(seconds(2), [&] { return a.Leads(); }));
  EXPECT_EQ(a.fence, 4);
}

TEST_F(Lease, EndsAtOnceWhenSomebodyElseIsInIt) {
  Elector a(server_, clock_, "a");
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  server_.Set({{"holderIdentity", "thief"}, {"leaseDurationSeconds", 15}, {"leaseTransitions", 1}});
  ASSERT_TRUE(Until(seconds(4), [&] { return a.stops == 1; }));
  EXPECT_FALSE(a.elector.leading());
}

TEST_F(Lease, DeletedUnderItsHolderIsNotTakenBeforeItWouldHaveExpired) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  b.Start();
  Pass(seconds(6));
  a.cut = true;
  server_.Delete();
  Pass(seconds(7));
  EXPECT_FALSE(b.elector.leading()) << "a may still lead";
  ASSERT_TRUE(Until(seconds(20), [&] { return b.Leads(); }));
  EXPECT_EQ(a.stops, 1);
  EXPECT_GT(b.fence, a.fence);
}

// Virtual time stands still until every elector waits, so what is measured is what they do.
TEST_F(Lease, AHolderThatVanishesHasASuccessorWithinTheLeaseDurationAndASecond) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    FakeClock clock;
    LeaseServer server;
    Elector a(server, clock, "a", /*release=*/true, nullptr, seed), b(server, clock, "b", true, nullptr, seed + 1000);
    a.Start();
    ASSERT_TRUE(Simulate(clock, 1, seconds(5), [&] { return a.Leads(); }));
    b.Start();
    (void)Simulate(clock, 2, seconds(3) + milliseconds(random() % 5000), [] { return false; });
    ASSERT_TRUE(a.Leads());
    a.cut = true;
    const MonoTime vanished = clock.Mono();
    ASSERT_TRUE(Simulate(clock, 2, seconds(20), [&] { return b.Leads(); })) << "seed " << seed;
    EXPECT_LE(clock.Mono() - vanished, seconds(16)) << "seed " << seed;
    EXPECT_EQ(a.stops, 1) << "it had stopped before";
    EXPECT_FALSE(a.elector.leading());
    EXPECT_EQ(b.fence, a.fence + 1);
  }
}

TEST_F(Lease, AReleasedOneHasASuccessorWithinASecond) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.Start();
  ASSERT_TRUE(Simulate(clock_, 1, seconds(5), [&] { return a.Leads(); }));
  b.Start();
  (void)Simulate(clock_, 2, seconds(5), [] { return false; });
  a.Stop();
  const MonoTime released = clock_.Mono();
  ASSERT_TRUE(Simulate(clock_, 1, seconds(5), [&] { return b.Leads(); }));
  EXPECT_LE(clock_.Mono() - released, seconds(1));
}

TEST_F(Lease, IsTakenFromAHolderWithAShorterDurationThanOurs) {
  server_.Set({{"holderIdentity", "other"}, {"leaseDurationSeconds", 3}, {"leaseTransitions", 0}});
  Elector a(server_, clock_, "a");
  a.Start();
  ASSERT_TRUE(Simulate(clock_, 1, seconds(10), [&] { return a.Leads(); }));
  EXPECT_GE(clock_.Mono().time_since_epoch(), seconds(3));
  EXPECT_LE(clock_.Mono().time_since_epoch(), seconds(4));
  EXPECT_EQ(a.fence, 1);
}

TEST_F(Lease, IsTakenAtOnceWhenNobodyHoldsIt) {
  for (const Json& spec : {Json::object(), Json{{"holderIdentity", ""}, {"leaseDurationSeconds", 15}}}) {
    server_.Set(spec);
    FakeClock clock;
    Elector a(server_, clock, "a");
    a.Start();
    ASSERT_TRUE(Eventually([&] { return a.Leads(); }));
    EXPECT_EQ(clock.Mono().time_since_epoch(), Duration(0));
    EXPECT_EQ(a.fence, 1);
  }
}

TEST_F(Lease, IsRenewedWithoutReadingIt) {
  Elector a(server_, clock_, "a");
  a.Start();
  ASSERT_TRUE(Simulate(clock_, 1, seconds(10), [&] { return a.transport->sent().size() >= 5; }));
  EXPECT_TRUE(a.Methods().starts_with("GET POST PUT PUT PUT ")) << a.Methods();
}

TEST_F(Lease, IsReadAgainWhenARenewalWasRefusedAndThenRenewedWithoutReading) {
  prometheus::Registry registry;
  RuntimeMetrics metrics(registry);
  Elector a(server_, clock_, "a", /*release=*/true, &metrics);
  std::atomic<int> puts{0};
  a.before = [&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (request.method == "PUT" && ++puts == 2) return Failure(409, "Conflict");
    return std::nullopt;
  };
  a.Start();
  ASSERT_TRUE(Simulate(clock_, 1, seconds(20), [&] { return a.transport->sent().size() >= 7; }));
  EXPECT_TRUE(a.Methods().starts_with("GET POST PUT PUT GET PUT PUT ")) << a.Methods();
  EXPECT_EQ(a.stops, 0);
  EXPECT_EQ(a.fence, 0);
  EXPECT_EQ(MetricValue(registry, "leader_election_slowpath_total", {{"name", "l"}}), 1);
  EXPECT_EQ(MetricValue(registry, "leader_election_master_status", {{"name", "l"}}), 1);
  a.Stop();
  EXPECT_EQ(MetricValue(registry, "leader_election_master_status", {{"name", "l"}}), 0);
}

TEST_F(Lease, ItsReleaseIsTriedAgainAfterAConflict) {
  Elector a(server_, clock_, "a");
  std::atomic<bool> stopping{false}, conflicted{false};
  a.before = [&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (stopping && request.method == "PUT" && !conflicted.exchange(true)) return Failure(409, "Conflict");
    return std::nullopt;
  };
  a.Start();
  ASSERT_TRUE(Eventually([&] { return a.Leads(); }));
  stopping = true;
  a.Stop();
  EXPECT_TRUE(conflicted);
  EXPECT_EQ(server_.Holder(), "");
}

TEST_F(Lease, IsReleasedThoughARenewalWasUnderWay) {
  for (const char* method : {"PUT", "GET"}) {
    LeaseServer server;
    FakeClock clock;
    Elector a(server, clock, "a");
    std::atomic<bool> armed{false}, hanging{false}, go_on{false};
    a.before = [&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
      if (!armed) return std::nullopt;
      // For GET to be reached, the renewal before it has to fail.
      if (method == std::string("GET") && request.method == "PUT" && !hanging) return Failure(409, "Conflict");
      if (request.method != method || hanging.exchange(true)) return std::nullopt;
      EXPECT_TRUE(Eventually([&] { return go_on.load(); }));
      return Result<HttpResponse>(Status(Code::kCancelled, "cancelled"));
    };
    a.Start();
    ASSERT_TRUE(Eventually([&] { return a.Leads() && clock.waiters() == 1; }));
    armed = true;
    ASSERT_TRUE(AdvanceUntil(clock, milliseconds(500), seconds(5), [&] { return hanging.load(); }));
    std::jthread stopper([&] { a.Stop(); });
    go_on = true;
    stopper.join();
    EXPECT_EQ(server.Holder(), "") << method;
    EXPECT_EQ(a.stops, 1);
  }
}

TEST_F(Lease, LosingItStopsAtOnceAndIsNoRelease) {
  Elector a(server_, clock_, "a");
  a.Start();
  ASSERT_TRUE(Eventually([&] { return a.Leads(); }));
  a.cut = true;
  const MonoTime cut = clock_.Mono();
  ASSERT_TRUE(Simulate(clock_, 1, seconds(20), [&] { return a.stops == 1; }));
  EXPECT_EQ(clock_.Mono() - cut, seconds(10)) << "the renew deadline, counted from the last renewal";
  EXPECT_EQ(server_.Holder(), "a");
}

// Requests on dead connections: nothing comes back, and the caller hears of it when its time is over. `taken`: they reached the server
// before their connection died, and only the answers are lost.
class LeaseOnDeadConnections : public Lease, public ::testing::WithParamInterface<bool> {
 protected:
  std::optional<Result<HttpResponse>> Die(const HttpRequest& request) {
    if (GetParam()) (void)server_.Answer(request);
    (void)clock_.Sleep(request.timeout, over_.get_token());
    return Result<HttpResponse>(Status(Code::kDeadlineExceeded, "no answer"));
  }
  // When a test ends, nobody may wait for time that passes no more.
  struct End {
    ~End() { over.request_stop(); }
    std::stop_source& over;
  };
  std::stop_source over_;
};

TEST_P(LeaseOnDeadConnections, IsKeptThoughTwoInARowDieAgainAndAgain) {
  std::atomic<int> dead{0}, renewed{0};
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  const End end{over_};
  a.before = [&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (dead > 0) {
      --dead;
      return Die(request);
    }
    Result<HttpResponse> answer = server_.Answer(request);
    if (request.method == "PUT" && answer->status == 200) {
      ++renewed;
      dead = 2;  // the next ones
    }
    return answer;
  };
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  b.Start();
  EXPECT_FALSE(Until(seconds(120), [&] { return a.stops > 0 || b.elector.leading(); }));
  EXPECT_TRUE(a.elector.leading());
  EXPECT_GE(renewed, 12);
}

TEST_P(LeaseOnDeadConnections, LastsFromTheWriteThatSucceededAndNotFromOneThatFailedBeforeIt) {
  std::atomic<bool> die_once{false}, cut{false};
  std::atomic<Duration::rep> written{0};
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  const End end{over_};
  a.before = [&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (cut || die_once.exchange(false)) return Die(request);
    if (request.method == "PUT") {
      written = clock_.Mono().time_since_epoch().count();
      cut = true;
    }
    return std::nullopt;
  };
  a.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  b.Start();
  die_once = true;
  ASSERT_TRUE(Until(seconds(30), [&] { return a.stops == 1; }));
  ASSERT_GT(written, 0);
  const Duration led = clock_.Mono().time_since_epoch() - Duration(written);
  EXPECT_LE(led, seconds(10)) << "the renew deadline";
  EXPECT_GE(led, seconds(10) - milliseconds(1));
  EXPECT_FALSE(b.elector.leading());
  ASSERT_TRUE(Until(seconds(30), [&] { return b.Leads(); }));
  EXPECT_EQ(a.stops, 1);
}

INSTANTIATE_TEST_SUITE_P(Answers, LeaseOnDeadConnections, ::testing::Bool(),
                         [](const auto& lost) { return lost.param ? "LostWithTheConnection" : "NeverSent"; });

TEST_F(Lease, TellsItsTransitionNumber) {
  Elector a(server_, clock_, "a");
  EXPECT_EQ(a.elector.transitions(), -1);
  server_.Set({{"holderIdentity", ""}, {"leaseTransitions", 41}});
  a.Start();
  ASSERT_TRUE(Eventually([&] { return a.Leads(); }));
  EXPECT_EQ(a.elector.transitions(), 42);
}

TEST_F(Lease, IsNotTakenWithTimesOrNamesThatMakeNoSense) {
  const LeaseOptions good{.ns = "ns", .name = "l", .identity = "a"};
  EXPECT_TRUE(Validate(good).ok());
  auto refused = [&](auto change, const char* why) {
    LeaseOptions options = good;
    change(options);
    Status status = Validate(options);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << why;
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  };
  refused([](LeaseOptions& o) { o.identity = ""; }, "identity is empty");
  refused([](LeaseOptions& o) { o.name = ""; }, "name");
  refused([](LeaseOptions& o) { o.renew_deadline = o.lease_duration; }, "longer than renew_deadline");
  refused([](LeaseOptions& o) { o.renew_deadline = seconds(12), o.renew_every = seconds(10); }, "1.2 × renew_every");
  refused([](LeaseOptions& o) { o.renew_every = Duration(0); }, "positive");
  refused([](LeaseOptions& o) { o.lease_duration = milliseconds(1500); }, "whole seconds");
  Elector a(server_, clock_, "");
  EXPECT_EQ(a.elector.Start().code(), Code::kInvalidArgument);
}

// For /healthz.
class LeaseCheck : public Lease {};

TEST_F(LeaseCheck, IsFineBeforeAndWithoutAndWithTheLease) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  EXPECT_TRUE(a.elector.Check(seconds(20)).ok()) << "not started";
  a.Start();
  ASSERT_TRUE(Eventually([&] { return a.Leads() && clock_.waiters() == 1; }));
  EXPECT_TRUE(a.elector.Check(seconds(20)).ok());
  b.Start();
  clock_.Advance(hours(1));
  EXPECT_TRUE(b.elector.Check(seconds(20)).ok()) << "another's lease is not our trouble";
}

TEST_F(LeaseCheck, FailsWhenTheLeaseIsLongOverAndTheWorkGoesOn) {
  Elector a(server_, clock_, "a");
  std::atomic<bool> let_go{false};
  a.on_stop = [&] { EXPECT_TRUE(Eventually([&] { return let_go.load(); })); };
  a.Start();
  ASSERT_TRUE(Eventually([&] { return a.Leads() && clock_.waiters() == 1; }));
  a.cut = true;
  clock_.Advance(seconds(16));
  ASSERT_TRUE(Eventually([&] { return a.stops == 1; }));
  EXPECT_TRUE(a.elector.Check(seconds(20)).ok()) << "over, but within the tolerance";
  clock_.Advance(seconds(20));
  Status failed = a.elector.Check(seconds(20));
  EXPECT_FALSE(failed.ok());
  EXPECT_NE(failed.message().find("ns/l"), std::string::npos) << failed.message();
  let_go = true;
  EXPECT_TRUE(Eventually([&] { return a.elector.Check(seconds(20)).ok(); })) << "the work has stopped";
}

TEST_F(LeaseCheck, MayBeAskedFromAnyThread) {
  Elector a(server_, clock_, "a");
  std::atomic<bool> over{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!over) {
        EXPECT_TRUE(a.elector.Check(hours(1)).ok());
        (void)a.elector.leading();
        (void)a.elector.transitions();
      }
    });
  }
  a.Start();
  ASSERT_TRUE(AdvanceUntil(clock_, milliseconds(500), seconds(5), [&] { return a.Leads(); }));
  a.Stop();
  over = true;
}

}  // namespace
}  // namespace holdfast::kube
