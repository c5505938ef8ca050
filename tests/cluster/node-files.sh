# shellcheck shell=bash
# node_files: the configuration of a node, written into its own root. Sourced by node-init.sh, which has the variables.
# shellcheck disable=SC2154
node_files() {
  echo "nameserver $services.0.10" >/etc/resolv.conf
  echo "$name" >/etc/hostname
  printf '127.0.0.1 localhost\n%s %s\n' "$net.1$n" "$name" >/etc/hosts

  cat >/etc/cni/net.d/10-pods.conflist <<END
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$podnet.$n.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END

  # As a distribution ships it: no word of Holdfast. 2.4's own default configuration imports conf.d, Debian's file imports nothing.
  # oom_score, restrict_oom_score_adj, disable_apparmor: what a container or virtual machine without CAP_SYS_RESOURCE needs.
  {
    echo 'version = 3'
    [ -z "$containerd_dir" ] || echo "imports = ['/etc/containerd/conf.d/*.toml']"
    cat <<END
oom_score = 0

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'registry.k8s.io/pause:3.10'

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true

  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'

      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = false

  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni']
    conf_dir = '/etc/cni/net.d'
END
  } >/etc/containerd/config.toml

  cat >/etc/kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$ns
oomScoreAdj: 0
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {x509: {clientCAFile: /etc/kubernetes/ca.crt}, webhook: {enabled: true}, anonymous: {enabled: false}}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/$name.crt
tlsPrivateKeyFile: /etc/kubernetes/$name.key
clusterDNS: ["$services.0.10"]
clusterDomain: cluster.local
evictionHard: {memory.available: "100Mi", nodefs.available: "1%", imagefs.available: "1%"}
imageGCHighThresholdPercent: 100
failSwapOn: false
nodeStatusUpdateFrequency: 2s
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
END
  if [ -n "$system" ]; then
    echo 'registerWithTaints: [{key: CriticalAddonsOnly, value: "true", effect: NoSchedule}]' >>/etc/kubelet.yaml
  fi

  cat >/etc/kube-proxy.yaml <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/proxy.kubeconfig}
mode: nftables
clusterCIDR: $podnet.0.0/16
hostnameOverride: $name
bindAddress: $net.1$n
metricsBindAddress: $net.1$n:10249
healthzBindAddress: $net.1$n:10256
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
END
}
