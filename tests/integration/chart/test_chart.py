"""The chart against Helm and a real API server: it lints, every object of it is accepted, and an upgrade keeps what the controller wrote."""

import base64
import json

import pytest
from conftest import CHART, ROOT, SYSTEM, eventually

LOCAL = ROOT / "tests" / "cluster" / "values.yaml"
EVERYTHING = ["--set", "networkPolicy.enabled=true", "--set", "networkPolicy.storeFrom[0].ipBlock.cidr=10.0.0.0/24", "--set", "store.maxBytes=80Gi", "--set", "store.tightenAfter=0s", "--set-string", "agent.cacheBytes=2Gi,agent.landing.memory=0", "--set", "waitImage=example.org/wait:1",
              "--set", "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus", "--set", "image.tag=t1",
              "--set", "agent.kubelet.caFile=/etc/kubernetes/pki/ca.crt", "--set", "store.storage.storageClassName=fast"]
VARIANTS = {"defaults": [], "several stores": ["--set", "store.replicas=3"], "local cluster": ["-f", str(LOCAL)], "fault points": ["-f", str(LOCAL), "-f", str(LOCAL.with_name("values-faults.yaml"))], "everything": [*EVERYTHING, "--set", "activator.enabled=true,activator.replicas=2,restoreNodes=true,hubApi.enabled=true", "--set-string", "suspend.prices.cpu=0.04,suspend.prices.gpu=1"], "nothing excluded": ["--set", "webhooks.excludedNamespaces=null"],
            "no policies": ["--set", "policies.enabled=false", "--set", "rbac.aggregateToUserRoles=false", "--set", "controller.replicas=1"]}


def render(server, *args, namespace=SYSTEM):
    done = server.helm("template", "holdfast", str(CHART), "--namespace", namespace, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def parsed(server, *args):
    """{(kind, name): object}"""
    done = server.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", stdin=render(server, *args))
    assert done.returncode == 0, done.stderr
    decoder, text, objects = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        item, end = decoder.raw_decode(text)
        objects += item["items"] if item["kind"] == "List" else [item]
        text = text[end:].lstrip()
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}


def pod_spec(objects, kind, name):
    return objects[kind, name]["spec"]["template"]["spec"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_lints(server, variant):
    done = server.helm("lint", "--strict", str(CHART), "--namespace", SYSTEM, *VARIANTS[variant])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_api_server_accepts_every_object_as_it_is(server, variant):
    # A namespace of its own: what is installed elsewhere has immutable fields.
    server.kubectl("create", "namespace", "preview")
    done = server.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-",
                          stdin=render(server, *VARIANTS[variant], namespace="preview"))
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr


@pytest.mark.parametrize("value", ["controller.replicas=two", "controller.replicaCount=2", "image.digest=latest", "controller.drainDeadline=-5s", "store.maxBytes=lots", "store.replicas=0", "store.replicas=33",
                                   "store.storage.hostPath=data", "image.pullPolicy=Sometimes", "store.tightenAfter=soon", "agent.cacheBytes=some", "agent.landing.memory=much", "activator.ports=80", "activator.ports=20000", "activator.replicas=0", "suspend.prices.cpu=-1",
                                   "suspend.barePods=maybe", "suspend.prices.gpu=nan", "suspend.prices.memoryGiB=1e9", "suspend.prices.currency=U$D"])
def test_a_wrong_value_is_refused_by_the_schema(server, value):
    done = server.helm("template", "holdfast", str(CHART), "--set", value)
    assert done.returncode != 0 and value.split(".")[-1].split("=")[0] in done.stderr, done.stderr


def test_only_the_agent_is_privileged(server):
    objects = parsed(server)
    for kind, name in (("Deployment", "holdfast-controller"), ("StatefulSet", "holdfast-store")):
        spec = pod_spec(objects, kind, name)
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostPID", "hostNetwork", "hostIPC"} & set(spec)
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]} and context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    agent = pod_spec(objects, "DaemonSet", "holdfast-agent")
    assert agent["hostPID"] and agent["hostNetwork"] and agent["containers"][0]["securityContext"]["privileged"]


