/* A yardstick for `selvedge-lab bench dataplane`: DPDK's rte_sched, enqueue and dequeue on one core in
 * bursts of 32, one best-effort queue a pipe, 2 packets in each. Prints million packets a second,
 * the median of 101 samples. No hugepages, no devices, no root rights:
 *
 *   cc -O3 -march=native tools/peers/rte_sched.c $(pkg-config --cflags --libs libdpdk) && ./a.out 1024
 */
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { BURST = 32, RESIDENT = 2, SAMPLES = 101, BYTES = 64 };
/* Bytes a second, far more than can be sent, so that no rate holds anything back. */
static const uint64_t RATE = 100000000000 / 8;

static struct rte_sched_port *configure(uint32_t pipes)
{
	struct rte_sched_pipe_params pipe = { .tb_rate = RATE, .tb_size = 1000000, .tc_period = 40 };
	struct rte_sched_subport_profile_params profile = {
		.tb_rate = RATE, .tb_size = 1000000, .tc_period = 10,
	};
	for (int tc = 0; tc < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; tc++)
		profile.tc_rate[tc] = RATE;
	pipe.tc_rate[RTE_SCHED_TRAFFIC_CLASS_BE] = RATE;
	pipe.tc_ov_weight = 1;
	for (int queue = 0; queue < RTE_SCHED_BE_QUEUES_PER_PIPE; queue++)
		pipe.wrr_weights[queue] = 1;
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = pipes,
		.pipe_profiles = &pipe,
		.n_pipe_profiles = 1,
		.n_max_pipe_profiles = 1,
	};
	/* A class whose queue has size 0 does not exist, and has no rate; best effort is the last. */
	subport.qsize[RTE_SCHED_TRAFFIC_CLASS_BE] = 64;
	struct rte_sched_port_params params = {
		.name = "peer",
		.socket = 0,
		.rate = RATE,
		.mtu = 1522,
		.frame_overhead = RTE_SCHED_FRAME_OVERHEAD_DEFAULT,
		.n_subports_per_port = 1,
		.subport_profiles = &profile,
		.n_subport_profiles = 1,
		.n_max_subport_profiles = 1,
		.n_pipes_per_subport = pipes,
	};
	struct rte_sched_port *port = rte_sched_port_config(&params);
	if (!port || rte_sched_subport_config(port, 0, &subport, 0))
		return NULL;
	for (uint32_t n = 0; n < pipes; n++)
		if (rte_sched_pipe_config(port, 0, n, 0))
			return NULL;
	return port;
}

/* Takes bursts out and puts them in again; how many packets came out. */
static uint64_t run(struct rte_sched_port *port, uint64_t bursts)
{
	struct rte_mbuf *burst[BURST];
	uint64_t packets = 0;
	for (uint64_t n = 0; n < bursts; n++) {
		int taken = rte_sched_port_dequeue(port, burst, BURST);
		packets += taken;
		if (rte_sched_port_enqueue(port, burst, taken) != taken)
			rte_exit(1, "a packet was lost\n");
	}
	return packets;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	long pipes = argc == 2 ? atol(argv[1]) : 0;
	if (pipes < 1 || pipes & (pipes - 1)) {
		fprintf(stderr, "rte_sched PIPES (a power of 2)\n");
		return 2;
	}
	char *eal[] = { argv[0], "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
			"--iova-mode=va", "-m", "1000", "--log-level=error", NULL };
	if (rte_eal_init(9, eal) < 0)
		rte_exit(1, "DPDK does not start\n");
	uint32_t count = RESIDENT * pipes;
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create("frames", count + BURST, 0, 0, RTE_PKTMBUF_HEADROOM + BYTES, 0);
	struct rte_sched_port *port = configure(pipes);
	if (!pool || !port)
		rte_exit(1, "no memory for %ld pipes, or no such number of them\n", pipes);
	for (uint32_t n = 0; n < count; n++) {
		struct rte_mbuf *frame = rte_pktmbuf_alloc(pool);
		if (!frame || !rte_pktmbuf_append(frame, BYTES))
			rte_exit(1, "no memory for %u packets\n", count);
		rte_sched_port_pkt_write(port, frame, 0, n % pipes, RTE_SCHED_TRAFFIC_CLASS_BE, 0,
					 RTE_COLOR_GREEN);
		if (rte_sched_port_enqueue(port, &frame, 1) != 1)
			rte_exit(1, "a packet was lost\n");
	}
	/* A sample of 0.3 ms; doubling warms up. */
	uint64_t bursts = 16, from, hz = rte_get_tsc_hz();
	do {
		bursts *= 2;
		from = rte_rdtsc();
		run(port, bursts);
	} while (rte_rdtsc() - from < hz * 3 / 10000);
	double rates[SAMPLES];
	for (int n = 0; n < SAMPLES; n++) {
		from = rte_rdtsc();
		uint64_t packets = run(port, bursts);
		rates[n] = packets * 1e-6 * hz / (rte_rdtsc() - from);
	}
	qsort(rates, SAMPLES, sizeof *rates, ascending);
	printf("%.2f\n", rates[SAMPLES / 2]);
	return 0;
}
