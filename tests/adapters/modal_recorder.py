"""Modal recorder: a server on loopback that the real client of Modal talks to. It keeps every request, and answers as
little as the client needs to go on: nothing is built and nothing runs."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpclib.server import Server
from modal_proto import api_grpc, api_pb2

Reply = Callable[[Any], Any]
_DONE = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)
_BUILDER = api_pb2.EnvironmentMetadata(
    name="main", settings=api_pb2.EnvironmentSettings(image_builder_version="2025.06")
)

_TAKEN = api_pb2.FunctionPutInputsResponseItem(input_id="in-1")
_RETURNED = api_pb2.FunctionGetOutputsItem(
    input_id="in-1",
    data_format=api_pb2.DATA_FORMAT_PICKLE,
    result=api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS, data=pickle.dumps(0)),
)


@dataclass
class Recorder:
    """What the client has sent, in order: the name of each call and its request."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    address: str = ""

    def requests(self, name: str) -> list[Any]:
        return [request for each, request in self.calls if each == name]

    def request(self, name: str) -> Any:
        [request] = self.requests(name)
        return request

    def image_commands(self) -> list[str]:
        """Commands of the images, from the first layer to the last."""
        return [line for each in self.requests("ImageGetOrCreate") for line in each.image.dockerfile_commands]

    def environment(self, folder: Path) -> dict[str, str]:
        """For a process whose client shall talk to this server, as nobody."""
        given = {"MODAL_SERVER_URL": self.address, "MODAL_TOKEN_ID": "ak-nobody", "MODAL_TOKEN_SECRET": "as-nobody"}
        return {**os.environ, **given, "MODAL_CONFIG_PATH": str(folder / "modal.toml"), "NO_COLOR": "1"}


@contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder whose server runs in a thread while the block does."""
    recorder, loop, started = Recorder(), asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        server = Server([_service(recorder)])
        await server.start("127.0.0.1", 0)
        recorder.address = f"http://127.0.0.1:{server._server.sockets[0].getsockname()[1]}"
        over.append(asyncio.Event())
        started.set()
        await over[0].wait()
        server.close()
        await server.wait_closed()

    over: list[asyncio.Event] = []
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(20), "the server did not start"
    try:
        yield recorder
    finally:
        loop.call_soon_threadsafe(over[0].set)
        thread.join(20)
        loop.close()


def _service(recorder: Recorder) -> Any:
    """Every call of Modal's service: it is kept, and answered from `_replies` or with an empty message."""
    base, replies = api_grpc.ModalClientBase, _replies(recorder)
    empty = type("Empty", (base,), dict.fromkeys(base.__abstractmethods__))()
    kinds = {path.rpartition("/")[2]: handler.reply_type for path, handler in empty.__mapping__().items()}

    def answering(name: str, kind: Any) -> Any:
        async def answer(_: Any, stream: Any) -> None:
            request = await stream.recv_message()
            recorder.calls.append((name, request))
            await stream.send_message(replies.get(name, lambda _: kind())(request))

        return answer

    return type("Service", (base,), {name: answering(name, kind) for name, kind in kinds.items()})()


def _data(function: Any) -> Any:
    return api_pb2.FunctionData(ranked_functions=[api_pb2.FunctionData.RankedFunction(rank=0, function=function)])


def _replies(recorder: Recorder) -> dict[str, Reply]:
    metadata = api_pb2.FunctionHandleMetadata(function_name="prepare")
    return {
        "AppCreate": lambda _: api_pb2.AppCreateResponse(app_id="ap-1"),
        "AppGetOrCreate": lambda _: api_pb2.AppGetOrCreateResponse(app_id="ap-1"),
        "AppGetLogs": lambda _: api_pb2.TaskLogsBatch(app_done=True),
        "AppPublish": lambda _: api_pb2.AppPublishResponse(url="http://127.0.0.1/app"),
        "EnvironmentGetOrCreate": lambda _: api_pb2.EnvironmentGetOrCreateResponse(
            environment_id="en-1", metadata=_BUILDER
        ),
        "FunctionCreate": lambda request: api_pb2.FunctionCreateResponse(
            function_id="fu-1",
            function=request.function,
            function_data=_data(request.function),
            handle_metadata=metadata,
        ),
        "FunctionGetOutputs": lambda _: api_pb2.FunctionGetOutputsResponse(outputs=[_RETURNED]),
        "FunctionMap": lambda _: api_pb2.FunctionMapResponse(function_call_id="fc-1", pipelined_inputs=[_TAKEN]),
        "FunctionPrecreate": lambda _: api_pb2.FunctionPrecreateResponse(function_id="fu-1"),
        "ImageGetOrCreate": lambda _: api_pb2.ImageGetOrCreateResponse(
            image_id=f"im-{len(recorder.requests('ImageGetOrCreate'))}", result=_DONE
        ),
        "MountGetOrCreate": lambda _: api_pb2.MountGetOrCreateResponse(mount_id="mo-1"),
        "MountPutFile": lambda _: api_pb2.MountPutFileResponse(exists=True),
        "VolumeCommit": lambda _: api_pb2.VolumeCommitResponse(skip_reload=True),
        "VolumeGetOrCreate": lambda _: api_pb2.VolumeGetOrCreateResponse(volume_id="vo-1"),
    }
