// Memory interface: fetches arrival offsets from the streams' queues, and writes the ids of the
// streams that go.
//
// The queues lie in dual-ported memory. `queued_i` says of each whether it holds a frame. A fetch is
// a clock of `fetch_o` with the stream's id; the arrival comes in the clock after, on `arrival_i`,
// and the queue must have moved on by then. Streams without a head are served first, then the
// lowest id. Ids leave on `id_o`, one a clock, in the order of the block; a decision waits for the
// block before it to be out.
`default_nettype none

module ss_memory #(
  parameter N = 4,
  parameter ID_W = 5
) (
  input  wire              clk_i,
  input  wire              rst_i,
  // Queues
  input  wire [N-1:0]      queued_i,
  output wire              fetch_o,
  output wire [ID_W-1:0]   fetch_id_o,
  input  wire [15:0]       arrival_i,
  // Ids out
  output wire              id_valid_o,
  output wire [ID_W-1:0]   id_o,
  // Scheduler
  input  wire              enable_i,
  input  wire [N-1:0]      room_i,
  input  wire [N-1:0]      vacant_i,
  output wire              write_o,
  output wire [ID_W-1:0]   write_id_o,
  output wire [15:0]       write_arrival_o,
  output wire              heads_ok_o,
  output wire              all_ok_o,
  input  wire              decided_i,
  input  wire              whole_block_i,
  input  wire [N-1:0]      block_valid_i,
  input  wire [N*ID_W-1:0] block_i
);
  reg              fetched_q;
  reg  [ID_W-1:0]  fetched_id_q;
  reg  [N-1:0]     fetched_slot_q;

  // The slot that is being written has no room any more.
  wire [N-1:0] wanting = room_i & queued_i & ~fetched_slot_q;
  wire [N-1:0] urgent  = wanting & vacant_i;
  wire [N-1:0] pool    = (|urgent) ? urgent : wanting;
  wire [N-1:0] chosen  = pool & (~pool + {{N-1{1'b0}}, 1'b1});
  wire         fetch   = enable_i & (|wanting);

  reg [ID_W-1:0] chosen_id;
  integer k;
  always @* begin
    chosen_id = {ID_W{1'b0}};
    for (k = 0; k < N; k = k + 1) begin
      if (chosen[k]) chosen_id = chosen_id | k[ID_W-1:0];
    end
  end

  always @(posedge clk_i) begin
    if (rst_i) begin
      fetched_q      <= 1'b0;
      fetched_slot_q <= {N{1'b0}};
    end else begin
      fetched_q      <= fetch;
      fetched_slot_q <= fetch ? chosen : {N{1'b0}};
    end
    fetched_id_q <= chosen_id;
  end

  assign fetch_o         = fetch;
  assign fetch_id_o      = chosen_id;
  assign write_o         = fetched_q;
  assign write_id_o      = fetched_id_q;
  assign write_arrival_o = arrival_i;
  assign heads_ok_o      = ~(|urgent) & ~(|(fetched_slot_q & vacant_i));

  // Ids: the whole block, or the winner alone.
  reg  [N-1:0]      left_q;
  reg  [N*ID_W-1:0] ids_q;
  always @(posedge clk_i) begin
    if (rst_i) begin
      left_q <= {N{1'b0}};
    end else if (decided_i) begin
      left_q <= whole_block_i ? block_valid_i : {{N-1{1'b0}}, block_valid_i[0]};
    end else begin
      left_q <= {1'b0, left_q[N-1:1]};
    end
    if (decided_i) ids_q <= block_i;
    else           ids_q <= {{ID_W{1'b0}}, ids_q[N*ID_W-1:ID_W]};
  end
  // Whatever is eligible stands before all that is not, except in a partial block: so gaps pass.
  assign id_valid_o = left_q[0];
  assign id_o       = ids_q[ID_W-1:0];
  assign all_ok_o   = ~(|wanting) & ~fetched_q & ~(|left_q[N-1:1]);
endmodule

`default_nettype wire
