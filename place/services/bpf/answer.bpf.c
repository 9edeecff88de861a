/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Requests that the kernel answers itself: a datagram of 32 bytes to one port is shown to a handler in
 * E-code, and goes back with its answer, or on to the process that serves the port where the
 * handler passes it on. As the HTTP accelerator of Q-Fabric's sections 3.2.2 and 3.2.5. Datagrams of
 * another size, or with options in their header, go on as they are.
 */
#include "types.h"

#define WORDS 4
#define HEADER 64
#define RESULT 16
#define FAULT 24
#define NOT_RUN 0xffu
#define MEMORY 16384

enum { NEXT = -1, REDIRECT_IN = 1 };
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
	u64 output[WORDS];
	u32 zero = 0;
	u64 result, fault;
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
	__builtin_memcpy(&all->bytes[HEADER], packet->payload, sizeof(output));
	__builtin_memset(&all->bytes[HEADER + sizeof(output)], 0, sizeof(output));
	*(volatile u64 *)&all->bytes[FAULT] = NOT_RUN;
	call_handler(skb);
	fault = *(volatile u64 *)&all->bytes[FAULT];
	result = *(volatile u64 *)&all->bytes[RESULT];
	__builtin_memcpy(output, &all->bytes[HEADER + sizeof(output)], sizeof(output));
	__sync_lock_test_and_set(&busy, 0);
	if (fault || !result) {
		__sync_fetch_and_add(fault ? &counts.faults : &counts.passed, 1);
		return NEXT;
	}
	packet = (void *)(long)skb->data;
	if ((void *)(packet + 1) > (void *)(long)skb->data_end)
		return NEXT;
	for (at = 0; at < 6; at++) {
		u8 kept = packet->to_mac[at];

		packet->to_mac[at] = packet->from_mac[at];
		packet->from_mac[at] = kept;
	}
	/* The header's sum stays what it was. */
	for (at = 0; at < 4; at++) {
		u8 kept = packet->to[at];

		packet->to[at] = packet->from[at];
		packet->from[at] = kept;
	}
	packet->to_port = packet->from_port;
	packet->from_port = __builtin_bswap16(port);
	/* None. */
	packet->sum = 0;
	__builtin_memcpy(packet->payload, output, sizeof(output));
	__sync_fetch_and_add(&counts.answered, 1);
	/* On lo the other end is this one; elsewhere it is behind the device. */
	return bpf_redirect(skb->ifindex, skb->ifindex == 1 ? REDIRECT_IN : 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
