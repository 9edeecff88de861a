"""Frames into a Selvedge node and out of it, through shared memory: docs/programs.md.

A Camera gives a node the frames of a stream whose source is "shm:PATH?encoding=H264". A Viewer gets those of a stream
with to = "shm:PATH". This file calls the C library, which it finds in SELVEDGE_FRAMES_LIBRARY or where the system
looks for libraries.
"""

import collections
import ctypes
import os

KINDS = ("unknown", "key", "predicted", "bidirectional", "still", "audio", "data")
FULL, GONE = -5, -7

Frame = collections.namedtuple("Frame", "bytes number at_ns deadline_ns kind decodable")
Counts = collections.namedtuple("Counts", "taken sent dropped decodable left_out aim_bps")


class Error(Exception):
    """A call failed; `code` is one of selvedge_frames.h."""

    def __init__(self, code):
        self.code = code
        text = _c.selvedge_frames_error_text(code).decode()
        detail = _c.selvedge_frames_last_error().decode()
        super().__init__(f"{text} ({detail})" if detail else text)


class _Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("number", "at_ns", "deadline_ns")]
    _fields_ += [("kind", ctypes.c_uint32), ("decodable", ctypes.c_uint32)]


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Counts._fields]


def _load():
    c = ctypes.CDLL(os.environ.get("SELVEDGE_FRAMES_LIBRARY", "libselvedge_frames.so"))
    for name, result, *arguments in (
        ("selvedge_camera_connect", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p),
        ("selvedge_camera_write", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
        ("selvedge_camera_counts", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
        ("selvedge_camera_key_request", ctypes.c_int, ctypes.c_void_p),
        ("selvedge_camera_free", None, ctypes.c_void_p),
        ("selvedge_viewer_connect", ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p),
        ("selvedge_viewer_read", ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, *[ctypes.c_void_p] * 3),
        ("selvedge_viewer_encoding", ctypes.c_char_p, ctypes.c_void_p),
        ("selvedge_viewer_free", None, ctypes.c_void_p),
        ("selvedge_frames_error_text", ctypes.c_char_p, ctypes.c_int),
        ("selvedge_frames_last_error", ctypes.c_char_p),
    ):
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    return c


_c = _load()


def _checked(code):
    if code < 0:
        raise Error(code)
    return code


class _Handle:
    """A handle of the C library that a `with` statement frees."""

    def __init__(self, connect, free, *arguments):
        self._free, self._handle = free, ctypes.c_void_p()
        _checked(connect(*arguments, ctypes.byref(self._handle)))

    def close(self):
        """Disconnects."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._free(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Camera(_Handle):
    """Gives a node the frames of one stream."""

    def __init__(self, path, encoding):
        connect, free = _c.selvedge_camera_connect, _c.selvedge_camera_free
        super().__init__(connect, free, os.fsencode(path), encoding.encode())

    def write(self, frame, at_ns=0, kind="unknown"):
        """Gives the node a whole access unit, of bytes or any buffer. False: the node is behind, it was left out."""
        info = _Info(0, at_ns, 2**64 - 1, KINDS.index(kind), 1)
        view = memoryview(frame).cast("B")
        length = view.nbytes
        # A buffer that may be written is passed as it is; another is copied.
        if view.readonly:
            data = frame if isinstance(frame, bytes) else bytes(view)
        else:
            data = ctypes.byref((ctypes.c_char * length).from_buffer(view))
        code = _c.selvedge_camera_write(self._handle, ctypes.byref(info), data, length)
        return code != FULL and _checked(code) == 0

    def counts(self):
        """What became of the stream's frames, and the rate to encode at."""
        counts = _Counts()
        _checked(_c.selvedge_camera_counts(self._handle, ctypes.byref(counts)))
        return Counts(*(getattr(counts, name) for name in Counts._fields))

    def key_request(self):
        """Whether the node asked for a key picture since the last call."""
        return _checked(_c.selvedge_camera_key_request(self._handle)) == 1


class Viewer(_Handle):
    """Gets the frames of one stream from a node."""

    def __init__(self, path):
        super().__init__(_c.selvedge_viewer_connect, _c.selvedge_viewer_free, os.fsencode(path))

    @property
    def encoding(self):
        """The stream's encoding; empty if no frame had passed the node when this connected."""
        return _c.selvedge_viewer_encoding(self._handle).decode()

    def read(self, timeout=10.0):
        """The next Frame, or None if none comes in so many seconds. Its memoryview is valid until the next call."""
        info, data, length = _Info(), ctypes.c_void_p(), ctypes.c_size_t()
        wait = int(timeout * 1e9)
        results = (ctypes.byref(info), ctypes.byref(data), ctypes.byref(length))
        if _checked(_c.selvedge_viewer_read(self._handle, wait, *results)) == 0:
            return None
        view = memoryview((ctypes.c_char * length.value).from_address(data.value)).cast("B").toreadonly()
        return Frame(view, info.number, info.at_ns, info.deadline_ns, KINDS[info.kind], bool(info.decodable))

    def __iter__(self):
        """Frames until the node has gone, or none came for ten seconds."""
        while True:
            try:
                frame = self.read()
            except Error as error:
                if error.code == GONE:
                    return
                raise
            if frame is None:
                return
            yield frame
