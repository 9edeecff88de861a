/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The handler in E-code that user space puts behind a program, and its memory: of one layout in
 * every program, since src/handler.rs writes it.
 */
#ifndef SELVEDGE_HANDLER_H
#define SELVEDGE_HANDLER_H

#include "types.h"

#define HEADER 64
#define RESULT 16
#define FAULT 24
#define NOT_RUN 0xffu
#define MEMORY 16384

/* Who uses the handler's memory: 0 nobody, 1 a processor, 2 user space, which changes the handler. */
u32 busy SEC(".data.busy");

struct handler_memory {
	u8 bytes[MEMORY];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct handler_memory);
} memory SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} handler SEC(".maps");

#endif
