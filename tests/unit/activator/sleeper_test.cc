#include "activator/sleeper.h"

#include <gtest/gtest.h>

#include "activator/answers.h"
#include "activator/cluster.h"

namespace holdfast::activator {
namespace {

using api::SuspendPhase;

api::SuspendedWorkload Nb(SuspendPhase phase, bool suspended = true) {
  api::SuspendedWorkload s;
  s.meta.ns = "default";
  s.meta.name = "nb";
  s.spec.target_kind = "Deployment";
  s.spec.target_name = "nb";
  s.spec.suspended = suspended;
  s.spec.on_request = api::OnRequest{.service = "nb", .ignored_user_agents = {"GoogleHC/"}, .ignored_paths = {"/healthz"}};
  s.status.phase = phase;
  s.status.suspended_at = "2026-06-01T12:00:00Z";
  return s;
}

Request Get(const std::string& path, const std::string& more = "") { return ReadRequest("GET " + path + " HTTP/1.1\r\n" + more + "\r\n"); }

TEST(Judge, WhatBecomesOfARequest) {
  const Request api_call = Get("/api"), browser = Get("/", "Accept: text/html\r\n"), status = Get("/.holdfast/status"),
                health = Get("/healthz?x"), probe = Get("/", "User-Agent: GoogleHC/1.0\r\n"), tls = ReadRequest("\x16\x03"), nothing = {},
                half = ReadRequest("GET / HTTP/1.1\r\nHo");
  struct {
    const char* what;
    SuspendPhase phase;
    const Request& request;
    bool silent, reachable;
    Verdict verdict;
  } const cases[] = {
      {"asleep", SuspendPhase::kSuspended, api_call, false, false, Verdict::kHold},
      {"a browser", SuspendPhase::kSuspended, browser, false, false, Verdict::kPage},
      {"another protocol", SuspendPhase::kSuspended, tls, false, false, Verdict::kHold},
      {"who says nothing yet", SuspendPhase::kSuspended, nothing, false, false, Verdict::kWait},
      {"who waits for the server", SuspendPhase::kSuspended, nothing, true, false, Verdict::kHold},
      {"half a head", SuspendPhase::kSuspended, half, false, false, Verdict::kWait},
      {"half a head while it runs", SuspendPhase::kRunning, half, false, true, Verdict::kWait},
      {"a health check", SuspendPhase::kSuspended, health, false, false, Verdict::kIgnored},
      {"by its user agent", SuspendPhase::kSuspended, probe, false, false, Verdict::kIgnored},
      {"which goes through when it runs", SuspendPhase::kRunning, health, false, true, Verdict::kForward},
      {"how far it is", SuspendPhase::kResuming, status, false, false, Verdict::kStatus},
      {"also when it is ready", SuspendPhase::kRunning, status, false, true, Verdict::kStatus},
      {"resuming, no pod ready", SuspendPhase::kResuming, api_call, false, false, Verdict::kHold},
      {"resuming, one ready", SuspendPhase::kResuming, api_call, false, true, Verdict::kForward},
      {"running", SuspendPhase::kRunning, browser, false, true, Verdict::kForward},
      {"running, a connection without words", SuspendPhase::kRunning, nothing, true, true, Verdict::kForward},
      {"its pods are still ready, but frozen", SuspendPhase::kSuspending, api_call, false, true, Verdict::kHold},
      {"a stale endpoint", SuspendPhase::kSuspended, api_call, false, true, Verdict::kHold},
  };
  for (const auto& c : cases) EXPECT_EQ(Judge(Nb(c.phase), c.request, c.silent, c.reachable), c.verdict) << c.what;
}

TEST(ToBeWokenTest, OnlyWhatSleepsByTheLastWord) {
  EXPECT_TRUE(ToBeWoken(Nb(SuspendPhase::kSuspended)));
  EXPECT_TRUE(ToBeWoken(Nb(SuspendPhase::kSuspending)));
  EXPECT_FALSE(ToBeWoken(Nb(SuspendPhase::kSuspended, false))) << "somebody has said so already";
  EXPECT_FALSE(ToBeWoken(Nb(SuspendPhase::kResuming))) << "scaled up by hand";
  EXPECT_FALSE(ToBeWoken(Nb(SuspendPhase::kRunning)));
  api::SuspendedWorkload leaving = Nb(SuspendPhase::kSuspended);
  leaving.meta.deletion_timestamp = "2026-06-01T12:00:00Z";
  EXPECT_FALSE(ToBeWoken(leaving));
  api::SuspendedWorkload not_asked = Nb(SuspendPhase::kSuspended);
  not_asked.spec.on_request.reset();
  EXPECT_FALSE(ToBeWoken(not_asked));
}

std::shared_ptr<const kube::EndpointSlice> Slice(const std::string& manager, const std::string& port, bool ready) {
  kube::EndpointSlice slice;
  slice.managed_by = manager;
  slice.address_type = "IPv4";
  slice.ports = {{port, "TCP", 8080}};
  slice.endpoints = {{"10.1.0.9", ready}};
  return std::make_shared<const kube::EndpointSlice>(slice);
}

TEST(ReadyAddressesTest, AreThoseOfReadyPodsUnderThePortsOwnNameAndNeverAnActivator) {
  EXPECT_EQ(ReadyAddresses({Slice("endpointslice-controller.k8s.io", "http", true)}, "http"), (std::vector<Address>{{"10.1.0.9", 8080}}));
  EXPECT_TRUE(ReadyAddresses({Slice("endpointslice-controller.k8s.io", "http", false)}, "http").empty());
  EXPECT_TRUE(ReadyAddresses({Slice("endpointslice-controller.k8s.io", "http", true)}, "admin").empty());
  EXPECT_TRUE(ReadyAddresses({Slice("holdfast.dev", "http", true)}, "http").empty()) << "it would lead back here";
}

SleeperPtr Allotted(const std::string& name, int32_t number, const std::string& service = "nb") {
  api::SuspendedWorkload s = Nb(SuspendPhase::kSuspended);
  s.meta.name = name;
  s.status.on_request.service = service;
  s.status.on_request.ports = {{"http", number}};
  return std::make_shared<const api::SuspendedWorkload>(s);
}

TEST(Routes, ANumberStandsForOnePortOfOneService) {
  const auto routes = RoutesOf({Allotted("a", 20001), Allotted("b", 20002)}, 20000, 20010);
  ASSERT_EQ(routes.size(), 2u);
  EXPECT_EQ(routes.at(20001), (Route{"default", "a", "nb", "http"}));
}

TEST(Routes, OneThatTwoHaveStandsForNobody) {
  EXPECT_TRUE(RoutesOf({Allotted("a", 20001), Allotted("b", 20001)}, 20000, 20010).empty());
  EXPECT_TRUE(RoutesOf({Allotted("a", 20001), Allotted("b", 20001), Allotted("c", 20001)}, 20000, 20010).empty());
}

TEST(Routes, OneOutsideOfTheRangeOrOfAnotherServiceIsLeftAlone) {
  EXPECT_TRUE(RoutesOf({Allotted("a", 8080), Allotted("b", 22)}, 20000, 20010).empty());
  EXPECT_TRUE(RoutesOf({Allotted("a", 20001, "the-old-one")}, 20000, 20010).empty());
}

TEST(Answers, SayWhyOnOneLineOfPrintableCharacters) {
  api::SuspendedWorkload s = Nb(SuspendPhase::kResuming);
  s.status.conditions = {
      {.type = "Suspended", .status = "False", .reason = "Resuming", .message = "0 of 1 pods run;\r\nSet-Cookie: x\x01"}};
  const std::string why = Why(s);
  EXPECT_NE(why.find("Resuming: 0 of 1 pods run;"), std::string::npos);
  EXPECT_EQ(why.find_first_of("\r\n\x01"), std::string::npos);
  s.status.conditions[0].message = std::string(5000, 'x');
  EXPECT_LE(Why(s).size(), 1024u);
}

TEST(Answers, WhatOthersWroteCannotLeaveThePagesData) {
  api::SuspendedWorkload s = Nb(SuspendPhase::kSuspended);
  s.spec.target_name = "</script><script>alert(1)</script>&";
  const std::string page = PageAnswer(s);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_NE(page.find("HTTP/1.1 503 "), std::string::npos);
  EXPECT_NE(page.find("\r\nRetry-After: 5\r\n"), std::string::npos);
  EXPECT_NE(page.find("\r\nCache-Control: no-store\r\n"), std::string::npos);
  // The length is the body's.
  const size_t body = page.find("\r\n\r\n") + 4;
  EXPECT_NE(page.find("Content-Length: " + std::to_string(page.size() - body) + "\r\n"), std::string::npos);
}

TEST(Answers, TheStatusIsJson) {
  const std::string answer = StatusAnswer(Nb(SuspendPhase::kResuming), true);
  const Json json = ParseJson(answer.substr(answer.find("\r\n\r\n") + 4)).value_or(Json());
  EXPECT_EQ(GetString(json, {"workload"}), "Deployment nb");
  EXPECT_EQ(GetString(json, {"phase"}), "Resuming");
  EXPECT_EQ(GetString(json, {"asleepSince"}), "2026-06-01T12:00:00Z");
  EXPECT_TRUE(GetBool(json, {"ready"}));
  EXPECT_FALSE(
      GetBool(ParseJson(StatusAnswer(Nb(SuspendPhase::kSuspended), true).substr(answer.find("\r\n\r\n"))).value_or(Json()), {"ready"}));
}

}  // namespace
}  // namespace holdfast::activator
