// The scheduler of Fig. 4 without its memory: N register base blocks, the decision blocks in a
// recirculating shuffle-exchange (or a tree), control and steering. This is what Fig. 7 of the
// paper counts the area of.
//
// N: 4, 8, 16, 32 or 64 slots. MODE: 0 winner only, 1 partial block, 2 full sort, 3 winner tree.
// AHEAD, PIPE: see ss_slot, ss_order; the tree has no PIPE. Ids are 5 bits, 6 for 64 slots.
`default_nettype none

module ss_core #(
  parameter N = 4,
  parameter LOG_N = (N <= 4) ? 2 : (N <= 8) ? 3 : (N <= 16) ? 4 : (N <= 32) ? 5 : 6,
  parameter ID_W = (N <= 32) ? 5 : 6,
  parameter MODE = 0,
  parameter AHEAD = 0,
  parameter PIPE = 0,
  parameter CNT_W = 16,
  parameter OBSERVE = 0
) (
  input  wire              clk_i,
  input  wire              rst_i,
  input  wire              load_i,
  input  wire [ID_W-1:0]   load_id_i,
  input  wire [1:0]        load_word_i,
  input  wire [15:0]       load_data_i,
  input  wire              run_i,
  input  wire              go_i,
  input  wire [15:0]       time_i,
  input  wire [7:0]        advance_i,
  input  wire              min_first_i,
  input  wire              serve_all_i,
  // Frames
  input  wire              write_i,
  input  wire [ID_W-1:0]   write_id_i,
  input  wire [15:0]       write_arrival_i,
  output wire [N-1:0]      room_o,
  output wire [N-1:0]      vacant_o,
  output wire              rising_o,
  input  wire              heads_ok_i,
  input  wire              all_ok_i,
  // Decisions
  output wire              ready_o,
  output wire              found_o,
  output wire              decided_o,
  output wire              winner_valid_o,
  output wire [ID_W-1:0]   winner_id_o,
  output wire [15:0]       winner_deadline_o,
  output wire [N-1:0]      block_valid_o,
  output wire [N*ID_W-1:0] block_o,
  output wire [15:0]       now_o,
  // Events
  output wire              updated_o,
  output wire [N-1:0]      sent_o,
  output wire [N-1:0]      late_o,
  output wire [N-1:0]      missed_o,
  output wire [N-1:0]      dropped_o,
  output wire [N-1:0]      violation_o,
  // Counters
  input  wire [ID_W-1:0]   read_id_i,
  input  wire [2:0]        read_i,
  output wire [CNT_W-1:0]  read_o,
  // OBSERVE
  output wire [N*16-1:0]   seen_deadline_o,
  output wire [N*3-1:0]    seen_range_o
);
  localparam AW = ID_W + 49;
  // A decision of one clock looks at the time before its own update; in all others the two times
  // are equal when a decision looks.
  localparam SPLIT = (MODE == 3) && (AHEAD != 0);

  wire              first_pass, take, straight, open, sample, update, serving;
  wire [LOG_N-1:0]  reverse;
  wire [15:0]       now, update_now;
  wire [N-1:0]      due, rising;
  wire [N*AW-1:0]   attributes;
  wire [N*CNT_W-1:0] reads;

  ss_control #(.LOG_N(LOG_N), .MODE(MODE), .AHEAD(AHEAD), .PIPE(PIPE)) u_control (
    .clk_i(clk_i), .rst_i(rst_i), .run_i(run_i), .go_i(go_i), .time_i(time_i),
    .advance_i(advance_i), .due_i(|due), .heads_ok_i(heads_ok_i & ~(|rising)), .all_ok_i(all_ok_i),
    .first_pass_o(first_pass), .take_o(take), .straight_o(straight), .reverse_o(reverse),
    .now_o(now), .update_now_o(update_now), .open_o(open), .sample_o(sample), .update_o(update),
    .serving_o(serving), .ready_o(ready_o), .found_o(found_o), .decided_o(decided_o), .updated_o(updated_o)
  );
  assign now_o = now;
  assign rising_o = |rising;

  genvar i;
  generate
    for (i = 0; i < N; i = i + 1) begin : gen_slot
      localparam [ID_W-1:0] SLOT = i;
      ss_slot #(.ID_W(ID_W), .ID(i), .CNT_W(CNT_W), .AHEAD(AHEAD), .SPLIT(SPLIT),
        .OBSERVE(OBSERVE)) u_slot (
        .clk_i(clk_i), .rst_i(rst_i),
        .load_i(load_i & (load_id_i == SLOT)), .load_word_i(load_word_i), .load_data_i(load_data_i),
        .write_i(write_i & (write_id_i == SLOT)), .write_arrival_i(write_arrival_i),
        .room_o(room_o[i]), .vacant_o(vacant_o[i]), .rising_o(rising[i]),
        .now_i(now), .update_now_i(update_now), .open_i(open), .sample_i(sample),
        .update_i(update), .serving_i(serving), .serve_all_i(serve_all_i),
        .winner_valid_i(winner_valid_o), .winner_id_i(winner_id_o),
        .due_o(due[i]), .attribute_o(attributes[i*AW +: AW]),
        .sent_o(sent_o[i]), .late_o(late_o[i]), .missed_o(missed_o[i]), .dropped_o(dropped_o[i]),
        .violation_o(violation_o[i]),
        .reading_i(read_id_i == SLOT), .read_i(read_i), .read_o(reads[i*CNT_W +: CNT_W]),
        .seen_deadline_o(seen_deadline_o[i*16 +: 16]), .seen_range_o(seen_range_o[i*3 +: 3])
      );
    end

    if (MODE == 3) begin : gen_tree
      ss_tree #(.N(N), .ID_W(ID_W)) u_tree (
        .clk_i(clk_i), .slots_i(attributes), .take_i(take), .min_first_i(min_first_i),
        .winner_valid_o(winner_valid_o), .winner_id_o(winner_id_o),
        .winner_deadline_o(winner_deadline_o), .block_valid_o(block_valid_o), .block_o(block_o)
      );
      wire unused = ^{first_pass, straight, reverse};
    end else begin : gen_network
      ss_network #(.N(N), .LOG_N(LOG_N), .ID_W(ID_W), .MODE(MODE), .PIPE(PIPE)) u_network (
        .clk_i(clk_i), .slots_i(attributes), .first_pass_i(first_pass), .take_i(take),
        .min_first_i(min_first_i), .straight_i(straight), .reverse_i(reverse),
        .winner_valid_o(winner_valid_o), .winner_id_o(winner_id_o),
        .winner_deadline_o(winner_deadline_o), .block_valid_o(block_valid_o), .block_o(block_o)
      );
    end
  endgenerate

  // All slots but the one that is read give 0.
  reg [CNT_W-1:0] read_any;
  integer k;
  always @* begin
    read_any = {CNT_W{1'b0}};
    for (k = 0; k < N; k = k + 1) read_any = read_any | reads[k*CNT_W +: CNT_W];
  end
  assign read_o = read_any;
endmodule

`default_nettype wire
