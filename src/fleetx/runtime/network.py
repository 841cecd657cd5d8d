"""Addresses and ports of this machine, found without resolving its own name.

An address belongs to this machine if a socket can be bound to it; the result of
`gethostbyname(gethostname())`, often 127.0.0.1, is never used.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import random
import socket
import time

# Below the ephemeral port range, so that a chosen port stays free until its worker binds it.
_FREE_PORTS = range(10000, 32000)


def resolve(host: str) -> str | None:
    """Return an IP address of `host` (IPv4 if there is one), or None if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return None
    addresses = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(addresses[0][4][0])


def is_local(host: str) -> bool:
    """Return whether `host`, a name or an address, is an address of this machine."""
    address = resolve(host)
    if address is None:
        return False
    with socket.socket(_family(address)) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def port_in_use(host: str, port: int) -> bool:
    """Return whether a process on this machine already listens on `host:port`."""
    try:
        listen(host, port).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return True
        raise
    return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host:port`; an empty host means every address."""
    address = resolve(host) if host else ""
    server = socket.socket(_family(address or "0.0.0.0"))
    try:
        # Connections of an earlier run may linger in TIME_WAIT; they are no reason to fail.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(128)
    except OSError:
        server.close()
        raise
    return server


def free_ports(count: int, host: str) -> list[int]:
    """Return `count` different ports on which nothing listens at `host`."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(_FREE_PORTS)
        if port not in ports and not port_in_use(host, port):
            ports.append(port)
    return ports


def wait_server_ready(endpoints: list[str], interval: float = 0.2) -> None:
    """Wait until every endpoint accepts connections; try again every `interval` seconds."""
    for endpoint in endpoints:
        address = split_endpoint(endpoint)
        while True:
            try:
                socket.create_connection(address, timeout=3).close()
                break
            except OSError:
                time.sleep(interval)


def join_endpoint(host: str, port: int) -> str:
    """Format an endpoint, with brackets around IPv6 addresses."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Parse `host:port` or `[address]:port`; raise ValueError for anything else."""
    host, colon, port = endpoint.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{endpoint!r} is not of the form host:port")
    return host.strip("[]"), int(port)


def interface_of(host: str) -> str | None:
    """Return the name of the network interface that has the address of `host`."""
    address = resolve(host)
    if address is None:
        return None
    found = {ip: name for name, ip in _interfaces()}
    if address in found:
        return found[address]
    wanted = ipaddress.ip_address(address)
    # All of 127.0.0.0/8 is on the loopback interface, although only one address is listed.
    return next(
        (name for ip, name in found.items() if wanted.is_loopback and _is_loopback(ip)), None
    )


def interface_towards(host: str) -> str | None:
    """Return the name of the interface on the route to `host`; None if it cannot be determined."""
    own = address_towards(host)
    return None if own is None else interface_of(own)


def address_towards(host: str) -> str | None:
    """Return the address of this machine as seen by `host`; None if it cannot be determined."""
    address = resolve(host)
    # Many machines resolve their own name to a loopback address, where others cannot reach them.
    if address is None or (_is_loopback(address) and address != host):
        return None
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing, but selects a route
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class _SockAddr(ctypes.Structure):
    _fields_ = [("family", ctypes.c_ushort), ("data", ctypes.c_ubyte * 26)]


class _IfAddrs(ctypes.Structure):
    pass


_IfAddrs._fields_ = [
    ("next", ctypes.POINTER(_IfAddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_SockAddr)),
]  # the remaining fields of struct ifaddrs are not read


def _interfaces() -> list[tuple[str, str]]:
    """List (interface name, address) with the C library's getifaddrs."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = ctypes.POINTER(_IfAddrs)()
    if libc.getifaddrs(ctypes.byref(head)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs failed")
    found = []
    entry = head
    try:
        while entry:
            item = entry.contents
            if item.address:
                family, data = item.address.contents.family, bytes(item.address.contents.data)
                # The address follows the port in IPv4, port and flow label in IPv6.
                if family == socket.AF_INET:
                    found.append((item.name.decode(), socket.inet_ntop(family, data[2:6])))
                elif family == socket.AF_INET6:
                    found.append((item.name.decode(), socket.inet_ntop(family, data[6:22])))
            entry = item.next
    finally:
        libc.freeifaddrs(head)
    return found
