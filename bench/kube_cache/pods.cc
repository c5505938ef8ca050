#include "bench/kube_cache/pods.h"

#include <vector>

namespace holdfast::bench {
namespace {

constexpr size_t kChunk = 16 << 10;  // as libcurl hands it on

// @ stands for the pod's number, % for its owner's, # for its version.
constexpr char kMetadata[] =
    R"("metadata":{"name":"web-%-5d8f7c9b6d-x@","generateName":"web-%-5d8f7c9b6d-","namespace":"team-%","uid":"6f1c2a52-8f1c-4d0b-9a54-0000000@","resourceVersion":"#","generation":1,"creationTimestamp":"2026-11-01T08:%:11Z","labels":{"app.kubernetes.io/name":"web-%","app.kubernetes.io/instance":"web-%","app.kubernetes.io/component":"frontend","app.kubernetes.io/managed-by":"Helm","pod-template-hash":"5d8f7c9b6d","team":"team-%"},"annotations":{"prometheus.io/scrape":"true","prometheus.io/port":"9102","checksum/config":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a0%","kubectl.kubernetes.io/restartedAt":"2026-10-30T12:00:00Z"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-%-5d8f7c9b6d","uid":"0d9e6f34-1111-4222-8333-0000000000%","controller":true,"blockOwnerDeletion":true}],"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-11-01T08:00:11Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0d9e6f34\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{}}},"f:dnsPolicy":{},"f:restartPolicy":{}}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-11-01T08:00:20Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{}}},"subresource":"status"}]})";
constexpr char kSpec[] =
    R"("spec":{"volumes":[{"name":"config","configMap":{"name":"web-%","defaultMode":420}},{"name":"scratch","emptyDir":{}},{"name":"kube-api-access-x7k2p","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],"containers":[{"name":"main","image":"registry.example.com/team/web:1.27.%","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"LOG_LEVEL","value":"info"},{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"DATABASE_URL","valueFrom":{"secretKeyRef":{"name":"web-db","key":"url"}}}],"resources":{"limits":{"cpu":"2","memory":"2Gi"},"requests":{"cpu":"500m","memory":"1Gi"}},"volumeMounts":[{"name":"config","readOnly":true,"mountPath":"/etc/web"},{"name":"scratch","mountPath":"/tmp"},{"name":"kube-api-access-x7k2p","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{"allowPrivilegeEscalation":false,"runAsNonRoot":true}},{"name":"metrics","image":"registry.example.com/team/exporter:0.9.1","args":["--listen=:9102","--target=http://127.0.0.1:8080"],"resources":{"limits":{"cpu":"100m","memory":"64Mi"},"requests":{"cpu":"10m","memory":"32Mi"}},"volumeMounts":[{"name":"kube-api-access-x7k2p","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"web","serviceAccount":"web","nodeName":"node-%","securityContext":{"fsGroup":1000},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"})";
constexpr char kStatus[] =
    R"("status":{"phase":"Running","conditions":[{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-01T08:00:12Z"},{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-01T08:00:20Z"},{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-01T08:00:11Z"}],"hostIP":"10.1.0.%","podIP":"10.244.%.7","podIPs":[{"ip":"10.244.%.7"}],"startTime":"2026-11-01T08:00:12Z","containerStatuses":[{"name":"main","state":{"running":{"startedAt":"2026-11-01T08:00:15Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/team/web:1.27.%","imageID":"registry.example.com/team/web@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e70%","containerID":"containerd://fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b6801000@","started":true},{"name":"metrics","state":{"running":{"startedAt":"2026-11-01T08:00:16Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/team/exporter:0.9.1","imageID":"registry.example.com/team/exporter@sha256:486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7","containerID":"containerd://2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25000@","started":true}],"qosClass":"Burstable"})";

void Append(std::string_view text, const std::string& number, const std::string& owner, const std::string& version, std::string* out) {
  for (char c : text) {
    if (c == '@') {
      out->append(number);
    } else if (c == '%') {
      out->append(owner);
    } else if (c == '#') {
      out->append(version);
    } else {
      *out += c;
    }
  }
}

}  // namespace

std::string PodText(int index, int version, bool metadata_only) {
  const std::string number = std::to_string(100000 + index), owner = std::to_string(10 + index % 50), rv = std::to_string(version);
  std::string out = metadata_only ? R"({"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",)" : "{";
  Append(kMetadata, number, owner, rv, &out);
  if (!metadata_only) {
    for (const char* part : {kSpec, kStatus}) {
      out += ',';
      Append(part, number, owner, rv, &out);
    }
  }
  return out += '}';
}

std::string PodServer::Pod(int index) const {
  const int version = 1000000 + index + (index < changed_pods_ ? 20000000 * generation_ : 0);
  return PodText(index, version, options_.metadata_only);
}

Result<kube::HttpResponse> PodServer::Stream(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk,
                                             std::stop_token stop) {
  if (request.path.find("watch=1") == std::string::npos) return List(request, on_chunk);
  if (request.path.find("sendInitialEvents") == std::string::npos) return Watch(on_chunk, std::move(stop));
  if (!options_.watch_list) return kube::HttpResponse{.status = 422, .headers = {}, .body = "{}"};
  ++lists_;
  std::string chunk;
  for (int i = 0; i < options_.pods; ++i) {
    chunk += R"({"type":"ADDED","object":)" + Pod(i) + "}\n";
    if (chunk.size() >= kChunk && !on_chunk(std::exchange(chunk, {}))) return kube::HttpResponse{.status = 200};
  }
  chunk += R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":")" + std::to_string(1000000000 + generation_) +
           R"(","annotations":{"k8s.io/initial-events-end":"true"}}}})" + "\n";
  if (!on_chunk(chunk)) return kube::HttpResponse{.status = 200};
  return Watch(on_chunk, std::move(stop));
}

