"""A hub on this machine with its servers in the local cluster. Everything that differs from test to test comes in by HUB_… variables."""

import os

import jupyterhub_holdfast

c = get_config()  # noqa: F821
host, port = os.environ["HUB_HOST"], int(os.environ["HUB_PORT"])
folder = os.environ["HUB_FOLDER"]

c.JupyterHub.bind_url = f"http://{host}:{port}"
c.JupyterHub.hub_bind_url = f"http://{host}:{port + 1}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{port + 2}"
c.ConfigurableHTTPProxy.command = os.environ["HUB_PROXY"].split()
c.ConfigurableHTTPProxy.pid_file = f"{folder}/proxy.pid"
c.JupyterHub.db_url = f"sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = f"{folder}/cookie_secret"
c.JupyterHub.cleanup_servers = False  # the hub may die and come back
c.JupyterHub.spawner_class = "jupyterhub_holdfast.HoldfastSpawner"
c.JupyterHub.redirect_to_server = False  # a log-in leads to the home page, and resumes nothing by itself
c.JupyterHub.template_paths = jupyterhub_holdfast.template_paths
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.delete_invalid_users = False
c.JupyterHub.services = [{"name": "test", "api_token": os.environ["HUB_TOKEN"]}]
c.JupyterHub.load_roles = [
    {"name": "test", "scopes": ["admin:users", "admin:servers", "access:servers", "list:users", "admin:server_state", "tokens"], "services": ["test"]}
]

c.KubeSpawner.namespace = "default"
c.KubeSpawner.image = os.environ["HUB_IMAGE"]
c.KubeSpawner.cmd = ["python3", "-m", "jupyterhub.singleuser"]
c.KubeSpawner.extra_container_config = {"command": ["/usr/bin/env"]}  # the image's entry point is a shell
c.KubeSpawner.environment = {
    "PYTHONPATH": "/opt/notebook", "HOME": "/home/work", "JUPYTER_CONFIG_PATH": "/opt/notebook/etc/jupyter", "JUPYTER_PATH": "/opt/notebook/share/jupyter",
    "SHELL": "/bin/bash",  # dash holds /dev/tty, which CRIU cannot dump
}
c.KubeSpawner.notebook_dir = "/home/work"
# A folder that all nodes have, as the volume of a cluster's shared storage.
c.KubeSpawner.volumes = [{"name": "home", "hostPath": {"path": "/run/flags/hub-home/{username}", "type": "DirectoryOrCreate"}}]
c.KubeSpawner.volume_mounts = [{"name": "home", "mountPath": "/home/work"}]
c.KubeSpawner.cpu_guarantee = 0.1
c.KubeSpawner.mem_guarantee = "200M"
c.KubeSpawner.delete_grace_period = 1
c.KubeSpawner.delete_stopped_pods = False  # what ended by itself is looked at
c.KubeSpawner.start_timeout = 150
c.KubeSpawner.http_timeout = 150
c.KubeSpawner.args = ["--allow-root", "--ServerApp.terminals_enabled=True"]
for setting in os.environ.get("HUB_SETTINGS", "").split():  # name=value of HoldfastSpawner
    name, value = setting.split("=", 1)
    setattr(c.HoldfastSpawner, name, {"True": True, "False": False}.get(value, float(value) if value.replace(".", "").isdigit() else value))
