"""Least privilege, asked of the API server's own authorizer: what each part may do, and the nearest things that it may not."""

import pytest
from conftest import CHART, SYSTEM

# part, verb, resource (subresource after /), namespace, name, allowed
QUESTIONS = [
    ("agent", "create", "nodes/checkpoint", "", "", True),
    ("agent", "get", "nodes", "", "", True),
    ("agent", "patch", "nodes", "", "", True),
    ("agent", "watch", "pods", "", "", True),
    ("agent", "watch", "checkpoints.holdfast.dev", "", "", True),
    ("agent", "patch", "checkpoints.holdfast.dev/status", "default", "", True),
    ("agent", "create", "events.events.k8s.io", "default", "", True),
    ("agent", "update", "checkpoints.holdfast.dev/status", "default", "", True),
    ("agent", "patch", "checkpoints.holdfast.dev", "default", "", False),
    ("agent", "get", "restorepolicies.holdfast.dev", "default", "", False),
    ("agent", "create", "nodes/proxy", "", "", False),
    ("agent", "get", "nodes/proxy", "", "", False),
    ("agent", "delete", "nodes", "", "", False),
    ("agent", "get", "secrets", "default", "", False),
    ("agent", "get", "secrets", SYSTEM, "holdfast-store-tls", False),
    ("agent", "patch", "pods", "default", "", False),
    ("agent", "patch", "pods/status", "default", "", True),
    ("agent", "update", "pods/status", "default", "", False),
    ("agent", "delete", "pods", "default", "", False),
    ("agent", "create", "pods/exec", "default", "", False),
    ("agent", "create", "pods/eviction", "default", "", False),
    ("agent", "create", "checkpoints.holdfast.dev", "default", "", False),
    ("agent", "delete", "checkpoints.holdfast.dev", "default", "", False),
    ("agent", "create", "serviceaccounts/token", SYSTEM, "", False),
    ("controller", "patch", "pods", "default", "", True),
    ("controller", "create", "pods/eviction", "default", "", True),
    ("controller", "create", "checkpoints.holdfast.dev", "default", "", True),
    ("controller", "patch", "checkpoints.holdfast.dev/status", "default", "", True),
    ("controller", "watch", "poddisruptionbudgets.policy", "", "", True),
    ("controller", "watch", "statefulsets.apps", "", "", True),
    ("controller", "get", "secrets", SYSTEM, "holdfast-ca", True),
    ("controller", "update", "secrets", SYSTEM, "holdfast-webhook-tls", True),
    ("controller", "update", "secrets", SYSTEM, "holdfast-store-tls", True),
    ("controller", "create", "leases.coordination.k8s.io", SYSTEM, "", True),
    ("controller", "update", "leases.coordination.k8s.io", SYSTEM, "holdfast-controller", True),
    ("controller", "update", "leases.coordination.k8s.io", SYSTEM, "another", False),
    ("controller", "patch", "restorepolicies.holdfast.dev/status", "default", "", True),
    ("controller", "patch", "restorepolicies.holdfast.dev", "default", "", False),
    ("controller", "patch", "configmaps", SYSTEM, "holdfast-ca", True),
    ("controller", "patch", "configmaps", SYSTEM, "kube-root-ca.crt", False),
    ("controller", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "holdfast", True),
    ("controller", "get", "secrets", SYSTEM, "sh.helm.release.v1.holdfast.v1", False),
    ("controller", "list", "secrets", SYSTEM, "", False),
    ("controller", "get", "secrets", "default", "holdfast-ca", False),
    ("controller", "create", "secrets", "default", "", False),
    ("controller", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "another", False),
    ("controller", "delete", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "holdfast", False),
    ("controller", "patch", "nodes", "", "", False),
    ("controller", "create", "nodes/checkpoint", "", "", False),
    ("controller", "create", "pods", "default", "", False),
    ("controller", "delete", "pods", "default", "", False),
    ("controller", "get", "secrets", SYSTEM, "holdfast-seal", False),
    ("controller", "create", "pods/exec", "default", "", False),
    ("controller", "patch", "deployments.apps", "default", "", True),  # a SuspendedWorkload's
    ("controller", "patch", "statefulsets.apps", "default", "", True),
    ("controller", "patch", "jobs.batch", "default", "", True),
    ("controller", "patch", "replicasets.apps", "default", "", False),
    ("controller", "update", "deployments.apps", "default", "", False),
    ("controller", "delete", "deployments.apps", "default", "", False),
    ("controller", "create", "jobs.batch", "default", "", False),
    ("controller", "watch", "suspendedworkloads.holdfast.dev", "", "", True),
    ("controller", "patch", "suspendedworkloads.holdfast.dev/status", "default", "", True),
    ("controller", "create", "suspendedworkloads.holdfast.dev", "default", "", True),  # holdfast.dev/suspend-when-idle
    ("controller", "delete", "suspendedworkloads.holdfast.dev", "default", "", True),
    ("agent", "get", "suspendedworkloads.holdfast.dev", "default", "", False),
    ("agent", "patch", "deployments.apps", "default", "", False),
    ("controller", "create", "leases.coordination.k8s.io", "kube-system", "", False),
    ("store", "create", "tokenreviews.authentication.k8s.io", "", "", True),
    ("store", "get", "pods", "default", "", True),  # where the pod runs that has claimed a checkpoint
    ("store", "list", "pods", "default", "", False),
    ("store", "list", "checkpoints.holdfast.dev", "default", "", True),
    ("store", "get", "checkpoints.holdfast.dev", "default", "", True),
    ("store", "patch", "checkpoints.holdfast.dev", "default", "", False),
    ("store", "patch", "checkpoints.holdfast.dev/status", "default", "", False),
    ("store", "get", "secrets", SYSTEM, "", False),
    ("controller", "create", "endpointslices.discovery.k8s.io", "default", "", True),  # that lead to the activator
    ("controller", "delete", "endpointslices.discovery.k8s.io", "default", "", True),
    ("controller", "update", "endpointslices.discovery.k8s.io", "default", "", False),
    ("controller", "watch", "services", "", "", True),
    ("controller", "patch", "services", "default", "", False),
    ("activator", "watch", "suspendedworkloads.holdfast.dev", "", "", True),
    ("activator", "patch", "suspendedworkloads.holdfast.dev", "default", "", True),
    ("activator", "patch", "suspendedworkloads.holdfast.dev/status", "default", "", False),
    ("activator", "delete", "suspendedworkloads.holdfast.dev", "default", "", False),
    ("activator", "create", "suspendedworkloads.holdfast.dev", "default", "", False),
    ("activator", "watch", "endpointslices.discovery.k8s.io", "", "", True),
    ("activator", "patch", "endpointslices.discovery.k8s.io", "default", "", False),
    ("activator", "create", "events.events.k8s.io", "default", "", True),
    ("activator", "get", "pods", "default", "", False),
    ("activator", "get", "services", "default", "", False),
    ("activator", "get", "secrets", SYSTEM, "", False),
    ("activator", "patch", "deployments.apps", "default", "", False),
    ("store", "create", "subjectaccessreviews.authorization.k8s.io", "", "", False),
]


