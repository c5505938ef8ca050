// Hole 9: processes come back with the rights that they had, whatever the new pod's are. What a checkpoint may be given to is a table.
#include "api/security.h"

#include <gtest/gtest.h>

namespace holdfast::api {
namespace {

kube::Pod PodWith(const char* container, const char* pod = "{}", const char* spec = "{}", const char* image = "counter:1") {
  Json json = {{"metadata", {{"name", "web-0"}, {"namespace", "default"}}}, {"spec", Json::parse(spec)}};
  json["spec"]["securityContext"] = Json::parse(pod);
  json["spec"]["containers"] =
      Json::array({{{"name", "main"}, {"image", image}, {"securityContext", Json::parse(container)}}, {{"name", "istio-proxy"}}});
  return kube::Pod::FromJson(json);
}

// Through the API server and back.
Checkpoint Of(const kube::Pod& pod, const std::string& digest = "sha256:aa") {
  Json json = {{"metadata", {{"name", "ck"}}}, {"status", {{"phase", "Ready"}}}};
  json["status"]["security"] = SecurityOf(pod);
  json["status"]["containers"] = Json::array({{{"name", "main"}, {"imageDigest", digest}, {"restorable", true}}});
  return Checkpoint::FromJson(json);
}

std::string Refused(const kube::Pod& then, const kube::Pod& now) { return RefusedBySecurity(Of(then), now).value_or(""); }

constexpr char kRestricted[] = R"({"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,"runAsUser":1000,
                                   "seccompProfile":{"type":"RuntimeDefault"}})";

TEST(Security, TheSameRightsAreGivenBackWhateverTheyAre) {
  for (const char* context : {"{}", kRestricted, R"({"privileged":true})", R"({"capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]}})",
                              R"({"runAsUser":0,"procMount":"Unmasked","seLinuxOptions":{"level":"s0:c1"}})",
                              R"({"seccompProfile":{"type":"Localhost","localhostProfile":"a.json"},"readOnlyRootFilesystem":true})"}) {
    const kube::Pod pod = PodWith(context, R"({"fsGroup":7,"supplementalGroups":[8,9]})", R"({"hostNetwork":true,"hostPID":true})");
    EXPECT_EQ(Refused(pod, pod), "") << context;
  }
}

TEST(Security, NothingWiderThanTheNewPodsOwnRightsIsGivenBack) {
  struct Case {
    const char *then, *now, *says;  // says: empty: given back
  };
  const Case kCases[] = {
      {R"({"privileged":true})", "{}", "privileged"},
      {R"({"privileged":true})", kRestricted, "privileged"},
      {"{}", R"({"privileged":true})", ""},
      {R"({"capabilities":{"add":["SYS_ADMIN"]}})", "{}", "the capability SYS_ADMIN"},
      {R"({"capabilities":{"add":["SYS_ADMIN"]}})", R"({"privileged":true})", ""},
      {R"({"capabilities":{"add":["cap_net_admin"]}})", R"({"capabilities":{"add":["NET_ADMIN","SYS_TIME"]}})", ""},
      {R"({"capabilities":{"add":["ALL"]}})", R"({"capabilities":{"add":["NET_ADMIN"]}})", "the capability"},
      {R"({"capabilities":{"add":["ALL"],"drop":["SYS_ADMIN"]}})", R"({"capabilities":{"add":["ALL"]}})", ""},
      {R"({"capabilities":{"add":["ALL"]}})", R"({"capabilities":{"add":["ALL"],"drop":["SYS_ADMIN"]}})", "the capability SYS_ADMIN"},
      {"{}", R"({"capabilities":{"drop":["NET_RAW"]}})", "the capability NET_RAW"},
      {"{}", R"({"capabilities":{"drop":["SYS_ADMIN"]}})", ""},  // it had not got that
      {R"({"capabilities":{"drop":["ALL"]}})", "{}", ""},
      {R"({"capabilities":{"drop":["ALL"],"add":["CHOWN"]}})", R"({"capabilities":{"drop":["ALL"]}})", "the capability CHOWN"},
      {"{}", R"({"allowPrivilegeEscalation":false})", "allowPrivilegeEscalation"},
      {R"({"allowPrivilegeEscalation":false})", "{}", ""},
      {R"({"seccompProfile":{"type":"Unconfined"}})", "{}", "seccompProfile"},
      {"{}", R"({"seccompProfile":{"type":"RuntimeDefault"}})", "seccompProfile"},
      {"{}", R"({"seccompProfile":{"type":"Unconfined"}})", ""},
      {R"({"seccompProfile":{"type":"RuntimeDefault"}})", "{}", ""},
      {R"({"seccompProfile":{"type":"Localhost","localhostProfile":"a"}})",
       R"({"seccompProfile":{"type":"Localhost","localhostProfile":"b"}})", "seccompProfile"},
      {R"({"appArmorProfile":{"type":"Unconfined"}})", R"({"appArmorProfile":{"type":"RuntimeDefault"}})", "appArmorProfile"},
      {R"({"seLinuxOptions":{"type":"spc_t"}})", "{}", "seLinuxOptions"},
      {R"({"runAsUser":0})", R"({"runAsUser":1000})", "runAsUser"},
      {"{}", R"({"runAsUser":1000})", "runAsUser"},
      {R"({"runAsUser":1000})", R"({"runAsUser":1001})", "runAsUser"},
      {R"({"runAsUser":1000})", R"({"runAsUser":0})", ""},  // which may become anybody
      {R"({"runAsGroup":0,"runAsUser":5})", R"({"runAsGroup":7,"runAsUser":5})", "runAsGroup"},
      {"{}", R"({"runAsNonRoot":true})", "runAsNonRoot"},
      {R"({"runAsNonRoot":true})", R"({"runAsNonRoot":true})", ""},
      {R"({"procMount":"Unmasked"})", "{}", "unmasked"},
      {"{}", R"({"readOnlyRootFilesystem":true})", "readOnlyRootFilesystem"},
  };
  for (const Case& c : kCases) {
    const std::string refused = Refused(PodWith(c.then), PodWith(c.now));
    SCOPED_TRACE(std::string(c.then) + " then, " + c.now + " now: " + refused);
    EXPECT_EQ(refused.empty(), c.says[0] == '\0');
    EXPECT_NE(refused.find(c.says), std::string::npos);
    EXPECT_TRUE(refused.empty() || refused.find("its container main") != std::string::npos) << "it says which";
  }
}

