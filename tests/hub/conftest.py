"""The hub under test, with no more rights than it needs."""

import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import kit  # noqa: E402
import local_cluster  # noqa: E402
from local_hub import Hub  # noqa: E402


@pytest.fixture(scope="session")
def hub_image():
    tar, reference = pathlib.Path(os.environ["HUB_IMAGE_TAR"]), os.environ["HUB_IMAGE_REFERENCE"]
    for node in kit.WORKERS:
        kit.load_image(node, tar, reference)
    return reference


def service_account(folder):
    """A kubeconfig with no more rights than KubeSpawner's own and jupyterhub/rbac.yaml."""
    kit.kubectl("apply", "-f", kit.ROOT / "jupyterhub" / "rbac.yaml")
    kit.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "hub"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "kubespawner"}, "rules": [
            {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims", "services"], "verbs": ["get", "watch", "list", "create", "delete"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "kubespawner"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kubespawner"}, "subjects": [{"kind": "ServiceAccount", "name": "hub"}]},
    ]}))
    token = kit.kubectl("create", "token", "hub", "--duration=2h").strip()
    config = json.loads(kit.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"] = [{"name": "hub", "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = "hub"
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


@pytest.fixture
def hub(tmp_path, hub_image):
    """Makes a hub; what it leaves in the cluster goes with the test."""
    def make(settings="", name="hub"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Hub(folder, local_cluster.API_SERVER, 18000, hub_image, service_account(folder), os.environ["HUB_PROXY"], settings)

    yield make
    kit.kubectl("delete", "pods", "-l", "component=singleuser-server", "--wait=true", "--grace-period=1", timeout=120)
    kit.kubectl("delete", "checkpoints", "--all", "--wait=true", "--timeout=90s", timeout=120)
    kit.kubectl("delete", "secrets", "-l", "app.kubernetes.io/managed-by=jupyterhub-holdfast")
    kit.on_node(kit.WORKERS[0], "rm", "-rf", "/run/flags/hub-home")
