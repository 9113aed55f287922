"""What the TLS scenarios need: certificates, a client that times first bytes, a network that is
slow."""
