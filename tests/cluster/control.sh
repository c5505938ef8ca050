#!/bin/bash
# control.sh: etcd, API server, controller manager, scheduler and CoreDNS on $HF_NET.1, outside the nodes. up.sh calls it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/lib.sh"
ip=$HF_NET.1
cd "$HF_PKI"

export GOGC=300   # memory is at hand, processors are not: several clusters share few
run() { # name command...
  local name=$1; shift
  setsid "$@" >"$HF_LOG/$name.log" 2>&1 </dev/null &
  echo $! >"$HF_RUN/$name.pid"
}

# A test cluster's data need not survive a power cut: no fsync.
run etcd "$HF_BIN/etcd" --data-dir "$HF_RUN/etcd" --unsafe-no-fsync \
  --listen-client-urls "http://$ip:2379" --advertise-client-urls "http://$ip:2379" \
  --listen-peer-urls "http://$ip:2380" --initial-advertise-peer-urls "http://$ip:2380" --initial-cluster "default=http://$ip:2380"

# aggregator routing: the API server is outside the pod network's Services, so it calls webhooks at endpoint addresses.
# shellcheck disable=SC2086  # HF_APISERVER_FLAGS is a list of flags
run apiserver "$HF_BIN/kube-apiserver" --etcd-servers="http://$ip:2379" --bind-address="$ip" --advertise-address="$ip" --secure-port=6443 \
  --tls-cert-file=apiserver.crt --tls-private-key-file=apiserver.key --client-ca-file=ca.crt \
  --service-account-key-file=sa.pub --service-account-signing-key-file=sa.key \
  --service-account-issuer=https://kubernetes.default.svc --service-cluster-ip-range="$HF_SERVICES.0.0/16" \
  --kubelet-client-certificate=apiserver-kubelet.crt --kubelet-client-key=apiserver-kubelet.key \
  --kubelet-certificate-authority=ca.crt --kubelet-preferred-address-types=InternalIP \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
  --enable-aggregator-routing=true ${HF_APISERVER_FLAGS:-}
watch_pid=$(cat "$HF_RUN/apiserver.pid") wait_for "kube-apiserver" 60 "$HF_LOG/apiserver.log" kubectl get --raw /readyz
touch "$HF_RUN/flags/apiserver-ready"   # the nodes' kubelets wait for it: sooner they would only back off

run controller-manager "$HF_BIN/kube-controller-manager" --bind-address="$ip" --kubeconfig=controller-manager.kubeconfig \
  --service-account-private-key-file=sa.key --root-ca-file=ca.crt --use-service-account-credentials=true --leader-elect=false \
  --cluster-signing-cert-file=ca.crt --cluster-signing-key-file=ca.key
run scheduler "$HF_BIN/kube-scheduler" --bind-address="$ip" --kubeconfig=scheduler.kubeconfig --leader-elect=false

# Service DNS: CoreDNS beside the control plane, published as kube-dns.
cat >"$HF_RUN/Corefile" <<END
.:53 {
  bind $ip
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $HF_PKI/admin.kubeconfig local
    pods insecure
  }
  cache 5
}
END
run coredns "$HF_BIN/coredns" -conf "$HF_RUN/Corefile"
kubectl apply -f - >/dev/null <<END
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: $HF_SERVICES.0.10
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns-1, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: ["$ip"], conditions: {ready: true}}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
END
# Without the default service account no pod can be created.
wait_for "the default service account" 30 "$HF_LOG/controller-manager.log" kubectl get serviceaccount default
