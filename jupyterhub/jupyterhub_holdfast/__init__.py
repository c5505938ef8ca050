"""Notebook servers that sleep: stopping one keeps its memory in a Holdfast checkpoint, starting it goes on from there."""

from pathlib import Path

from .spawner import HoldfastSpawner

#: For c.JupyterHub.template_paths: the home page with Suspend and Resume.
template_paths = [str(Path(__file__).parent / "templates")]

__all__ = ["HoldfastSpawner", "template_paths"]
