/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Requests that the kernel answers itself: a datagram of 32 bytes to one port is shown to a handler in
 * E-code, and goes back with its answer, or on to the process that serves the port where the
 * handler passes it on. As the HTTP accelerator of Q-Fabric's sections 3.2.2 and 3.2.5. Datagrams of
 * another size, or with options in their header, go on as they are.
 */
#include "handler.h"

#define WORDS 4

enum { NEXT = -1, LOOPBACK = 1 };
enum { IPPROTO_UDP = 17, ETHERTYPE_IPV4 = 0x0800 };

struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};

struct packet {
	u8 to_mac[6], from_mac[6];
	__be16 ethertype;
	u8 version, service;
	__be16 length, id, fragment;
	u8 hops, protocol;
	__be16 header_sum;
	u8 from[4], to[4];
	__be16 from_port, to_port, datagram_length, sum;
	u8 payload[WORDS * 8];
} __attribute__((packed));

struct counts {
	u64 asked;
	u64 answered;
	u64 passed; /* by the handler, or since it was busy */
	u64 faults;
};

u32 port SEC(".data.port");
struct counts counts SEC(".data.counts");

static __noinline int call_handler(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &handler, 0);
	return 0;
}

SEC("tc")
int answer(struct __sk_buff *skb)
{
	struct handler_memory *all;
	struct packet *packet;
	u64 result, fault, *payload, *input, *output;
	u32 zero = 0, address;
	int at;

	if (skb->len != sizeof(*packet) || bpf_skb_pull_data(skb, sizeof(*packet)))
		return NEXT;
	packet = (void *)(long)skb->data;
	if ((void *)(packet + 1) > (void *)(long)skb->data_end)
		return NEXT;
	if (packet->ethertype != __builtin_bswap16(ETHERTYPE_IPV4) || packet->version != 0x45 ||
	    packet->protocol != IPPROTO_UDP || packet->fragment & __builtin_bswap16(0x3fff) ||
	    packet->to_port != __builtin_bswap16(port))
		return NEXT;
	__sync_fetch_and_add(&counts.asked, 1);
	all = bpf_map_lookup_elem(&memory, &zero);
	if (!all || __sync_val_compare_and_swap(&busy, 0, 1) != 0) {
		__sync_fetch_and_add(&counts.passed, 1);
		return NEXT;
	}
	/* Words at any address are fine for the machines that this runs on, and spare the stack. */
	payload = (void *)packet->payload;
	input = (void *)&all->bytes[HEADER];
	output = input + WORDS;
	for (at = 0; at < WORDS; at++) {
		input[at] = payload[at];
		output[at] = 0;
	}
	*(volatile u64 *)&all->bytes[FAULT] = NOT_RUN;
	call_handler(skb);
	fault = *(volatile u64 *)&all->bytes[FAULT];
	result = *(volatile u64 *)&all->bytes[RESULT];
	packet = (void *)(long)skb->data;
	if (fault || !result || (void *)(packet + 1) > (void *)(long)skb->data_end) {
		__sync_lock_test_and_set(&busy, 0);
		__sync_fetch_and_add(fault ? &counts.faults : &counts.passed, 1);
		return NEXT;
	}
	payload = (void *)packet->payload;
	for (at = 0; at < WORDS; at++)
		payload[at] = output[at];
	__sync_lock_test_and_set(&busy, 0);
	for (at = 0; at < 3; at++) {
		u16 *to = (u16 *)packet->to_mac + at, *from = (u16 *)packet->from_mac + at;
		u16 kept = *to;

		*to = *from;
		*from = kept;
	}
	/* The header's sum stays what it was. */
	address = *(u32 *)packet->to;
	*(u32 *)packet->to = *(u32 *)packet->from;
	*(u32 *)packet->from = address;
	packet->to_port = packet->from_port;
	packet->from_port = __builtin_bswap16(port);
	/* None. */
	packet->sum = 0;
	__sync_fetch_and_add(&counts.answered, 1);
	/* On lo the other end is this machine; elsewhere it is behind the device. */
	return skb->ifindex == LOOPBACK ? NEXT : bpf_redirect(skb->ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