TEST(Security, WhatThePodSaysHoldsForItsContainersUnlessTheySayOtherwise) {
  EXPECT_EQ(Refused(PodWith("{}", R"({"runAsUser":5})"), PodWith(R"({"runAsUser":5})")), "");
  EXPECT_EQ(Refused(PodWith(R"({"runAsUser":5})", R"({"runAsUser":6})"), PodWith(R"({"runAsUser":5})")), "");
  EXPECT_NE(Refused(PodWith("{}", R"({"fsGroup":6})"), PodWith("{}", R"({"supplementalGroups":[7]})")), "");
  EXPECT_EQ(Refused(PodWith("{}", R"({"fsGroup":6})"), PodWith("{}", R"({"supplementalGroups":[6]})")), "");
}

TEST(Security, ANamespaceOfTheNodeIsNotGivenToAPodThatHasItsOwn) {
  for (const char* host : {"hostNetwork", "hostPID", "hostIPC"}) {
    const std::string spec = std::string("{\"") + host + "\":true}";
    const kube::Pod then = PodWith("{}", "{}", spec.c_str());
    EXPECT_NE(Refused(then, PodWith("{}")).find(host), std::string::npos);
    EXPECT_EQ(Refused(then, then), "");
    EXPECT_EQ(Refused(PodWith("{}"), then), "");
  }
}

TEST(Security, AnotherImageIsAnotherProgram) {
  const kube::Pod then = PodWith("{}");
  EXPECT_NE(Refused(then, PodWith("{}", "{}", "{}", "counter:2")).find("ran the image counter:1, and this pod's is counter:2"),
            std::string::npos);
  EXPECT_EQ(Refused(then, PodWith("{}", "{}", "{}", "counter@sha256:aa")), "") << "the very image that ran, by its digest";
  EXPECT_NE(Refused(then, PodWith("{}", "{}", "{}", "counter@sha256:bb")), "");
}

TEST(Security, OnlyWhatIsInTheCheckpointIsCompared) {
  kube::Pod now = PodWith("{}");
  now.containers[1].image = "istio-proxy:2";
  EXPECT_EQ(Refused(PodWith("{}"), now), "") << "it is not in the checkpoint";
  Checkpoint other = Of(PodWith("{}"));
  other.status.containers[0].name = "another";
  now.containers[0].name = "another";
  EXPECT_NE(RefusedBySecurity(other, now).value_or("").find("another was allowed is not recorded"), std::string::npos);
}

TEST(Security, ACheckpointOfAnEarlierReleaseHasNoRecord) {
  Checkpoint old = Of(PodWith(R"({"privileged":true})"));
  old.status.security = "";
  EXPECT_EQ(RefusedBySecurity(old, PodWith("{}")), std::nullopt);
  old.status.security = "{";
  EXPECT_NE(RefusedBySecurity(old, PodWith("{}")), std::nullopt);
}

TEST(Security, AnImageIsTheSameByAnyOfItsDigests) {
  EXPECT_TRUE(SameImage("sha256:aa", {"sha256:bb", "sha256:aa"}));
  EXPECT_FALSE(SameImage("sha256:aa", {"sha256:bb", "sha256:cc"}));
  EXPECT_TRUE(SameImage("", {"sha256:bb"})) << "not known";
  EXPECT_TRUE(SameImage("sha256:aa", {})) << "not known";
}

}  // namespace
}  // namespace holdfast::api
