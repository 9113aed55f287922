"""The gateway as a process of its own, between real clients and real servers."""
