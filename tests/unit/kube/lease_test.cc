#include "kube/lease.h"

#include <gtest/gtest.h>

#include "kube/objects.h"
#include "tests/unit/kube/fake_transport.h"

namespace holdfast::kube {
namespace {

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

 private:
  std::mutex mutex_;
  Json lease_;
  int version_ = 0;
};

// One elector with its own connection to the server, which a test can cut.
struct Elector {
  Elector(LeaseServer& server, Clock& clock, const std::string& identity, bool release = true)
      : transport(std::make_shared<FakeTransport>([this, &server](const HttpRequest& request) -> Result<HttpResponse> {
          if (cut) return Status(Code::kUnavailable, "no route to host");
          return server.Answer(request);
        })),
        client(transport, clock),
        elector(
            client, {.ns = "ns", .name = "l", .identity = identity, .release_on_stop = release},
            [this](int64_t transitions) { fence = transitions; }, [this] { ++stops; }) {}
  // Leading, and its on_start has run.
  bool Leads() const { return elector.leading() && fence >= 0; }
  std::atomic<bool> cut{false};
  std::atomic<int64_t> fence{-1};
  std::atomic<int> stops{0};
  std::shared_ptr<FakeTransport> transport;
  Client client;
  LeaderElector elector;
};

class Lease : public ::testing::Test {
 protected:
  bool Until(Duration limit, const std::function<bool()>& ready) { return AdvanceUntil(clock_, milliseconds(500), limit, ready); }
  // Lets virtual time pass while nothing is expected to happen.
  void Pass(Duration duration) {
    (void)AdvanceUntil(clock_, milliseconds(500), duration, [] { return false; });
  }
  FakeClock clock_;
  LeaseServer server_;
};

TEST_F(Lease, IsCreatedByTheFirstAndKeptByRenewals) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.elector.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  EXPECT_EQ(a.fence, 0);
  b.elector.Start();
  Pass(seconds(40));
  EXPECT_TRUE(a.elector.leading());
  EXPECT_FALSE(b.elector.leading());
  EXPECT_EQ(a.stops, 0);
  EXPECT_EQ(server_.Holder(), "a");
}

TEST_F(Lease, IsTakenOverOnlyAfterTheHolderStoppedLeading) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.elector.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  b.elector.Start();
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
  a.elector.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  // As after a pause of the machine: no thread has run, only time has passed.
  clock_.Advance(seconds(11));
  EXPECT_FALSE(a.elector.leading());
  EXPECT_TRUE(Until(seconds(5), [&] { return a.stops == 1; }));
}

TEST_F(Lease, IsReleasedAfterOnStop) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.elector.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  b.elector.Start();
  Pass(seconds(3));
  a.elector.Stop();
  EXPECT_EQ(a.stops, 1);
  ASSERT_TRUE(Until(seconds(6), [&] { return b.Leads(); })) << "a released lease need not expire";
  EXPECT_GT(b.fence, a.fence);
}

TEST_F(Lease, IsNotReleasedWhenToldSo) {
  Elector a(server_, clock_, "a", /*release=*/false);
  a.elector.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  a.elector.Stop();
  EXPECT_EQ(server_.Holder(), "a");
}

TEST_F(Lease, IsJudgedByLocalTimeOnly) {
  // Written by a holder whose clock is years behind: still valid for as long as it changes.
  server_.Set(
      {{"holderIdentity", "other"}, {"leaseDurationSeconds", 15}, {"renewTime", "1999-01-01T00:00:00.000000Z"}, {"leaseTransitions", 7}});
  Elector a(server_, clock_, "a");
  a.elector.Start();
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
  a.elector.Start();
  ASSERT_TRUE(Until(seconds(2), [&] { return a.Leads(); }));
  EXPECT_EQ(a.fence, 4);
}

TEST_F(Lease, EndsAtOnceWhenSomebodyElseIsInIt) {
  Elector a(server_, clock_, "a");
  a.elector.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  server_.Set({{"holderIdentity", "thief"}, {"leaseDurationSeconds", 15}, {"leaseTransitions", 1}});
  ASSERT_TRUE(Until(seconds(4), [&] { return a.stops == 1; }));
  EXPECT_FALSE(a.elector.leading());
}

TEST_F(Lease, DeletedUnderItsHolderIsNotTakenBeforeItWouldHaveExpired) {
  Elector a(server_, clock_, "a"), b(server_, clock_, "b");
  a.elector.Start();
  ASSERT_TRUE(Until(seconds(5), [&] { return a.Leads(); }));
  b.elector.Start();
  Pass(seconds(6));
  a.cut = true;
  server_.Delete();
  Pass(seconds(7));
  EXPECT_FALSE(b.elector.leading()) << "a may still lead";
  ASSERT_TRUE(Until(seconds(20), [&] { return b.Leads(); }));
  EXPECT_EQ(a.stops, 1);
  EXPECT_GT(b.fence, a.fence);
}

}  // namespace
}  // namespace holdfast::kube
