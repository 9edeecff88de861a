/* A camera: camera PATH ENCODING FILE PERIOD_US. The file holds frames, each after its length in 4 bytes, big-endian. */
#include "selvedge_frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int failed(const char *what, int code)
{
	fprintf(stderr, "%s: %s: %s\n", what, selvedge_frames_error_text(code), selvedge_frames_last_error());
	return 1;
}

int main(int argc, char **argv)
{
	selvedge_camera *camera;
	struct selvedge_frame_counts counts;
	unsigned char head[4];
	unsigned long frames = 0;
	FILE *file = argc == 5 ? fopen(argv[3], "rb") : NULL;
	struct timespec period = { 0, file ? atol(argv[4]) * 1000 : 0 };
	int code;

	if (!file) {
		fprintf(stderr, "camera PATH ENCODING FILE PERIOD_US\n");
		return 2;
	}
	code = selvedge_camera_connect(argv[1], argv[2], &camera);
	if (code < 0)
		return failed("connect", code);
	while (fread(head, 1, 4, file) == 4) {
		size_t len = (size_t)head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3];
		unsigned char *frame = malloc(len);

		if (!frame || fread(frame, 1, len, file) != len)
			return 1;
		code = selvedge_camera_write(camera, NULL, frame, len);
		free(frame);
		if (code < 0 && code != SELVEDGE_FRAMES_FULL)
			return failed("write", code);
		frames += code == 0;
		nanosleep(&period, NULL);
	}
	code = selvedge_camera_counts(camera, &counts);
	printf("%lu frames\n", frames);
	selvedge_camera_free(camera);
	fclose(file);
	return code < 0;
}