def test_pods_of_the_release_pass_the_restricted_standard(server):
    """Asked of the API server: a namespace that enforces the standard takes the controller's and the store's pods, not the agent's."""
    assert server.kubectl("create", "namespace", "restricted").returncode == 0
    assert server.kubectl("label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted").returncode == 0
    objects = parsed(server, "--set", "activator.enabled=true")
    for kind, name, accepted in (("Deployment", "holdfast-controller", True), ("Deployment", "holdfast-activator", True), ("StatefulSet", "holdfast-store", True), ("DaemonSet", "holdfast-agent", False)):
        spec = pod_spec(objects, kind, name)
        spec["volumes"] = spec.get("volumes", []) + [{"name": v["metadata"]["name"], "emptyDir": {}} for v in objects[kind, name]["spec"].get("volumeClaimTemplates", [])]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "restricted"}, "spec": spec}
        done = server.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
        assert (done.returncode == 0) == accepted, f"{name}: {done.stderr}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_key_of_the_store_is_rendered(server, variant):
    """Hole 3: `helm template | kubectl apply`, a GitOps tool's way, made the key anew each time, and nothing stored could be read again."""
    secrets = [name for kind, name in parsed(server, *VARIANTS[variant]) if kind == "Secret"]
    assert not secrets, secrets
    assert render(server, *VARIANTS[variant]) == render(server, *VARIANTS[variant]), "nothing in it is random"


def test_the_store_waits_for_the_key_that_the_controller_makes_or_that_is_yours(server):
    def key_of(*args):
        objects = parsed(server, *args)
        flags = pod_spec(objects, "Deployment", "holdfast-controller")["containers"][0]["args"]
        volume = next(v for v in pod_spec(objects, "StatefulSet", "holdfast-store")["volumes"] if v["name"] == "kek")
        assert not volume["secret"].get("optional")
        return volume["secret"]["secretName"], [flag for flag in flags if "kek" in flag]

    assert key_of() == ("holdfast-store-kek", ["--store-kek-secret=holdfast-store-kek"])
    assert key_of("--set", "store.encryption.secretName=mine") == ("mine", [])


def test_the_store_is_shown_tokens_that_are_good_for_nothing_else(server):
    """Hole 15: it was shown tokens that the API server takes as well."""
    objects = parsed(server)
    for kind, name in (("Deployment", "holdfast-controller"), ("DaemonSet", "holdfast-agent")):
        spec = pod_spec(objects, kind, name)
        container = spec["containers"][0]
        flag = next(flag for flag in container["args"] if flag.startswith("--store-token-file="))
        mount = next(mount for mount in container["volumeMounts"] if mount["name"] == "store-token")
        assert flag == f"--store-token-file={mount['mountPath']}/token"
        volume = next(volume for volume in spec["volumes"] if volume["name"] == "store-token")
        assert volume["projected"]["sources"] == [{"serviceAccountToken": {"path": "token", "audience": "holdfast-store", "expirationSeconds": 3600}}]
    assert "--token-audience=holdfast-store" in pod_spec(objects, "StatefulSet", "holdfast-store")["containers"][0]["args"]
    without = render(server, "--set", "store.tokenAudience=")
    assert "store-token" not in without and "--token-audience" not in without


def test_nodes_are_given_back_only_when_asked_for_and_by_pods_that_hold_nothing_of_them(server):
    assert ("DaemonSet", "holdfast-restore-nodes") not in parsed(server)
    only = parsed(server, "--set", "restoreNodes=true", "--show-only", "templates/restore-nodes.yaml")
    assert list(only) == [("DaemonSet", "holdfast-restore-nodes")]
    spec = pod_spec(only, "DaemonSet", "holdfast-restore-nodes")
    assert spec["containers"][0]["args"] == ["--mode=restore-node"] and spec["hostPID"]
    assert spec["automountServiceAccountToken"] is False and "serviceAccountName" not in spec
    assert "volumes" not in spec, "what is mounted cannot be removed"
    agent = pod_spec(parsed(server), "DaemonSet", "holdfast-agent")
    assert all(spec[key] == agent[key] for key in ("nodeSelector", "tolerations")), "wherever an agent was"


