"""Verification of several drafts per position; rules for single drafts are in :mod:`fsd_core.rules`."""
