from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("allocation_id", "rank", "pid")
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    allocation_id: str
    rank: int
    pid: int
    def __init__(self, allocation_id: _Optional[str] = ..., rank: _Optional[int] = ..., pid: _Optional[int] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("assignment", "last_sequence", "context_directory", "checkpoint_directory", "stores")
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    assignment: bytes
    last_sequence: int
    context_directory: str
    checkpoint_directory: str
    stores: bytes
    def __init__(self, assignment: _Optional[bytes] = ..., last_sequence: _Optional[int] = ..., context_directory: _Optional[str] = ..., checkpoint_directory: _Optional[str] = ..., stores: _Optional[bytes] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("sequence", "lane", "body")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    lane: str
    body: bytes
    def __init__(self, sequence: _Optional[int] = ..., lane: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("allocation_id", "rank", "reports")
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    allocation_id: str
    rank: int
    reports: _containers.RepeatedCompositeFieldContainer[Report]
    def __init__(self, allocation_id: _Optional[str] = ..., rank: _Optional[int] = ..., reports: _Optional[_Iterable[_Union[Report, _Mapping]]] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ("last_sequence",)
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    last_sequence: int
    def __init__(self, last_sequence: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("allocation_id", "rank")
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    allocation_id: str
    rank: int
    def __init__(self, allocation_id: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class Directive(_message.Message):
    __slots__ = ("action", "target_length")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: _ClassVar[Directive.Action]
        RUN: _ClassVar[Directive.Action]
        PREEMPT: _ClassVar[Directive.Action]
        STOP: _ClassVar[Directive.Action]
        PAUSE: _ClassVar[Directive.Action]
        KILL: _ClassVar[Directive.Action]
    ACTION_UNSPECIFIED: Directive.Action
    RUN: Directive.Action
    PREEMPT: Directive.Action
    STOP: Directive.Action
    PAUSE: Directive.Action
    KILL: Directive.Action
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TARGET_LENGTH_FIELD_NUMBER: _ClassVar[int]
    action: Directive.Action
    target_length: int
    def __init__(self, action: _Optional[_Union[Directive.Action, str]] = ..., target_length: _Optional[int] = ...) -> None: ...

class EndRequest(_message.Message):
    __slots__ = ("allocation_id", "rank", "ending")
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    allocation_id: str
    rank: int
    ending: str
    def __init__(self, allocation_id: _Optional[str] = ..., rank: _Optional[int] = ..., ending: _Optional[str] = ...) -> None: ...

class EndReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
