// ss_core between two shift registers, so that it can be placed in a package with few pins and every
// path still starts and ends in a register. For measuring clocks only.
`default_nettype none

module ss_shift_wrapper #(
  parameter N = 4,
  parameter MODE = 0,
  parameter AHEAD = 0,
  parameter PIPE = 0
) (
  input  wire clk_i,
  input  wire serial_i,
  input  wire shift_i,
  output wire serial_o
);
  localparam ID_W = (N <= 32) ? 5 : 6;
  localparam IN = 68 + 3 * ID_W;
  localparam OUT = 22 + ID_W + 8 * N + N * ID_W;

  reg  [IN-1:0]  in_q;
  reg  [OUT-1:0] out_q;
  wire [N-1:0]   room, vacant, block_valid, sent, late, missed, dropped, violation;
  wire [N*ID_W-1:0] block;
  wire [ID_W-1:0] winner_id;
  wire [15:0]    read;
  wire           rising, ready, found, decided, updated, winner_valid;

  always @(posedge clk_i) in_q <= {in_q[IN-2:0], serial_i};

  ss_core #(.N(N), .MODE(MODE), .AHEAD(AHEAD), .PIPE(PIPE)) u_core (
    .clk_i(clk_i), .rst_i(in_q[0]), .load_i(in_q[1]), .run_i(in_q[2]), .go_i(in_q[3]),
    .min_first_i(in_q[4]), .serve_all_i(in_q[5]), .write_i(in_q[6]), .heads_ok_i(in_q[7]),
    .all_ok_i(in_q[8]), .load_word_i(in_q[10:9]), .read_i(in_q[13:11]), .advance_i(in_q[21:14]),
    .load_data_i(in_q[37:22]), .time_i(in_q[52:37]), .write_arrival_i(in_q[67:52]),
    .load_id_i(in_q[68 +: ID_W]), .write_id_i(in_q[68+ID_W +: ID_W]),
    .read_id_i(in_q[68+2*ID_W +: ID_W]),
    .room_o(room), .vacant_o(vacant), .rising_o(rising), .ready_o(ready), .found_o(found),
    .decided_o(decided), .winner_valid_o(winner_valid), .winner_id_o(winner_id),
    .winner_deadline_o(), .block_valid_o(block_valid), .block_o(block), .now_o(),
    .updated_o(updated), .sent_o(sent), .late_o(late), .missed_o(missed), .dropped_o(dropped),
    .violation_o(violation), .read_o(read), .seen_deadline_o(), .seen_range_o()
  );

  wire [OUT-1:0] out = {rising, ready, found, decided, updated, winner_valid, winner_id, read, room,
                        vacant, block_valid, sent, late, missed, dropped, violation, block};
  always @(posedge clk_i) out_q <= shift_i ? {out_q[OUT-2:0], 1'b0} : out;
  assign serial_o = out_q[OUT-1];
endmodule

`default_nettype wire
