/* A yardstick for tools/peers/events.sh: COD (ECho's E-code compiler), which compiles and calls the two
 * handlers that `selvedge-lab bench code` has. Each line that it reads is a number of samples; it answers with
 * a line for each handler: its name, nanoseconds a call (24 bytes copied in, as ours have it),
 * microseconds from source to what can be called, and the sum of what 64 events were answered with.
 * Built by that script; licence of COD: BSD-like, of Georgia Tech Research Corporation.
 */
#include "cod.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 2000, EVENTS = 64, SAMPLES_MOST = 1001, HEAD = 24 };

typedef struct event {
	int cpu;
	int memory;
	long kind;
	long seq;
	long values[64];
} event, *event_ref;

static FMField fields[] = {
	{ "cpu", "integer", sizeof(int), FMOffset(event_ref, cpu) },
	{ "memory", "integer", sizeof(int), FMOffset(event_ref, memory) },
	{ "kind", "integer", sizeof(long), FMOffset(event_ref, kind) },
	{ "seq", "integer", sizeof(long), FMOffset(event_ref, seq) },
	{ "values", "integer[64]", sizeof(long), FMOffset(event_ref, values) },
	{ NULL, NULL, 0, 0 },
};

static const struct work {
	const char *name, *source;
} works[] = {
	{ "filter",
	  "{ if (input.cpu > 80 && input.memory < 1000) {"
	  "    if (input.kind == 3) return 0;"
	  "    return 1;"
	  "  } else if (input.seq % 10 == 0) return 1;"
	  "  return 0; }" },
	/* Declarations come first in its language. */
	{ "loop64",
	  "{ long sum = 0; int i;"
	  "  for (i = 0; i < 64; i++) sum = sum + input.values[i];"
	  "  return sum > 1000; }" },
};

typedef int (*handler)(event_ref);

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1e9 + at.tv_nsec;
}

static cod_code make(const struct work *work)
{
	cod_parse_context context = new_cod_parse_context();
	cod_add_simple_struct_type("event", fields, context);
	cod_subroutine_declaration("int proc(event *input)", context);
	cod_code code = cod_code_gen((char *)work->source, context);
	cod_free_parse_context(context);
	if (!code) {
		fprintf(stderr, "cod: can't compile %s\n", work->name);
		exit(1);
	}
	return code;
}

static int by_size(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

static void measure(const struct work *work, const event *events, int samples)
{
	static double calls[SAMPLES_MOST], readies[SAMPLES_MOST];
	volatile int answer;
	static event input;
	cod_code code = make(work);
	handler call = (handler)(intptr_t)code->func;
	long sum = 0;
	for (int i = 0; i < EVENTS; i++) {
		input = events[i];
		sum += call(&input);
	}
	for (int sample = 0; sample < samples; sample++) {
		double began = now();
		for (int i = 0; i < BATCH; i++) {
			memcpy(&input, &events[i % EVENTS], HEAD);
			/* The copy is made each time, as the call may read it. */
			__asm__ volatile("" ::: "memory");
			answer = call(&input);
		}
		calls[sample] = (now() - began) / BATCH;
		began = now();
		cod_code one = make(work);
		readies[sample] = (now() - began) / 1e3;
		cod_code_free(one);
	}
	(void)answer;
	cod_code_free(code);
	qsort(calls, samples, sizeof *calls, by_size);
	qsort(readies, samples, sizeof *readies, by_size);
	printf("%s %.3f %.3f %ld\n", work->name, calls[samples / 2], readies[samples / 2], sum);
}

int main(void)
{
	static event events[EVENTS];
	char line[32];
	/* The events of lab/measure/src/code.rs. */
	for (int i = 0; i < EVENTS; i++) {
		events[i] = (event){ .cpu = i * 7 % 100, .memory = i * 37 % 2000, .kind = i % 5, .seq = i };
		for (int n = 0; n < 64; n++)
			events[i].values[n] = i;
	}
	while (fgets(line, sizeof line, stdin)) {
		int samples = atoi(line);
		if (samples < 1 || samples > SAMPLES_MOST)
			return 2;
		for (size_t i = 0; i < sizeof works / sizeof *works; i++)
			measure(&works[i], events, samples);
		fflush(stdout);
	}
	return 0;
}