Result<kube::HttpResponse> PodServer::List(const kube::HttpRequest& request, const std::function<bool(std::string_view)>& on_chunk) {
  auto number = [&](const std::string& key) {
    const size_t at = request.path.find(key);
    return at == std::string::npos ? 0 : std::stoi(request.path.substr(at + key.size()));
  };
  const int limit = number("limit="), from = number("continue=");
  const int end = limit == 0 ? options_.pods : std::min(options_.pods, from + limit);
  if (from == 0) ++lists_;
  std::string chunk =
      R"({"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":")" + std::to_string(1000000000 + generation_) + "\"";
  if (end < options_.pods) chunk += R"(,"continue":")" + std::to_string(end) + "\"";
  chunk += R"(},"items":[)";
  for (int i = from; i < end; ++i) {
    if (i > from) chunk += ',';
    chunk += Pod(i);
    while (chunk.size() >= kChunk) {
      if (!on_chunk(std::string_view(chunk).substr(0, kChunk))) return kube::HttpResponse{.status = 200};
      chunk.erase(0, kChunk);
    }
  }
  chunk += "]}\n";
  on_chunk(chunk);
  return kube::HttpResponse{.status = 200};
}

Result<kube::HttpResponse> PodServer::Watch(const std::function<bool(std::string_view)>& on_chunk, std::stop_token stop) {
  for (;;) {
    int events = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return expire_ || events_ > 0; });
      if (stop.stop_requested()) return Status(Code::kCancelled, "stopped");
      if (std::exchange(expire_, false)) {
        on_chunk("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n");
        return kube::HttpResponse{.status = 200};
      }
      events = std::exchange(events_, 0);
    }
    for (int i = 0; i < events; ++i) {
      // The text is made here too, which is a few percent of the reader's work.
      const std::string line =
          R"({"type":"MODIFIED","object":)" + PodText(i % options_.pods, 1100000000 + i, options_.metadata_only) + "}\n";
      for (size_t at = 0; at < line.size(); at += kChunk) {
        if (!on_chunk(std::string_view(line).substr(at, kChunk))) return kube::HttpResponse{.status = 200};
      }
    }
  }
}

void PodServer::Expire(int changed) {
  std::lock_guard lock(mutex_);
  changed_pods_ = changed;
  ++generation_;
  expire_ = true;
  changed_.notify_all();
}

void PodServer::SendEvents(int count) {
  std::lock_guard lock(mutex_);
  events_ = count;
  changed_.notify_all();
}

}  // namespace holdfast::bench
