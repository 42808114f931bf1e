"""Carries connections to another socket: `forward.py FROM TO`, each `unix:PATH`, `tcp:PORT` (of 127.0.0.1) or `tcp:HOST:PORT`.

A unix socket leads from one network namespace into another.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(target: str) -> Streams:
    kind, _, where = target.partition(":")
    return await (asyncio.open_unix_connection(where) if kind == "unix" else asyncio.open_connection(*place(where)))


def place(where: str) -> tuple[str, int]:
    host, _, port = where.rpartition(":")
    return host or "127.0.0.1", int(port)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(65536):
            writer.write(block)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def main(source: str, target: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await connect(target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, back), carry(there, writer))

    kind, _, where = source.partition(":")
    if kind == "unix":
        server: asyncio.Server = await asyncio.start_unix_server(serve, where)
    else:
        server = await asyncio.start_server(serve, *place(where))
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
