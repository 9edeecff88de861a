/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The integers of the kernel, under the names that libbpf's headers and these programs use.
 */
#ifndef SELVEDGE_INTEGERS_H
#define SELVEDGE_INTEGERS_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#endif