def test_the_local_cluster_puts_agents_on_workers_only(server):
    objects = parsed(server, "-f", str(LOCAL))
    tolerated = [t.get("key") for t in pod_spec(objects, "DaemonSet", "holdfast-agent")["tolerations"]]
    assert tolerated == ["example.com/maintenance", "node.kubernetes.io/out-of-service"]  # not the third node's taint
    for kind, name in (("Deployment", "holdfast-controller"), ("StatefulSet", "holdfast-store")):
        spec = pod_spec(objects, kind, name)
        assert spec["nodeSelector"] == {"holdfast.dev/system": "true"} and spec["tolerations"][0]["key"] == "CriticalAddonsOnly"


def test_each_store_has_a_claim_and_an_address_of_its_own_and_all_know_them(server):
    def flags(objects, kind, name):
        return [arg for arg in pod_spec(objects, kind, name)["containers"][0]["args"] if arg.startswith("--store-url")]

    one, three = parsed(server), parsed(server, "--set", "store.replicas=3")
    address = f"https://%s.{SYSTEM}.svc:8443"
    for objects, count in ((one, 1), (three, 3)):
        names = ["holdfast-store", "holdfast-store-1", "holdfast-store-2"][:count]
        assert [name for kind, name in objects if kind == "Service" and name.startswith("holdfast-store")] == names
        for replica, name in enumerate(names):
            assert objects["Service", name]["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] == f"holdfast-store-{replica}"
        wanted = ["--store-url=" + ("" if name == "holdfast-store" else name + "=") + address % name for name in names]
        assert flags(objects, "DaemonSet", "holdfast-agent") == flags(objects, "Deployment", "holdfast-controller") == wanted
        store = objects["StatefulSet", "holdfast-store"]["spec"]
        assert store["replicas"] == count and store["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
        assert store["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    # What a StatefulSet does not let anybody change.
    same = [(o["StatefulSet", "holdfast-store"]["spec"]) for o in (one, three)]
    assert all(same[0].get(key) == same[1].get(key) for key in ("serviceName", "selector", "volumeClaimTemplates", "podManagementPolicy", "template"))


def test_one_folder_of_a_node_is_no_place_for_several_stores(server):
    done = server.helm("template", "holdfast", str(CHART), "--set", "store.replicas=2,store.storage.hostPath=/data")
    assert done.returncode != 0 and "store.storage.hostPath" in done.stderr and "claim of its own" in done.stderr, done.stderr


def test_values_of_a_release_that_knew_one_store_mean_one(server):
    assert parsed(server, "--set", "store.replicas=null")["StatefulSet", "holdfast-store"]["spec"]["replicas"] == 1


def test_sizes_become_bytes(server):
    def flags(value):
        return pod_spec(parsed(server, "--set", f"store.maxBytes={value}"), "StatefulSet", "holdfast-store")["containers"][0]["args"]

    assert "--max-bytes=85899345920" in flags("80Gi")
    assert "--max-bytes=1500000000" in flags("1500M")


def test_the_activator_is_off_unless_asked_for_and_both_know_its_ports(server):
    def controller(objects):
        return pod_spec(objects, "Deployment", "holdfast-controller")["containers"][0]["args"]

    objects = parsed(server)
    assert not any("activator" in name for _, name in objects) and not any("activator" in flag for flag in controller(objects))
    objects = parsed(server, "--set", "activator.enabled=true,activator.ports=30000-30099,networkPolicy.enabled=true")
    assert "--activator-ports=30000-30099" in controller(objects)
    args = pod_spec(objects, "Deployment", "holdfast-activator")["containers"][0]["args"]
    assert {"--first-port=30000", "--last-port=30099"} <= set(args)
    assert objects["NetworkPolicy", "holdfast-activator"]["spec"]["ingress"] == [{"ports": [{"port": 30000, "endPort": 30099, "protocol": "TCP"}]}]


def test_the_hub_api_is_off_unless_asked_for_and_has_then_what_it_needs(server):
    reviews = {"tokenreviews", "subjectaccessreviews"}

    def controller(objects):
        container = pod_spec(objects, "Deployment", "holdfast-controller")["containers"][0]
        rules = {(resource, verb) for rule in objects["ClusterRole", "holdfast-controller"]["rules"] for resource in rule["resources"] for verb in rule["verbs"] if resource in reviews}
        return [flag for flag in container["args"] if flag.startswith("--hub")], [port["name"] for port in container["ports"]], rules

    objects = parsed(server, "--set", "networkPolicy.enabled=true")
    assert controller(objects) == ([], ["webhook", "metrics"], set()) and ("Service", "holdfast-hub") not in objects
    assert len(objects["NetworkPolicy", "holdfast-controller"]["spec"]["ingress"]) == 1
    objects = parsed(server, "--set", "networkPolicy.enabled=true,networkPolicy.hubFrom[0].podSelector.matchLabels.component=hub,hubApi.enabled=true")
    assert controller(objects) == (["--hub-port=9444", "--hub-audience=holdfast-hub"], ["webhook", "metrics", "hub"], {(review, "create") for review in reviews})
    assert objects["Service", "holdfast-hub"]["spec"]["ports"] == [{"name": "hub", "port": 443, "targetPort": "hub"}]
    assert {"ports": [{"port": "hub", "protocol": "TCP"}], "from": [{"podSelector": {"matchLabels": {"component": "hub"}}}]} in objects["NetworkPolicy", "holdfast-controller"]["spec"]["ingress"]


def test_prices_reach_the_controller_as_they_are(server):
    def prices(*args):
        return [flag for flag in pod_spec(parsed(server, *args), "Deployment", "holdfast-controller")["containers"][0]["args"] if "price" in flag or "currency" in flag]

    assert prices() == ["--currency=USD"]
    assert sorted(prices("--set-string", "suspend.prices.cpu=0.04,suspend.prices.currency=EUR")) == ["--currency=EUR", "--price-cpu=0.04"]
    assert "--price-gpu=1.2" in prices("--set", "suspend.prices.gpu=1.2")


def test_kubelet_options_reach_the_agent(server):
    def agent(*args):
        return pod_spec(parsed(server, *args), "DaemonSet", "holdfast-agent")

    assert not any("kubelet" in flag for flag in agent()["containers"][0]["args"])
    spec = agent("--set", "agent.kubelet.root=/data/kubelet,agent.kubelet.caFile=/etc/kubelet/ca.crt,agent.kubelet.insecureSkipVerify=true")
    assert spec["containers"][0]["args"][-3:] == ["--kubelet-root=/data/kubelet", "--kubelet-ca-file=/etc/holdfast/kubelet-ca.crt", "--kubelet-insecure-skip-verify"]
    assert {"name": "kubelet", "mountPath": "/data/kubelet", "mountPropagation": "HostToContainer"} in spec["containers"][0]["volumeMounts"]
    assert {"name": "kubelet-ca", "hostPath": {"path": "/etc/kubelet/ca.crt", "type": "File"}} in spec["volumes"]


def test_webhooks_fail_open_and_leave_us_alone(server):
    objects = parsed(server)
    [mutating] = objects["MutatingWebhookConfiguration", "holdfast"]["webhooks"]
    [validating] = objects["ValidatingWebhookConfiguration", "holdfast"]["webhooks"]
    for webhook in (mutating, validating):
        assert webhook["failurePolicy"] == "Ignore" and webhook["timeoutSeconds"] == 5 and "caBundle" not in webhook["clientConfig"]
    assert mutating["sideEffects"] == "None" and mutating["reinvocationPolicy"] == "IfNeeded"
    assert mutating["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", SYSTEM]
    assert validating["sideEffects"] == "NoneOnDryRun" and validating["matchPolicy"] == "Equivalent"
    assert validating["matchConditions"][0]["expression"] == f"request.userInfo.username != 'system:serviceaccount:{SYSTEM}:holdfast-controller'"


def test_pods_and_evictions_go_on_without_a_controller(installed):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bystander", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    done = installed.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    assert done.returncode == 0, done.stderr
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "bystander", "namespace": "default"}}
    done = installed.kubectl("create", "--raw", "/api/v1/namespaces/default/pods/bystander/eviction", "-f", "-", stdin=json.dumps(eviction))
    assert done.returncode == 0, done.stderr
    assert installed.kubectl("get", "pod", "bystander").returncode != 0


CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


def bundle(server, configuration):
    return server.kubectl("get", configuration, "holdfast", "-o", "jsonpath={.webhooks[*].clientConfig.caBundle}").stdout


@pytest.mark.parametrize("how", ["apply", "json"])
def test_an_upgrade_keeps_the_certificate_that_the_controller_wrote(installed, how):
    """Both ways in which the controller may write it: a patch, or server-side apply of its own field."""
    ca = (installed.work / "ca.crt").read_bytes()
    want = base64.b64encode(ca).decode()
    for configuration, webhook in zip(CONFIGURATIONS, ("pods.holdfast.dev", "evictions.holdfast.dev")):
        if how == "json":
            patch = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": want}]
            done = installed.kubectl("patch", configuration, "holdfast", "--type=json", "-p", json.dumps(patch))
        else:
            kind = "MutatingWebhookConfiguration" if configuration.startswith("mutating") else "ValidatingWebhookConfiguration"
            live = json.loads(installed.kubectl("get", configuration, "holdfast", "-o", "json").stdout)["webhooks"][0]
            body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "holdfast"},
                    "webhooks": [{"name": webhook, "admissionReviewVersions": ["v1"], "sideEffects": live["sideEffects"],
                                  "clientConfig": {"caBundle": want, "service": live["clientConfig"]["service"]}}]}
            done = installed.kubectl("apply", "--server-side", "--field-manager=holdfast-controller", "-f", "-", stdin=json.dumps(body))
        assert done.returncode == 0, done.stderr
    done = installed.helm("upgrade", "holdfast", str(CHART), "--namespace", SYSTEM, "--reuse-values", "--set", "webhooks.timeoutSeconds=7")
    assert done.returncode == 0, done.stderr
    for configuration in CONFIGURATIONS:
        assert bundle(installed, configuration) == want
        assert installed.kubectl("get", configuration, "holdfast", "-o", "jsonpath={.webhooks[0].timeoutSeconds}").stdout == "7"
    done = installed.helm("upgrade", "holdfast", str(CHART), "--namespace", SYSTEM, "--reuse-values", "--set", "webhooks.timeoutSeconds=5")
    assert done.returncode == 0, done.stderr


def test_an_uninstall_keeps_the_runtime_class_and_a_new_install_takes_it_back(installed):
    done = installed.helm("uninstall", "holdfast", "--namespace", SYSTEM)
    assert done.returncode == 0, done.stderr
    eventually("the webhooks are gone", lambda: installed.kubectl("get", "mutatingwebhookconfiguration", "holdfast").returncode != 0)
    assert installed.kubectl("get", "runtimeclass", "holdfast").returncode == 0
    assert installed.kubectl("get", "crd", "checkpoints.holdfast.dev").returncode == 0
    done = installed.helm("install", "holdfast", str(CHART), "--namespace", SYSTEM, "--set", "activator.enabled=true")
    assert done.returncode == 0, done.stderr
