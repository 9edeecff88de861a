/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Prints the descriptors that are ready, as they become so, until so many were told:
 *
 *     readiness MEMORY SLEEP COUNT
 *
 * MEMORY and SLEEP are numbers of descriptors that the parent process has left open: the module's memory,
 * and what to sleep on, or -1 to look only. Exit status: 0, or 1 if nothing came for 20 s.
 */
#include "../include/selvedge_readiness.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static void tell(int descriptor, void *context)
{
	(void)context;
	printf("%d\n", descriptor);
}

int main(int argc, char **argv)
{
	struct selvedge_readiness *io;
	size_t told = 0, wanted;
	struct pollfd sleep;

	if (argc != 4) {
		fprintf(stderr, "usage: readiness MEMORY SLEEP COUNT\n");
		return 2;
	}
	io = selvedge_map(atoi(argv[1]));
	if (!io) {
		perror("the module's memory");
		return 1;
	}
	sleep.fd = atoi(argv[2]);
	sleep.events = POLLIN;
	wanted = (size_t)atoi(argv[3]);
	while (told < wanted) {
		int slept = 1;

		told += selvedge_take(io, tell, NULL);
		if (told >= wanted)
			break;
		if (selvedge_lie_down(io))
			slept = sleep.fd < 0 ? 0 : poll(&sleep, 1, 20000);
		selvedge_get_up(io);
		if (slept <= 0)
			return 1;
	}
	return fflush(stdout) ? 1 : 0;
}
