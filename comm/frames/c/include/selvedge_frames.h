/* Frames into a Selvedge node and out of it, through shared memory. See docs/programs.md.
 *
 * A camera gives a node the frames of one stream, whose source is "shm:PATH?encoding=H264". A viewer gets those of a
 * stream with to = "shm:PATH". A handle is used by one thread at a time, and freed once. A function returns 0 or more
 * if it did its work, else one of the errors below. Link with -lselvedge_frames. */
#ifndef SELVEDGE_FRAMES_H
#define SELVEDGE_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum selvedge_frames_error {
	SELVEDGE_FRAMES_NULL = -1,    /* a pointer is null */
	SELVEDGE_FRAMES_VALUE = -2,   /* a text is not UTF-8, or a kind does not exist */
	SELVEDGE_FRAMES_CONNECT = -3, /* no node answers at the path */
	SELVEDGE_FRAMES_REFUSED = -4, /* the node refuses: see the last error */
	SELVEDGE_FRAMES_FULL = -5,    /* the node is behind: this frame is left out, go on */
	SELVEDGE_FRAMES_SIZE = -6,    /* the frame is empty, or never fits */
	SELVEDGE_FRAMES_GONE = -7,    /* the node has gone: free the handle, connect again */
	SELVEDGE_FRAMES_CORRUPT = -8, /* what came is no frame */
	SELVEDGE_FRAMES_PANIC = -9    /* a fault in the library */
};

enum selvedge_frame_kind {
	SELVEDGE_FRAME_UNKNOWN,
	SELVEDGE_FRAME_KEY,
	SELVEDGE_FRAME_PREDICTED,
	SELVEDGE_FRAME_BIDIRECTIONAL,
	SELVEDGE_FRAME_STILL,
	SELVEDGE_FRAME_AUDIO,
	SELVEDGE_FRAME_DATA
};

/* What is stated of a frame. Times are CLOCK_MONOTONIC. */
struct selvedge_frame_info {
	uint64_t number;      /* counted by the writer; a gap shows frames that were lost */
	uint64_t at_ns;       /* captured (camera; 0: now) or passed on by the node (viewer) */
	uint64_t deadline_ns; /* UINT64_MAX: none; the camera's is not used */
	uint32_t kind;
	uint32_t decodable;   /* 1: all that it refers to was passed on as well */
};

/* What became of a camera's stream. */
struct selvedge_frame_counts {
	uint64_t taken;     /* by the node */
	uint64_t sent;      /* by the link */
	uint64_t dropped;   /* by the link */
	uint64_t decodable; /* sent by their deadlines, with all that they refer to */
	uint64_t left_out;  /* by this camera, since the memory was full */
	uint64_t aim_bps;   /* the rate to encode at; 0: none is asked for */
};

typedef struct selvedge_camera selvedge_camera;
typedef struct selvedge_viewer selvedge_viewer;

/* Connects to a path, with frames of an encoding such as "H264". The caller frees *camera. */
int selvedge_camera_connect(const char *path, const char *encoding, selvedge_camera **camera);
/* Gives the node a whole access unit; copies it and never waits. info may be null. */
int selvedge_camera_write(selvedge_camera *camera, const struct selvedge_frame_info *info, const void *bytes, size_t len);
int selvedge_camera_counts(const selvedge_camera *camera, struct selvedge_frame_counts *counts);
/* 1 if the node asked for a key picture since the last call, else 0. */
int selvedge_camera_key_request(selvedge_camera *camera);
void selvedge_camera_free(selvedge_camera *camera);

/* Connects to a path. The caller frees *viewer. */
int selvedge_viewer_connect(const char *path, selvedge_viewer **viewer);
/* Waits for a frame: 1 if it came, 0 if none did in time. The bytes belong to the viewer, until its next call. */
int selvedge_viewer_read(selvedge_viewer *viewer, uint64_t timeout_ns, struct selvedge_frame_info *info,
	const uint8_t **bytes, size_t *len);
/* The encoding, such as "H264"; empty if no frame had passed the node yet. Belongs to the viewer. */
const char *selvedge_viewer_encoding(const selvedge_viewer *viewer);
void selvedge_viewer_free(selvedge_viewer *viewer);

/* The meaning of a return value; never freed. */
const char *selvedge_frames_error_text(int code);
/* The last error of this thread that had more to say; valid until the next one. */
const char *selvedge_frames_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
