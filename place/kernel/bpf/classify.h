/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a packet says of itself: whose it is, by the filters that user space wrote; what its deadline
 * is; how long it is on the wire.
 */
#ifndef SELVEDGE_CLASSIFY_H
#define SELVEDGE_CLASSIFY_H

#include "dwcs.h"

#define CGROUPS_UP 16

enum { BY_MARK = 0, BY_COOKIE = 1, BY_CGROUP = 2, BY_PORT = 3, BY_SOURCE_PORT = 4 };

struct filter {
	u32 kind;
	u32 zero;
	u64 value;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct filter);
	__type(value, u32);
} filters SEC(".maps");

/* The stream of a filter, or NOBODY. */
static __always_inline u32 filtered(u32 kind, u64 value)
{
	struct filter key = { kind, 0, value };
	u32 *stream = bpf_map_lookup_elem(&filters, &key);

	return stream ? *stream : NOBODY;
}

/* The cgroup of the socket, or the nearest one above it that has a stream. */
static __always_inline u32 by_cgroup(struct cgroup *cgroup)
{
	u32 found = NOBODY;
	int k;

	bpf_for(k, 0, CGROUPS_UP) {
		if (!cgroup || found != NOBODY)
			break;
		found = filtered(BY_CGROUP, BPF_CORE_READ(cgroup, kn, id));
		/* `self` is the first member of a cgroup: its parent's is the parent. */
		cgroup = (struct cgroup *)BPF_CORE_READ(cgroup, self.parent);
	}
	return found;
}

/* The bytes of the device's own header. */
static __always_inline u32 before_ip(struct sk_buff *skb)
{
	u64 data = (u64)skb->data - (u64)skb->head;
	u32 at = skb->network_header;

	return at > data && at - data < 64 ? at - data : 0;
}

/* UDP's ports, both, first the source, as they are on the wire; 0 if it is not UDP. */
static __always_inline u32 udp_ports(struct sk_buff *skb)
{
	unsigned char *head = skb->head;
	u32 end = (u32)((u64)skb->data - (u64)head) + skb->len - skb->data_len;
	u32 at = skb->network_header, ports = 0;
	/* One look is enough for IPv4 without options: 20 bytes, and UDP's 8. */
	u8 ip[28];

	if (at + sizeof(ip) > end || bpf_probe_read_kernel(ip, sizeof(ip), head + at))
		return 0;
	if (skb->protocol == 0x0008) { /* IPv4; a later fragment has no ports */
		if (ip[9] != 17 || (ip[6] & 0x1f) || ip[7])
			return 0;
		if ((ip[0] & 15) == 5)
			return ip[20] | ip[21] << 8 | ip[22] << 16 | (u32)ip[23] << 24;
		at += (ip[0] & 15) * 4;
	} else if (skb->protocol == 0xdd86) { /* IPv6 without extension headers */
		if (ip[6] != 17)
			return 0;
		at += 40;
	} else {
		return 0;
	}
	if (at + 8 > end || bpf_probe_read_kernel(&ports, sizeof(ports), head + at))
		return 0;
	return ports;
}

static __always_inline u32 host_order(u32 port)
{
	return (port & 0xff) << 8 | (port >> 8 & 0xff);
}

/* The stream that a packet belongs to. */
static __always_inline u32 classify(struct sk_buff *skb, struct sock *sk)
{
	u32 kinds = setup.filters, found = NOBODY;

	if (kinds & 1 << BY_MARK && skb->mark)
		found = filtered(BY_MARK, skb->mark);
	if (found == NOBODY && sk) {
		if (kinds & 1 << BY_COOKIE && sk->__sk_common.skc_cookie.counter)
			found = filtered(BY_COOKIE, sk->__sk_common.skc_cookie.counter);
		if (found == NOBODY && kinds & 1 << BY_CGROUP)
			found = by_cgroup(BPF_CORE_READ(sk, sk_cgrp_data.cgroup));
	}
	if (found == NOBODY && kinds & (1 << BY_PORT | 1 << BY_SOURCE_PORT)) {
		u32 ports = udp_ports(skb);

		if (ports && kinds & 1 << BY_PORT)
			found = filtered(BY_PORT, host_order(ports >> 16));
		if (ports && found == NOBODY && kinds & 1 << BY_SOURCE_PORT)
			found = filtered(BY_SOURCE_PORT, host_order(ports));
	}
	return found == NOBODY ? setup.rest : found;
}

/* The deadline that the sender states by SO_TXTIME, on CLOCK_MONOTONIC or CLOCK_TAI; or 0. TCP
 * writes times of its own into the same field. */
static __always_inline u64 stated(struct sk_buff *skb, struct sock *sk)
{
	u64 at = skb->tstamp;
	u32 clock;

	if (!at || !sk || sk->sk_protocol == 6)
		return 0;
	clock = BPF_CORE_READ_BITFIELD(skb, tstamp_type);
	if (clock == SKB_CLOCK_MONOTONIC)
		return at;
	if (clock == SKB_CLOCK_TAI) {
		u64 ahead = bpf_ktime_get_tai_ns() - bpf_ktime_get_ns();

		return at > ahead ? at - ahead : 1;
	}
	return 0;
}

#endif
