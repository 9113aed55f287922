"""The codecs without sockets: what goes in is octets and times, what comes out is compared."""
