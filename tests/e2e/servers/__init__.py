"""Servers that the end-to-end tests start as programs of their own."""
