// What a restore needs of the new pod's size and mounts, compared before a checkpoint is given to it.
#include "api/fit.h"

#include <gmock/gmock.h>

#include "api/security.h"

namespace holdfast::api {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPagesOf300Mi = 300LL * 256;

Json PodJson(const Json& container) {
  Json pod = {{"metadata", {{"name", "web"}, {"uid", "u"}}}, {"spec", {{"containers", Json::array({container})}}}};
  return pod;
}

Json Main(const std::string& memory_limit, const Json& mounts) {
  Json container = {{"name", "main"}, {"image", "i"}, {"volumeMounts", mounts}};
  if (!memory_limit.empty()) container["resources"]["limits"]["memory"] = memory_limit;
  return container;
}

Json Mount(const std::string& path, bool read_only = false) { return {{"name", "v"}, {"mountPath", path}, {"readOnly", read_only}}; }

// As the controller records it of a pod with this limit and these mounts, and its agent reports it.
Checkpoint Of(int64_t pages, const Json& mounts, const std::string& limit = "") {
  Checkpoint c;
  c.status.security = DumpJson(SecurityOf(kube::Pod::FromJson(PodJson(Main(limit, mounts)))));
  c.status.containers = {{"main", "i", "", pages, true, ""}};
  return c;
}

struct Case {
  const char* what;
  int64_t pages;
  Json then;
  std::string limit;
  Json now;
  const char* refused;  // by which words; empty: it is not
};

TEST(Fit, AMemoryLimitAndMountsMustBeEnoughForWhatWasDumped) {
  const Json none = Json::array(), data = Json::array({Mount("/data")}), two = Json::array({Mount("/data"), Mount("/cache")});
  const Case cases[] = {
      {"no limit", kPagesOf300Mi, none, "", none, ""},
      {"a larger limit", kPagesOf300Mi, none, "512Mi", none, ""},
      {"just as large", kPagesOf300Mi, none, "300Mi", none, ""},
      {"a smaller limit", kPagesOf300Mi, none, "256Mi", none, "300Mi in memory, and this pod's may have 256Mi"},
      {"what to do", kPagesOf300Mi, none, "256Mi", none, "Raise resources.limits.memory to more than 300Mi"},
      {"in other words", kPagesOf300Mi, none, "0.25Gi", none, "may have 0.25Gi"},
      {"in decimal ones", kPagesOf300Mi, none, "300M", none, "may have 300M"},
      {"a limit that cannot be read", kPagesOf300Mi, none, "much", none, ""},
      {"its size is not known", 0, none, "1Mi", none, ""},
      {"nonsense from a node", INT64_MAX, none, "1Mi", none, ""},
      {"the same mounts", 1, two, "", two, ""},
      {"in another order", 1, two, "", Json::array({Mount("/cache"), Mount("/data/")}), ""},
      {"one more", 1, data, "", two, ""},
      {"one that is gone", 1, two, "", data, "had a volume mounted at /cache"},
      {"at another place", 1, data, "", Json::array({Mount("/other")}), "had a volume mounted at /data"},
      {"not writable any more", 1, data, "", Json::array({Mount("/data", true)}), "could write to its volume at /data"},
      {"writable now", 1, Json::array({Mount("/data", true)}), "", data, ""},
  };
  for (const Case& c : cases) {
    const auto why = RefusedByFit(Of(c.pages, c.then), kube::Pod::FromJson(PodJson(Main(c.limit, c.now))));
    EXPECT_EQ(why.has_value(), *c.refused != '\0') << c.what << ": " << why.value_or("");
    EXPECT_THAT(why.value_or(""), HasSubstr(c.refused)) << c.what;
  }
}

// System V memory of a neighbour is in every container's images.
TEST(Fit, ALimitThatWasEnoughIsEnough) {
  const Json none = Json::array();
  const kube::Pod same = kube::Pod::FromJson(PodJson(Main("100Mi", none))), less = kube::Pod::FromJson(PodJson(Main("99Mi", none)));
  EXPECT_EQ(RefusedByFit(Of(450 * 256, none, "100Mi"), same), std::nullopt);
  EXPECT_NE(RefusedByFit(Of(450 * 256, none, "100Mi"), less), std::nullopt);
  EXPECT_EQ(RefusedByFit(Of(50 * 256, none, "100Mi"), less), std::nullopt);
}

TEST(Fit, WhatIsNotKnownIsNotHeldAgainstAPod) {
  const kube::Pod pod = kube::Pod::FromJson(PodJson(Main("1Gi", Json::array())));
  Checkpoint c = Of(1, Json::array({Mount("/data")}));
  c.status.security = "";
  EXPECT_EQ(RefusedByFit(c, pod), std::nullopt) << "made by an earlier release";
  c = Of(300 * 256, Json::array(), "1Gi");
  const kube::Pod small = kube::Pod::FromJson(PodJson(Main("200Mi", Json::array())));
  EXPECT_NE(RefusedByFit(c, small), std::nullopt);
  c.status.security = R"({"containers":[{"name":"main"}]})";
  EXPECT_EQ(RefusedByFit(c, small), std::nullopt) << "an earlier release did not record the limit";
  c = Of(1, Json::array({Mount("/data")}));
  c.status.containers[0].name = "other";
  EXPECT_EQ(RefusedByFit(c, pod), std::nullopt) << "it is not restored into this pod";
}

}  // namespace
}  // namespace holdfast::api
