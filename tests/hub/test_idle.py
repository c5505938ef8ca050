"""A Jupyter server without a hub, found idle by what it says itself: a cell that only sleeps is a running cell."""

import json

import kit

AFTER = 30  # s
CELL = 2 * AFTER
SERVER = ["python3", "-m", "jupyter_server", "--ip=0.0.0.0", "--no-browser", "--allow-root", "--ServerApp.root_dir=/tmp"]
ENV = {"PYTHONPATH": "/opt/notebook", "HOME": "/home/work", "JUPYTER_CONFIG_PATH": "/opt/notebook/etc/jupyter", "JUPYTER_PATH": "/opt/notebook/share/jupyter",
       "IPYTHONDIR": "/tmp/ipython"}

# Run in the pod, as a browser would use it: over the server's API, and the kernel's own sockets.
CLIENT = """
import glob, json, sys, urllib.request, jupyter_client
runtime = '/home/work/.local/share/jupyter/runtime/'
server = json.load(open(sorted(glob.glob(runtime + 'jpserver-*.json'))[-1]))
def api(method, path):
    request = urllib.request.Request(f"http://127.0.0.1:{server['port']}/api/{path}", method=method, headers={'Authorization': 'token ' + server['token']})
    return json.load(urllib.request.urlopen(request, timeout=30))
def cell(kernel, code, wait):
    client = jupyter_client.BlockingKernelClient(connection_file=runtime + f'kernel-{kernel}.json')
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    if not wait:
        return client.execute(code)
    said = []
    client.execute_interactive(code, timeout=60, output_hook=lambda m: said.append(m['content'].get('text', '')))
    return ''.join(said).strip()
"""


def in_pod(code):
    return kit.kubectl("exec", kit.ready_pod("app=notebook")["metadata"]["name"], "--", "python3", "-c", CLIENT + code, timeout=180).strip()


def idle():
    status = kit.get("suspendedworkloads", "notebook").get("status", {})
    found = [c for c in status.get("conditions", []) if c["type"] == "Idle"]
    return (found[0]["reason"], found[0]["message"]) if found else ("", "")


def phase():
    return kit.get("suspendedworkloads", "notebook").get("status", {}).get("phase")


def test_a_running_cell_is_never_idle_and_its_kernel_goes_on_with_its_variables(hub_image):
    labels = {"app": "notebook"}
    container = {"name": "notebook", "image": hub_image, "command": SERVER, "env": [{"name": k, "value": v} for k, v in ENV.items()],
                 "readinessProbe": {"tcpSocket": {"port": 8888}, "periodSeconds": 1}}
    kit.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "holdfast.dev/v1alpha1", "kind": "SuspendedWorkload", "metadata": {"name": "notebook"}, "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "notebook"},
            "idle": {"after": f"{AFTER}s", "signals": {"jupyter": {}, "cpu": {"below": "100m"}}}}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "notebook", "annotations": {"holdfast.dev/protect": "true"}}, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}}}]}))
    try:
        kit.ready_pod("app=notebook", limit=180)
        kernel = in_pod("print(api('POST', 'kernels')['id'])")
        in_pod(f"cell('{kernel}', 'import time, os; me = os.getpid(); time.sleep({CELL}); done = 42', False)")
        kit.wait("the cell is seen", lambda: idle()[0] == "Active", limit=90)
        # By its CPU use alone, a quarter of that would be quiet.
        kit.stays("a cell that sleeps runs on", lambda: phase() == "Running" and idle()[0] == "Active", seconds=AFTER)
        kit.wait("it sleeps when the cell has ended", lambda: phase() == "Suspended", limit=300)
        assert not kit.pods("app=notebook")
        kit.kubectl("scale", "deployment/notebook", "--replicas=1")
        kit.wait("it runs again", lambda: phase() == "Running", limit=120)
        assert in_pod("print([k['id'] for k in api('GET', 'kernels')][0])") == kernel
        # IPython prints beside it that it cannot write its history, which lies on no volume here.
        assert "42 True" in in_pod(f"print(cell('{kernel}', 'print(str(done) + chr(32) + str(me == os.getpid()))', True))")
    finally:
        kit.kubectl("delete", "sw,deployment", "notebook", "--ignore-not-found", "--timeout=90s", timeout=120, check=False)