@pytest.mark.parametrize("part,verb,resource,namespace,name,allowed", QUESTIONS, ids=lambda value: str(value) or "-")
def test_who_may_do_what(installed, part, verb, resource, namespace, name, allowed):
    resource, _, subresource = resource.partition("/")
    args = ["auth", "can-i", verb, f"{resource}/{name}" if name else resource, f"--as=system:serviceaccount:{SYSTEM}:holdfast-{part}"]
    args += [f"--subresource={subresource}"] if subresource else []
    args += ["-n", namespace] if namespace else ["--all-namespaces"]
    done = installed.kubectl(*args)
    assert done.stdout.strip() == ("yes" if allowed else "no"), done.stderr


def test_nobody_holds_a_wildcard(installed):
    for kind in ("clusterrole", "role"):
        done = installed.kubectl("get", kind, "-n", SYSTEM, "-l", "app.kubernetes.io/name=holdfast", "-o", "jsonpath={.items[*].rules}")
        assert done.returncode == 0 and "holdfast" in done.stdout, done.stderr
        assert "*" not in done.stdout


def test_only_with_bare_pods_the_controller_creates_and_deletes_pods(server):
    def rules(*args):
        done = server.helm("template", "holdfast", str(CHART), "--namespace", SYSTEM, "--show-only", "templates/rbac-controller.yaml", *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    more = set(rules("--set", "suspend.barePods=true").splitlines()) - set(rules().splitlines())
    granted = sorted(line.strip() for line in more if "apiGroups" in line)
    assert granted == ['- {apiGroups: [""], resources: [pods], verbs: [create, delete]}',
                       '- {apiGroups: [""], resources: [secrets], resourceNames: [holdfast-seal], verbs: [get]}']
