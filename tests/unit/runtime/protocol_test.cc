#include "runtime/protocol.h"

#include <gtest/gtest.h>

namespace holdfast::runtime {
namespace {

DumpRequest SomeRequest() {
  DumpRequest request;
  request.checkpoint_uid = "ck";
  request.pod_uid = "pod";
  request.ns = "default";
  request.pod = "web-0";
  request.final = true;
  request.deadline_unix_ms = 1234567890123;
  request.containers = {{"main", "abc"}, {"side", "def"}};
  request.volumes = {{"data", "/var/lib/kubelet/pods/pod/volumes/kubernetes.io~empty-dir/data"}};
  return request;
}

TEST(Protocol, EveryMessageComesBackAsItWasSent) {
  const Json request = SomeRequest().ToJson();
  EXPECT_EQ(DumpRequest::FromJson(request)->ToJson(), request);
  const Json intent = Intent{"ck", "pod", "main", "/var/lib/holdfast/landing/ck", true, false}.ToJson();
  EXPECT_EQ(Intent::FromJson(intent)->ToJson(), intent);
  const Json result = DumpResult{true, "Completed", "", true, 700, 600, 30, 5, 1 << 30, 42, {"10.0.0.1", "fd00::1"}, "web-0"}.ToJson();
  EXPECT_EQ(DumpResult::FromJson(result)->ToJson(), result);
  const Json question = CreateQuestion{"pod", "default", "web-0", "main", "abc", "sb", false}.ToJson();
  EXPECT_EQ(CreateQuestion::FromJson(question)->ToJson(), question);
  const Json answer =
      CreateAnswer{"restore", "", "/var/lib/holdfast/restore/pod", "main", "CloseAll", true, true, {{"data", "/v"}}}.ToJson();
  EXPECT_EQ(CreateAnswer::FromJson(answer)->ToJson(), answer);
  const Json outcome = RestoreOutcome{"pod", "main", "abc", false, true, 0.5, "CRIU: no"}.ToJson();
  EXPECT_EQ(RestoreOutcome::FromJson(outcome)->ToJson(), outcome);
  const Json wait = WaitState{"fetching", "", 1, 2}.ToJson();
  EXPECT_EQ(WaitState::FromJson(wait)->ToJson(), wait);
}

TEST(Protocol, NamesThatAreNotPlainAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "../../etc"}) {
    Json request = SomeRequest().ToJson();
    request["containers"][0]["name"] = name;
    EXPECT_EQ(DumpRequest::FromJson(request).status().code(), Code::kInvalidArgument) << name;
    Json answer = CreateAnswer{"restore", "", "/d", "main", "CloseAll", true, false, {}}.ToJson();
    answer["container"] = name;
    EXPECT_FALSE(CreateAnswer::FromJson(answer).ok()) << name;
  }
}

TEST(Protocol, PathsMustBeAbsoluteAndStayWhereTheySay) {
  for (const char* path : {"", "relative", "/a/../b", "/.."}) {
    Json request = SomeRequest().ToJson();
    request["volumes"][0]["path"] = path;
    EXPECT_FALSE(DumpRequest::FromJson(request).ok()) << path;
  }
}

TEST(Protocol, WrongTypesAreRefusedWithTheKeyThatIsWrong) {
  const Json wrong[] = {nullptr, 17, -1, 1.5, "text", Json::array({1}), Json::object()};
  const Json good = SomeRequest().ToJson();
  for (const auto& [key, value] : good.items()) {
    for (const Json& bad : wrong) {
      if (bad.type() == value.type() || (bad.is_number() && value.is_number())) continue;
      Json request = good;
      request[key] = bad;
      Result<DumpRequest> read = DumpRequest::FromJson(request);
      ASSERT_FALSE(read.ok()) << key << " = " << bad;
      EXPECT_NE(read.status().message().find(key), std::string::npos) << read.status().message();
    }
  }
}

TEST(Protocol, NegativeAndHugeNumbersAreRefused) {
  Json request = SomeRequest().ToJson();
  request["deadline_unix_ms"] = -1;
  EXPECT_FALSE(DumpRequest::FromJson(request).ok());
  request["deadline_unix_ms"] = UINT64_MAX;
  EXPECT_FALSE(DumpRequest::FromJson(request).ok());
}

TEST(Protocol, WhatIsNoObjectIsRefused) {
  for (const Json& json : {Json(), Json(1), Json("x"), Json::array()}) {
    EXPECT_FALSE(Intent::FromJson(json).ok());
    EXPECT_FALSE(DumpRequest::FromJson(json).ok());
    EXPECT_FALSE(DumpResult::FromJson(json).ok());
    EXPECT_FALSE(CreateQuestion::FromJson(json).ok());
    EXPECT_FALSE(CreateAnswer::FromJson(json).ok());
    EXPECT_FALSE(RestoreOutcome::FromJson(json).ok());
    EXPECT_FALSE(WaitState::FromJson(json).ok());
  }
}

TEST(Protocol, TwoContainersOfOneNameOrOnTopOfTheLayoutAreRefused) {
  Json request = SomeRequest().ToJson();
  request["containers"][1]["name"] = "main";
  EXPECT_FALSE(DumpRequest::FromJson(request).ok());
  request["containers"][1]["name"] = "volumes";
  EXPECT_FALSE(DumpRequest::FromJson(request).ok());
}

TEST(Protocol, UnknownWordsAreRefused) {
  EXPECT_FALSE(CreateAnswer::FromJson({{"action", "explode"}}).ok());
  EXPECT_FALSE(WaitState::FromJson({{"state", "sleeping"}}).ok());
  EXPECT_TRUE(CreateAnswer::FromJson({{"action", "cold"}, {"a later version", "adds this"}}).ok());
}

}  // namespace
}  // namespace holdfast::runtime
