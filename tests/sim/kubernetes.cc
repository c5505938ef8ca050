#include "tests/sim/kubernetes.h"

#include "api/checkpoint.h"

namespace holdfast::sim {
namespace {

using std::chrono::seconds;

Json Container(const char* name) { return {{"name", name}, {"image", std::string(name) + ":1"}}; }

}  // namespace

void Kubernetes::MakeNode(const std::string& name) {
  server_.Put("nodes",
              {{"apiVersion", "v1"},
               {"kind", "Node"},
               {"metadata", {{"name", name}, {"labels", {{api::kNodeReady, "ready"}}}}},
               {"spec", Json::object()},
               {"status", {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}}, {"nodeInfo", {{"architecture", "amd64"}}}}}});
}

void Kubernetes::MakeNamespaces() {
  for (const char* ns : {kUserNamespace, kOwnNamespace})
    server_.Put("namespaces", {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", ns}}}});
}

void Kubernetes::MakeWorkloads(int count, const std::function<bool(int)>& two, int mib) {
  MakeNamespaces();
  for (int i = 0; i < count; ++i) MakeDeployment(i, two(i), mib);
}

void Kubernetes::MakeDeployment(int number, bool two, int mib) {
  const std::string name = "web-" + std::to_string(number);
  Json containers = {Container("main")};
  if (two) containers.push_back(Container("side"));
  if (mib > 0) containers[0]["resources"]["requests"]["memory"] = std::to_string(mib) + "Mi";
  const Json spec = {{"replicas", 1}, {"template", {{"metadata", Json::object()}, {"spec", {{"containers", std::move(containers)}}}}}};
  server_.Put("apps/deployments",
              {{"apiVersion", "apps/v1"},
               {"kind", "Deployment"},
               {"metadata", {{"namespace", kUserNamespace}, {"name", name}, {"annotations", {{api::kProtect, "true"}}}}},
               {"spec", spec}});
  const ApiServer::Object made = server_.Find("apps/deployments", std::string(kUserNamespace) + "/" + name);
  server_.Put("apps/replicasets", {{"apiVersion", "apps/v1"},
                                   {"kind", "ReplicaSet"},
                                   {"metadata",
                                    {{"namespace", kUserNamespace},
                                     {"name", name + "-1"},
                                     {"labels", {{"pod-template-hash", "1"}}},
                                     {"ownerReferences",
                                      {{{"apiVersion", "apps/v1"},
                                        {"kind", "Deployment"},
                                        {"name", name},
                                        {"uid", GetString(*made, {"metadata", "uid"})},
                                        {"controller", true}}}}}},
                                   {"spec", spec}});
}

void Kubernetes::Look() {
  for (const ApiServer::Object& one : server_.All("apps/replicasets")) Replicate(*one);
  for (const ApiServer::Object& one : server_.All("apps/statefulsets")) Order(*one);
  for (const ApiServer::Object& one : server_.All("batch/jobs")) Work(*one);
  for (const ApiServer::Object& pod : server_.All("pods")) Schedule(*pod);
}

void Kubernetes::Replicate(const Json& set) {
  const std::string uid = GetString(set, {"metadata", "uid"}), name = GetString(set, {"metadata", "name"});
  int64_t there = 0;
  for (const ApiServer::Object& pod : server_.All("pods")) {
    for (const Json& owner : GetArray(*pod, {"metadata", "ownerReferences"})) {
      if (GetString(owner, {"uid"}) == uid && GetString(*pod, {"metadata", "deletionTimestamp"}).empty()) ++there;
    }
  }
  if (there >= GetInt(set, {"spec", "replicas"})) return;
  kube::HttpRequest request;
  request.method = "POST";
  request.path = kPods;
  request.body = DumpJson(
      {{"apiVersion", "v1"},
       {"kind", "Pod"},
       {"metadata",
        {{"generateName", name + "-"},
         {"labels", {{"app", name}, {"pod-template-hash", "1"}}},
         {"ownerReferences", {{{"apiVersion", "apps/v1"}, {"kind", "ReplicaSet"}, {"name", name}, {"uid", uid}, {"controller", true}}}}}},
       {"spec",
        {{"containers", GetArray(set, {"spec", "template", "spec", "containers"})},
         {"restartPolicy", "Always"},
         {"terminationGracePeriodSeconds", 30}}}});
  (void)server_.Handle(request, "system:serviceaccount:kube-system:replicaset-controller");
}

void Kubernetes::Schedule(const Json& pod) {
  if (!GetString(pod, {"spec", "nodeName"}).empty() || !GetArray(pod, {"spec", "schedulingGates"}).empty()) return;
  if (!GetString(pod, {"metadata", "deletionTimestamp"}).empty()) return;
  std::vector<std::string> fit;
  for (const ApiServer::Object& node : server_.All("nodes")) {
    if (!GetBool(*node, {"spec", "unschedulable"})) fit.push_back(GetString(*node, {"metadata", "name"}));
  }
  if (fit.empty()) return;
  const std::string to = place ? place(pod, fit) : fit[turns_.random().Below(fit.size())];
  const std::string key = std::string(kUserNamespace) + "/" + GetString(pod, {"metadata", "name"});
  server_.Update("pods", key, [&](Json& now) {
    if (GetString(now, {"metadata", "uid"}) == GetString(pod, {"metadata", "uid"})) now["spec"]["nodeName"] = to;
  });
}

void Kubernetes::Cordon(const std::string& node, bool cordoned) {
  server_.Update("nodes", node, [&](Json& now) { now["spec"]["unschedulable"] = cordoned; });
}

void Kubernetes::Drain(const std::string& node, const bool& closing) {
  if (made_without_state) {
    EmptyByName(node, closing);
  } else {
    Empty(node, closing);
  }
  turns_.Pause(turns_.random().Between(seconds(1), seconds(20)));
  Cordon(node, false);
}

void Kubernetes::Empty(const std::string& node, const bool& closing) {
  tell_("somebody drains " + node);
  Cordon(node, true);
  for (bool left = true; left && !closing;) {
    left = false;
    for (const ApiServer::Object& pod : server_.All("pods")) {
      if (GetString(*pod, {"spec", "nodeName"}) != node) continue;
      left = true;
      if (!GetString(*pod, {"metadata", "deletionTimestamp"}).empty()) continue;
      const std::string name = GetString(*pod, {"metadata", "name"});
      kube::HttpRequest request;
      request.method = "POST";
      request.path = kPods + "/" + name + "/eviction";
      request.body =
          DumpJson({{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", {{"name", name}, {"namespace", kUserNamespace}}}});
      (void)server_.Handle(request, "kubectl");
    }
    if (left) turns_.Pause(seconds(5));
  }
  tell_(node + " is empty");
}

void Kubernetes::DeletePod(const std::string& name, bool force) {
  kube::HttpRequest request;
  request.method = "DELETE";
  request.path = kPods + "/" + name;
  if (force) request.body = DumpJson({{"gracePeriodSeconds", 0}});
  (void)server_.Handle(request, "kubectl");
}

std::vector<std::string> Kubernetes::PodNames() const {
  std::vector<std::string> names;
  for (const ApiServer::Object& pod : server_.All("pods")) {
    if (!GetString(*pod, {"spec", "nodeName"}).empty()) names.push_back(GetString(*pod, {"metadata", "name"}));
  }
  return names;
}

}  // namespace holdfast::sim
