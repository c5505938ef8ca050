#!/bin/bash
# pki.sh: one CA for the cluster; a certificate and a kubeconfig for every component.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
ip=$HF_NET.1
umask 077
mkdir -p "$HF_PKI"
cd "$HF_PKI"

new_key=(-newkey ec -pkeyopt "ec_paramgen_curve:P-256" -nodes)
[ -f ca.crt ] || openssl req -x509 "${new_key[@]}" -keyout ca.key -out ca.crt -days 365 -subj /CN=local-cluster-ca 2>/dev/null
[ -f sa.pub ] || { openssl genrsa -out sa.key 2048 2>/dev/null; openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null; }

issue() { # name subject san
  [ -f "$1.kubeconfig" ] && return
  openssl req "${new_key[@]}" -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
  printf 'keyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s\n' "${3:-DNS:$1}" >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$1.crt" -days 365 -extfile "$1.ext" 2>/dev/null
  cat >"$1.kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "https://$ip:6443", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: user, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
contexts: [{name: local, context: {cluster: local, user: user}}]
current-context: local
END
}

issue apiserver /CN=kube-apiserver \
  "IP:$ip,IP:127.0.0.1,IP:$HF_SERVICES.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
issue apiserver-kubelet /O=system:masters/CN=apiserver-kubelet
issue admin /O=system:masters/CN=admin
issue controller-manager /CN=system:kube-controller-manager
issue scheduler /CN=system:kube-scheduler
issue proxy /CN=system:kube-proxy
for n in $(seq "$HF_NODES"); do
  issue "node$n" "/O=system:nodes/CN=system:node:node$n" "DNS:node$n,IP:$HF_NET.1$n"
done
