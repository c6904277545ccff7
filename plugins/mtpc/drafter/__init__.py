"""Drafters: a directory on disk becomes a configuration and a module that drafts."""

from mtpc.drafter.config import DrafterConfig, read_config
from mtpc.drafter.directory import Target, load_drafter, save_drafter
from mtpc.drafter.drafter import Draft, Drafter
from mtpc.drafter.tree import TreeDraft

__all__ = ["Draft", "Drafter", "DrafterConfig", "Target", "TreeDraft", "load_drafter", "read_config", "save_drafter"]
