/* A viewer: viewer PATH FILE FRAMES. Writes so many frames into the file, each after its length in 4 bytes, big-endian. */
#include "selvedge_frames.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	selvedge_viewer *viewer;
	struct selvedge_frame_info info;
	const uint8_t *bytes;
	size_t len;
	long frames = 0, wanted = argc == 4 ? atol(argv[3]) : 0;
	FILE *file = argc == 4 ? fopen(argv[2], "wb") : NULL;
	int code;

	if (!file) {
		fprintf(stderr, "viewer PATH FILE FRAMES\n");
		return 2;
	}
	code = selvedge_viewer_connect(argv[1], &viewer);
	if (code < 0) {
		fprintf(stderr, "%s: %s\n", selvedge_frames_error_text(code), selvedge_frames_last_error());
		return 1;
	}
	puts("connected");
	fflush(stdout);
	while (frames < wanted && (code = selvedge_viewer_read(viewer, 10000000000u, &info, &bytes, &len)) == 1) {
		unsigned char head[4] = { len >> 24 & 255, len >> 16 & 255, len >> 8 & 255, len & 255 };

		fwrite(head, 1, 4, file);
		fwrite(bytes, 1, len, file);
		frames++;
	}
	printf("%ld frames\n", frames);
	selvedge_viewer_free(viewer);
	fclose(file);
	if (code < 0)
		fprintf(stderr, "%s\n", selvedge_frames_error_text(code));
	return frames < wanted;
}
